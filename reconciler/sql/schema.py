"""Upgrades a database's tables and prints their DDL. Needs alembic (extra `daemon`), which is loaded at first use.

Each of the three trees (outbox, inbox, ledger) has its own version table, so they may share one database. The
migrations themselves print the DDL, with the version table. So a database that was made by the DDL can be upgraded
later.
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
from reconciler.contract.tables import VERSION_TABLES
from reconciler.errors import ConfigurationError, DatabaseAway, InvalidValue, MissingDependency, without_remedy
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import open_engine, reading, translated_errors, writing
from reconciler.sql.identity import identity_sql, sign_of_life_sql
from reconciler.sql.rights import lacks_right
from reconciler.sql.table_shapes import missing_tables

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

TREES = ("outbox", "inbox", "ledger")
DIALECTS = ("sqlite", "postgresql", "mysql")
#: Longest wait for a statement of an upgrade. MySQL sends nothing while it builds the index of a large table.
BUILD_SECONDS = 86_400

#: Errors for a table, column or index that exists already. The last one is PostgreSQL's for two CREATE TABLE at once.
_MADE_BY_ANOTHER = ("already exists", "duplicate column name", "pg_type_typname_nsp_index")

_OWNER_REMEDY = (
    "upgrade as the owner of the tables, whose URL --url @FILE or RECONCILER_DB_URL names: the login of a process "
    "makes none (docs/how-to/security.md)"
)

_FOLDER = Path(__file__).parent / "migrations"


def upgrade(url: Secret, tree: str) -> str:
    """Runs the tree's missing migrations, and inserts missing rows of the outbox's identity. Returns the new revision.

    On SQLite and PostgreSQL each migration is one transaction; MySQL commits every statement. A repeated call changes
    nothing, and continues an interrupted upgrade. Raises DatabaseAway. Raises ConfigurationError if no migration made
    the tables, or if they are older than 0.2.0.
    """
    config = _config(tree)
    engine = open_engine(url, silence_seconds=BUILD_SECONDS)
    try:
        _run_until_head(config, engine, tree)
        if gone := missing_tables(engine, tree):
            found = f"its {tree} is at revision {head(tree)}, and lacks {', '.join(gone)}: somebody dropped or renamed"
            remedy = "rename it back, or restore it from a backup; an upgrade makes it no second time"
            raise ConfigurationError(f"{shown(engine)}: {found} it; {remedy}")
        with writing(engine) as connection:
            for sql_of in (identity_sql, sign_of_life_sql) if tree == "outbox" else ():
                connection.execute(sa.text(sql_of(connection.dialect.name)))  # a person may have deleted the rows
    except DatabaseAway as error:
        if not lacks_right(error):
            raise
        raise DatabaseAway(without_remedy(error), remedy=_OWNER_REMEDY) from error
    finally:
        engine.dispose()
    return head(tree)


def _run_until_head(config: Config, engine: sa.Engine, tree: str) -> None:
    """Runs the migrations. If several upgrades of PostgreSQL run at once, each migration succeeds in one of them, and
    the others continue from its revision.

    A lock of the session could not separate them, because a pooler gives every transaction another session.
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
    """Returns two values: whether the version table exists, and the revision in it."""
    from alembic.runtime.migration import MigrationContext

    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLES[tree]})
        return sa.inspect(connection).has_table(VERSION_TABLES[tree]), context.get_current_revision()


def _wait_for_other_upgrades(connection: sa.Connection) -> None:
    """Makes other upgrades of a MySQL or MariaDB database wait until this connection ends."""
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
    except sa.exc.PendingRollbackError as error:  # alembic commits even on a lost connection; its context is the cause
        raise error.__context__ or error from None
    except sa.exc.DBAPIError as error:
        if not any(word in str(error.orig) for word in _MADE_BY_ANOTHER):
            raise
        raise ConfigurationError(
            f"{shown(connection.engine)}: tables of the {tree} exist that no migration made "
            f"({str(error.orig)[:120]}); keep making them yourself, or stamp {VERSION_TABLES[tree]} with {head(tree)!r}"
        ) from error


def current(database: Secret | sa.Engine, tree: str) -> str | None:
    """Returns the revision of the database's tables. None: no migration of this tree has run. Raises DatabaseAway."""
    _config(tree)
    with _read(database) as engine:
        return _position(engine, tree)[1]


def head(tree: str) -> str:
    """Returns the newest revision that this release knows."""
    return _known(tree, _scripts(tree).get_current_head())


def base(tree: str) -> str:
    """Returns the oldest revision that this release upgrades: that of 0.2.0."""
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

    `in_transaction`: the SQL fits into a transaction of the caller.
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
    """Returns True if all tables of the tree exist, made by migrations or by hand. Raises DatabaseAway."""
    with _read(database) as engine:
        return not missing_tables(engine, tree)


@contextmanager
def _read(database: Secret | sa.Engine) -> Iterator[sa.Engine]:
    """Yields the given engine, or an engine that is open during the block."""
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
    # A path may contain %, by which Alembic begins an interpolation.
    config.set_main_option("script_location", str(_FOLDER / tree).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
