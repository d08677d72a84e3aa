"""reconciler_outage: the times in which Redis was away, or had lost its memory (ports.Outages)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from reconciler.contract.row_rules import NAME_CHARACTERS, bounded_text
from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import OUTAGE
from reconciler.errors import DatabaseAway
from reconciler.ledger.database import LedgerDatabase
from reconciler.policy.ports.ledger import Outage
from reconciler.sql.tables import is_whole_number, round_row
from reconciler.sql.tables import outage as outage_table

_ROWS = RowReader(OUTAGE)


class SqlOutages:
    """The outages in SQL. Thread-safe. Every call is one transaction. Raises DatabaseAway.

    Two processes that notice an outage at the same moment may each insert a row, milliseconds apart. The earlier row is
    the current one, and `finish` closes both rows.
    """

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def current(self, environment: str) -> Outage | None:
        """Returns the open outage."""
        with self._database.reading() as connection:
            return _current(connection, environment)

    def open(self, environment: str, *, reason: str, noticed_by: str) -> Outage:
        """Opens an outage unless one is open, and returns the open outage. A new outage starts at the last stored
        round, at the latest now."""
        with self._database.writing() as connection:
            current = _current(connection, environment)
            if current is not None:
                return current
            started_at_ms = self._start(connection, environment)
            row = {
                "environment": environment,
                "started_at_ms": started_at_ms,
                "reason": reason,
                "noticed_by": bounded_text(noticed_by, NAME_CHARACTERS),
                "scanned": 0,
            }
            self._database.insert_missing(connection, outage_table, [row])
            opened = connection.execute(
                sa.select(outage_table).where(_is_open(environment), outage_table.c.started_at_ms == started_at_ms)
            ).first()
            if opened is None:
                raise DatabaseAway("another process opened and closed an outage at the same moment: try again")
            return outage_of(opened)

    def _start(self, connection: sa.Connection, environment: str) -> int:
        last_stored = (
            sa.select(round_row.c.stored_at_ms)
            .where(round_row.c.environment == environment, round_row.c.void == 0)
            .order_by(round_row.c.stored_at_ms.desc())
            .limit(1)
        )
        now_ms = self._database.read_now_ms(connection)
        started_at_ms = min(now_ms, connection.execute(last_stored).scalar() or now_ms)
        # If no round was stored since the last outage, that outage has the same start. The new outage then starts a
        # millisecond earlier.
        taken = sa.select(outage_table.c.started_at_ms).where(
            outage_table.c.environment == environment,
            outage_table.c.started_at_ms == sa.bindparam("p_started_at_ms"),
            outage_table.c.closed_at_ms.is_not(None),
        )
        while connection.execute(taken, {"p_started_at_ms": started_at_ms}).first() is not None:
            started_at_ms -= 1
        return started_at_ms

    def advance(self, outage: Outage, *, scan_position: Mapping[str, object], scanned: int) -> None:
        """Stores the progress of the scan."""
        with self._database.writing() as connection:
            connection.execute(
                sa.update(outage_table)
                .where(_is_open(outage.environment), outage_table.c.started_at_ms == outage.started_at_ms)
                .values(scan_position=json.dumps(dict(scan_position), separators=(",", ":")), scanned=scanned)
            )

    def note_reason(self, outage: Outage, reason: str) -> None:
        """Changes the reason of the open outage."""
        with self._database.writing() as connection:
            connection.execute(
                sa.update(outage_table)
                .where(_is_open(outage.environment), outage_table.c.started_at_ms == outage.started_at_ms)
                .values(reason=reason)
            )

    def finish(self, outage: Outage) -> bool:
        """Closes every open row of the environment. False if no row was open."""
        with self._database.writing() as connection:
            closed = connection.execute(
                sa.update(outage_table).where(_is_open(outage.environment)).values(closed_at_ms=self._database.now())
            )
            return closed.rowcount > 0


def _is_open(environment: str) -> sa.ColumnElement[bool]:
    return (outage_table.c.environment == environment) & outage_table.c.closed_at_ms.is_(None)


def _current(connection: sa.Connection, environment: str) -> Outage | None:
    # An outage with a damaged start is left out: no process could scan or close it, and it would stop all rounds for
    # ever. Without the outage, messages are verified by their inbox, and a lost memory is noticed again.
    can_be_worked_on = is_whole_number(outage_table.c.started_at_ms, connection.dialect.name)
    query = sa.select(outage_table).where(_is_open(environment), can_be_worked_on)
    row = connection.execute(query.order_by(outage_table.c.started_at_ms).limit(1)).first()
    return None if row is None else outage_of(row)


def outage_of(row: sa.Row[Any]) -> Outage:
    """Returns the outage of a row. A damaged position reads as none, so the scan begins again."""
    values = _ROWS.parse(row).values
    del values["noticed_by"]
    return Outage(**values)
