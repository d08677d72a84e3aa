"""Alembic loads this for every command on the outbox."""

from reconciler.sql.migrations.environment import run

run("outbox")
