"""Finds the problems of a query of the business: rights to write, a plan that reads too much, hidden rows, a
replica."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.contract.facts import Code, Fact, Field
from reconciler.policy.commit_query import COLUMNS_MAX, BusinessQuery, CommitQuery, KeyValue, columns
from reconciler.sql.engines import reading
from reconciler.sql.key_probes import with_keys
from reconciler.sql.witness_database import HIDES_ROWS

MAY_WRITE = Code("query.may-write", what=Field.TEXT)
READS_TOO_MUCH = Code("query.reads-too-much", table=Field.NAME, rows=Field.NUMBER)
ROWS_MAY_HIDE = Code("query.rows-may-hide", table=Field.NAME)
COPIED_TABLE = Code("query.copied-table", table=Field.NAME)
LONG_TRANSACTION = Code("query.long-transaction", seconds=Field.NUMBER, declared=Field.NUMBER)

#: Maximum number of rows that one step of a plan may read.
PLAN_ROWS_MAX = 10_000
#: Privileges of MySQL and MariaDB that a reading login may have.
_READING = frozenset(
    {
        "USAGE",
        "SELECT",
        "SHOW VIEW",
        "SHOW DATABASES",
        "PROCESS",
        "REPLICATION CLIENT",
        "BINLOG MONITOR",
        "SLAVE MONITOR",
        "REPLICA MONITOR",
    }
)
_GRANT = re.compile(r"GRANT (?P<what>.+?) ON (?P<place>.+?) TO ")
#: MariaDB is installed with these rights of every login, and with databases of these names for tests.
_GRANT_TO_TESTS = re.compile(r"GRANT .+ ON `test(?:\\_%)?`\.\* TO PUBLIC")
_NAME_OF_TESTS = re.compile(r"test(?:_|$)", re.IGNORECASE)
_COLUMN_LIST = re.compile(r"\([^)]*\)")
_SQLITE_SCAN = re.compile(r"SCAN (?:TABLE )?(?P<name>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The problems and notes that were found before the first question."""

    #: Any problem makes every answer invalid.
    problems: tuple[Fact, ...] = ()
    notes: tuple[Fact, ...] = ()


def inspect_query(engine: sa.Engine, query: BusinessQuery, keys: Sequence[KeyValue]) -> Inspection:
    """Inspects the query in one read-only transaction. Raises DatabaseAway, ConfigurationError, SQLAlchemyError."""
    keys = keys or (query.key_type.example,)  # PostgreSQL refuses an empty list, because it has no type
    with reading(engine) as connection:
        head = f"SELECT * FROM ({query.sql}\n) AS asked LIMIT 0"  # noqa: S608  # the user's own statement, keys bound
        number = len(connection.execute(*with_keys(head, keys)).keys())
        if number != COLUMNS_MAX:
            return Inspection(problems=(columns(number),))
        if connection.dialect.name == "postgresql":
            found = [*_postgres_rights(connection), *_postgres_plan(connection, query, keys)]
        elif connection.dialect.name == "sqlite":
            found = [*_sqlite_plan(connection, query, keys)]
        else:
            found = [*_mysql_rights(connection), *_mysql_plan(connection, query, keys)]
        notes = [*too_long(query, open_transactions(connection))] if isinstance(query, CommitQuery) else []
    return Inspection(problems=tuple(dict.fromkeys(found)), notes=tuple(notes))


def may_write(what: str) -> Fact:
    """Returns the fact that the login may do more than read."""
    return MAY_WRITE(what=what)


def too_long(query: CommitQuery, transactions: OpenTransactions) -> Iterator[Fact]:
    """Yields a fact if a transaction has been open for longer than declared."""
    longest = transactions.longest_seconds
    if longest is not None and longest > query.longest_transaction_seconds:
        yield LONG_TRANSACTION(seconds=round(longest), declared=round(query.longest_transaction_seconds))


def _reads(table: str, rows: float) -> Iterator[Fact]:
    if rows > PLAN_ROWS_MAX:
        yield READS_TOO_MUCH(table=table, rows=round(rows))


# --------------------------------------------------------------------- PostgreSQL

# READ ONLY keeps a login from writing rows, but not a superuser from using files and programs of the host.
_POSTGRES_WRITES = """
SELECT 'SUPERUSER' FROM pg_catalog.pg_roles WHERE rolname = current_user AND rolsuper
UNION ALL SELECT rolname::text FROM pg_catalog.pg_roles
 WHERE rolname IN
   ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', 'pg_write_all_data')
   AND pg_has_role(oid, 'USAGE')
UNION ALL (SELECT 'a write to ' || n.nspname || '.' || c.relname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
   AND (has_table_privilege(c.oid, 'DELETE, TRUNCATE') OR has_any_column_privilege(c.oid, 'INSERT, UPDATE'))
 LIMIT 1)
"""
_POSTGRES_TABLE = """
SELECT c.reltuples, {hides_rows},
       EXISTS (SELECT 1 FROM pg_catalog.pg_subscription_rel WHERE srrelid = c.oid)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = :schema AND c.relname = :table
""".replace("{hides_rows}", HIDES_ROWS.replace("{oid}", "c.oid"))


def _postgres_rights(connection: sa.Connection) -> Iterator[Fact]:
    for what in connection.execute(sa.text(_POSTGRES_WRITES)).scalars().all()[:1]:
        yield may_write(what)


