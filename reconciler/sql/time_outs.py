"""Checks whether a server ends our late statements. Otherwise a statement that this process has given up would
continue.

A server or proxy may refuse the setting, or lose it before the next statement. So the value in force is read on an
ordinary connection.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.sql.driver_errors import class_names
from reconciler.sql.engines import reading
from reconciler.sql.silence import STATEMENT_SECONDS_OPTION

#: MySQL's number of the error "Unknown system variable".
_UNKNOWN_VARIABLE = 1193


def missing_time_out(engine: sa.Engine) -> str | None:
    """Returns the name of the setting that is not in force. None: the server ends late statements, or need not end them
    (SQLite, an engine without a deadline). Raises DatabaseAway."""
    if engine.get_execution_options().get(STATEMENT_SECONDS_OPTION) is None:
        return None
    with reading(engine) as connection:
        name, question = _question(connection.dialect)
        if not name:
            return None
        try:
            value = connection.execute(sa.text(question)).scalar()
        except DBAPIError as error:
            is_unknown = "UndefinedObject" in class_names(error.orig)  # PostgreSQL 42704
            if not is_unknown and next(iter(getattr(error.orig, "args", ())), None) != _UNKNOWN_VARIABLE:
                raise
            return name
    return None if _is_time(value) else name


def _question(dialect: sa.Dialect) -> tuple[str, str]:
    if dialect.name == "postgresql":
        return "statement_timeout", "SELECT current_setting('statement_timeout')"
    if dialect.name in {"mysql", "mariadb"}:
        name = "max_statement_time" if getattr(dialect, "is_mariadb", False) else "max_execution_time"
        return name, f"SELECT @@SESSION.{name}"
    return "", ""


def _is_time(value: object) -> bool:
    """Returns True for a time other than 0, which means no limit. PostgreSQL writes a time with its unit, such as
    8s."""
    return str(value).strip("0.") not in ("", "None")
