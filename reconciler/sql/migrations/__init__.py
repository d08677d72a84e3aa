"""The three alembic trees, each with its own version table. reconciler/sql/schema.py runs them."""
