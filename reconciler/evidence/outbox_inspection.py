"""Reads the backlog of one outbox database, and its rows of a business id, for commands.

The reconciler knows a committed message only by its announcement. So `status` asks each outbox for rows that were never
announced, and for announced rows without an effect and without a verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from reconciler.contract.facts import Fact
from reconciler.contract.row_values import ReadRow, RowReader
from reconciler.contract.tables import OUTBOX, OutboxState
from reconciler.errors import ReconcilerError
from reconciler.evidence.witness_role import not_primary
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.ports.evidence import InboxEvidence
from reconciler.policy.ports.ledger import Candidates
from reconciler.sql.database_time import database_now_ms, now_ms
from reconciler.sql.engines import reading
from reconciler.sql.folded_names import is_exactly
from reconciler.sql.identity import SIGN_OF_LIFE_ID
from reconciler.sql.key_probes import has_key
from reconciler.sql.tables import outbox, outbox_identity
from reconciler.sql.witness_database import WitnessDatabase, no_row_doubted
from reconciler.telling.account import OrphanRow, OutboxReading

#: Rows that are not announced, and further rows of a business id, are counted up to this number.
ROWS_COUNTED_MAX = 10_000
#: Number of the newest rows whose producer groups and topics are listed.
ROWS_LISTED_MAX = 1_000

_OLDEST = RowReader(OUTBOX, ("created_at_ms",))
_OTHERS = RowReader(OUTBOX, ("producer_group", "topic", "created_at_ms"))
_ANNOUNCED_NAMES = ("unique_key", "tag", "announced_at_ms")
_ANNOUNCED = RowReader(OUTBOX, _ANNOUNCED_NAMES)
_BUSINESS_NAMES = ("unique_key", "topic", "producer_group", "state", "created_at_ms")
_BUSINESS = RowReader(OUTBOX, _BUSINESS_NAMES)
#: Maximum number of pages of the oldest announced rows that are searched for a row without effect and verdict.
_ANNOUNCED_PAGES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessRows:
    """The rows of one business id in one outbox."""

    #: The rows that were read, the newest first.
    newest: Sequence[ReadRow]
    #: The number of rows that were not read, counted up to ROWS_COUNTED_MAX.
    older: int
    #: Why this database may not show all rows. None if it shows all rows.
    doubt: Fact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGroup:
    """Unannounced rows of a producer group that is not configured."""

    producer_group: str
    topic: str
    #: The number of the group's rows among the oldest ROWS_COUNTED_MAX unannounced rows of all groups.
    count: int
    #: The creation time of the oldest row.
    since_ms: int
    waited_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRows:
    """The rows of one producer group and topic among the newest rows."""

    producer_group: str
    topic: str
    count: int
    #: The creation time of the newest row.
    newest_ms: int


class OutboxInspector:
    """Reads one outbox database by SELECT. Has no state.

    Each method raises DatabaseAway, or ConfigurationError if tables are missing.
    """

    def __init__(self, engine: sa.Engine) -> None:
        """The caller disposes the engine."""
        self._engine = engine

    def oldest_unannounced(self, *, producer_group: str, topic: str) -> OutboxReading:
        """Returns the oldest NEW row of a group's topic, and the time of the last sweep, by one statement at one
        server.

        If the sign of life cannot be read (outbox not upgraded, or no right), returns only the row.
        """
        swept = sa.select(outbox_identity.c.swept_at_ms).where(outbox_identity.c.id == SIGN_OF_LIFE_ID)
        try:
            row = self._oldest_new(producer_group, topic, swept.scalar_subquery())
        except ReconcilerError:
            row = self._oldest_new(producer_group, topic, sa.null())
        read = _OLDEST.parse((row.created_at_ms,))
        return OutboxReading(
            producer_group=producer_group,
            now_ms=row.now_ms,
            swept_at_ms=row.swept_at_ms if type(row.swept_at_ms) is int else None,
            oldest_key=None if row.unique_key is None else str(row.unique_key),
            oldest_ms=read.values["created_at_ms"] if read.damage is None else None,
        )

    def _oldest_new(self, producer_group: str, topic: str, swept: sa.ColumnElement[Any]) -> sa.Row[Any]:
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
        now = sa.select(now_ms(self._engine.dialect.name).label("now_ms"), swept.label("swept_at_ms")).subquery("asked")
        query = sa.select(now, oldest).select_from(now.outerjoin(oldest, sa.true()))
        with reading(self._engine) as connection:
            return connection.execute(query).one()

    def of_others(self, producer_groups: Collection[str]) -> Sequence[OtherGroup]:
        """Counts the NEW rows of all producer groups except `producer_groups`. The longest wait comes first. A row
        dated in the future counts as waiting for as long as it lies ahead."""
        oldest_rows = (
            sa.select(outbox.c.producer_group, outbox.c.topic, outbox.c.created_at_ms)
            .where(outbox.c.state == OutboxState.NEW.value)
            .order_by(outbox.c.created_at_ms)
            .limit(ROWS_COUNTED_MAX)
            .subquery()
        )
        names, oldest = (oldest_rows.c.producer_group, oldest_rows.c.topic), sa.func.min(oldest_rows.c.created_at_ms)
        others = (
            sa.select(*names, oldest, sa.func.count())
            .where(oldest_rows.c.producer_group.not_in(sorted(producer_groups)))
            .group_by(*names)
        )
        with reading(self._engine) as connection:
            rows = connection.execute(others).all()
            asked_ms = database_now_ms(connection) if rows else 0
        found = []
        for *fields, count in rows:
            read = _OTHERS.parse(fields)
            if read.damage is None:
                waited_seconds = abs(asked_ms - read.values["created_at_ms"]) / 1000
                group, topic, since_ms = (read.values[name] for name in ("producer_group", "topic", "created_at_ms"))
                found.append(
                    OtherGroup(
                        producer_group=group, topic=topic, count=count, since_ms=since_ms, waited_seconds=waited_seconds
                    )
                )
        return sorted(found, key=lambda one: -one.waited_seconds)

    def newest_groups(self) -> Sequence[NewestRows]:
        """Returns the producer groups and topics of the newest ROWS_LISTED_MAX rows, in any state, the most rows
        first. Unreadable rows are left out."""
        newest = (
            sa.select(outbox.c.producer_group, outbox.c.topic, outbox.c.created_at_ms)
            .order_by(outbox.c.created_at_ms.desc())
            .limit(ROWS_LISTED_MAX)
            .subquery()
        )
        names, at_ms = (newest.c.producer_group, newest.c.topic), sa.func.max(newest.c.created_at_ms)
        with reading(self._engine) as connection:
            rows = connection.execute(sa.select(*names, at_ms, sa.func.count()).group_by(*names)).all()
        read = [(_OTHERS.parse(fields), count) for *fields, count in rows]
        found = [
            NewestRows(
                producer_group=one.values["producer_group"],
                topic=one.values["topic"],
                count=count,
                newest_ms=one.values["created_at_ms"],
            )
            for one, count in read
            if one.damage is None
        ]
        return sorted(found, key=lambda one: (-one.count, one.producer_group, one.topic))

    def oldest_unheard(
        self,
        *,
        producer_group: str,
        plan: SubscriptionPlan,
        inbox: InboxEvidence,
        candidates: Candidates,
        until_ms: int,
    ) -> OrphanRow | None:
        """Returns the oldest announced row that is missing from the inbox and from the ledger:
        - It was announced up to `until_ms`, by the outbox's clock.
        - The consumer group takes its tag.
        - It provably has no effect in the inbox.
        - It has no verdict in the ledger.

        None if the pages that were read have no such row. Rows without a valid unique key are left out.
        """
        at = outbox.c.announced_at_ms
        query = (
            sa.select(*(outbox.c[name] for name in _ANNOUNCED_NAMES))
            .where(
                outbox.c.state == OutboxState.ANNOUNCED.value,
                outbox.c.producer_group == producer_group,
                outbox.c.topic == plan.subscription.topic,
                at <= until_ms,
                has_key(outbox.c.unique_key, self._engine.dialect.name),
            )
            .order_by(at, outbox.c.unique_key)
        )
        for page in range(_ANNOUNCED_PAGES_MAX):
            rows = self._announced(query.limit(PAGE_KEYS).offset(page * PAGE_KEYS))
            waiting = {
                row.values["unique_key"]: row.values["announced_at_ms"]
                for row in rows
                if row.damage is None and plan.accepts(row.values["tag"])
            }
            effects = inbox.look_up(plan.subscription, list(waiting)) if waiting else {}
            missed = [key for key in waiting if effects[key].is_absent]
            known = candidates.of_keys(plan.subscription, missed)
            for key in missed:
                if key not in known:
                    return OrphanRow(unique_key=key, producer_group=producer_group, announced_ms=waiting[key])
            if len(rows) < PAGE_KEYS:
                break
        return None

    def _announced(self, query: sa.Select[Any]) -> list[ReadRow]:
        with reading(self._engine) as connection:
            return [_ANNOUNCED.parse(row) for row in connection.execute(query)]

    def known(self, unique_keys: Sequence[str]) -> set[str]:
        """Returns the keys that have a row, in any state. `unique_keys`: at most PAGE_KEYS keys."""
        query = sa.select(outbox.c.unique_key).where(outbox.c.unique_key.in_(unique_keys))
        with reading(self._engine) as connection:
            return set(connection.scalars(query)) & set(unique_keys)

    def business_ids(self, unique_keys: Sequence[str]) -> dict[str, str]:
        """Returns key -> business id, for rows that have one. `unique_keys`: at most PAGE_KEYS keys."""
        query = sa.select(outbox.c.unique_key, outbox.c.business_id).where(outbox.c.unique_key.in_(unique_keys))
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        wanted = set(unique_keys)
        return {key: name for key, name in rows if key in wanted and isinstance(name, str) and name}

    def newest_of_business(self, business_id: str, *, limit: int) -> BusinessRows:
        """Returns the newest rows with exactly this business id: case and accents count."""
        # The first condition finds rows by the index, in any collation. The second condition selects the exact text.
        column = outbox.c.business_id
        conditions = (column == business_id, is_exactly(column, business_id, self._engine.dialect.name))
        newest = sa.select(*(outbox.c[name] for name in _BUSINESS_NAMES)).where(*conditions)
        newest = newest.order_by(outbox.c.created_at_ms.desc()).limit(limit)
        counted = sa.select(sa.literal(1)).where(*conditions).limit(limit + ROWS_COUNTED_MAX + 1).subquery()

        def read() -> BusinessRows:
            with reading(self._engine) as connection:
                rows = [_BUSINESS.parse(row) for row in connection.execute(newest)]
                is_full = len(rows) == limit
                total = connection.scalar(sa.select(sa.func.count()).select_from(counted)) if is_full else len(rows)
            return BusinessRows(newest=rows, older=(total or 0) - len(rows))

        found = read()
        if found.newest:
            return found
        role = WitnessDatabase(self._engine, outbox).role()
        if role.is_primary is False:
            return replace(found, doubt=no_row_doubted(not_primary(role.kind)))
        return read() if role.is_node else found
