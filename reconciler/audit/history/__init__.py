"""Checks of a history before it is believed."""
