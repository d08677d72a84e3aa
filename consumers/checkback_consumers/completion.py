"""Whether inbox rows stay incomplete until their handler has returned: the column `incomplete`, and the rights to it.

A login may have SELECT and INSERT only, and the table may be of a release without the column. Then a row is complete
at once, as every row with NULL there is. Both are read once a database, beside the first message: the question is one
SELECT of the catalogue, which fails on no database, so that it cannot break the business transaction.

One engine, or function, may give connections to several databases (tenants, by search_path or USE), and none tells
which. Where an answer has turned out to be another one's, the question is asked beside each message.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import sqlalchemy as sa

from checkback_consumers.sql_session import SqlSession
from reconciler.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

#: A database that lacks column or right is asked again after this: upgrade and GRANT need no restart.
ASK_AGAIN_SECONDS = 60.0
#: Databases whose lack is logged; a service with more of them is told of these.
_TOLD_MAX = 1_000

_ASKED = {
    # Row security may hide a row from the UPDATE of its own transaction.
    "postgresql": (
        "SELECT current_database(), a.attname IS NOT NULL, has_column_privilege(a.attrelid, a.attnum, 'SELECT'), "
        "has_column_privilege(a.attrelid, a.attnum, 'INSERT') AND has_column_privilege(a.attrelid, a.attnum, 'UPDATE') "
        "AND NOT row_security_active(a.attrelid), "
        # ctid is a system column: rights to single columns do not reach it, and partitions have it each for itself.
        "c.relkind = 'r' AND has_column_privilege(a.attrelid, CAST(-1 AS smallint), 'SELECT') "
        "FROM (SELECT to_regclass('reconciler_inbox') AS id) AS t LEFT JOIN pg_catalog.pg_attribute AS a "
        "ON a.attrelid = t.id AND a.attname = 'incomplete' AND NOT a.attisdropped "
        "LEFT JOIN pg_catalog.pg_class AS c ON c.oid = t.id"
    ),
    # The privileges of this login, whichever level they were granted on; the first is SELECT for a login that reads.
    # Named in a WHERE: for an outer join MariaDB opens every table of the server.
    "mysql": (
        "SELECT DATABASE(), COUNT(*), MAX(PRIVILEGES) LIKE '%%select%%', "
        "MAX(PRIVILEGES) LIKE '%%insert%%' AND MAX(PRIVILEGES) LIKE '%%update%%', FALSE "
        "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() "
        "AND TABLE_NAME = 'reconciler_inbox' AND COLUMN_NAME = 'incomplete'"
    ),
    "sqlite": (
        "SELECT 'SQLite', count(*), count(*), count(*), 0 FROM pragma_table_info('reconciler_inbox') "
        "WHERE name = 'incomplete'"
    ),
}
#: Takes SQLite's lock for writing, as the inbox row does. A read before it would fix what the transaction sees: another
#: process' commit in between would refuse the row at once (SQLITE_BUSY_SNAPSHOT), without any waiting.
_WRITES_NOTHING = "UPDATE reconciler_inbox SET source = source WHERE 1 = 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What may be done with the column of one database."""

    is_read: bool = False
    is_written: bool = False
    #: PostgreSQL: a row is found again by its place (ctid).
    is_placed: bool = False


#: A row is complete at once.
AT_ONCE = Completion()


class KnownCompletions:
    """What the databases of a process have. Thread-safe: two threads may ask at once, and learn the same."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: Engine, or function that returns a connection -> what it has, and the monotonic second of the answer.
        self._known: WeakKeyDictionary[Any, tuple[Completion, float]] = WeakKeyDictionary()
        #: Those whose answer was another database's, or is not true any more: they are asked each time.
        self._doubted: WeakSet[Any] = WeakSet()
        self._told: set[str] = set()

    def of(self, database: sa.Engine | Callable[[], Any], session: SqlSession) -> Completion:
        """What the database has, asked through the session where it is not known. A driver's errors pass."""
        now = self._clock.monotonic_seconds()
        place = session.engine or database
        with self._lock:
            known = self._lookup(place)
        if known is not None and (known[0].is_written or now - known[1] < ASK_AGAIN_SECONDS):
            return known[0]
        if session.dialect == "sqlite":
            session.execute(_WRITES_NOTHING, {})
        answer = session.select_one(_ASKED[session.dialect], {}) or ("", 0, 0, 0, 0)
        name, has_column, is_read, is_written, is_placed = answer
        found = Completion(is_read=bool(is_read), is_written=bool(is_read and is_written), is_placed=bool(is_placed))
        with self._lock:
            self._note(place, (found, now))
        if not found.is_written:
            self._tell(f"of {name} ({session.dialect})", has_column=bool(has_column))
        return found

    def forget(self, database: sa.Engine | Callable[[], Any], session: SqlSession, *, is_refused: bool) -> None:
        """After an error the next message asks again. `is_refused`: the database lacks what its answer had: a right was
        revoked, or this is another database than the one that was asked."""
        place = session.engine or database
        with self._lock, suppress(TypeError):
            if self._known.pop(place, None) is not None and is_refused:
                self._doubted.add(place)

    def _lookup(self, place: Any) -> tuple[Completion, float] | None:
        with suppress(TypeError):  # no hash or no weak reference: it is asked each time
            return None if place in self._doubted else self._known.get(place)
        return None

    def _note(self, place: Any, known: tuple[Completion, float]) -> None:
        with suppress(TypeError):
            self._known[place] = known

    def _tell(self, database: str, *, has_column: bool) -> None:
        with self._lock:
            if database in self._told or len(self._told) >= _TOLD_MAX:
                return
            self._told.add(database)
        lacks = "the right to it" if has_column else "the column reconciler_inbox.incomplete"
        remedy = (
            "GRANT UPDATE (incomplete) ON reconciler_inbox, beside SELECT and INSERT"
            if has_column
            else "run reconciler db upgrade inbox, and GRANT UPDATE (incomplete) ON reconciler_inbox"
        )
        logger.warning(
            "inbox_rows_complete_at_once: the inbox %s lacks %s: a handler that commits halfway is taken for one that "
            "has had its effect; %s",
            database,
            lacks,
            remedy,
        )
