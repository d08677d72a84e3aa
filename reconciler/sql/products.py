"""Finds out which product answers instead of PostgreSQL, MySQL or MariaDB.

Other products use their protocols, but define a primary differently.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.sql.engines import translated_errors


@dataclass(frozen=True, slots=True)
class Product:
    """A product. An empty name means PostgreSQL, MySQL, MariaDB or SQLite itself."""

    name: str = ""
    #: True if proofs of absence were tried on it (docs/reference/set-ups.md).
    is_tried: bool = True


#: PostgreSQL, MySQL, MariaDB or SQLite itself.
THE_SERVER = Product()

#: Words of version texts, in lower case -> product.
_SAID = {
    "tidb": "TiDB",
    "oceanbase": "OceanBase",
    "polardb": "PolarDB",
    "aurora": "Aurora",
    "percona xtradb cluster": "Percona XtraDB Cluster",
    "cockroachdb": "CockroachDB",
    "-yb-": "YugabyteDB",
    "greenplum": "Greenplum",
}
_GALERA = "Galera"
_GROUP = "MySQL group replication"
#: Dialect -> product -> an SQL expression that has a value only on that product.
_ONLY_THERE = {
    "postgresql": {
        "Aurora": "(SELECT 1 FROM pg_catalog.pg_proc WHERE proname = 'aurora_version' LIMIT 1)",
        "PolarDB": "(SELECT 1 FROM pg_catalog.pg_proc WHERE proname = 'polar_version' LIMIT 1)",
    },
    "mysql": {
        "Aurora": "@@aurora_version",
        "PolarDB": "@@polardb_version",
        "OceanBase": "@@ob_compatibility_mode",
        "TiDB": "@@tidb_current_ts",
        _GALERA: "NULLIF(@@wsrep_on, 0)",
        _GROUP: "NULLIF(@@group_replication_group_name, '')",
    },
}


def product_of(engine: sa.Engine) -> Product:
    """Returns the product of one database. Raises DatabaseAway."""
    kind = "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name
    if kind == "sqlite":
        return THE_SERVER
    with translated_errors(engine), engine.connect() as connection:
        said = [_value(connection, "version()")]
        if kind == "mysql":
            said.append(_value(connection, "@@version_comment"))
        words = " ".join(said).lower()
        name = next((name for text, name in _SAID.items() if text in words), "")
        found = (other for other, sql in _ONLY_THERE[kind].items() if _value(connection, sql))
        name = name or next(found, "")
    return Product(name, is_tried=name in ("", _GALERA))


def _value(connection: sa.Connection, sql: str) -> str:
    """Returns the value of an expression; empty if it does not exist or may not be read."""
    try:
        with connection.begin():
            value = connection.execute(sa.select(sa.literal_column(sql))).scalar()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return ""
    return "" if value is None else str(value)
