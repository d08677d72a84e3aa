"""Brings a database's tables up to date, and prints their DDL. Needs alembic (extra `daemon`), loaded on first use.

The three trees (outbox, inbox, ledger) have a version table each, so they may share one database. The printed DDL is
the migrations' own and writes the version table: a database made by it can be upgraded later.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from reconciler.contract.defaults import STATEMENT_SECONDS
from reconciler.contract.extras import install
from reconciler.contract.secret import Secret
from reconciler.contract.tables import INBOX, LATER_TABLES, OUTBOX, VERSION_TABLES
from reconciler.errors import ConfigurationError, DatabaseAway, InvalidValue, MissingDependency, without_remedy
from reconciler.sql.engines import open_engine, reading, shown, translated_errors, writing
from reconciler.sql.identity import identity_sql, sign_of_life_sql
from reconciler.sql.rights import Right, is_refused, refused_rights

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

TREES = ("outbox", "inbox", "ledger")
DIALECTS = ("sqlite", "postgresql", "mysql")
#: Building the index of a large table takes long, and MySQL sends nothing meanwhile.
BUILD_SECONDS = 86_400
_EVIDENCE = {"outbox": OUTBOX, "inbox": INBOX}

#: Errors of a database for a table, column or index that exists already; the last one: two CREATE TABLE at once.
_MADE_BY_ANOTHER = ("already exists", "duplicate column name", "pg_type_typname_nsp_index")

_OWNER_REMEDY = (
    "upgrade as the owner of the tables, whose URL --url @FILE or RECONCILER_DB_URL names: the login of a process "
    "makes none (docs/how-to/security.md)"
)

_FOLDER = Path(__file__).parent / "migrations"


def upgrade(url: Secret, tree: str) -> str:
    """Runs the tree's missing migrations, which create tables and the outbox's identity; returns the resulting
    revision.

    On SQLite and PostgreSQL each migration is one transaction; MySQL commits every statement. Harmless if nothing is
    missing; continues after an interruption. Raises DatabaseAway. Raises ConfigurationError if tables exist that no
    migration made, or that are older than the first one.
    """
    config = _config(tree)
    engine = open_engine(url, silence_seconds=BUILD_SECONDS)
    try:
        _run_until_head(config, engine, tree)
        with writing(engine) as connection:
            for sql_of in (identity_sql, sign_of_life_sql) if tree == "outbox" else ():
                connection.execute(sa.text(sql_of(connection.dialect.name)))  # the rows may have been deleted
    except DatabaseAway as error:
        if not is_refused(error.__cause__):
            raise
        raise DatabaseAway(without_remedy(error), remedy=_OWNER_REMEDY) from error
    finally:
        engine.dispose()
    return head(tree)


def _run_until_head(config: Config, engine: sa.Engine, tree: str) -> None:
    """Runs the migrations. On PostgreSQL, if several upgrades run at once, one of them succeeds with each migration,
    and the others continue from its revision.

    No lock of a session separates them, because a pooler gives every transaction another session.
    """
    while True:
        before = _position(engine, tree)
        if before[1] is not None and before[1] < base(tree):  # revisions are numbered
            found = f"its {tree} is at revision {before[1]}, and {base(tree)} of 0.2.0 is the first that is upgraded"
            raise ConfigurationError(f"{shown(engine)}: {found}: upgrade to 0.2.0 first")
        try:
            with translated_errors(engine), engine.connect() as connection:
                _wait_for_other_upgrades(connection)
                _run_missing(config, connection, tree)
        except ConfigurationError:
            if _position(engine, tree) == before:
                raise
        else:
            return


def _position(engine: sa.Engine, tree: str) -> tuple[bool, str | None]:
    """Returns whether the version table exists, and its revision."""
    from alembic.runtime.migration import MigrationContext

    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLES[tree]})
        return sa.inspect(connection).has_table(VERSION_TABLES[tree]), context.get_current_revision()


def _wait_for_other_upgrades(connection: sa.Connection) -> None:
    """Makes other upgrades of this database wait until this connection ends (MySQL and MariaDB)."""
    if connection.dialect.name in ("mysql", "mariadb"):
        name = "CONCAT('reconciler upgrade ', MD5(DATABASE()))"
        connection.exec_driver_sql(f"SELECT GET_LOCK({name}, {BUILD_SECONDS})")
        connection.commit()  # alembic begins its own transaction


def _run_missing(config: Config, connection: sa.Connection, tree: str) -> None:
    from alembic import command
    from alembic.util.exc import CommandError

    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise ConfigurationError(f"{shown(connection.engine)}: {error}; a newer release made this {tree}?") from error
    except sa.exc.PendingRollbackError as error:  # alembic commits what it has begun, even on a lost connection
        raise error.__context__ or error from None
    except sa.exc.DBAPIError as error:
        if not any(word in str(error.orig) for word in _MADE_BY_ANOTHER):
            raise
        raise ConfigurationError(
            f"{shown(connection.engine)}: tables of the {tree} exist that no migration made "
            f"({str(error.orig)[:120]}); keep making them yourself, or stamp {VERSION_TABLES[tree]} with {head(tree)!r}"
        ) from error


def current(database: Secret | sa.Engine, tree: str) -> str | None:
    """Returns the revision of the database's tables; None: no migration of this tree ran. Raises DatabaseAway."""
    _config(tree)
    with _read(database) as engine:
        return _position(engine, tree)[1]


