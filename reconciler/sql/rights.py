"""What a login may not do to tables, found out without changing a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.sql.engines import class_names, translated_errors

#: ER_TABLEACCESS_DENIED_ERROR and ER_COLUMNACCESS_DENIED_ERROR of MySQL and MariaDB.
_MYSQL_REFUSALS = (1142, 1143)


def is_refused(error: BaseException | None) -> bool:
    """True if the database refused a statement for want of a right, whatever wraps the driver's error."""
    original = getattr(error, "orig", None) or error
    number = next(iter(getattr(original, "args", ())), None)
    return "InsufficientPrivilege" in class_names(original) or number in _MYSQL_REFUSALS


def refused_writes(engine: sa.Engine, tables: Iterable[sa.Table]) -> Sequence[str]:
    """What the database refuses, a line each; empty if every table can be written.

    Statements that touch no row are enough: rights are looked at before rows are. Raises DatabaseAway, also for a
    SQLite file that somebody else writes just now.
    """
    refused: list[str] = []
    with translated_errors(engine), engine.connect() as connection, connection.begin() as transaction:
        for table in tables:
            for verb, statement in _statements(table):
                attempt = connection.begin_nested()
                try:
                    connection.execute(statement)
                except DBAPIError as error:
                    if error.connection_invalidated:
                        raise
                    refused.append(f"{verb} {table.name}: {str(error.orig).strip().splitlines()[0]}")
                attempt.rollback()
        transaction.rollback()
    return refused


def _statements(table: sa.Table) -> Iterator[tuple[str, sa.Executable]]:
    never = sa.literal(1) == sa.literal(0)
    column = next(iter(table.columns))
    yield "INSERT", sa.insert(table).from_select(list(table.columns), sa.select(table).where(never))
    yield "UPDATE", sa.update(table).where(never).values({column: column})
    yield "DELETE", sa.delete(table).where(never)
