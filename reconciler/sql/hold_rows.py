"""Reads which topics are held: the reconciler before each send, a replay worker before each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import HOLD, HoldKind
from reconciler.sql.tables import hold

#: A hold of an unknown kind counts as HOLD, because a later release may have more kinds.
_ROWS = RowReader(HOLD, ("topic", "kind"), otherwise={"kind": HoldKind.HOLD})


def active_holds(connection: sa.Connection, environment: str) -> Mapping[str, Sequence[HoldKind]]:
    """Returns topic -> the sorted kinds of its holds."""
    found: dict[str, list[HoldKind]] = {}
    query = (
        sa.select(hold.c.topic, hold.c.kind)
        .where(hold.c.environment == environment)
        .order_by(hold.c.topic, hold.c.kind.desc())
    )
    for row in connection.execute(query):
        values = _ROWS.parse(row).values
        found.setdefault(values["topic"], []).append(HoldKind(values["kind"]))
    return {topic: sorted(kinds) for topic, kinds in found.items()}
