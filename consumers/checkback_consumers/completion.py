"""Finds out whether inbox rows can stay incomplete until their handler has returned. The database needs the column
`incomplete` for that, and the login needs rights to the column.

A login may have only SELECT and INSERT, or the table may be of a release without the column. Then a row is complete
from the start, like every row with NULL in that column. Column and rights are read once per database, with the first
message. One SELECT of the catalogue reads both. No database refuses this SELECT, so it cannot break the business
transaction.

On MySQL and MariaDB, the table's engine is read then, too. An engine without transactions keeps the row of an effect
that was rolled back: the message would come again, and count as applied. So such an inbox takes no message.

One engine or function may give connections to several databases, for example of tenants, and does not say to which.
Once an answer has turned out to be about another database, the catalogue is read with each message.
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
from reconciler.contract.tables import INBOX
from reconciler.sql.table_shapes import WITHOUT_TRANSACTIONS, lacks_transactions

logger = logging.getLogger(__name__)

#: Seconds after which a database without the column or the right is asked again, so that an upgrade or a GRANT needs no
#: restart.
ASK_AGAIN_SECONDS = 60.0
#: The most databases for which a missing column or right is logged.
_TOLD_MAX = 1_000

_ASKED = {
    # Row security may hide a row from the UPDATE of its own transaction.
    "postgresql": (
        "SELECT current_database(), a.attname IS NOT NULL, has_column_privilege(a.attrelid, a.attnum, 'SELECT'), "
        "has_column_privilege(a.attrelid, a.attnum, 'INSERT') AND has_column_privilege(a.attrelid, a.attnum, 'UPDATE') "
        "AND NOT row_security_active(a.attrelid), "
        # ctid is a system column, to which rights to single columns give no access. Each partition has its own ctids.
        "c.relkind = 'r' AND has_column_privilege(a.attrelid, CAST(-1 AS smallint), 'SELECT') "
        "FROM (SELECT to_regclass('reconciler_inbox') AS id) AS t LEFT JOIN pg_catalog.pg_attribute AS a "
        "ON a.attrelid = t.id AND a.attname = 'incomplete' AND NOT a.attisdropped "
        "LEFT JOIN pg_catalog.pg_class AS c ON c.oid = t.id"
    ),
    # PRIVILEGES lists the privileges that this login has on any level. If the login may read, the list begins with
    # SELECT. The WHERE names schema and table, because MariaDB opens every table of the server for an outer join.
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
_HAS_TABLE = {
    "postgresql": "SELECT to_regclass('reconciler_inbox') IS NOT NULL",
    "mysql": (
        "SELECT COUNT(*) FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'reconciler_inbox'"
    ),
    "sqlite": "SELECT count(*) FROM pragma_table_info('reconciler_inbox')",
}
#: Takes SQLite's write lock, as writing the inbox row does. A read without the lock would fix the snapshot of the
#: transaction. If another process then commits, SQLite refuses the row at once (SQLITE_BUSY_SNAPSHOT) instead of
#: waiting.
_WRITES_NOTHING = "UPDATE reconciler_inbox SET source = source WHERE 1 = 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the login can do with the column in one database."""

    is_read: bool = False
    is_written: bool = False
    #: True only on PostgreSQL: a row is found again by its place (ctid).
    is_placed: bool = False


#: A login that cannot use the column. Rows that such a login writes are complete from the start.
AT_ONCE = Completion()


class KnownCompletions:
    """What the logins of a process can do in their databases. Thread-safe: two threads that ask at once get the same
    answer."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: Engine, or function that returns a connection -> the answer of its database, and the monotonic second of that
        #: answer.
        self._known: WeakKeyDictionary[Any, tuple[Completion, float]] = WeakKeyDictionary()
        #: Engines and functions whose stored answer was about another database, or is outdated. The databases of such
        #: engines and functions are asked each time.
        self._doubted: WeakSet[Any] = WeakSet()
        self._told: set[str] = set()

    def of(self, database: sa.Engine | Callable[[], Any], session: SqlSession) -> Completion:
        """Returns what the login can do in the database. Asks the database through the session if the answer is not
        known. Errors of the driver pass through. Raises ConfigurationError if the inbox has no transactions."""
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
        if session.dialect == "mysql":
            _require_transactions(str(name), session)
        found = Completion(is_read=bool(is_read), is_written=bool(is_read and is_written), is_placed=bool(is_placed))
        with self._lock:
            self._note(place, (found, now))
        if not found.is_written:
            self._tell(f"of {name} ({session.dialect})", session, has_column=bool(has_column))
        return found

    def forget(self, database: sa.Engine | Callable[[], Any], session: SqlSession, *, is_refused: bool) -> None:
        """Forgets the answer after an error, so that the next message asks again. `is_refused`: the stored answer is
        wrong, because a right was revoked or because the answer was about another database."""
        place = session.engine or database
        with self._lock, suppress(TypeError):
            if self._known.pop(place, None) is not None and is_refused:
                self._doubted.add(place)

    def _lookup(self, place: Any) -> tuple[Completion, float] | None:
        with suppress(TypeError):  # a place without a hash or a weak reference is asked each time
            return None if place in self._doubted else self._known.get(place)
        return None

    def _note(self, place: Any, known: tuple[Completion, float]) -> None:
        with suppress(TypeError):
            self._known[place] = known

    def _tell(self, database: str, session: SqlSession, *, has_column: bool) -> None:
        if database in self._told:
            return
        if not has_column and not (session.select_one(_HAS_TABLE[session.dialect], {}) or (0,))[0]:
            return  # each message fails and says that the table is missing
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


def _require_transactions(database: str, session: SqlSession) -> None:
    found = session.select_one(f"{WITHOUT_TRANSACTIONS} AND t.TABLE_NAME = '{INBOX.name}'", {})
    if found is not None:
        raise lacks_transactions(database, INBOX.name, str(found[1]))
