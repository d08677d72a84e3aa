"""Finds out which rights to tables a login lacks, without changing a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.contract.facts import Fact
from reconciler.errors import ConfigurationError, ReconcilerError
from reconciler.sql.driver_errors import class_names, lacks_schema, sqlstate_of
from reconciler.sql.engines import translated_errors

#: ER_TABLEACCESS_DENIED_ERROR and ER_COLUMNACCESS_DENIED_ERROR of MySQL and MariaDB.
_MYSQL_REFUSALS = (1142, 1143)


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one table."""

    verb: Literal["SELECT", "INSERT", "UPDATE", "DELETE"]
    table: sa.Table
    #: The columns that an UPDATE writes, for logins with rights to single columns; empty: any column.
    columns: tuple[str, ...] = ()
    #: What the product does not do without this right; None: the right is necessary.
    without_it: Fact | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.verb} {self.table.name}"


def is_refused(error: BaseException | None) -> bool:
    """Returns True if the database refused a statement because of a missing right. The error may wrap the driver's."""
    original = getattr(error, "orig", None) or error
    number = next(iter(getattr(original, "args", ())), None)
    is_of_postgres = "InsufficientPrivilege" in class_names(original) or sqlstate_of(original) == "42501"
    return is_of_postgres or number in _MYSQL_REFUSALS


def lacks_right(error: ReconcilerError) -> bool:
    """Returns True if the error comes from a missing right: the database counts as away, although it has answered."""
    return is_refused(error.__cause__)


def is_lacking(error: ReconcilerError) -> bool:
    """Returns True if the database has answered, and lacks a table, or the login a right to it."""
    return isinstance(error, ConfigurationError) or lacks_right(error)


def refused_rights(engine: sa.Engine, rights: Iterable[Right]) -> Mapping[Right, str]:
    """Returns the refused rights, each with the database's text. A missing table or column is not a missing right.

    Statements that touch no row are enough, because databases check rights before rows. Raises DatabaseAway, also while
    another process writes to a SQLite file.
    """
    refused: dict[Right, str] = {}
    with translated_errors(engine), engine.connect() as connection, connection.begin() as transaction:
        for right in rights:
            attempt = connection.begin_nested()
            try:
                connection.execute(_statement(right))
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise
                if not lacks_schema(str(error.orig)):
                    refused[right] = str(error.orig).strip().splitlines()[0]
            attempt.rollback()
        transaction.rollback()
    return refused


def _statement(right: Right) -> sa.Executable:
    table, never = right.table, sa.literal(1) == sa.literal(0)
    match right.verb:
        case "SELECT":
            return sa.select(table).where(never)
        case "INSERT":
            return sa.insert(table).from_select(list(table.columns), sa.select(table).where(never))
        case "UPDATE":
            written = right.columns or (next(iter(table.columns)).name,)
            return sa.update(table).where(never).values({table.c[name]: table.c[name] for name in written})
        case "DELETE":
            return sa.delete(table).where(never)
