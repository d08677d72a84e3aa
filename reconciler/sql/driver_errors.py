"""Translates errors of database drivers into ours, with the remedy for a person.

A driver's error means that the database is away, is silent, has ended a statement, or lacks our tables. Every other
error is a bug.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.contract.own_limits import lacking
from reconciler.contract.tables import INBOX_TABLES, LEDGER_TABLES, OUTBOX_TABLES
from reconciler.contract.urls import blotted, shown_url
from reconciler.errors import ConfigurationError, DatabaseAway, DatabaseSilent, StatementTooSlow, with_causes
from reconciler.sql.changing_login import secret_of

#: Maximum number of characters of a driver's text that our errors repeat.
DRIVER_WORDS_CHARACTERS_MAX = 300
#: Patterns of texts of drivers, servers and pgbouncer, each with its remedy. The first match counts.
_REMEDIES = tuple(
    (re.compile(said, re.IGNORECASE), remedy)
    for said, remedy in (
        (r"\(1049,|database \S+ does not exist|no such database", "create the database, or correct its URL"),
        (
            r"unable to open database file",
            "let reconciler db upgrade make it in a folder that exists, or correct its URL",
        ),
        (
            r"no encryption",
            (
                "let pg_hba.conf admit this host and login, or, if it admits them over TLS only, ask for TLS "
                "in its URL (docs/reference/security.md#redis-and-databases)"
            ),
        ),
        (
            r"\(3159,|requires? ssl|insecure transport",
            "the server takes TLS only: ask for it in its URL (docs/reference/security.md#redis-and-databases)",
        ),
        (r"read-only transaction|\(1290,|\(1836,", "name a database in its URL that takes writes: a primary"),
        (r"no space left|disk is full|table is full|\(1114,|\(1021,", "make room on the disk of the database"),
        (
            r"server does not support ssl|\(2026,",
            "switch TLS on at the server, or take it out of its URL (docs/reference/security.md#redis-and-databases)",
        ),
        (
            r"does not match host name|hostname mismatch|ip address mismatch",
            (
                "reach it under a name of its certificate, or drop the check "
                "(docs/reference/security.md#redis-and-databases)"
            ),
        ),
        (
            r"key identifier|include key usage",
            "Python 3.13 and newer demand that extension: have its authority issue a certificate that has it",
        ),
        (r"certificate has expired|is not yet valid", "renew it at the server, or correct the clock of this host"),
        (r"alert certificate expired", "renew the certificate of this client, or correct the clock of the server"),
        (
            r"certificate verify failed|root certificate file|self-signed certificate",
            (
                "give the certificate of its authority in its URL, or renew the server's if it has expired "
                "(docs/reference/security.md#redis-and-databases)"
            ),
        ),
        (
            r"authentication failed|role \S+ does not exist|no such user|no password supplied|no pg_hba.conf|\(1045,",
            "correct user and password in its URL, or let the server admit them",
        ),
        (
            r"permission denied for|\(1044,|\(1142,|\(1143,|readonly database",
            "GRANT the login what docs/reference/rights.md lists; `reconciler doctor` names what is missing",
        ),
        (
            r"refused|timed? ?out|could not translate|failed to resolve|\(2003,|is starting up",
            "start the database, or correct its URL",
        ),
    )
)
#: An engine with this option reads tables that are not ours, by a query of somebody else.
OTHERS_TABLES_OPTION = "reconciler_others_tables"
#: Remedies for such an engine, before those above.
_REMEDIES_OF_OTHERS = tuple(
    (re.compile(said, re.IGNORECASE), remedy)
    for said, remedy in (
        (r"unable to open database file", "correct the URL of the query: it makes no file"),
        (
            r"permission denied for|\(1044,|\(1142,|\(1143,|readonly database",
            "GRANT the login SELECT on what the query reads",
        ),
    )
)
#: Classes of PostgreSQL's error codes that psycopg calls operational: connection, rollback by the server, resources,
#: locks, intervention, system.
_AWAY_SQLSTATES = ("08", "40", "53", "55", "57", "58")
#: The remedy if a statement takes longer than its time.
TOO_SLOW = "its tables may be large or its disk busy: raise rounds.statement_seconds if its statements need longer"
#: Name of a table -> the tree whose upgrade makes it.
_TREES = {
    table.name: tree
    for tree, tables in (("outbox", OUTBOX_TABLES), ("inbox", INBOX_TABLES), ("ledger", LEDGER_TABLES))
    for table in tables
}


def translate(error: DBAPIError, engine: sa.Engine) -> Exception:
    """Returns our error for SQLAlchemy's: ConfigurationError or DatabaseAway; the error itself if it is a bug."""
    translated = translate_driver_error(error.orig, engine)
    if translated is None and error.connection_invalidated:
        return away(error.orig, engine)
    return translated or error


