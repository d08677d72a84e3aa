"""Checks whether a server ends our statements by itself, because a statement that is given up on this side otherwise
continues there.

A server, or a proxy before it, may refuse the setting, or lose it before the next statement. So the value in force is
read, on a connection like every other.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.sql.engines import class_names, reading
from reconciler.sql.silence import STATEMENT_SECONDS_OPTION

#: MySQL: "Unknown system variable".
_UNKNOWN_VARIABLE = 1193


def missing_time_out(engine: sa.Engine) -> str | None:
    """Returns the setting that is not in force; None: the server ends statements in time, or need not (SQLite, and an
    engine without a deadline). Raises DatabaseAway."""
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
    """Returns True for a time: PostgreSQL writes it with its unit, "8s"; all servers write 0 for none."""
    return str(value).strip("0.") not in ("", "None")
