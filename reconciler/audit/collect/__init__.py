"""Databases and exports become an evidence folder."""
