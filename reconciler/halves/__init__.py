"""Reads halves from the brokers' half topics without leaving a trace: which are open, and which were given up."""