def head(tree: str) -> str:
    """Returns the newest revision that this release knows."""
    return _known(tree, _scripts(tree).get_current_head())


def base(tree: str) -> str:
    """Returns the oldest revision that this release upgrades, which is 0.2.0's."""
    return _known(tree, _scripts(tree).get_base())


def _scripts(tree: str) -> ScriptDirectory:
    config = _config(tree)
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(config)


def _known(tree: str, revision: str | None) -> str:
    if revision is None:
        raise ConfigurationError(f"the installed package lacks its {tree} migrations; install it again")
    return revision


def ddl(tree: str, dialect: str, *, in_transaction: bool = False) -> str:
    """Returns the SQL of all migrations of a tree for one dialect, with version table and identity row.

    `in_transaction`: for the caller's transaction: no statement in it begins or commits one, or must run outside.
    """
    config = _config(tree)
    from alembic import command

    if dialect not in DIALECTS:
        raise InvalidValue("dialect", dialect, f"one of {', '.join(DIALECTS)}")
    output = io.StringIO()
    config.attributes["dialect"] = dialect
    config.attributes["output"] = output
    config.attributes["in_transaction"] = in_transaction
    command.upgrade(config, "head", sql=True)
    return output.getvalue()


def has_tables(database: Secret | sa.Engine, tree: str) -> bool:
    """Returns True if all tables of the tree exist, made by migrations or by hand; tables of releases after 0.2.0 may
    be missing. Raises DatabaseAway.

    MySQL and MariaDB do not list tables without rights for the login: a table that refuses to be read counts as
    existing. If the outbox or the inbox is a view, no other table is expected.
    """
    from reconciler.sql import tables

    metadata = {
        "outbox": tables.outbox_metadata,
        "inbox": tables.inbox_metadata,
        "ledger": tables.ledger_metadata,
    }[tree]
    needed = {name: table for name, table in metadata.tables.items() if name not in LATER_TABLES}
    with _read(database) as engine:
        with translated_errors(engine), engine.connect() as connection:
            if tree in _EVIDENCE and tables.is_view(connection, _EVIDENCE[tree].name):
                return True
            present = set(sa.inspect(connection).get_table_names())
        unseen = [Right("SELECT", table) for name, table in needed.items() if name not in present]
        return len(refused_rights(engine, unseen)) == len(unseen)


@contextmanager
def _read(database: Secret | sa.Engine) -> Iterator[sa.Engine]:
    """Returns the given engine, or opens one for the block."""
    if isinstance(database, sa.Engine):
        yield database
        return
    engine = open_engine(database, read_only=True, statement_seconds=STATEMENT_SECONDS)
    try:
        yield engine
    finally:
        engine.dispose()


def _config(tree: str) -> Config:
    if tree not in TREES:
        raise InvalidValue("tree", tree, f"one of {', '.join(TREES)}")
    try:
        from alembic.config import Config
    except ModuleNotFoundError as error:
        raise MissingDependency(f"migrations need alembic: {install('daemon')}") from error
    config = Config()
    # Alembic treats % as interpolation, and paths may contain one.
    config.set_main_option("script_location", str(_FOLDER / tree).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
