"""Keys that nobody has announced: the reconciler hears of a committed message by its announcement only."""

from __future__ import annotations

import sqlalchemy as sa

from reconciler.bootstrap.connections import Connections
from reconciler.bootstrap.evidence_databases import outbox_databases
from reconciler.contract.tables import OutboxState
from reconciler.errors import ReconcilerError
from reconciler.sql.engines import database_now_ms, reading
from reconciler.sql.tables import outbox


def unannounced(connections: Connections, *, within_seconds: float) -> list[str]:
    """A line for each outbox with a row that has waited for its announcement for longer than a sweeper may take.

    An outbox that is away, or has no tables, is left to those who ask for that (availability.py, doctor).
    """
    settings = connections.settings
    limit_seconds = settings.sweep.sweep_after_seconds + within_seconds
    told = []
    for database in outbox_databases(settings):
        try:
            age_seconds = _oldest_seconds(connections, database.url, database.owner)
        except ReconcilerError:
            continue
        if age_seconds > limit_seconds:
            told.append(
                f"the {database.name} has had a key for {age_seconds:.0f} s that nobody announced: "
                "is `reconciler sweep` alive?"
            )
    return told


def _oldest_seconds(connections: Connections, url: str, producer_group: str) -> float:
    """Age of the oldest NEW row by the database's clock; 0 if there is none."""
    query = (
        sa.select(outbox.c.created_at_ms)
        .where(outbox.c.producer_group == producer_group, outbox.c.state == OutboxState.NEW.value)
        .order_by(outbox.c.created_at_ms)
        .limit(1)
    )
    with reading(connections.engine(url, read_only=True)) as connection:
        oldest_ms: int | None = connection.scalar(query)
        return 0.0 if oldest_ms is None else (database_now_ms(connection) - oldest_ms) / 1000