def _postgres_plan(connection: sa.Connection, query: BusinessQuery, keys: Sequence[KeyValue]) -> Iterator[Fact]:
    # PostgreSQL would rather read a whole table of some ten thousand rows than probe the table 500 times. Without
    # sequential scans, the plan shows whether an index exists.
    connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
    told = connection.execute(*with_keys(f"EXPLAIN (FORMAT JSON, VERBOSE) {query.sql}", keys)).scalar_one()
    for node in _nodes(told[0]["Plan"]):
        schema, table = node.get("Schema"), node.get("Relation Name")
        if schema is None or table is None:
            continue
        asked = {"schema": schema, "table": table}
        tuples, is_secured, is_copied = connection.execute(sa.text(_POSTGRES_TABLE), asked).one()
        is_whole = node["Node Type"].endswith("Seq Scan") or (
            node["Node Type"].startswith("Index") and "Index Cond" not in node
        )
        yield from _reads(table, max(tuples if is_whole else 0, node["Plan Rows"]))
        if is_secured:
            yield ROWS_MAY_HIDE(table=table)
        if is_copied:
            yield COPIED_TABLE(table=table)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


# --------------------------------------------------------------------- MySQL and MariaDB


def _mysql_rights(connection: sa.Connection) -> Iterator[Fact]:
    """Yields a right to write. A read-only transaction does not stop a login with FILE from writing a file on the
    host. Of a database that is not for tests, MariaDB's rights of PUBLIC in its test databases show nothing."""
    is_for_tests = _NAME_OF_TESTS.match(connection.engine.url.database or "test") is not None
    for text in connection.execute(sa.text("SHOW GRANTS")).scalars():
        granted = _GRANT.match(text)
        if granted is None or (_GRANT_TO_TESTS.match(text) and not is_for_tests):
            continue
        words = {word.strip() for word in _COLUMN_LIST.sub("", granted["what"]).split(",")}
        if more := sorted(words - _READING):
            yield may_write(f"{', '.join(more)} ON {granted['place']}")
            return


def _mysql_plan(connection: sa.Connection, query: BusinessQuery, keys: Sequence[KeyValue]) -> Iterator[Fact]:
    for row in connection.execute(*with_keys(f"EXPLAIN {query.sql}", keys)).mappings():
        yield from _reads(str(row["table"]), int(row["rows"] or 0))


# --------------------------------------------------------------------- SQLite


def _sqlite_plan(connection: sa.Connection, query: BusinessQuery, keys: Sequence[KeyValue]) -> Iterator[Fact]:
    """Counts the rows of scanned tables. For a view, SQLite's plan names the view's tables. A scan of an alias counts
    as a scan of each table that the query names."""
    tables = set(connection.execute(sa.text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars())
    for row in connection.execute(*with_keys(f"EXPLAIN QUERY PLAN {query.sql}", keys)):
        scanned = _SQLITE_SCAN.match(str(row[-1]))
        if scanned is None:
            continue
        # The scanned name may be an alias of any of these tables.
        for name in tables & {scanned["name"]} or _named(tables, query.sql):
            quoted = connection.dialect.identifier_preparer.quote_identifier(name)
            many = f"SELECT COUNT(*) FROM (SELECT 1 FROM {quoted} LIMIT {PLAN_ROWS_MAX + 1}) AS counted"  # noqa: S608  # a table's own name
            yield from _reads(name, connection.execute(sa.text(many)).scalar_one())


def _named(tables: set[str], sql: str) -> set[str]:
    return {name for name in tables if re.search(rf"\b{re.escape(name)}\b", sql, re.IGNORECASE)}


# --------------------------------------------------------------------- transactions

_LONGEST = {
    "postgresql": "SELECT EXTRACT(EPOCH FROM max(now() - begun)) FROM ("
    "SELECT xact_start AS begun FROM pg_catalog.pg_stat_activity "
    "WHERE backend_xid IS NOT NULL AND datname = current_database() "
    "UNION ALL SELECT prepared FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()) AS written",
    "mysql": "SELECT MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())) FROM information_schema.innodb_trx",
}
#: Asks whether the login sees other logins' transactions. MySQL and MariaDB refuse _LONGEST without PROCESS.
_SEES_OTHERS = {"postgresql": "SELECT pg_has_role('pg_read_all_stats', 'USAGE')", "mysql": "SELECT TRUE"}


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Open transactions that have written. Their rows may still become visible."""

    #: False if the database may have transactions that the login does not see.
    are_known: bool
    #: The age of the oldest visible transaction. None: no transaction is visible.
    longest_seconds: float | None = None


def open_transactions(connection: sa.Connection) -> OpenTransactions:
    """Reads the open transactions. Call it last in a transaction, because a refusal ends the transaction."""
    kind = "mysql" if connection.dialect.name == "mariadb" else connection.dialect.name
    if kind not in _LONGEST:
        return OpenTransactions(are_known=False)
    try:
        longest = connection.execute(sa.text(_LONGEST[kind])).scalar()
        are_known = bool(connection.execute(sa.text(_SEES_OTHERS[kind])).scalar())
    except DBAPIError:
        return OpenTransactions(are_known=False)
    return OpenTransactions(are_known, None if longest is None else float(longest))
