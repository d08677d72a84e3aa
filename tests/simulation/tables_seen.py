"""What one process sees of outboxes and inboxes: the evidence ports by SELECT only."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from reconciler.contract.row_values import ReadRow
from reconciler.contract.secret import Secret, revealed
from reconciler.contract.subscription import Subscription
from reconciler.errors import DatabaseAway
from reconciler.evidence.inbox import _NAMES, _answer, _combine, _place, _row
from reconciler.evidence.outbox import Damage, SqlOutboxReader, _OutboxAnswer
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow
from tests.simulation.inbox_database import InboxDatabase, Inboxes
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import PRODUCER_GROUP, TOPIC, OutboxDatabase
from tests.simulation.outbox_table import TableRow


def commit_evidence(names: Sequence[str]) -> CommitEvidence:
    """Of the producer group, as its settings have it: these outboxes, or the announcement alone."""
    group, topics = PRODUCER_GROUP, frozenset({TOPIC})
    return CommitEvidence(tuple(CommitSource(producer_group=group, topics=topics, url=u) for u in names or (None,)))


class OutboxSeen(SqlOutboxReader):
    """The product's reader over simulated databases, of one process."""

    def __init__(self, process: Process, databases: Sequence[OutboxDatabase]) -> None:
        self._process = process
        self._seen = {database.name: database for database in databases}
        self._sources = commit_evidence(list(self._seen)).sources

    def _ask(self, url: Secret | None, topic: str, keys: Sequence[str], now_ms: int | None) -> _OutboxAnswer:
        if url is None:
            return super()._ask(url, topic, keys, now_ms)
        database = self._seen[revealed(url)]  # replicas of this world have the clocks of their primaries

        def select() -> _OutboxAnswer:
            rows = {key: database.rows[key] for key in keys if key in database.rows and database.reading.has(key)}
            return _OutboxAnswer(
                rows={key: _damaged_or(row, database) for key, row in rows.items() if row.topic == topic},
                role=database.reading.role(),
            )

        try:
            said: _OutboxAnswer = database.link.call(self._process, select, DatabaseAway, what="SELECT outbox")
        except DatabaseAway as error:
            return _OutboxAnswer(problem=str(error))
        return said


class InboxSeen:
    """ports.InboxEvidence of one process."""

    def __init__(self, process: Process, inboxes: Inboxes) -> None:
        self._process = process
        self._inboxes = inboxes

    def is_configured(self, subscription: Subscription) -> bool:
        return subscription.group not in self._inboxes.unknown

    def _databases(self, subscription: Subscription) -> Sequence[InboxDatabase]:
        self._process.asked_inbox_at = self._process.kernel.now
        return self._inboxes[subscription.group].databases

    def _call(self, database: InboxDatabase, act: Callable[[], Any]) -> Any:
        return database.link.call(self._process, act, DatabaseAway, what="SELECT inbox")

    def look_up(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        answers = [self._ask(database, unique_keys) for database in self._databases(subscription)]
        if any(len({one[key].presence for one in answers}) > 1 for key in unique_keys):
            self._process.kernel.saw("inboxes of a group answered differently", subscription.group)
        return {key: _combine([one[key] for one in answers]) for key in unique_keys}

    def _ask(self, database: InboxDatabase, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        witness = f"inbox of {database.group}"
        try:
            role, rows = self._call(
                database, lambda: (database.reading.role(), {key: _read(database, key) for key in unique_keys})
            )
        except DatabaseAway as error:
            return {key: Lookup.unknown(witness, str(error)) for key in unique_keys}
        return {key: _answer(witness, row, role) for key, row in rows.items()}

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        def page(database: InboxDatabase) -> list[InboxRow]:
            places = sorted(
                (row["applied_at_ms"], key)
                for key, row in database.rows.items()
                if row["applied_at_ms"] >= since_ms and row["topic"] == subscription.topic and database.reading.has(key)
            )
            chosen = [place for place in places if after is None or place > after][:limit]
            return [_row(_read_row(database, key)) for _, key in chosen]

        pages = [self._call(one, partial(page, one)) for one in self._databases(subscription)]
        return list(islice(heapq.merge(*pages, key=_place), limit))

    def newest_ms(self, subscription: Subscription) -> int | None:
        def newest(database: InboxDatabase) -> int | None:
            return max((row["applied_at_ms"] for row in database.rows.values()), default=None)

        found = [self._call(one, partial(newest, one)) for one in self._databases(subscription)]
        return max((at_ms for at_ms in found if at_ms is not None), default=None)


def _damaged_or(row: TableRow, database: OutboxDatabase) -> OutboxRow | Damage:
    return Damage(damage) if (damage := database.damage_of(row.unique_key)) is not None else row.seen


def _read(database: InboxDatabase, key: str) -> ReadRow | None:
    return _read_row(database, key) if key in database.rows and database.reading.has(key) else None


def _read_row(database: InboxDatabase, key: str) -> ReadRow:
    row = database.rows[key]
    return ReadRow({name: row[name] for name in (*_NAMES, "incomplete")}, database.damage_of(key))
