"""Checks whether PostgreSQL's row security hides rows from a login. Row security leaves out rows without an error.

A policy may show exactly the rows that were asked for. Such a policy hides nothing. An example is a policy that shows
each group its own inbox rows. Rows that a view leaves out, or that are hidden from a query of business effects, are not
noticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, ProgrammingError

_IS_ACTIVE = sa.text("SELECT row_security_active(to_regclass(:name)::oid)")
#: Policies for this login's SELECT: permissive or restrictive, and the condition.
_POLICIES = sa.text(
    "SELECT polpermissive, pg_get_expr(polqual, polrelid) FROM pg_catalog.pg_policy "
    "WHERE polrelid = to_regclass(:name) AND polcmd IN ('r', '*') AND polqual IS NOT NULL AND (0 = ANY (polroles) "
    "OR EXISTS (SELECT 1 FROM unnest(polroles) AS named (id) WHERE pg_has_role(named.id, 'USAGE')))"
)


def hides_rows(connection: sa.Connection, table: str, asked: Sequence[Mapping[str, str | int]]) -> bool:
    """True if a policy may hide rows with these values from the login. False for a server without row security.

    The check runs in the transaction that reads the rows. An earlier statement's lock keeps the table's definition.
    """
    if connection.dialect.name != "postgresql" or not asked:
        return False
    try:
        if not connection.execute(_IS_ACTIVE, {"name": table}).scalar():
            return False
    except ProgrammingError:  # a similar server without PostgreSQL's catalogue
        connection.rollback()
        return False
    policies = connection.execute(_POLICIES, {"name": table}).all()
    rows = sa.union_all(*(sa.select(*(sa.literal(one[name]).label(name) for name in one)) for one in asked))
    holds = [(permits, _holds(connection, condition, rows.subquery(table))) for permits, condition in policies]
    is_permitted = any(is_true for permits, is_true in holds if permits)
    return not is_permitted or not all(is_true for permits, is_true in holds if not permits)


def _holds(connection: sa.Connection, condition: str, rows: sa.Subquery) -> bool:
    """True if a policy's condition holds for every row with these values. Other columns may hold any value."""
    failing = sa.select(sa.func.count()).select_from(rows).where(sa.literal_column(f"({condition}) IS NOT TRUE"))
    try:
        with connection.begin_nested():
            return connection.execute(failing).scalar() == 0
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False  # the condition needs another column
