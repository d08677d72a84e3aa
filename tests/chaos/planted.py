"""Rows that a run would have left, written by hand."""

from __future__ import annotations

import sqlalchemy as sa

from tests.chaos.job import GROUPS


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def commit(engine: sa.Engine, key: str, *, intent: str = "commit", effects: tuple[str, ...] = GROUPS) -> None:
    """A message of the dead group that was committed at 1 500 and took effect half a second later."""
    run(
        engine,
        f"INSERT INTO attempts VALUES ('{key}', '{intent}', 'digest', 0)",
        f"INSERT INTO orders VALUES ('{key}')",
        "INSERT INTO reconciler_outbox (unique_key, topic, producer_group, state, created_at_ms)"
        f" VALUES ('{key}', 'T', 'solo', 'ANNOUNCED', 1500)",
        *(f"INSERT INTO effects VALUES ('{group}', '{key}', 'digest', 2000)" for group in effects),
    )
