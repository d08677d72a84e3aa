"""The common part of each tree's env.py. Each migration is one transaction, and each tree has its own version table."""

from __future__ import annotations

from alembic import context

from reconciler.contract.tables import VERSION_TABLES


def run(tree: str) -> None:
    """Runs the migrations on a connection, or prints them for a dialect. schema.py puts either into the attributes."""
    attributes = context.config.attributes
    if context.is_offline_mode():
        context.configure(
            dialect_name=attributes["dialect"],
            dialect_opts={"paramstyle": "named"},
            literal_binds=True,
            version_table=VERSION_TABLES[tree],
            output_buffer=attributes["output"],
            transaction_per_migration=True,
            transactional_ddl=False if attributes["in_transaction"] else None,  # None: as the database supports it
        )
    else:
        context.configure(
            connection=attributes["connection"],
            version_table=VERSION_TABLES[tree],
            transaction_per_migration=True,  # a migration may need to leave its own transaction
        )
    with context.begin_transaction():
        context.run_migrations()
