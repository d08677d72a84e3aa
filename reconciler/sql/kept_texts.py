"""Checks whether a database stores texts as they were sent.

Without a STRICT mode, MySQL and MariaDB silently change texts: they cut a text that is too long, and write a question
mark for a character that the column's character set lacks. A changed tag is another tag, which perhaps no group takes.
SQLite keeps every text, and PostgreSQL refuses a text that it cannot keep.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

from reconciler.contract.row_values import characters_max
from reconciler.contract.schema import Table
from reconciler.errors import InvalidValue
from reconciler.sql.callers_connection import CallersConnection
from reconciler.sql.rights import is_refused

logger = logging.getLogger(__name__)

#: Maximum number of characters of a text that an error shows.
_SHOWN_CHARACTERS = 80


def texts_in_doubt(dialect: str, table: Table, values: Mapping[str, object]) -> Mapping[str, str]:
    """Returns column -> text for the texts that the database may change: texts that are not plain ASCII, or longer than
    their column."""
    if dialect != "mysql":
        return {}
    texts = ((column, values.get(column.name)) for column in table.columns)
    return {
        column.name: text
        for column, text in texts
        if isinstance(text, str) and not (text.isascii() and len(text) <= (characters_max(column) or len(text)))
    }


def require_kept(connection: CallersConnection, table: Table, key: Mapping[str, str], sent: Mapping[str, str]) -> None:
    """Reads the texts of one row back, in the transaction that wrote the row. Needed for MySQL and MariaDB.

    Raises InvalidValue if the row has a changed text. If the login may not SELECT from the table, nothing is compared,
    and that is logged once. Other errors of the driver pass through.
    """
    # The server returns the texts as UTF-8 in hex digits. A connection with a wrong encoding would hide its own
    # mistake.
    columns = ", ".join(f"HEX(CONVERT({name} USING utf8mb4))" for name in sent)
    conditions = " AND ".join(f"{name} = {connection.marker}" for name in key)
    # The read takes locks, because a plain read would fix the snapshot of the caller's transaction.
    sql = f"SELECT {columns} FROM {table.name} WHERE {conditions} LOCK IN SHARE MODE"  # noqa: S608  # names of ours
    try:
        row = connection.select_one(sql, tuple(key.values()))
    except Exception as error:
        if not is_refused(error):
            raise
        _tell_once(table.name)
        return
    for number, (name, text) in enumerate(sent.items()):
        stored = None if row is None or row[number] is None else bytes.fromhex(row[number])
        if stored != text.encode():
            raise InvalidValue(f"{table.name}.{name}", text[:_SHOWN_CHARACTERS], _remedy(stored))


def _remedy(stored: bytes | None) -> str:
    kept = "no row with it" if stored is None else repr(stored.decode("utf-8", "replace")[:_SHOWN_CHARACTERS])
    return (
        f"the database would keep {kept}; give the column the character set utf8mb4 and the length of reconciler's "
        "own tables (reconciler db sql shows them), the connection charset=utf8mb4, or send what both can hold. With "
        "a STRICT mode in sql_mode the database refuses such a value by itself"
    )


@cache
def _tell_once(table: str) -> None:
    logger.warning(
        "texts_not_compared: the login may not read %s: whether it keeps texts as they were sent is not known; GRANT "
        "SELECT ON %s",
        table,
        table,
    )
