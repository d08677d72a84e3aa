"""The simulated database of a producing service: orders and outbox.

Each statement is a port call, so a process may die before and after every one. Rows of an open transaction are locks:
whoever inserts the same key waits for its end. What a transaction wrote becomes true at COMMIT, and only `orders` and
`effects`, which the product never sees, tell the checkers what is true.
"""

from __future__ import annotations

import json
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from checkback_producers.errors import KeyTaken, RolledBackAlready
from checkback_producers.ports import CheckedHalf, OutboxEntry, OutboxPage
from reconciler.contract.row_rules import aged_by_ms
from reconciler.contract.tables import OutboxState
from reconciler.errors import DatabaseAway, MalformedInput
from reconciler.policy.sweeping import OutboxFact, SettledTags
from tests.simulation.kernel import Kernel, Link, Process, ServerClock
from tests.simulation.outbox_table import TableRow
from tests.simulation.replicas import Reading

TOPIC = "ORDERS"
PRODUCER_GROUP = "orders"
LOCK_SECONDS = 2.0
POLL_SECONDS = 0.05


class DriverError(Exception):
    """What a database driver raises; the product does not know it."""


class Deadlock(DriverError):
    """The transaction was rolled back by the database."""


class OutboxDatabase:
    """One producing service's database."""

    def __init__(self, kernel: Kernel, name: str, *, link: Link, skew_ms: int) -> None:
        self.kernel = kernel
        self.name = name
        self.link = link
        self.clock = ServerClock(kernel, skew_ms)
        self.rows: dict[str, TableRow] = {}
        #: Key -> time of the commit of the business that belongs to it: the truth about commits.
        self.orders: dict[str, float] = {}
        #: Key -> when its row was written, in a transaction that may have committed later.
        self.written: dict[str, float] = {}
        self.open_rows: dict[str, LocalTransaction] = {}
        #: Key -> how old its row was when it was deleted for its age.
        self.deleted: dict[str, float] = {}
        #: Key -> when its row was settled first.
        self.settled: dict[str, float] = {}
        self.reading = Reading(kernel, "outbox")
        #: Keys of halves that name no outbox, as clients for other languages may send them.
        self.nameless: set[str] = set()
        #: Keys of rows that nobody can read.
        self.damaged: set[str] = set()
        #: Tags that rows were settled by.
        self.settled_tags: dict[tuple[str, str], SettledTags] = {}
        self.commit_reply_lost = 0.0
        #: Share of waits for a statement in which the block is cancelled.
        self.cancelled = 0.0
        self.deadlocks = 0.0
        #: Share of rows without a digest, as clients write them that cannot list a message's properties.
        self.without_digest = 0.0

    def damage_of(self, key: str) -> str | None:
        """What is wrong with a row; None: it is sound."""
        if key not in self.damaged:
            return None
        self.kernel.saw("outbox row unreadable", key[-4:])
        return "reconciler_outbox.state is 'DONE'"


