"""Copies inbox rows when a group gets another name, so that effects under the old name count under the new name.

Rows are added and never changed. After an interruption, a person starts the copying again, and it adds the missing
rows. Incomplete rows are left out. A person ends them under the old name, under which their message is delivered again.
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
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import reading, writing
from reconciler.sql.folded_names import FOLDED_REMEDY, folded_columns
from reconciler.sql.tables import column_names, inbox
from reconciler.sql.timely_pages import TimelyPages
from reconciler.sql.witness_database import BEHIND, WitnessDatabase

#: Maximum number of rows of one transaction.
PAGE_ROWS = 500
#: Maximum number of rows of one statement that reads rows to count them.
COUNTED_ROWS = 5_000
#: Longest wait for the end of writing transactions, and the pause between two looks for them.
WAIT_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.5
#: PostgreSQL's statement for the open transactions that have written to the table, for any group. Every login may read
#: pg_locks.
_LOCKS_SQL = sa.text(
    "SELECT 'transaction ' || virtualtransaction || coalesce(' of process ' || pid, ', prepared') FROM pg_locks "
    "WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND relation = to_regclass(:inbox) "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsToCopy:
    """Numbers of rows of the old name in one database."""

    rows: int
    #: Complete rows that have no row under the new name.
    missing: int
    #: Incomplete rows.
    incomplete: int = 0


class RenamedRows:
    """The rows of both names in one database. The caller disposes of the engine, and calls count() before copy().

    Raises DatabaseAway, also for a missing right (SELECT, INSERT) and on a node of a cluster that may lack rows. Raises
    ConfigurationError if the table is missing.
    """

    def __init__(self, engine: sa.Engine, *, old: str, new: str, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()
        self.database = shown(engine)
        self._old, self._new = old, new
        self._of_old = inbox.c.consumer_group == old
        self._pages = TimelyPages()

    def count(self) -> RowsToCopy:
        """Counts the rows to copy. Reads all rows of the old name. Raises ConfigurationError if the database treats
        some different names or keys as equal, because it could not store their rows side by side."""
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
        """Returns the number of rows of the old name, and its lowest and highest key. Callers distinguish databases by
        these values.

        With `committed=False`, MySQL and MariaDB also count rows of transactions that have not ended.
        """
        rows, first, last = 0, "", ""
        for row in self._all(committed=committed):
            rows, first, last = rows + 1, first or row.unique_key, row.unique_key
        return rows, first, last

    def _all(self, *, committed: bool = True) -> Iterator[sa.Row[Any]]:
        """Yields the old name's rows in the order of their keys. A statement reads few enough rows for its deadline."""
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
        """Returns a text for people about open transactions that have written rows; empty if there are none.

        A copy would lack the rows of such a transaction, and no broker shows a consumer whose process has stopped.
        Waits up to WAIT_SECONDS for the transactions that are open at first. On a server, needs only the right to
        SELECT.
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
                with writing(self._engine):  # takes SQLite's only lock for writers
                    return frozenset()
            except DatabaseAway as error:
                return frozenset({str(error)})
        if dialect == "postgresql":
            with reading(self._engine) as connection:
                return frozenset(connection.execute(_LOCKS_SQL, {"inbox": inbox.name}).scalars())
        is_same = self.extent(committed=False) == self.extent()
        return frozenset() if is_same else frozenset({f"rows of {self._old}"})

    def copy(self, seen: Callable[[int], None]) -> int:
        """Writes each complete row of the old name under the new name, unless the new name has that key already.
        Returns the number of rows that were written.

        Each page is one transaction, so a crash leaves whole pages. `seen` is called with each page's number of rows.
        """
        copied, after = 0, ""
        self._require_all_rows()
        while True:
            try:
                page, written = self._copy_page(after)
            # Another writer, such as a statement that was given up, has added a row since the page was read.
            except IntegrityError:
                page, written = self._copy_page(after)
            copied += written
            seen(len(page))
            if len(page) < PAGE_ROWS:
                return copied
            after = page[-1]["unique_key"]

    def _copy_page(self, after: str) -> tuple[Sequence[Mapping[Any, Any]], int]:
        """Returns a page of the old name's rows after a key, and the number of rows that were written."""
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
        """Raises DatabaseAway unless later reads on the same node see all that its cluster has committed so far."""
        if self._engine.dialect.name in ("mysql", "mariadb"):
            role = WitnessDatabase(self._engine, inbox).role()
            if role.is_node and role.is_primary is False:
                raise DatabaseAway(f"{self.database}: {BEHIND}", remedy="wait until it is, or name another node")

    @staticmethod
    def _columns(connection: sa.Connection) -> Sequence[sa.Column[Any]]:
        """Returns the columns that the inbox has. Before an upgrade it has fewer."""
        there = column_names(connection, inbox.name)
        return [column for column in inbox.c if column.name in there or not there]

    @staticmethod
    def _is_whole(columns: Sequence[sa.Column[Any]]) -> sa.ColumnElement[bool]:
        return inbox.c.incomplete.is_(None) if inbox.c.incomplete in set(columns) else sa.true()

    def _renamed(self, connection: sa.Connection, rows: Sequence[Mapping[Any, Any]]) -> list[dict[str, Any]]:
        """Returns the rows that the new name lacks. A group has a business id only once, so a row with a business id of
        another key becomes that key's duplicate."""
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
