"""Databases as witnesses: one statement reads the rows of keys, and the role of the server that answers.

A missing row proves an absence only in the database that commits, or in a replica that has followed far enough, and
only to a login that sees every row. Two statements may reach two servers, because of a proxy or a fail-over. So the
same statement reads role and rows, and returns the role even if no row matches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.clock import Clock, SystemClock
from reconciler.contract.answers import (
    ANSWER_NOT_PROVED,
    FORMER,
    LIFE,
    LIFE_AHEAD,
    NO_LIFE,
    NO_ROW,
    NO_ROW_DOUBTED,
    NODE,
    NODE_NOT_PROVED,
    PRIMARY_NOT_PROVED,
    REPLICA,
    ROWS_HIDDEN,
)
from reconciler.contract.defaults import SKEW_MARGIN_SECONDS
from reconciler.contract.facts import Code, Fact
from reconciler.errors import DatabaseSilent, ReconcilerError, StatementTooSlow
from reconciler.policy.evidence import Presence, WitnessAnswer
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.sql.driver_errors import class_names, is_silent, lacks_schema, shown
from reconciler.sql.engines import reading, translated_errors
from reconciler.sql.identity import IDENTITY_ID, SIGN_OF_LIFE_ID
from reconciler.sql.key_probes import probe, with_keys
from reconciler.sql.silence import slowness_of
from reconciler.sql.table_shapes import require_lasting_rows
from reconciler.sql.tables import column_names, outbox_identity
from reconciler.sql.timely_pages import TimelyPages

logger = logging.getLogger(__name__)

T = TypeVar("T")

FORGET_REPLICATION = Code("sql.forget-replication")
LET_IT_APPLY = Code("sql.let-it-apply")

#: Pause before a table that lacks a newer column is asked for the column again.
UPGRADE_SECONDS = 60.0
#: The keys of a statement that takes too long are halved this often before the database counts as away.
HALVINGS_MAX = 2
#: The text for a cluster's node that may lack commits of other nodes.
BEHIND = "a node of a cluster that has not shown that it is up to date"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRole:
    """The role of a database, by its own answer."""

    #: None: the role could not be read (a missing right, another kind of server). Then an absence counts, and `doctor`
    #: and `status` report the doubt.
    is_primary: bool | None
    #: Outbox: the time of the last sign of life that has arrived here, by the primary's clock. None: there is no sign
    #: of life, or it may not be read.
    swept_at_ms: int | None = None
    #: True if the sign of life is ahead of our clock by more than clocks may differ, so that its age is unknown.
    is_life_ahead: bool = False
    #: PostgreSQL: row security is in force for this login, and no policy shows it every row.
    hides_rows: bool = False
    #: Outbox: the identity of the answering database (`reconciler_outbox_identity`), which halves carry as their mark.
    #: None: it may not be read, or is in another schema than the rows.
    identity: str | None = None
    #: True for a node of a Galera cluster. Then `is_primary` is True if the node has waited, in the same statement, for
    #: all earlier commits of the cluster.
    is_node: bool = False

    @property
    def kind(self) -> Fact:
        """Kind of a server that is not a primary: node or replica."""
        return NODE() if self.is_node else REPLICA()

    def proves_absence(self, not_before_ms: int | None = None) -> bool:
        """Returns True if every row that was committed before `not_before_ms` is here. None: an inbox, which only needs
        a primary.

        A replica commits in its primary's order, so rows from before the sign of life have arrived before it. A server
        that calls itself a primary may be a former primary. So the sign of life of a primary, if there is one, must be
        later than the time, too. With WHENEVER_COMMITTED_MS, the role of a primary is enough. A sign of life in the
        future proves nothing for a replica, whose lag is unknown then.
        """
        if not_before_ms is None:
            return self.is_primary is not False
        if self.hides_rows:
            return False
        is_believed = self.swept_at_ms is None or not_before_ms == WHENEVER_COMMITTED_MS
        if self.is_primary is not False and is_believed:
            return True
        if self.is_primary is False and self.is_life_ahead:
            return False
        return self.swept_at_ms is not None and self.swept_at_ms > not_before_ms


def absence(witness: str, role: DatabaseRole, not_before_ms: int | None = None) -> WitnessAnswer:
    """Returns the answer of a database without a row of the key: ABSENT if its role proves that, otherwise UNKNOWN."""
    if role.proves_absence(not_before_ms):
        return WitnessAnswer(witness=witness, presence=Presence.ABSENT, detail=NO_ROW(), identity=role.identity)
    doubted = no_row_doubted(_doubt(role, not_before_ms))
    return WitnessAnswer(witness=witness, presence=Presence.UNKNOWN, detail=doubted)


def no_row_doubted(doubt: Fact) -> Fact:
    """Returns the fact that a database shows no row, and that this proves nothing."""
    return NO_ROW_DOUBTED(doubt=doubt)


def rows_hidden() -> Fact:
    """Returns the fact that the login may not see every row."""
    return ROWS_HIDDEN()


def _doubt(role: DatabaseRole, not_before_ms: int | None) -> Fact:
    if not_before_ms is None:
        return NODE_NOT_PROVED() if role.is_node else ANSWER_NOT_PROVED()
    if role.hides_rows:
        return rows_hidden()
    what = FORMER() if role.is_primary is not False else role.kind
    return PRIMARY_NOT_PROVED(what=what, life=_life(role))


def _life(role: DatabaseRole) -> Fact:
    if not role.swept_at_ms:
        return NO_LIFE()
    code = LIFE_AHEAD if role.is_life_ahead else LIFE
    return code(at_ms=role.swept_at_ms)


@dataclass(frozen=True, slots=True)
class _Word:
    """An SQL condition that is true on a primary."""

    sql: str
    #: How to let a login read the condition.
    mend: str
    #: How to make the condition true on a primary on which it is false.
    remedy: Code | None = None


_ANY_LOGIN = "every login of a real server may: is a proxy or another product in between?"
_POSTGRESQL = (
    _Word("NOT pg_is_in_recovery()", f"EXECUTE on pg_is_in_recovery(); {_ANY_LOGIN}"),
    # A subscriber of logical replication is a copy, too, although it is not in recovery.
    _Word(
        "NOT EXISTS (SELECT 1 FROM pg_catalog.pg_subscription_rel WHERE srrelid = to_regclass('{table}'))",
        f"SELECT on pg_subscription_rel; {_ANY_LOGIN}",
    ),
)
# False in PostgreSQL if the login sees every row, by BYPASSRLS or by a policy FOR SELECT USING (true).
HIDES_ROWS = (
    "row_security_active({oid}) AND (NOT EXISTS (SELECT 1 FROM pg_catalog.pg_policy "
    "WHERE polrelid = {oid} AND polpermissive AND polcmd IN ('r', '*') "
    "AND pg_get_expr(polqual, polrelid) = 'true' AND (0 = ANY (polroles) OR EXISTS "
    "(SELECT 1 FROM unnest(polroles) AS named (id) WHERE pg_has_role(named.id, 'USAGE')))) "
    "OR EXISTS (SELECT 1 FROM pg_catalog.pg_policy WHERE polrelid = {oid} AND NOT polpermissive "
    "AND polcmd IN ('r', '*')))"
)
_HIDES_ROWS = _Word(HIDES_ROWS.replace("{oid}", "to_regclass('{table}')::oid"), f"SELECT on pg_policy; {_ANY_LOGIN}")
_READ_ONLY = (
    _Word("@@global.read_only = 0", _ANY_LOGIN),
    _Word("@@global.innodb_read_only = 0", _ANY_LOGIN),
)
# A replica may have read_only = 0. MariaDB shows every login three values: the heartbeat of the unnamed replication
# (running or stopped), the number of running replications, and how far each has come. RESET SLAVE ALL keeps the
# heartbeat until the next start. So a server also counts as promoted if the newest transaction of every domain is its
# own. One domain is not enough: after a write by hand on a replica with its own domain, that write stays the newest
# there. Without a binary log, own transactions have no number, so a stopped named replication looks like a removed one.
_MARIADB = (
    _Word(
        "(NOT EXISTS (SELECT 1 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_VALUE > 0 "
        "AND VARIABLE_NAME IN ('SLAVE_HEARTBEAT_PERIOD', 'SLAVES_RUNNING')) "
        "OR @@global.gtid_current_pos RLIKE CONCAT('^([0-9]+-', @@global.server_id, '-[0-9]+(,|$))+$'))",
        _ANY_LOGIN,
    ),
    _Word(
        "(@@global.gtid_slave_pos = '' OR (@@global.log_bin <> 0 "
        "AND LOCATE(CONCAT('-', @@global.server_id, '-'), @@global.gtid_current_pos) > 0))",
        _ANY_LOGIN,
        remedy=FORGET_REPLICATION,
    ),
)
# Every node of Galera calls itself a primary, and applies commits of other nodes a moment or much later. With
# wsrep_sync_wait, the node waits for these commits before the first statement of a transaction; it silently ignores the
# setting later in a transaction. A read that may be dirty does not wait.
_CAUGHT_UP = _Word(
    "(@@wsrep_on = 0 OR ((@@session.wsrep_sync_wait & 1) = 1 AND @@session.wsrep_dirty_reads = 0))",
    "let the login, or the proxy in between, SET SESSION wsrep_sync_wait",
    remedy=LET_IT_APPLY,
)
_WAIT = "SET SESSION wsrep_sync_wait = 1, wsrep_dirty_reads = 0"
_WAIT_NO_MORE = "SET SESSION wsrep_sync_wait = DEFAULT, wsrep_dirty_reads = DEFAULT"
#: Galera's error after the longest wait (repl.causal_read_timeout, 30 s).
_WAITED_TOO_LONG = 1205
_MYSQL = (
    _Word(
        "NOT EXISTS (SELECT 1 FROM performance_schema.replication_connection_configuration "
        "WHERE HOST <> '' AND LEFT(CHANNEL_NAME, 17) <> 'group_replication')",
        "GRANT SELECT ON performance_schema.replication_connection_configuration",
    ),
)
_SIGN_OF_LIFE = f"(SELECT swept_at_ms FROM {outbox_identity.name} WHERE id = {SIGN_OF_LIFE_ID})"  # noqa: S608  # our constants
_IDENTITY = f"(SELECT identity FROM {outbox_identity.name} WHERE id = {IDENTITY_ID})"  # noqa: S608  # our constants
#: The schema in which PostgreSQL finds a table. An identity in another schema says nothing about the rows.
_SCHEMA = "(SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = to_regclass('{table}'))"
#: Errors of MySQL and MariaDB for a database, table, column or variable that the login may not see or that is missing.
_UNREADABLE = frozenset({1044, 1049, 1054, 1109, 1142, 1143, 1146, 1193, 1227, 1370})
#: Also the errors by which proxies and servers other than MariaDB refuse a variable of Galera.
_NO_GALERA = _UNREADABLE | {1105, 1235, 1238}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """SQL expressions for the parts of a database's role that a login may read."""

    is_primary: str
    swept_at_ms: str = "NULL"
    hides_rows: str = "NULL"
    identity: str = "NULL"
    #: Galera: true if the statement sees all earlier commits of the cluster.
    caught_up: str = ""
    is_node: str = "0"
    #: True if the login may make a statement wait until caught_up is true.
    can_wait: bool = False
    #: The readable conditions of a primary.
    conditions: tuple[_Word, ...] = ()
    unread: tuple[str, ...] = ()
    has_newer: bool = False
    #: Monotonic time of this knowledge, in seconds.
    read_at: float = 0.0


