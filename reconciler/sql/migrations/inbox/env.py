"""Alembic loads this for every command on the inbox."""

from reconciler.sql.migrations.environment import run

run("inbox")
