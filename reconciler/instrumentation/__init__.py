"""Sinks of events, one file each."""
