"""Output of an audit: the folder OUT and the tables."""
