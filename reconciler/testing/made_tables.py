"""Makes the tables of both plug-ins in the database of a test."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from reconciler.sql.identity import ensure_identity, identity_sql, sign_of_life_sql
from reconciler.sql.tables import inbox_metadata, outbox_metadata


def make_tables(engine: sa.Engine) -> None:
    """Makes the missing tables, and gives the database its identity. A new SQLite file is a copy of a prepared file,
    because twenty SQL statements would be most of a test's cost."""
    path = engine.url.database
    if engine.dialect.name == "sqlite" and path and not path.startswith("file:") and not Path(path).exists():
        Path(path).write_bytes(_named(_empty_file()))
        return
    outbox_metadata.create_all(engine)
    inbox_metadata.create_all(engine)
    ensure_identity(engine)


def _named(file: bytes) -> bytes:
    """Gives the database in `file` a unique identity."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(file)
        for sql_of in (identity_sql, sign_of_life_sql):
            connection.execute(sql_of("sqlite"))
        connection.commit()
        return connection.serialize()


@cache
def _empty_file() -> bytes:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    outbox_metadata.create_all(engine)
    inbox_metadata.create_all(engine)
    with closing(engine.raw_connection()) as connection:
        driver = connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)  # noqa: S101  # create_engine was asked for sqlite
        made: bytes = driver.serialize()
    engine.dispose()
    return made
