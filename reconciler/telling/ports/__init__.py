"""Ports and values: what is read for people, what they asked for and did by hand, and how notices reach them."""
