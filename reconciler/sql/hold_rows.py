"""Which topics are held: read by the service before a send, by a replay worker before each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from reconciler.contract.tables import HoldKind
from reconciler.sql.tables import hold


def active_holds(connection: sa.Connection, environment: str) -> Mapping[str, Sequence[HoldKind]]:
    """Topic -> kinds that hold it, sorted."""
    found: dict[str, list[HoldKind]] = {}
    query = (
        sa.select(hold.c.topic, hold.c.kind)
        .where(hold.c.environment == environment)
        .order_by(hold.c.topic, hold.c.kind.desc())
    )
    for row in connection.execute(query):
        found.setdefault(row.topic, []).append(HoldKind(row.kind))
    return {topic: sorted(kinds) for topic, kinds in found.items()}