class WitnessDatabase:
    """One database that is asked for evidence. Shared by threads. Remembers which parts of the role may be read."""

    def __init__(
        self,
        engine: sa.Engine,
        table: sa.Table,
        *,
        is_outbox: bool = False,
        newer: sa.Column[Any] | None = None,
        clock: Clock | None = None,
        skew_margin_seconds: float = SKEW_MARGIN_SECONDS,
    ) -> None:
        """`table`: the table whose rows are read; `is_outbox`: it has an identity and signs of life; `newer`: a column
        that older releases lack; `skew_margin_seconds`: most difference of clocks. The caller disposes the engine."""
        self.engine = engine
        #: Page sizes of scans.
        self.pages = TimelyPages()
        self._table = table.name
        self._is_outbox = is_outbox
        self._newer = newer
        self._clock = clock or SystemClock()
        self._skew_margin_ms = round(skew_margin_seconds * 1000)
        #: The last sign of life that was seen, and the time up to which this sign proves that every row is here.
        self._life: tuple[int, int] | None = None
        self._words: _Words | None = None
        self._has_lasting_rows = False
        #: Maximum number of keys of one statement; None as long as no statement was too slow.
        self._keys_max: int | None = None

    def probe(
        self, query: sa.Select[Any], column: sa.Column[str], keys: Sequence[str], *, now_ms: int | None = None
    ) -> tuple[DatabaseRole, list[sa.Row[Any]]]:
        """Returns the server's role, and the query's rows whose column is one of the keys, in no order. If several
        statements were needed, the role is the weakest of their roles.

        If the database ends a statement because of its time, its keys are halved. Later calls begin with that number of
        keys, which each call doubles. If the halves are too slow, the table is spared for a while. `now_ms`: the time
        by another clock of the caller, which counts if it is later than this host's. Raises DatabaseAway. Raises
        ConfigurationError, also if rows of the table prove nothing: rolled back ones stay, or a crash empties it.
        """
        if not self._has_lasting_rows:
            require_lasting_rows(self.engine, self._table)
            self._has_lasting_rows = True
        slowness = slowness_of(self.engine, self._table)
        with nullcontext() if slowness is None else slowness.asking():
            role, rows = self._probe(query, column, keys)
        return self._by_the_clocks(role, max(now_ms or 0, self._clock.now_ms())), rows

    def scan(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        """Returns the rows of a query that names no keys. Raises DatabaseAway, ConfigurationError."""
        with self._trusting_words(), reading(self.engine) as connection:
            return connection.execute(query).all()

    def ask(self, sql: str, keys: Sequence[Any], *, rows_max: int) -> tuple[DatabaseRole, list[tuple[Any, ...]]]:
        """Runs a given query with the keys as `:keys`, and reads the server's role in the same statement. Raises
        DatabaseAway, ConfigurationError, and SQLAlchemyError for an invalid query."""
        words = self._readable()
        role_sql = sa.select(*_role_columns(words))
        # The line break is needed because the query's last line may be a comment.
        found_sql = f"SELECT 1 AS is_row, asked.* FROM ({sql}\n) AS asked LIMIT {rows_max}"  # noqa: S608  # keys are bound
        statement = f"SELECT role.*, found.* FROM ({role_sql}) AS role LEFT JOIN ({found_sql}) AS found ON 1 = 1"  # noqa: S608  # as above

        def answer(connection: sa.Connection) -> tuple[DatabaseRole, list[tuple[Any, ...]]]:
            rows = connection.execute(*with_keys(statement, keys)).all()
            width = len(_role_columns(words))
            return _role_of(rows[0]), [tuple(row[width + 1 :]) for row in rows if row[width] is not None]

        with self._trusting_words():
            with reading(self.engine) as connection:
                role, found = answer(connection)
            if self._may_wait(words, role):
                role, found = self._after_a_wait(answer) or (role, found)
        return role, found

    def _probe(
        self, query: sa.Select[Any], column: sa.Column[str], keys: Sequence[str]
    ) -> tuple[DatabaseRole, list[sa.Row[Any]]]:
        roles: list[DatabaseRole] = []
        rows: list[sa.Row[Any]] = []
        asked, halvings = len(keys), 0
        while len(keys) > 0 or not roles:
            page = keys[: self._keys_max]
            try:
                role, found = self._probe_page(query, column, page)
            except StatementTooSlow:
                self._keys_max = max(1, len(page) // 2)
                halvings += 1
                if len(page) > 1 and halvings <= HALVINGS_MAX:
                    continue
                raise
            roles.append(role)
            rows += found
            keys = keys[len(page) :]
        if not halvings and self._keys_max is not None:
            self._keys_max = None if self._keys_max >= asked else self._keys_max * 2
        return _least(roles), rows

    def _by_the_clocks(self, role: DatabaseRole, now_ms: int) -> DatabaseRole:
        """Returns the role with the time that its sign of life proves. If the sign was first seen while it was ahead of
        the clocks, it proves only the time of that moment, for ever."""
        if role.swept_at_ms is None:
            return role
        is_ahead = role.swept_at_ms > now_ms + self._skew_margin_ms
        life = self._life
        if life is None or life[0] != role.swept_at_ms:
            self._life = life = (role.swept_at_ms, min(role.swept_at_ms, now_ms) if is_ahead else role.swept_at_ms)
        return replace(role, swept_at_ms=life[1], is_life_ahead=is_ahead)

    def _probe_page(
        self, query: sa.Select[Any], column: sa.Column[str], keys: Sequence[str]
    ) -> tuple[DatabaseRole, list[sa.Row[Any]]]:
        words = self._readable()

        def ask(connection: sa.Connection, keys: Sequence[str]) -> tuple[DatabaseRole, list[sa.Row[Any]]]:
            rows = probe(connection, query, column, keys, always=_role(words)).all()
            return _role_of(rows[0]), [row for row in rows if getattr(row, column.name) is not None]

        with self._trusting_words():
            with reading(self.engine) as connection:
                role, rows = ask(connection, keys)
            found = {getattr(row, column.name) for row in rows}
            missing = [key for key in keys if key not in found]
            if missing and self._may_wait(words, role):
                role, more = self._after_a_wait(lambda connection: ask(connection, missing)) or (role, [])
                rows += more
        return role, rows

    def _may_wait(self, words: _Words, role: DatabaseRole) -> bool:
        return words.can_wait and role.is_node and role.is_primary is False

    def _after_a_wait(self, ask: Callable[[sa.Connection], T]) -> T | None:
        """Returns the answer of a cluster's node after it has all commits of the cluster. None: the node did not get
        them in time. Then no statement waits for a while; statements that do not wait continue."""
        behind = slowness_of(self.engine, "wsrep_sync_wait")
        try:
            with nullcontext() if behind is None else behind.asking(), reading(self.engine) as connection:
                return self._waiting(connection, ask)
        except (StatementTooSlow, DatabaseSilent) as error:
            logger.debug("cluster_behind: %s", error)
            return None

    def _waiting(self, connection: sa.Connection, ask: Callable[[sa.Connection], T]) -> T:
        connection.exec_driver_sql(_WAIT)
        try:
            return ask(connection)
        except DBAPIError as error:
            # A waiting server ends no statement, so a missed deadline of this process does not mean a silent server.
            if is_silent(error.orig) or _number(error) == _WAITED_TOO_LONG:
                raise StatementTooSlow(f"{shown(self.engine)}: {BEHIND}: {error.orig}") from error
            raise
        finally:
            if not connection.invalidated:
                connection.exec_driver_sql(_WAIT_NO_MORE)

    @contextmanager
    def _trusting_words(self) -> Iterator[None]:
        """Surrounds a statement that uses the readable parts of the role. After an error, the next statement checks
        again which parts may be read, because a right may have been revoked."""
        try:
            yield
        except ReconcilerError:
            self._words = None
            raise

    def newer(self) -> sa.ColumnElement[Any]:
        """Returns the newer column. If the table lacks it or the login may not read it, returns NULL under its name.
        Notices an upgrade of the table after UPGRADE_SECONDS at most. Raises DatabaseAway."""
        assert self._newer is not None  # noqa: S101 - callers have named the column
        return self._newer if self._readable().has_newer else sa.null().label(self._newer.name)

    def role(self) -> DatabaseRole:
        """Returns the role without rows. A later statement to this server sees all rows that it has now. Raises
        DatabaseAway."""
        words = self._readable()

        def ask(connection: sa.Connection) -> DatabaseRole:
            return _role_of(connection.execute(sa.select(_role(words))).one())

        with reading(self.engine) as connection:
            role = ask(connection)
        return (self._after_a_wait(ask) or role) if self._may_wait(words, role) else role

    def remedies(self, *, is_node: bool) -> tuple[Fact, ...]:
        """Returns the remedies of the conditions of a primary that are false now. Raises DatabaseAway."""
        words = [word for word in self._readable().conditions if word.remedy is not None]
        words += [_CAUGHT_UP] if is_node else []
        if not words:
            return ()
        with reading(self.engine) as connection:
            values: Sequence[Any] = connection.execute(sa.select(*(sa.literal_column(w.sql) for w in words))).one()
        return tuple(w.remedy() for w, is_true in zip(words, values, strict=True) if w.remedy and not is_true)

    def is_no_replica(self) -> sa.ColumnElement[bool]:
        """Returns a condition that is false on a replica, for statements that must not run there. If the role is
        unknown, the condition is true. Raises DatabaseAway."""
        return sa.literal_column(f"({self._readable().is_primary}) IS NOT FALSE", sa.Boolean())

    def unread(self) -> tuple[str, ...]:
        """Returns the parts of the role that the login may not read, each with its remedy. Raises DatabaseAway."""
        return self._readable().unread

    def _readable(self) -> _Words:
        words, now = self._words, self._clock.monotonic_seconds()
        waits = words is not None and (words.has_newer or now - words.read_at < UPGRADE_SECONDS)
        if words is None or (self._newer is not None and not waits):
            with translated_errors(self.engine), self.engine.connect() as connection:
                self._words = words = self._try_each(connection, now)
        return words

    def _has_newer(self, connection: sa.Connection) -> bool:
        newer = self._newer
        if newer is None:
            return False
        if connection.dialect.name == "sqlite":  # SQLite has no rights
            return newer.name in column_names(connection, self._table)
        return _refusal(connection, f"(SELECT MAX({newer.name}) FROM {self._table} WHERE 1 = 0)") is None  # noqa: S608  # our constants

    def _try_each(self, connection: sa.Connection, now: float) -> _Words:
        if connection.dialect.name == "sqlite":
            identity = self._own(connection, _IDENTITY)
            return _Words(is_primary="1", identity=identity, has_newer=self._has_newer(connection), read_at=now)
        read: list[_Word] = []
        unread: list[str] = []
        hides_rows = "NULL"
        is_postgresql = connection.dialect.name == "postgresql"
        for word in (*_words_of(connection.dialect), *((_HIDES_ROWS,) if is_postgresql else ())):
            sql = word.sql.replace("{table}", self._table)
            refusal = _refusal(connection, sql)
            if refusal is not None:
                unread.append(f"{refusal}: {word.mend}")
            elif word is _HIDES_ROWS:
                hides_rows = sql
            else:
                read.append(replace(word, sql=sql))
        is_primary = " AND ".join(word.sql for word in read) or "NULL"
        is_clustered = not is_postgresql and _refusal(connection, _CAUGHT_UP.sql, refused=_NO_GALERA) is None
        refusal = _refusal_to_wait(connection) if is_clustered else None
        if refusal is not None:
            unread.append(f"{refusal}: {_CAUGHT_UP.mend}")
        # If the login cannot wait, an inbox could never prove an absence. An outbox has its sign of life instead.
        counts = is_clustered and (refusal is None or self._is_outbox)
        life, identity = _SIGN_OF_LIFE, _IDENTITY
        if is_postgresql:
            # A replica of the whole server commits in its primary's order; a logical subscription does not.
            life = f"CASE WHEN pg_is_in_recovery() OR ({is_primary}) IS NOT FALSE THEN {life} END"
            of_rows, of_name = (_SCHEMA.replace("{table}", name) for name in (self._table, outbox_identity.name))
            identity = f"CASE WHEN {of_rows} = {of_name} THEN {identity} END"
        return _Words(
            is_primary=is_primary,
            swept_at_ms=self._own(connection, life),
            hides_rows=hides_rows,
            identity=self._own(connection, identity),
            caught_up=_CAUGHT_UP.sql if counts else "",
            is_node="@@wsrep_on" if counts else "0",
            can_wait=is_clustered and refusal is None,
            conditions=tuple(read),
            unread=tuple(unread),
            has_newer=self._has_newer(connection),
            read_at=now,
        )

    def _own(self, connection: sa.Connection, sql: str) -> str:
        """Returns the expression, or NULL if the table is no outbox or the login cannot read it."""
        return sql if self._is_outbox and _refusal(connection, sql) is None else "NULL"


def _words_of(dialect: sa.Dialect) -> tuple[_Word, ...]:
    if dialect.name == "postgresql":
        return _POSTGRESQL
    return _READ_ONLY + (_MARIADB if getattr(dialect, "is_mariadb", False) else _MYSQL)


def _refusal(connection: sa.Connection, sql: str, *, refused: Set[object] = _UNREADABLE) -> str | None:
    """Returns why the login cannot read an expression; None if it can. `refused`: error numbers of MySQL and MariaDB
    that mean this."""
    try:
        with connection.begin():
            connection.execute(sa.select(sa.literal_column(sql)))
    except DBAPIError as error:
        number = _number(error)
        is_refused = "ProgrammingError" in class_names(error.orig) or number in refused
        is_refused = is_refused or lacks_schema(str(error.orig))
        if is_refused and not error.connection_invalidated:
            return str(error.orig).strip().splitlines()[0][:200]
        raise
    return None


def _number(error: DBAPIError) -> object:
    """Returns the number of an error of MySQL or MariaDB."""
    return next(iter(getattr(error.orig, "args", ())), None)


def _refusal_to_wait(connection: sa.Connection) -> str | None:
    """Returns why no statement of this login can wait for the cluster. None: it can wait, or the server is no node of a
    cluster."""
    try:
        with connection.begin():
            connection.exec_driver_sql(_WAIT)
            connection.exec_driver_sql("SET @reconciler_waits = @@session.wsrep_sync_wait")  # a SELECT would wait
            connection.exec_driver_sql(_WAIT_NO_MORE)
            takes = connection.exec_driver_sql("SELECT @reconciler_waits & 1 OR @@wsrep_on = 0").scalar()
    except DBAPIError as error:
        if error.connection_invalidated or _number(error) not in _NO_GALERA:
            raise
        return str(error.orig).strip().splitlines()[0][:200]
    return None if takes else "wsrep_sync_wait stays 0"


def _least(roles: Sequence[DatabaseRole]) -> DatabaseRole:
    """Returns the weakest role of several statements, because a proxy may have changed the server between two of
    them."""
    if len(roles) == 1:
        return roles[0]
    primary = {role.is_primary for role in roles}
    is_primary = False if False in primary else None if None in primary else True
    # Without a sign of life, a replica proves nothing, and a primary's role is enough. So a primary's sign is kept.
    lives = [role.swept_at_ms for role in roles if role.swept_at_ms is not None]
    is_without = not lives or (is_primary is False and len(lives) < len(roles))
    names = {role.identity for role in roles}
    return DatabaseRole(
        is_primary=is_primary,
        swept_at_ms=None if is_without else min(lives),
        hides_rows=any(role.hides_rows for role in roles),
        is_node=any(role.is_node for role in roles),
        identity=names.pop() if len(names) == 1 else None,
    )


def _role(words: _Words) -> sa.Subquery:
    return sa.select(*_role_columns(words)).subquery("role")


def _role_columns(words: _Words) -> tuple[sa.Label[Any], ...]:
    is_primary = f"({words.is_primary}) AND {words.caught_up}" if words.caught_up else words.is_primary
    return (
        sa.literal_column(is_primary).label("is_primary"),
        sa.literal_column(words.swept_at_ms, sa.BigInteger()).label("swept_at_ms"),
        sa.literal_column(words.hides_rows).label("hides_rows"),
        sa.literal_column(words.identity, sa.Text()).label("identity"),
        sa.literal_column(words.is_node).label("is_node"),
    )


def _role_of(row: Sequence[Any]) -> DatabaseRole:
    is_primary, swept_at_ms, hides_rows, identity, is_node = row[:5]
    return DatabaseRole(
        is_primary=None if is_primary is None else bool(is_primary),
        swept_at_ms=swept_at_ms,
        hides_rows=bool(hides_rows),
        identity=None if identity is None else str(identity),
        is_node=bool(is_node),
    )
