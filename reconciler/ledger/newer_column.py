"""A column that a ledger of an older release lacks. Until the upgrade, the reconciler works without the column."""

from __future__ import annotations

import logging
from typing import Any

import sqlalchemy as sa

from reconciler.sql.tables import column_names

_log = logging.getLogger(__name__)

#: The command that upgrades a ledger.
UPGRADE_LEDGER = "reconciler db upgrade ledger"


class NewerColumn:
    """Asks whether the table has the column, until the table has it. Thread-safe."""

    def __init__(self, column: sa.Column[Any], *, without: str) -> None:
        """`without`: the sentence for people about what happens without the column."""
        self._column = column
        self._without = without
        #: None: no call has read the table's columns yet.
        self._is_there: bool | None = None

    def is_there(self, connection: sa.Connection) -> bool:
        """Returns True if the column exists. Logs a missing column once. Returns False without a log line if the table
        does not exist, because the query reports this."""
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
        """Returns the column, or NULL under its name."""
        return self._column if self.is_there(connection) else sa.null().label(self._column.name)
