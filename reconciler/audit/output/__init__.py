"""Output of an audit: its folder."""