class LocalTransaction:
    """A connection in a transaction: what `record` gets, and what it returns. Confined to its process."""

    def __init__(self, database: OutboxDatabase, process: Process) -> None:
        self._database = database
        self._process = process
        self._entry: OutboxEntry | None = None
        self._created_at_ms = 0
        self._written = 0.0
        self._orders: list[str] = []
        self._is_open = True
        process.on_death.append(self._forget)

    def is_open(self) -> bool:
        """As the driver knows it."""
        return self._is_open

    def statement(self, what: str) -> None:
        """A round trip that may fail."""
        database = self._database

        def run() -> None:
            if not self._is_open:
                raise DriverError("the transaction has ended")
            if database.deadlocks and database.kernel.dice.random() < database.deadlocks:
                database.kernel.saw("outbox deadlock", what)
                self.undo()
                raise Deadlock(what)

        database.link.call(self._process, run, DriverError, what=what)
        self._may_be_cancelled("before")

    def _may_be_cancelled(self, when: str) -> None:
        """A statement was carried out, and whoever waits for it is cancelled."""
        database = self._database
        if database.cancelled and database.kernel.dice.random() < database.cancelled:
            database.kernel.saw(f"block cancelled {when} its commit")
            raise CancelledError

    def insert(self, entry: OutboxEntry) -> None:
        """The outbox row; waits for another transaction that holds the key."""
        self.statement("INSERT outbox")
        database, key = self._database, entry.unique_key
        while database.open_rows.get(key, self) is not self:
            self._process.sleep(POLL_SECONDS)
        row = database.rows.get(key)
        if row is not None and row.state is OutboxState.ROLLED_BACK:
            database.kernel.saw("local transaction met a tombstone", key[-4:])
            raise RolledBackAlready(key)
        if row is not None:
            raise KeyTaken(key)
        database.open_rows[key] = self
        self._entry, self._created_at_ms = entry, database.clock.now_ms()
        self._written = database.kernel.now

    def order(self, unique_key: str) -> None:
        """The business' own row."""
        self.statement("INSERT order")
        self._orders.append(unique_key)

    def commit(self) -> None:
        """COMMIT; a lost answer raises although it was executed."""
        database = self._database

        def run() -> None:
            if not self._is_open:
                raise DriverError("the transaction has ended")
            self._apply()

        database.link.call(self._process, run, DriverError, what="COMMIT")
        if database.commit_reply_lost and database.kernel.dice.random() < database.commit_reply_lost:
            database.kernel.saw("outbox COMMIT answered to nobody")
            raise DriverError("the connection broke at COMMIT")
        self._may_be_cancelled("behind")

    def commit_quietly(self) -> None:
        """A commit after the block, as an outer transaction does it; a failure is not reported."""
        with suppress(DriverError, CancelledError):
            try:
                self.commit()
            finally:
                self.undo()
            self._database.kernel.saw("commit after the end of the block")

    def _apply(self) -> None:
        database = self._database
        if self._entry is not None:
            entry = self._entry
            row = _outbox_row(entry, self._created_at_ms)
            if database.without_digest and database.kernel.dice.random() < database.without_digest:
                database.kernel.saw("outbox row without a digest", entry.unique_key[-4:])
                row = replace(row, content_digest=None)
            database.rows[entry.unique_key] = row
            database.written[entry.unique_key] = self._written
            database.reading.committed([entry.unique_key])
        for unique_key in self._orders:
            database.orders[unique_key] = database.kernel.now
        self.undo()

    def undo(self) -> None:
        """Rolled back, or ended."""
        self._is_open = False
        if self._entry is not None:
            self._database.open_rows.pop(self._entry.unique_key, None)

    def _forget(self) -> None:
        """The client died: the server notices when the connection breaks, after a while."""
        if self._is_open:
            self._database.kernel.after(5 * self._database.kernel.dice.random() ** 3, self.undo)


