"""Ports and values for people: listings, jobs, acts by hand, and notices."""
