"""Inbox rows of a group that gets another name: what had its effect under the old name has it under the new one.

Rows are added and never changed: a copy that ends halfway is begun again, and adds what is still missing. Incomplete
rows are left out: whoever ends one ends it under the old name, by which alone its message comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reconciler.sql.engines import reading, shown, writing
from reconciler.sql.tables import column_names, inbox

#: Rows of one transaction.
PAGE_ROWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsToCopy:
    """Rows of the old name in one database."""

    rows: int
    #: Of those, complete and without a row under the new name.
    missing: int
    #: Of the rows, incomplete.
    incomplete: int = 0


class RenamedRows:
    """The rows of both names in one database. The caller disposes of the engine.

    Raises DatabaseAway, also for a right that is missing (SELECT, INSERT), ConfigurationError without the table.
    """

    def __init__(self, engine: sa.Engine, *, old: str, new: str) -> None:
        self._engine = engine
        self.database = shown(engine)
        self._old, self._new = old, new
        self._of_old = inbox.c.consumer_group == old

    def count(self) -> RowsToCopy:
        """What is to be done. All rows of the old name are read."""
        theirs = inbox.alias()
        is_there = sa.exists().where(theirs.c.consumer_group == self._new, theirs.c.unique_key == inbox.c.unique_key)
        query = sa.select(sa.func.count()).select_from(inbox).where(self._of_old)
        with reading(self._engine) as connection:
            is_whole = self._is_whole(self._columns(connection))
            wanted = ((), (is_whole, ~is_there), (~is_whole,))
            rows, missing, incomplete = (int(connection.execute(query.where(*of)).scalar_one()) for of in wanted)
        return RowsToCopy(rows=rows, missing=missing, incomplete=incomplete)

    def extent(self) -> tuple[int, str, str]:
        """How many rows the old name has, and its lowest and highest key: a database is told by them from others."""
        key = inbox.c.unique_key
        query = sa.select(sa.func.count(), sa.func.min(key), sa.func.max(key)).where(self._of_old)
        with reading(self._engine) as connection:
            rows, first, last = connection.execute(query).one()
            return int(rows), str(first or ""), str(last or "")

    def copy(self, seen: Callable[[int], None]) -> int:
        """Writes each complete row of the old name under the new one unless that has the key. Returns how many.

        One transaction a page: a crash leaves whole pages. `seen` is told the rows of each.
        """
        copied, after = 0, ""
        while True:
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
            copied += len(rows)
            seen(len(page))
            if len(page) < PAGE_ROWS:
                return copied
            after = page[-1]["unique_key"]

    @staticmethod
    def _columns(connection: sa.Connection) -> Sequence[sa.Column[Any]]:
        """An inbox that was not upgraded has fewer."""
        there = column_names(connection, inbox.name)
        return [column for column in inbox.c if column.name in there or not there]

    @staticmethod
    def _is_whole(columns: Sequence[sa.Column[Any]]) -> sa.ColumnElement[bool]:
        return inbox.c.incomplete.is_(None) if inbox.c.incomplete in set(columns) else sa.true()

    def _renamed(self, connection: sa.Connection, rows: Sequence[Mapping[Any, Any]]) -> list[dict[str, Any]]:
        """Those that are missing under the new name, which holds a business id once: a second key is its duplicate."""
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
