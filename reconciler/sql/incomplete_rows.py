"""Finds incomplete inbox rows, whose effect may be half done. A person accepts such a row as complete, or deletes it so
that the handler runs again.

Every act is one conditional statement with the mark that the person saw. A row with another mark stays as it is, and is
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import FORMER_NAMES_TOPIC, Ending
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import reading, writing
from reconciler.sql.folded_names import is_exactly
from reconciler.sql.key_probes import probe
from reconciler.sql.tables import inbox
from reconciler.sql.timely_pages import TimelyPages

#: Age below which the handler of a row may still be running: RocketMQ gives it 15 minutes (consumeTimeout).
YOUNG_SECONDS = 900.0
#: Maximum number of milliseconds between the two rows of one effect. Their times limit the search, because no index has
#: `duplicate_of`.
FORMER_NAME_WITHIN_MS = 60_000
#: Maximum number of rows of one statement that reads named keys, and of one transaction that acts.
ROWS_AT_ONCE = 500
#: Maximum number of rows of one statement that reads all rows of a group.
ROWS_READ = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteRow:
    """An incomplete row as a person sees it."""

    unique_key: str
    mark: str
    written_at_ms: int
    #: True if its handler may still be running.
    is_young: bool


class IncompleteRows:
    """The incomplete rows of one group's topic in one database. The caller disposes of the engine.

    Raises DatabaseAway, also for a missing right (SELECT, UPDATE of `incomplete`, DELETE), and ConfigurationError if
    the column is missing.
    """

    def __init__(self, engine: sa.Engine, subscription: Subscription) -> None:
        self._engine = engine
        self.database = shown(engine)
        self._group, self._topic = subscription.group, subscription.topic
        self._pages = TimelyPages()
        dialect = engine.dialect.name
        self._of = (
            (inbox.c.consumer_group == subscription.group)
            & (inbox.c.topic == subscription.topic)
            & is_exactly(inbox.c.consumer_group, subscription.group, dialect)
            & is_exactly(inbox.c.topic, subscription.topic, dialect)
        )

    def of_keys(self, unique_keys: Sequence[str]) -> list[IncompleteRow]:
        """Returns the incomplete rows of the keys, in the order of the keys."""
        query = self._query()
        with reading(self._engine) as connection:
            now_ms = database_now_ms(connection)
            found = [
                _row(row, now_ms)
                for first in range(0, len(unique_keys), ROWS_AT_ONCE)
                for row in probe(connection, query, inbox.c.unique_key, unique_keys[first : first + ROWS_AT_ONCE])
            ]
        return sorted(found, key=lambda row: row.unique_key)

    def all(self, *, limit: int) -> list[IncompleteRow]:
        """Returns the group's oldest incomplete rows. Reads the group's rows until `limit` are found, because no index
        has incomplete rows. A statement reads few enough rows for its deadline."""
        c = inbox.c
        columns: list[sa.Column[Any]] = [c.unique_key, c.applied_at_ms, c.incomplete, c.topic, c.consumer_group]
        query = sa.select(*columns).where(c.consumer_group == self._group).order_by(c.applied_at_ms, c.unique_key)

        def read(after: tuple[int, str] | None, rows: int) -> Sequence[sa.Row[Any]]:
            behind = query
            if after is not None:
                at_ms, key = after
                is_later = (c.applied_at_ms > at_ms) | (c.unique_key > key)
                behind = query.where(c.applied_at_ms >= at_ms, is_later)
            with reading(self._engine) as connection:
                return connection.execute(behind.limit(rows)).all()

        with reading(self._engine) as connection:
            now_ms = database_now_ms(connection)
        found: list[IncompleteRow] = []
        after: tuple[int, str] | None = None
        while True:
            page = self._pages.read(ROWS_READ, after, read, place_of=_place)
            found += [_row(row, now_ms) for row in page if self._is_ours(row) and row.incomplete is not None]
            if len(page) < ROWS_READ or len(found) >= limit:
                return found[:limit]
            after = _place(page[-1])

    def _is_ours(self, row: sa.Row[Any]) -> bool:
        """Returns False for rows of other names that the collation treats as equal to ours."""
        return (row.consumer_group, row.topic) == (self._group, self._topic)

    def end(self, rows: Sequence[IncompleteRow], ending: Ending) -> set[str]:
        """Ends each row that still has its mark, all in one transaction. Returns the keys of these rows; the others had
        changed. Callers pass at most ROWS_AT_ONCE rows."""
        ended: set[str] = set()
        with writing(self._engine) as connection:
            for row in rows:
                as_seen = self._of & (inbox.c.unique_key == row.unique_key) & (inbox.c.incomplete == row.mark)
                act = (
                    sa.update(inbox).where(as_seen).values(incomplete=None)
                    if ending is Ending.ACCEPT
                    else sa.delete(inbox).where(as_seen)
                )
                if connection.execute(act).rowcount == 1:
                    ended.add(row.unique_key)
                    if ending is Ending.DELETE:
                        connection.execute(self._without_former_name(row))
        return ended

    def _without_former_name(self, row: IncompleteRow) -> sa.Delete:
        """Returns the statement that deletes the effect's second row, which is written for releases up to 0.2.0. The
        second row would make the key a duplicate."""
        at_ms = inbox.c.applied_at_ms
        return sa.delete(inbox).where(
            inbox.c.consumer_group == self._group,
            inbox.c.topic == FORMER_NAMES_TOPIC,
            inbox.c.duplicate_of == row.unique_key,
            at_ms.between(row.written_at_ms - FORMER_NAME_WITHIN_MS, row.written_at_ms + FORMER_NAME_WITHIN_MS),
        )

    def _query(self) -> sa.Select[tuple[str, int, str]]:
        columns = (inbox.c.unique_key, inbox.c.applied_at_ms, inbox.c.incomplete)
        return sa.select(*columns).where(self._of, inbox.c.incomplete.is_not(None))


def _place(row: sa.Row[Any]) -> tuple[int, str]:
    return row.applied_at_ms, row.unique_key


def _row(row: sa.Row[Any], now_ms: int) -> IncompleteRow:
    return IncompleteRow(
        unique_key=row.unique_key,
        mark=row.incomplete,
        written_at_ms=row.applied_at_ms,
        is_young=now_ms - row.applied_at_ms < YOUNG_SECONDS * 1000,
    )
