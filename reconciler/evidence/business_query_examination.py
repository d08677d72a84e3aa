"""Checks a query of the business before its first answer: login, transaction, limits, columns, plan, collation, role,
and open transactions. Reports unknown for each aspect that a database does not show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.query_answers import COLUMNS
from reconciler.evidence.business_query_inspection import (
    COPIED_TABLE,
    MAY_WRITE,
    PLAN_ROWS_MAX,
    READS_TOO_MUCH,
    ROWS_MAY_HIDE,
    OpenTransactions,
    open_transactions,
    too_long,
)
from reconciler.policy.commit_query import COLUMNS_MAX, KEYS_MAX, BusinessQuery, CommitQuery, KeyType, KeyValue
from reconciler.policy.commit_query_dry_run import Fitness, QueryAspect, QueryFinding
from reconciler.sql.engines import reading
from reconciler.sql.key_probes import with_keys
from reconciler.sql.time_outs import missing_time_out
from reconciler.sql.witness_database import DatabaseRole

READS_ONLY = Code("query.reads-only")
NO_LOGINS = Code("query.no-logins")
READ_ONLY = Code("query.read-only")
NOT_READ_ONLY = Code("query.not-read-only")
BOUNDS = Code("query.bounds", keys=Field.NUMBER, rows=Field.NUMBER)
NO_TIME_OUT = Code("query.no-time-out", name=Field.NAME)
COLUMNS_FIT = Code("query.columns-fit", key=Field.NAME, state=Field.NAME)
COLUMN_UNFIT = Code("query.column-unfit", column=Field.NAME, found=Field.NAME, declared=Field.NAMES)
COLUMNS_UNKNOWN = Code("query.columns-unknown")
PLAN_FITS = Code("query.plan-fits", keys=Field.NUMBER, rows=Field.NUMBER)
PLAN_UNKNOWN = Code("query.plan-unknown")
KEYS_AS_BYTES = Code("query.keys-as-bytes", tried=Field.NUMBER)
KEYS_WITHOUT_COLLATION = Code("query.keys-without-collation", type=Field.NAME)
KEYS_FOLDED = Code("query.keys-folded", key=Field.TEXT)
COLLATION_UNKNOWN = Code("query.collation-unknown")
IS_PRIMARY = Code("query.is-primary")
IS_REPLICA = Code("query.is-replica", kind=Field.FACT)
ROLE_UNKNOWN = Code("query.role-unknown", why=Field.TEXT)
TRANSACTIONS_FIT = Code("query.transactions-fit", seconds=Field.NUMBER, declared=Field.NUMBER)
NO_TRANSACTION = Code("query.no-transaction")
TRANSACTIONS_UNKNOWN = Code("query.transactions-unknown")

#: Maximum number of other forms of keys that are asked for.
_TWISTED_MAX = 200
_SHOWN_CHARACTERS_MAX = 60
_ASPECT_OF = {
    COLUMNS: QueryAspect.COLUMNS,
    MAY_WRITE: QueryAspect.LOGIN,
    ROWS_MAY_HIDE: QueryAspect.LOGIN,
    READS_TOO_MUCH: QueryAspect.PLAN,
    COPIED_TABLE: QueryAspect.ROLE,
}
_READ_ONLY = {
    "postgresql": "SELECT current_setting('transaction_read_only') = 'on'",
    "sqlite": "PRAGMA query_only",
    "mysql": "SELECT @@SESSION.transaction_read_only",
    "mariadb": "SELECT @@SESSION.tx_read_only",
}
#: The types of columns in MySQL's protocol.
_MYSQL_KINDS = {
    **dict.fromkeys((1, 2, 3, 8, 9), "integer"),
    **dict.fromkeys((15, 247, 249, 250, 251, 252, 253, 254), "text"),
}
_POSTGRES_INTEGERS = frozenset({"int2", "int4", "int8"})
_POSTGRES_KINDS = {"S": "text", "E": "text", "B": "boolean"}
_KEY_KINDS = {KeyType.TEXT: {"text"}, KeyType.INTEGER: {"integer"}, KeyType.UUID: {"uuid", "text"}}
_STATE_KINDS: Mapping[type, str] = {str: "text", int: "integer", bool: "boolean"}


def problem_findings(problems: Iterable[Fact]) -> Iterator[QueryFinding]:
    """Yields the problems that make every answer invalid, each under its aspect."""
    for problem in problems:
        yield _unfit(_ASPECT_OF.get(problem.code, QueryAspect.ANSWER), problem)


def examine_query(engine: sa.Engine, query: BusinessQuery, keys: Sequence[KeyValue]) -> list[QueryFinding]:
    """Asks the database for its findings. Raises DatabaseAway, ConfigurationError, SQLAlchemyError."""
    is_sqlite = engine.dialect.name == "sqlite"
    found = [_noted(QueryAspect.LOGIN, NO_LOGINS()) if is_sqlite else _fit(QueryAspect.LOGIN, READS_ONLY())]
    with reading(engine) as connection:
        found.append(_read_only(connection))
        found += _columns(connection, query, keys)
        if isinstance(query, CommitQuery):
            found.append(_transactions(query, open_transactions(connection)))
    missing = None if is_sqlite else missing_time_out(engine)
    if missing is None:
        found.append(_fit(QueryAspect.BOUNDS, BOUNDS(keys=KEYS_MAX, rows=query.rows_max)))
    else:
        found.append(_noted(QueryAspect.BOUNDS, NO_TIME_OUT(name=missing)))
    plan = PLAN_FITS(keys=len(keys), rows=PLAN_ROWS_MAX) if keys else None
    found.append(_noted(QueryAspect.PLAN, PLAN_UNKNOWN()) if plan is None else _fit(QueryAspect.PLAN, plan))
    return found


def _fit(aspect: QueryAspect, found: Fact) -> QueryFinding:
    return QueryFinding(aspect=aspect, fitness=Fitness.FIT, found=found)


def _noted(aspect: QueryAspect, found: Fact) -> QueryFinding:
    return QueryFinding(aspect=aspect, fitness=Fitness.NOTED, found=found)


def _unfit(aspect: QueryAspect, found: Fact) -> QueryFinding:
    return QueryFinding(aspect=aspect, fitness=Fitness.UNFIT, found=found)


def _read_only(connection: sa.Connection) -> QueryFinding:
    """Returns the finding whether a transaction may write. The connection's transaction begins like those of the
    answers."""
    is_mariadb = getattr(connection.dialect, "is_mariadb", False)
    question = _READ_ONLY["mariadb" if is_mariadb else connection.dialect.name]
    if connection.execute(sa.text(question)).scalar():
        return _fit(QueryAspect.READ_ONLY, READ_ONLY())
    return _unfit(QueryAspect.READ_ONLY, NOT_READ_ONLY())


def _columns(connection: sa.Connection, query: BusinessQuery, keys: Sequence[KeyValue]) -> Iterator[QueryFinding]:
    """Yields findings about the types of the two columns, without reading a row."""
    head = f"SELECT * FROM ({query.sql}\n) AS asked LIMIT 0"  # noqa: S608  # the user's own statement, keys bound
    described = connection.execute(*with_keys(head, keys or (query.key_type.example,))).cursor
    codes = [] if described is None else [column[1] for column in described.description]
    kinds = _kinds(connection, codes)
    if len(kinds) != COLUMNS_MAX:
        yield _noted(QueryAspect.COLUMNS, COLUMNS_UNKNOWN())
        return
    states = {_STATE_KINDS[type(state)] for state in query.states}
    wanted = (("key", kinds[0], _KEY_KINDS[query.key_type]), ("state", kinds[1], states))
    unfit = [(name, kind, declared) for name, kind, declared in wanted if kind not in declared]
    for name, kind, declared in unfit:
        told = COLUMN_UNFIT(column=name, found=kind, declared=tuple(sorted(declared)))
        yield _unfit(QueryAspect.COLUMNS, told)
    if not unfit:
        yield _fit(QueryAspect.COLUMNS, COLUMNS_FIT(key=kinds[0], state=kinds[1]))


def _kinds(connection: sa.Connection, codes: Sequence[Any]) -> list[str]:
    """Returns the kinds of the driver's type codes. Empty for SQLite, whose columns have no type codes."""
    if connection.dialect.name == "sqlite":
        return []
    if connection.dialect.name != "postgresql":
        return [_MYSQL_KINDS.get(code, f"type {code}") for code in codes]
    asked = "SELECT oid, typname::text, typcategory::text FROM pg_catalog.pg_type WHERE oid IN :oids"
    types = sa.text(asked).bindparams(sa.bindparam("oids", expanding=True))
    named = {oid: (name, category) for oid, name, category in connection.execute(types, {"oids": list(codes)})}
    return [_postgres_kind(*named.get(code, (f"type {code}", ""))) for code in codes]


