"""The row that identifies a producer's database, and the row of the sign of life beside it.

By the identity, record() notices a connection to another database. A restored copy of a database has the same identity.
To give a staging copy an identity of its own, delete both rows and call ensure_identity.
"""

from __future__ import annotations

import sqlalchemy as sa

from reconciler.errors import ConfigurationError, warn_of_former_paths
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import reading, writing
from reconciler.sql.tables import outbox_identity

#: The row that identifies the database.
IDENTITY_ID = 1
#: The row whose swept_at_ms every sweep writes. record() locks row 1 on MySQL and MariaDB (INSERT ... SELECT) until its
#: transaction ends. A sweep that wrote to row 1 would wait for all these transactions, and make others wait.
SIGN_OF_LIFE_ID = 2

_RANDOM_TEXT = {
    "sqlite": "lower(hex(randomblob(16)))",
    "postgresql": "md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text)",
    "mysql": "md5(concat(uuid(), rand()))",
    "mariadb": "md5(concat(uuid(), rand()))",
}


def identity_sql(dialect: str) -> str:
    """Returns the statement that inserts the identity's row unless it exists. The migration and its DDL use it, too."""
    return _row_sql(dialect, IDENTITY_ID, _RANDOM_TEXT[dialect])


def sign_of_life_sql(dialect: str) -> str:
    """Returns the statement that inserts the row of the sign of life unless it exists. The migration uses it, too."""
    return _row_sql(dialect, SIGN_OF_LIFE_ID, "'sign of life'")


def _row_sql(dialect: str, number: int, text: str) -> str:
    table = outbox_identity.name
    dual = "FROM DUAL " if dialect in {"mysql", "mariadb"} else ""
    return (
        f"INSERT INTO {table} (id, identity) SELECT {number}, {text} {dual}"  # noqa: S608  # our constants
        f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE id = {number})"
    )


def ensure_identity(engine: sa.Engine) -> str:
    """Inserts both rows unless they exist, and returns the identity. Needed for tables that metadata.create_all made.

    Raises DatabaseAway, and ConfigurationError if the table is missing.
    """
    for sql_of in (identity_sql, sign_of_life_sql):
        try:
            with writing(engine) as connection:
                connection.execute(sa.text(sql_of(connection.dialect.name)))
        except sa.exc.IntegrityError:
            pass  # another process inserted it first
    return read_identity(engine)


def read_identity(engine: sa.Engine) -> str:
    """Returns the identity. Raises DatabaseAway, and ConfigurationError if the table or the row is missing."""
    find = sa.select(outbox_identity.c.identity).where(outbox_identity.c.id == IDENTITY_ID)
    with reading(engine) as connection:
        found = connection.execute(find).scalar()
    if found is None:
        raise ConfigurationError(f"{shown(engine)}: {outbox_identity.name} is empty; run reconciler db upgrade outbox")
    return str(found)


warn_of_former_paths(__name__, {"ensure_identity": "checkback_producers.tables"})
