"""The simulated database of a consuming service: inbox and effects.

Each statement is a port call, so a process may die before and after every one. Rows of an open transaction are locks:
whoever inserts the same key waits for its end. What a transaction wrote becomes true at COMMIT, and only `orders` and
`effects`, which the product never sees, tell the checkers what is true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from tests.simulation.kernel import Kernel, Link, Process, ServerClock
from tests.simulation.outbox_database import LOCK_SECONDS, POLL_SECONDS, Deadlock, DriverError
from tests.simulation.replicas import Reading


@dataclass(slots=True)
class Effect:
    """One row that a group's handler wrote."""

    group: str
    unique_key: str
    at: float
    topic: str
    tag: str | None
    keys: str | None
    properties: dict[str, str]
    body: bytes
    source: str
    #: The handler has committed before it did the rest.
    is_half: bool = False
    #: When a person did the rest of a half; 0: nobody did.
    accepted_at: float = 0.0

    @property
    def whole_at(self) -> float:
        """When all of it was there."""
        return max(self.at, self.accepted_at)


class InboxDatabase:
    """One consuming service's database."""

    def __init__(self, kernel: Kernel, group: str, *, link: Link, skew_ms: int) -> None:
        self.kernel = kernel
        self.group = group
        self.link = link
        #: The column `incomplete` is there.
        self.has_column = False
        #: Key -> half of an effect: its handler has committed before it did the rest.
        self.halves: dict[str, Effect] = {}
        self.clock = ServerClock(kernel, skew_ms)
        self.rows: dict[str, Mapping[str, Any]] = {}
        self.effects: list[Effect] = []
        self.open_rows: dict[str, InboxConnection] = {}
        #: Keys whose row is another message's.
        self.theirs: set[str] = set()
        self.reading = Reading(kernel, "inbox")
        #: Keys of rows that nobody can read.
        self.damaged: set[str] = set()
        self.commit_reply_lost = 0.0
        self.deadlocks = 0.0
        #: Share of rows without a digest, as clients write them that cannot list a message's properties.
        self.without_digest = 0.0

    def damage_of(self, key: str) -> str | None:
        """What is wrong with a row; None: it is sound."""
        if key not in self.damaged:
            return None
        self.kernel.saw("inbox row unreadable", key[-4:])
        return "reconciler_inbox.applied_at_ms is 'soon'"

    def is_whole(self, key: str) -> bool:
        """A row that is not incomplete."""
        return key in self.rows and self.rows[key]["incomplete"] is None

    def end(self, key: str, mark: str, *, is_accepted: bool) -> bool:
        """A person ends half of an effect, as it was seen: does the rest by hand, or undoes it and deletes the row."""
        if key not in self.halves or self.rows[key]["incomplete"] != mark:
            return False
        effect = self.halves.pop(key)
        if is_accepted:
            self.rows[key] = {**self.rows[key], "incomplete": None}
            effect.accepted_at = self.kernel.now
            self.effects.append(effect)
        else:
            former = [name for name, row in self.rows.items() if row["duplicate_of"] == key]
            for name in (key, *former):
                del self.rows[name]
        return True

    def connection(self, process: Process) -> InboxConnection:
        """A DB-API connection."""
        return InboxConnection(self, process)

    def renamed(self, group: str) -> InboxDatabase:
        """The same database under the group's new name: it has no row of that name yet, and the effects are there."""
        new = copy(self)
        new.group, new.rows, new.open_rows = group, {}, {}
        return new


class GroupInboxes:
    """The databases of one group."""

    def __init__(self, databases: Sequence[InboxDatabase]) -> None:
        self.databases = databases

    @property
    def effects(self) -> list[Effect]:
        """Of all databases."""
        return [effect for database in self.databases for effect in database.effects]

    def has_row(self, key: str) -> bool:
        """An effect, in any database."""
        return any(database.is_whole(key) and key not in database.theirs for database in self.databases)

    def is_taken(self, key: str) -> bool:
        """Another message has the key's row."""
        return any(key in database.theirs for database in self.databases)

    def half_since(self, key: str) -> float | None:
        """When half of an effect was committed that nobody has ended; None: there is none."""
        return next((database.halves[key].at for database in self.databases if key in database.halves), None)

    def is_damaged(self, key: str) -> bool:
        """A row of the key cannot be read."""
        return any(key in database.damaged for database in self.databases)

    def has_unreadable_half(self, key: str) -> bool:
        """Half of an effect whose row cannot be read, so that nobody sees that it is incomplete."""
        return any(key in database.halves and key in database.damaged for database in self.databases)

    def doubled(self) -> dict[str, float]:
        """Keys that took effect in several databases, with the time of the last effect."""
        if len(self.databases) == 1:
            return {}
        rows = Counter(key for database in self.databases for key in database.rows if database.is_whole(key))
        effects = sorted(self.effects, key=lambda effect: effect.whole_at)
        return {effect.unique_key: effect.whole_at for effect in effects if rows[effect.unique_key] > 1}


class Inboxes(dict[str, GroupInboxes]):
    """By group; a name that a group had before is no group, and can be looked up."""

    def __init__(self, of_group: Mapping[str, GroupInboxes]) -> None:
        super().__init__(of_group)
        self.former: dict[str, GroupInboxes] = {}
        #: Groups whose inbox no setting names.
        self.unknown: set[str] = set()

    def rename(self, old: str, new: str, inboxes: GroupInboxes) -> None:
        """The group keeps its place."""
        groups = {new if group == old else group: found for group, found in self.items()}
        self.former[old] = self[old]
        groups[new] = inboxes
        self.unknown |= {new} if old in self.unknown else set()
        self.clear()
        self.update(groups)

    def remove(self, group: str) -> None:
        """Nobody waits for an effect of the group any more."""
        self.former[group] = self.pop(group)

    def __missing__(self, group: str) -> GroupInboxes:
        return self.former[group]


