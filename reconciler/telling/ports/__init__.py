"""Ports: what telling asks of the ledger and of channels, and the values that they hand over."""
