"""The one row that names a producer's database, so that record() notices a connection to another one.

A copy of a database (dump and restore) has the same name: give a staging copy another one by deleting the row and
calling ensure_identity.
"""

from __future__ import annotations

import sqlalchemy as sa

from reconciler.errors import ConfigurationError
from reconciler.sql.engines import reading, writing
from reconciler.sql.tables import outbox_identity

_RANDOM_TEXT = {
    "sqlite": "lower(hex(randomblob(16)))",
    "postgresql": "md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text)",
    "mysql": "md5(concat(uuid(), rand()))",
    "mariadb": "md5(concat(uuid(), rand()))",
}


def identity_sql(dialect: str) -> str:
    """The statement that inserts the row unless there is one; also part of migration and printed DDL."""
    table = outbox_identity.name
    dual = "FROM DUAL " if dialect in {"mysql", "mariadb"} else ""
    return (
        f"INSERT INTO {table} (id, identity) SELECT 1, {_RANDOM_TEXT[dialect]} {dual}"  # noqa: S608  # our constants
        f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE id = 1)"
    )


def ensure_identity(engine: sa.Engine) -> str:
    """Inserts the row unless there is one, and returns the identity: for tables made by metadata.create_all.

    Raises DatabaseAway, or ConfigurationError where the table is missing.
    """
    try:
        with writing(engine) as connection:
            connection.execute(sa.text(identity_sql(connection.dialect.name)))
    except sa.exc.IntegrityError:
        pass  # somebody else was quicker
    return read_identity(engine)


def read_identity(engine: sa.Engine) -> str:
    """The identity. Raises ConfigurationError where table or row are missing, DatabaseAway."""
    with reading(engine) as connection:
        found = connection.execute(sa.select(outbox_identity.c.identity).where(outbox_identity.c.id == 1)).scalar()
    if found is None:
        where = engine.url.render_as_string(hide_password=True)
        raise ConfigurationError(f"{where}: {outbox_identity.name} is empty; run reconciler db upgrade outbox")
    return str(found)
