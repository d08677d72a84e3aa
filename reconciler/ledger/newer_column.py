"""A column that a ledger of an older release lacks: until it is upgraded, all goes on without the column, as before."""

from __future__ import annotations

import logging
from typing import Any

import sqlalchemy as sa

from reconciler.sql.tables import column_names

_log = logging.getLogger(__name__)

#: What brings a ledger up to date.
UPGRADE_LEDGER = "reconciler db upgrade ledger"


class NewerColumn:
    """Whether the table has the column. Once it has, it stays. Thread-safe: two threads may ask at once, and learn the
    same."""

    def __init__(self, column: sa.Column[Any], *, without: str) -> None:
        """`without`: what is the case until then, for people."""
        self._column = column
        self._without = without
        #: None: not asked yet.
        self._is_there: bool | None = None

    def is_there(self, connection: sa.Connection) -> bool:
        """Asks until it is. Says once that it is not; False also where there is no such table, as the query says."""
        if not self._is_there:
            table = self._column.table.name
            names = column_names(connection, table)
            if not names:
                return False
            found = self._column.name in names
            if not found and self._is_there is None:
                _log.warning(
                    "column_missing: %s has no column %s: %s: %s",
                    table,
                    self._column.name,
                    self._without,
                    UPGRADE_LEDGER,
                )
            self._is_there = found
        return self._is_there

    def read(self, connection: sa.Connection) -> sa.ColumnElement[Any]:
        """The column, or NULL under its name."""
        return self._column if self.is_there(connection) else sa.null().label(self._column.name)