class SimulatedOutbox:
    """The port Outbox of one process."""

    def __init__(self, database: OutboxDatabase, process: Process) -> None:
        self._database = database
        self._process = process

    def identity(self) -> str:
        """Its name."""
        return self._database.name

    def close(self) -> None:
        """Nothing to close."""

    def _call(self, act: Any, what: str) -> Any:
        return self._database.link.call(self._process, act, DatabaseAway, what=what)

    def record(self, connection: object, entry: OutboxEntry) -> LocalTransaction:
        """In the caller's transaction."""
        assert isinstance(connection, LocalTransaction)
        try:
            connection.insert(entry)
        except DriverError as error:
            raise DatabaseAway(str(error)) from error
        return connection

    def find(self, unique_key: str) -> OutboxFact | None:
        """The committed row."""
        row: TableRow | None = self._call(lambda: self._database.rows.get(unique_key), "SELECT outbox")
        if row is not None and (damage := self._database.damage_of(unique_key)) is not None:
            raise MalformedInput(f"outbox row of {unique_key}: {damage}")
        return None if row is None else _fact(row)

    def insert_tombstone(self, half: CheckedHalf) -> bool:
        """Waits two seconds for a lock."""
        database, key = self._database, half.unique_key
        self._process.enter()
        waited = 0.0
        while key in database.open_rows:
            if waited >= LOCK_SECONDS:
                database.kernel.saw("tombstone met a lock", key[-4:])
                raise DatabaseAway(f"lock time-out on {key}")
            self._process.sleep(POLL_SECONDS)
            waited += POLL_SECONDS

        def insert() -> bool:
            if key in database.open_rows or key in database.rows:
                return False
            database.rows[key] = _tombstone(half, database.clock.now_ms())
            database.written[key] = database.kernel.now
            database.reading.committed([key])
            database.kernel.saw("tombstone written", key[-4:])
            return True

        return bool(self._call(insert, "INSERT tombstone"))

    def mark_announced(self, unique_keys: Sequence[str]) -> int:
        """NEW becomes ANNOUNCED."""
        return self._mark(unique_keys, (OutboxState.NEW, OutboxState.ANNOUNCED), "announced_at_ms")

    def mark_settled(self, unique_keys: Sequence[str]) -> int:
        """ANNOUNCED becomes SETTLED."""
        return self._mark(unique_keys, (OutboxState.ANNOUNCED,), "settled_at_ms")

    def _mark(self, unique_keys: Sequence[str], before: tuple[OutboxState, ...], column: str) -> int:
        if not unique_keys:
            return 0
        state = OutboxState.ANNOUNCED if column == "announced_at_ms" else OutboxState.SETTLED
        database = self._database

        def update() -> int:
            touched = 0
            for key in unique_keys:
                row = database.rows.get(key)
                if row is not None and row.state in before:
                    changes: dict[str, Any] = {"state": state, column: database.clock.now_ms()}
                    database.rows[key] = replace(row, **changes)
                    if state is OutboxState.SETTLED:
                        database.settled.setdefault(key, database.kernel.now)
                    touched += 1
            return touched

        return int(self._call(update, f"UPDATE {state}"))

    def unannounced(
        self,
        producer_group: str,
        *,
        older_than_seconds: float,
        limit: int,
        after: OutboxFact | None = None,
        with_key: bool = False,
    ) -> OutboxPage:
        """NEW rows, oldest first; each has a unique key."""
        return self._page(OutboxState.NEW, "created_at_ms", older_than_seconds, limit, after)

    def with_due_rows(self, producer_groups: Sequence[str], *, older_than_seconds: float) -> frozenset[str]:
        """All or none: every row is the one group's."""
        database = self._database

        def is_due() -> bool:
            until_ms = database.clock.now_ms() - int(older_than_seconds * 1000)
            rows = database.rows.values()
            return any(row.state is OutboxState.NEW and row.created_at_ms <= until_ms for row in rows)

        return frozenset(producer_groups if self._call(is_due, "SELECT due rows") else ())

    def announced(
        self, producer_group: str, *, older_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """ANNOUNCED rows by their last announcement."""
        return self._page(OutboxState.ANNOUNCED, "announced_at_ms", older_than_seconds, limit, after)

    def _page(
        self, state: OutboxState | None, column: str, seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Rows of the state that are older; None: rows of any that are younger."""
        database = self._database

        def select() -> OutboxPage:
            now_ms = database.clock.now_ms()
            aged_ms = aged_by_ms(now_ms, self._process.clock.now_ms()) if state is None else now_ms
            until = aged_ms - int(seconds * 1000)
            found = [
                (getattr(row, column), key)
                for key, row in database.rows.items()
                if (getattr(row, column) > until if state is None else row.state is state)
            ]
            found.sort()
            if after is not None:
                found = [place for place in found if place > (getattr(after, column), after.unique_key)]
            if state is not None:
                # Rows of the future were written before the clock was set back: they may be of any age.
                found = [one for one in found if one[0] <= until] + [one for one in found if one[0] > now_ms]
            if len(found) > limit:
                database.kernel.saw("outbox page full")
            facts = tuple(_fact(database.rows[key], database.damage_of(key)) for _, key in found[:limit])
            return OutboxPage(facts=facts, now_ms=now_ms)

        page: OutboxPage = self._call(select, f"SELECT {state or 'written'}")
        return page

    def settled_tags(self, producer_group: str) -> Mapping[tuple[str, str], SettledTags]:
        """One producer group has this database."""
        found: dict[tuple[str, str], SettledTags] = self._call(self._database.settled_tags.copy, "SELECT filter")
        return found

    def write_settled_tags(
        self, producer_group: str, subscription: tuple[str, str], tags: frozenset[str] | None, *, instead_of: int | None
    ) -> bool:
        """Compare and set by the version."""

        def write() -> bool:
            stored = self._database.settled_tags.get(subscription)
            if (None if stored is None else stored.version) != instead_of:
                return False
            self._database.settled_tags[subscription] = SettledTags(tags=tags, version=(instead_of or 0) + 1)
            return True

        return bool(self._call(write, "UPDATE filter"))

    def written(
        self, producer_group: str, *, younger_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Rows of any state by the time they were written."""
        return self._page(None, "created_at_ms", younger_than_seconds, limit, after)

    def reopen(self, unique_keys: Sequence[str]) -> int:
        """ANNOUNCED and SETTLED become NEW."""
        database = self._database

        def update() -> int:
            touched = 0
            for key in unique_keys:
                row = database.rows.get(key)
                if row is not None and row.state in (OutboxState.ANNOUNCED, OutboxState.SETTLED):
                    database.kernel.saw("row opened again by corrected tags", f"{key[-4:]} was {row.state}")
                    database.rows[key] = replace(row, state=OutboxState.NEW, settled_at_ms=None)
                    touched += 1
            return touched

        return int(self._call(update, "UPDATE reopened")) if unique_keys else 0

    def mark_swept(self) -> None:
        """The sign of life."""
        database = self._database
        self._call(lambda: database.reading.swept(database.clock.now_ms()), "UPDATE sign of life")

    def delete_finished(self, producer_group: str, *, older_than_seconds: float, limit: int) -> int:
        """What is too young is found without a port call (an economy of the simulator): histories are shorter than any
        retention."""
        database = self._database
        until_ms = aged_by_ms(database.clock.now_ms(), self._process.clock.now_ms()) - int(older_than_seconds * 1000)

        def aged() -> list[str]:
            found = [
                key
                for key, row in database.rows.items()
                if row.created_at_ms <= until_ms
                and (row.state is OutboxState.ROLLED_BACK or (row.settled_at_ms or 1 << 60) <= until_ms)
            ]
            return found[:limit]

        def delete() -> int:
            keys = aged()
            for key in keys:
                del database.rows[key]
                database.deleted[key] = database.kernel.now - database.written[key]
            return len(keys)

        return int(self._call(delete, "DELETE finished")) if aged() else 0


class NamelessOutbox(SimulatedOutbox):
    """That of a client which writes no mark into its halves."""

    def identity(self) -> Any:
        """None."""
        return None


def _outbox_row(entry: OutboxEntry, created_at_ms: int) -> TableRow:
    return TableRow(
        unique_key=entry.unique_key,
        topic=entry.topic,
        producer_group=entry.producer_group,
        tag=entry.tag,
        message_keys=entry.message_keys,
        business_id=entry.business_id,
        half_broker=entry.half_broker,
        half_commit_log_offset=entry.half_commit_log_offset,
        half_queue_offset=entry.half_queue_offset,
        properties=None if entry.properties is None else json.loads(entry.properties),
        body=entry.body,
        content_digest=entry.content_digest,
        state=OutboxState.NEW,
        created_at_ms=created_at_ms,
        announced_at_ms=None,
        settled_at_ms=None,
    )


def _tombstone(half: CheckedHalf, now_ms: int) -> TableRow:
    return TableRow(
        unique_key=half.unique_key, topic=half.topic, producer_group=half.producer_group, tag=half.tag,
        message_keys=None, business_id=None, half_broker=None, half_commit_log_offset=None, half_queue_offset=None,
        properties=None, body=None, content_digest=None, state=OutboxState.ROLLED_BACK, created_at_ms=now_ms,
        announced_at_ms=None, settled_at_ms=None,
    )  # fmt: skip


def _fact(row: TableRow, damage: str | None = None) -> OutboxFact:
    return OutboxFact(
        unique_key=row.unique_key,
        topic=row.topic,
        tag=row.tag,
        state=row.state,
        created_at_ms=row.created_at_ms,
        announced_at_ms=row.announced_at_ms,
        content_digest=row.content_digest,
        damage=damage,
    )
