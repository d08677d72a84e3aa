"""Migrations of the consumers' inbox."""
