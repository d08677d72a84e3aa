"""Column types of the migrations. These types never change: a change of the contract's types needs a new migration."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

# These collations compare byte by byte. MySQL's default collations ignore case.
_ASCII = {"charset": "ascii", "collation": "ascii_bin"}
_UTF8 = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}

Kind = sa.types.TypeEngine[Any]

INTEGER: Kind = sa.Integer()
BIGINT: Kind = sa.BigInteger()
KEY: Kind = sa.String(64).with_variant(mysql.VARCHAR(64, **_ASCII), "mysql", "mariadb")
SHORT: Kind = sa.String(32).with_variant(mysql.VARCHAR(32, **_ASCII), "mysql", "mariadb")
NAME: Kind = sa.String(160).with_variant(mysql.VARCHAR(160, **_UTF8), "mysql", "mariadb")
TEXT: Kind = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
BYTES: Kind = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
DIGEST: Kind = sa.LargeBinary(32).with_variant(mysql.VARBINARY(32), "mysql", "mariadb")

#: Options of every table. All guarantees need transactions, which only InnoDB has.
OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
}
