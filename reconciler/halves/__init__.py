"""Reads the open and the given-up halves from the brokers' half topics. Reading leaves no trace at a broker."""
