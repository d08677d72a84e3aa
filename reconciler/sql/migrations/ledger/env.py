"""Alembic loads this for every command on the ledger."""

from reconciler.sql.migrations.environment import run

run("ledger")
