"""A history is checked before it is believed."""
