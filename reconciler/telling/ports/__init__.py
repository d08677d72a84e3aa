"""Ports and values for what people read and do: listings, jobs, acts by hand, and notices."""
