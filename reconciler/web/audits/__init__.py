"""Audits whose outputs are in a folder. A separate process verifies one audit at a time."""
