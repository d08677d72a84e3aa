"""Copies inbox rows when a group gets another name, so that effects under the old name count under the new one.

Rows are added and never changed: after an interruption, the copying is started again, and adds what is missing.
Incomplete rows are left out: a person ends them under the old name, under which their message is delivered again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from reconciler.clock import Clock, SystemClock
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.sql.engines import reading, shown, writing
from reconciler.sql.folded_names import FOLDED_REMEDY, folded_columns
from reconciler.sql.tables import column_names, inbox
from reconciler.sql.timely_pages import TimelyPages
from reconciler.sql.witness_database import BEHIND, WitnessDatabase

#: Most rows of one transaction.
PAGE_ROWS = 500
#: Most rows of one statement that counts.
COUNTED_ROWS = 5_000
#: How long it waits for writing transactions before it looks for them again.
WAIT_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.5
#: Every transaction that has written to the table, also for other groups, and has not ended. Every login may read it.
_LOCKS_SQL = sa.text(
    "SELECT 'transaction ' || virtualtransaction || coalesce(' of process ' || pid, ', prepared') FROM pg_locks "
    "WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND relation = to_regclass(:inbox) "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsToCopy:
    """Rows of the old name in one database."""

    rows: int
    #: Those that are complete and have no row under the new name.
    missing: int
    #: Those that are incomplete.
    incomplete: int = 0


class RenamedRows:
    """The rows of both names in one database. The caller disposes of the engine.

    Raises DatabaseAway, also for a right that is missing (SELECT, INSERT) and on a node of a cluster that may lack
    rows, ConfigurationError without the table. count() comes before copy().
    """

    def __init__(self, engine: sa.Engine, *, old: str, new: str, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()
        self.database = shown(engine)
        self._old, self._new = old, new
        self._of_old = inbox.c.consumer_group == old
        self._pages = TimelyPages()

    def count(self) -> RowsToCopy:
        """Counts what is to be copied. All rows of the old name are read. Raises ConfigurationError if the database
        treats groups or keys as equal: their rows could neither be told apart nor stored side by side."""
        folded = folded_columns(self._engine, "inbox", ("consumer_group", "unique_key"))
        if folded:
            raise ConfigurationError(
                f"{self.database} takes names for one another: {', '.join(folded)}; {FOLDED_REMEDY}"
            )
        rows = missing = incomplete = 0
        for row in self._all():
            rows += 1
            incomplete += not row.is_whole
            missing += bool(row.is_whole and not row.is_there)
        return RowsToCopy(rows=rows, missing=missing, incomplete=incomplete)

    def extent(self, *, committed: bool = True) -> tuple[int, str, str]:
        """Returns how many rows the old name has, and its lowest and highest key, by which databases are told apart.

        `committed`: False on MySQL and MariaDB: includes rows of transactions that have not ended.
        """
        rows, first, last = 0, "", ""
        for row in self._all(committed=committed):
            rows, first, last = rows + 1, first or row.unique_key, row.unique_key
        return rows, first, last

    def _all(self, *, committed: bool = True) -> Iterator[sa.Row[Any]]:
        """Yields the old name's rows by key, in pieces small enough for a statement's deadline."""
        theirs = inbox.alias()
        is_there = sa.exists().where(theirs.c.consumer_group == self._new, theirs.c.unique_key == inbox.c.unique_key)

        def read(after: str | None, rows: int) -> Sequence[sa.Row[Any]]:
            with reading(self._engine) as connection:
                if not committed:
                    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
                is_whole = self._is_whole(self._columns(connection))
                query = sa.select(inbox.c.unique_key, is_whole.label("is_whole"), is_there.label("is_there"))
                behind = query.where(self._of_old, inbox.c.unique_key > (after or ""))
                return connection.execute(behind.order_by(inbox.c.unique_key).limit(rows)).all()

        after: str | None = None
        self._require_all_rows()
        while True:
            page = self._pages.read(COUNTED_ROWS, after, read, place_of=lambda row: str(row.unique_key))
            yield from page
            if len(page) < COUNTED_ROWS:
                return
            after = page[-1].unique_key

    def writers(self) -> str:
        """Returns who has written rows without a commit, for people; empty: no transaction. Such rows are in no copy,
        and a member whose process has stopped is connected to no broker any more.

        Transactions that are open at first may end, within WAIT_SECONDS. Needs only the right to SELECT.
        """
        until = self._clock.monotonic_seconds() + WAIT_SECONDS
        at_first = self._writers()
        left = at_first
        while left and self._clock.monotonic_seconds() < until:
            self._clock.wait(threading.Event(), LOOK_AGAIN_SECONDS)
            left = at_first & self._writers()
        return ", ".join(sorted(left))

    def _writers(self) -> frozenset[str]:
        dialect = self._engine.dialect.name
        if dialect == "sqlite":
            try:
                with writing(self._engine):  # takes the lock of the only writer
                    return frozenset()
            except DatabaseAway as error:
                return frozenset({str(error)})
        if dialect == "postgresql":
            with reading(self._engine) as connection:
                return frozenset(connection.execute(_LOCKS_SQL, {"inbox": inbox.name}).scalars())
        is_same = self.extent(committed=False) == self.extent()
        return frozenset() if is_same else frozenset({f"rows of {self._old}"})

    def copy(self, seen: Callable[[int], None]) -> int:
        """Writes each complete row of the old name under the new one, unless that has the key. Returns how many it
        wrote.

        Each page is one transaction: a crash leaves whole pages. `seen` is called with the number of rows of each page.
        """
        copied, after = 0, ""
        self._require_all_rows()
        while True:
            try:
                page, written = self._copy_page(after)
            # after the reading, rows came from a write that was given up: the page is read again
            except IntegrityError:
                page, written = self._copy_page(after)
            copied += written
            seen(len(page))
            if len(page) < PAGE_ROWS:
                return copied
            after = page[-1]["unique_key"]

    def _copy_page(self, after: str) -> tuple[Sequence[Mapping[Any, Any]], int]:
        """Returns the old name's rows after a key, and how many were written."""
        with writing(self._engine) as connection:
            columns = self._columns(connection)
            read = connection.execute(
                sa.select(*columns)
                .where(self._of_old, inbox.c.unique_key > after, self._is_whole(columns))
                .order_by(inbox.c.unique_key)
                .limit(PAGE_ROWS)
            )
            page = read.mappings().all()
            rows = self._renamed(connection, page)
            if rows:
                connection.execute(sa.insert(inbox), rows)
        return page, len(rows)

    def _require_all_rows(self) -> None:
        """Makes sure that later questions to the same node see everything that its cluster has committed by now."""
        if self._engine.dialect.name in ("mysql", "mariadb"):
            role = WitnessDatabase(self._engine, inbox).role()
            if role.is_node and role.is_primary is False:
                raise DatabaseAway(f"{self.database}: {BEHIND}", remedy="wait until it is, or name another node")

    @staticmethod
    def _columns(connection: sa.Connection) -> Sequence[sa.Column[Any]]:
        """Returns the columns; an inbox without the upgrade has fewer."""
        there = column_names(connection, inbox.name)
        return [column for column in inbox.c if column.name in there or not there]

    @staticmethod
    def _is_whole(columns: Sequence[sa.Column[Any]]) -> sa.ColumnElement[bool]:
        return inbox.c.incomplete.is_(None) if inbox.c.incomplete in set(columns) else sa.true()

    def _renamed(self, connection: sa.Connection, rows: Sequence[Mapping[Any, Any]]) -> list[dict[str, Any]]:
        """Returns the rows that the new name lacks. It may hold a business id only once: a second key is its
        duplicate."""
        if not rows:
            return []
        of_new = inbox.c.consumer_group == self._new
        keys = [row["unique_key"] for row in rows]
        there = set(
            connection.execute(sa.select(inbox.c.unique_key).where(of_new, inbox.c.unique_key.in_(keys))).scalars()
        )
        ids = [row["dedupe_key"] for row in rows if row["dedupe_key"] is not None]
        owners: dict[str, str] = {}
        if ids:
            query = sa.select(inbox.c.dedupe_key, inbox.c.unique_key).where(of_new, inbox.c.dedupe_key.in_(ids))
            owners = {row.dedupe_key: row.unique_key for row in connection.execute(query)}
        renamed = []
        for row in rows:
            if row["unique_key"] not in there:
                owner = owners.get(row["dedupe_key"])
                shared = {} if owner is None else {"dedupe_key": None, "duplicate_of": owner}
                renamed.append({**row, "consumer_group": self._new, **shared})
        return renamed