def translate_driver_error(error: BaseException | None, engine: sa.Engine) -> Exception | None:
    """Returns our error for a driver's: ConfigurationError or DatabaseAway; None if the error is a bug."""
    text = _words(error, engine)
    if lacks_schema(text):
        tree = next((f" {tree}" for name, tree in _TREES.items() if name in text), "")
        remedy = "correct the query, or its URL" if _reads_others(engine) else f"run reconciler db upgrade{tree}"
        return ConfigurationError(f"{shown(engine)} lacks a table or column ({text}): {remedy}")
    if "ON CONFLICT" in text and sqlstate_of(error) in ("42P10", ""):  # not in a trigger's statement that met a lock
        return ConfigurationError(f"{shown(engine)} lacks a unique key ({text}): reconciler doctor names it")
    if "invalid connection option" in text:  # releases of libpq have different options
        return ConfigurationError(f"{shown(engine)}: {text}; remove it from its URL")
    return away(error, engine) if is_away(error) or is_silent(error) else None


def away(error: BaseException | None, engine: sa.Engine) -> DatabaseAway:
    """Returns an error whose text is one line: the database, the driver's text, the remedy."""
    text = _words(error, engine)
    if _was_ended(error):
        return StatementTooSlow(f"{shown(engine)}: {text}", remedy=TOO_SLOW)
    remedies = (*_REMEDIES_OF_OTHERS, *_REMEDIES) if _reads_others(engine) else _REMEDIES
    remedy = lacking(error) or next((remedy for said, remedy in remedies if said.search(text)), "")
    if is_silent(error):
        return DatabaseSilent(f"{shown(engine)}: no answer in time: {text}", remedy=remedy)
    return DatabaseAway(f"{shown(engine)}: {text}", remedy=remedy)


def _reads_others(engine: sa.Engine) -> bool:
    return bool(engine.get_execution_options().get(OTHERS_TABLES_OPTION))


def _words(error: BaseException | None, engine: sa.Engine) -> str:
    text = " ".join(str(error).split())[:DRIVER_WORDS_CHARACTERS_MAX]
    now = secret_of(engine)
    return blotted(blotted(text, engine.url.render_as_string(hide_password=False)), "" if now is None else now)


def is_away(error: BaseException | None) -> bool:
    """Returns True for a driver's error that a later try may cure: away, locked, deadlock, refused, full, read-only."""
    names = class_names(error)
    if "InFailedSqlTransaction" in names or sqlstate_of(error) == "25P02" or "syntax error" in str(error):
        return False  # a bug; SQLite calls a syntax error operational, too
    if names & {"OperationalError", "InterfaceError", "InternalError", "InsufficientPrivilege"}:
        return True
    if sqlstate_of(error)[:2] in _AWAY_SQLSTATES or sqlstate_of(error) == "42501" or isinstance(error, ConnectionError):
        return True
    # SQLite's "file is not a database" is a plain DatabaseError, and no error of a subclass.
    return type(error).__name__ == "DatabaseError"


def is_silent(error: BaseException | None) -> bool:
    """Returns True if a driver's error means that the server did not answer a statement or a new connection in time."""
    silent = {"StatementOverdue", "ConnectionTimeout"}
    return any(isinstance(one, TimeoutError) or class_names(one) & silent for one in with_causes(error))


def _was_ended(error: BaseException | None) -> bool:
    """Returns True if the server reports that it ended the statement because of its time."""
    # PostgreSQL uses 57014 also if a person cancels the statement. MariaDB uses 1969, MySQL 3024.
    return sqlstate_of(error) == "57014" or next(iter(getattr(error, "args", ())), None) in (1969, 3024)


def lacks_schema(text: str) -> bool:
    """Returns True if the driver's message means that our table or one of its columns is missing."""
    # In this order: SQLite; PostgreSQL 42P01 and 42703; MySQL 1146 and 1054.
    return any(part in text for part in ("no such table", "no such column", "has no column named")) or (
        (("relation" in text or "column" in text) and "does not exist" in text) or "(1146," in text or "(1054," in text
    )


def is_integrity_error(error: BaseException | None) -> bool:
    """Returns True for a driver's error about a violated constraint, such as a key that exists already."""
    return "IntegrityError" in class_names(error) or sqlstate_of(error)[:2] == "23"


def class_names(error: BaseException | None) -> set[str]:
    """Returns the names of an error's classes. PEP 249 defines them for every driver, so none need be imported."""
    return {kind.__name__ for kind in type(error).__mro__}


def sqlstate_of(error: BaseException | None) -> str:
    """Returns PostgreSQL's code in an error of psycopg or asyncpg, or an empty text. asyncpg's classes do not have the
    names of PEP 249."""
    return str(getattr(error, "sqlstate", None) or "")


def driver_error(error: Exception) -> Exception:
    """Returns the driver's own error, because the texts of SQLAlchemy's errors repeat a statement's parameters."""
    return getattr(error, "orig", None) or error


def shown(engine: sa.Engine) -> str:
    """Returns a database's name for people: its URL without secrets."""
    url = engine.url
    if url.database and url.database.startswith("file:"):
        url = url.set(database=unquote(url.database.removeprefix("file:")))
    return shown_url(url.set(drivername=url.get_backend_name()).render_as_string(hide_password=False))