def _postgres_kind(name: str, category: str) -> str:
    return "integer" if name in _POSTGRES_INTEGERS else _POSTGRES_KINDS.get(category, name)


def _transactions(query: CommitQuery, transactions: OpenTransactions) -> QueryFinding:
    for told in too_long(query, transactions):
        return _noted(QueryAspect.TRANSACTIONS, told)
    if not transactions.are_known:
        return _noted(QueryAspect.TRANSACTIONS, TRANSACTIONS_UNKNOWN())
    if transactions.longest_seconds is None:
        return _fit(QueryAspect.TRANSACTIONS, NO_TRANSACTION())
    seconds, declared = round(transactions.longest_seconds), round(query.longest_transaction_seconds)
    return _fit(QueryAspect.TRANSACTIONS, TRANSACTIONS_FIT(seconds=seconds, declared=declared))


def role_finding(role: DatabaseRole, unread: Sequence[str]) -> QueryFinding:
    """Returns the finding about the role. Only a primary is fit."""
    if role.is_primary:
        return _fit(QueryAspect.ROLE, IS_PRIMARY())
    if role.is_primary is None:
        return _unfit(QueryAspect.ROLE, ROLE_UNKNOWN(why="; ".join(unread)))
    return _unfit(QueryAspect.ROLE, IS_REPLICA(kind=role.kind))


def twisted_keys(keys: Sequence[KeyValue]) -> list[str]:
    """Returns the keys in the other case, and with a trailing blank. None of these forms equals a given key."""
    texts = [key for key in keys if isinstance(key, str)]
    made = (form for key in texts for form in (key.swapcase(), f"{key} "))
    known = set(texts)
    return list(dict.fromkeys(form for form in made if form not in known))[:_TWISTED_MAX]


def collation_finding(
    key_type: KeyType, twisted: Sequence[str], rows: Sequence[Sequence[object]] | None
) -> QueryFinding:
    """Returns the finding about the collation. Keys are folded if a key came back that was not asked for. `rows`: None
    if no answer came."""
    aspect = QueryAspect.COLLATION
    if key_type is not KeyType.TEXT:
        return _fit(aspect, KEYS_WITHOUT_COLLATION(type=key_type.value))
    if rows is None:
        return _noted(aspect, COLLATION_UNKNOWN())
    asked = set(twisted)
    folded = [row[0] for row in rows if row and row[0] not in asked]
    if folded:
        return _noted(aspect, KEYS_FOLDED(key=str(folded[0])[:_SHOWN_CHARACTERS_MAX]))
    return _fit(aspect, KEYS_AS_BYTES(tried=len(asked)))
