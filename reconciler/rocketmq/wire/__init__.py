"""Frames, records and bodies as bytes: no socket, no clock."""
