"""What nobody has announced of an outbox, and what nobody has heard of although it was announced: the reconciler hears
of a committed message by its announcement only."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import OUTBOX, OutboxState
from reconciler.errors import ReconcilerError
from reconciler.policy.account import OrphanRow, OutboxReading
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.ports import Candidates, InboxEvidence
from reconciler.sql.engines import now_ms, reading
from reconciler.sql.identity import SIGN_OF_LIFE_ID
from reconciler.sql.tables import outbox, outbox_identity
from reconciler.wiring.connections import Connections

_OLDEST = RowReader(OUTBOX, ("created_at_ms",))
_ANNOUNCED_NAMES = ("unique_key", "tag", "announced_at_ms")
_ANNOUNCED = RowReader(OUTBOX, _ANNOUNCED_NAMES)
#: Of rows that wait for an effect: so many of the oldest ones are looked at.
_ANNOUNCED_PAGES_MAX = 4


def look_into_outbox(connections: Connections, url: str, *, producer_group: str, topic: str) -> OutboxReading:
    """The oldest NEW row of a group's topic beside the last sweep, both from one statement of one server.

    An outbox without the sign of life (it is not upgraded, the login may not read it) tells its rows alone. Raises
    DatabaseAway, or ConfigurationError where the tables are missing.
    """
    engine = connections.engine(url, read_only=True)
    swept = sa.select(outbox_identity.c.swept_at_ms).where(outbox_identity.c.id == SIGN_OF_LIFE_ID)
    try:
        row = _read(engine, producer_group, topic, swept.scalar_subquery())
    except ReconcilerError:
        row = _read(engine, producer_group, topic, sa.null())
    read = _OLDEST.read((row.created_at_ms,))
    return OutboxReading(
        producer_group=producer_group,
        now_ms=row.now_ms,
        swept_at_ms=row.swept_at_ms if type(row.swept_at_ms) is int else None,
        oldest_key=None if row.unique_key is None else str(row.unique_key),
        oldest_ms=read.values["created_at_ms"] if read.damage is None else None,
    )


def _read(engine: sa.Engine, producer_group: str, topic: str, swept: sa.ColumnElement[Any]) -> sa.Row[Any]:
    oldest = (
        sa.select(outbox.c.unique_key, outbox.c.created_at_ms)
        .where(
            outbox.c.producer_group == producer_group,
            outbox.c.topic == topic,
            outbox.c.state == OutboxState.NEW.value,
        )
        .order_by(outbox.c.created_at_ms, outbox.c.unique_key)
        .limit(1)
        .subquery("oldest")
    )
    now = sa.select(now_ms(engine.dialect.name).label("now_ms"), swept.label("swept_at_ms")).subquery("asked")
    query = sa.select(now, oldest).select_from(now.outerjoin(oldest, sa.true()))
    with reading(engine) as connection:
        return connection.execute(query).one()


def oldest_unheard(
    connections: Connections,
    url: str,
    *,
    producer_group: str,
    plan: SubscriptionPlan,
    inbox: InboxEvidence,
    candidates: Candidates,
    until_ms: int,
) -> OrphanRow | None:
    """The oldest row, announced until then by the outbox' clock, which the group takes, whose inbox proves that it has
    no effect, and of which the ledger has no verdict. Raises DatabaseAway."""
    at = outbox.c.announced_at_ms
    query = (
        sa.select(*(outbox.c[name] for name in _ANNOUNCED_NAMES))
        .where(
            outbox.c.state == OutboxState.ANNOUNCED.value,
            outbox.c.producer_group == producer_group,
            outbox.c.topic == plan.subscription.topic,
            at <= until_ms,
        )
        .order_by(at, outbox.c.unique_key)
    )
    for page in range(_ANNOUNCED_PAGES_MAX):
        with reading(connections.engine(url, read_only=True)) as connection:
            rows = [_ANNOUNCED.read(row) for row in connection.execute(query.limit(PAGE_KEYS).offset(page * PAGE_KEYS))]
        waiting = {
            row.values["unique_key"]: row.values["announced_at_ms"]
            for row in rows
            if row.damage is None and plan.accepts(row.values["tag"])
        }
        effects = inbox.read(plan.subscription, list(waiting)) if waiting else {}
        missed = [key for key in waiting if effects[key].is_absent]
        known = candidates.read(plan.subscription, missed)
        for key in missed:
            if key not in known:
                return OrphanRow(unique_key=key, producer_group=producer_group, announced_ms=waiting[key])
        if len(rows) < PAGE_KEYS:
            break
    return None
