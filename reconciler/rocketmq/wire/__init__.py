"""Frames, records and bodies as bytes, without sockets and clocks."""