class InboxConnection:
    """A DB-API connection that CallersConnection takes for sqlite3's, with row locks as other databases have them."""

    isolation_level = "DEFERRED"

    def __init__(self, database: InboxDatabase, process: Process) -> None:
        self.database = database
        self.process = process
        self.in_transaction = False
        #: Of sqlite3's kind: it costs no round trip.
        self.has_savepoint = False
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._effects: list[Effect] = []
        process.on_death.append(self._undo)

    def cursor(self) -> InboxCursor:
        return InboxCursor(self)

    def round_trip(self, what: str) -> None:
        """One statement."""
        database = self.database

        def run() -> None:
            if database.deadlocks and database.kernel.dice.random() < database.deadlocks:
                database.kernel.saw("inbox deadlock", what)
                self._undo()
                raise Deadlock(what)

        database.link.call(self.process, run, DriverError, what=what)
        self.in_transaction = True

    def insert(self, row: Mapping[str, Any], *, is_whole: bool) -> int:
        """INSERT ... ON CONFLICT DO NOTHING."""
        self.round_trip("INSERT inbox")
        database, key = self.database, str(row["unique_key"])
        waited = 0.0
        while database.open_rows.get(key, self) is not self:
            self.process.sleep(POLL_SECONDS)
            waited += POLL_SECONDS
            if waited > 2 * LOCK_SECONDS:
                raise DriverError("lock wait time-out")
        if waited:
            database.kernel.saw("inbox row waited for another writer", key[-4:])
        if key in database.rows or key in self._rows:
            return 0
        database.open_rows[key] = self
        mark = None if is_whole else row["mark"]
        if database.without_digest and database.kernel.dice.random() < database.without_digest:
            database.kernel.saw("inbox row without a digest", key[-4:])
            row = {**row, "content_digest": None}
        self._rows[key] = {**row, "applied_at_ms": database.clock.now_ms(), "incomplete": mark}
        return 1

    def complete(self, key: str, mark: str) -> int:
        """UPDATE ... SET incomplete = NULL WHERE ... incomplete = :mark; also of a row that was committed meanwhile."""
        self.round_trip("UPDATE inbox")
        row = self._rows.get(key) or self.database.rows.get(key)
        if row is None or row["incomplete"] != mark:
            return 0
        self._rows[key] = {**row, "incomplete": None}
        return 1

    def select(self, key: str) -> tuple[Any, ...] | None:
        """What the inbox selects of a key, in that order."""
        self.round_trip("SELECT inbox")
        row = self.database.rows.get(key) or self._rows.get(key)
        names = ("content_digest", "incomplete", "topic", "duplicate_of", "consumer_group", "unique_key")
        return None if row is None else tuple(row[name] for name in names)

    def effect(self, effect: Effect) -> None:
        """The business' own row."""
        self.round_trip("INSERT effect")
        self._effects.append(effect)

    def commit(self) -> None:
        database = self.database

        def run() -> None:
            database.rows.update(self._rows)
            database.reading.committed(self._rows)
            for effect in self._effects:
                effect.at = database.kernel.now
                if effect.is_half:
                    database.halves[effect.unique_key] = effect
                else:
                    database.effects.append(effect)
            self._undo()

        database.link.call(self.process, run, DriverError, what="COMMIT")
        if database.commit_reply_lost and database.kernel.dice.random() < database.commit_reply_lost:
            database.kernel.saw("inbox COMMIT answered to nobody")
            raise DriverError("the connection broke at COMMIT")

    def rollback(self) -> None:
        self.process.enter()
        self._undo()

    def close(self) -> None:
        self._undo()

    def _undo(self) -> None:
        for key in self._rows:
            if self.database.open_rows.get(key) is self:
                del self.database.open_rows[key]
        self._rows, self._effects, self.in_transaction, self.has_savepoint = {}, [], False, False


#: CallersConnection finds the dialect by the package of the connection's class.
InboxConnection.__module__ = "sqlite3.simulated"


class InboxCursor:
    """Knows the statements of consumers/checkback_consumers/inbox.py by their beginnings."""

    def __init__(self, connection: InboxConnection) -> None:
        self._connection = connection
        self._found: tuple[Any, ...] | None = None
        self.rowcount = -1

    def execute(self, sql: str, parameters: Mapping[str, Any]) -> None:
        if sql.startswith("INSERT INTO reconciler_inbox"):
            self.rowcount = self._connection.insert(parameters, is_whole=", incomplete" not in sql)
        elif sql.startswith("UPDATE reconciler_inbox SET source = source"):
            self.rowcount = 0  # a lock, for what is asked of the table once a process
        elif "pragma_table_info" in sql:
            # A table of an older release has no such column: its rows are complete at once.
            has_column = int(self._connection.database.has_column)
            self._found = ("SQLite", has_column, has_column, has_column, 0)
        elif sql.startswith("UPDATE reconciler_inbox SET incomplete = NULL"):
            self.rowcount = self._connection.complete(str(parameters["done_key"]), str(parameters["mark"]))
        elif sql.startswith("SELECT content_digest"):
            self._found = self._connection.select(str(parameters["unique_key"]))
        elif sql.startswith("SAVEPOINT"):
            self._connection.has_savepoint = True
        elif sql.startswith("RELEASE SAVEPOINT"):
            if not self._connection.has_savepoint:
                raise DriverError("no such savepoint")
        else:
            raise NotImplementedError(sql)

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._found

    def close(self) -> None:
        """Nothing to close."""
