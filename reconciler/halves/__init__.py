"""Halves, read from the brokers' half topics without a trace: which are open, and which were given up."""
