"""The three alembic trees, each with a version table of its own; run by reconciler/sql/schema.py."""
