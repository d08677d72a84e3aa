"""Who visitors are, and what they may do."""
