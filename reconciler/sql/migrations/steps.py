"""Steps of migrations, for tables to which other programs write meanwhile. Frozen, like the migrations that use them.

After an interruption, an upgrade may repeat the steps. PostgreSQL builds an index outside of any transaction, after the
migration's earlier steps were committed. A second upgrade waits for the build. An interrupted build leaves an invalid
index, which the next upgrade drops. MySQL and MariaDB commit every statement. An index is built there in place, with
short locks at the start and the end. If a lock is not free soon, the build fails instead of making writers queue. DDL
that is printed for a service's own migration builds the index within that transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import context, op

from reconciler.sql.migrations.column_types import OPTIONS, Kind

#: Longest wait of MySQL and MariaDB for transactions that have used the table.
LOCK_WAIT_SECONDS = 2
_IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"


def column(name: str, kind: Kind, comment: str) -> sa.Column[Any]:
    """Returns a column that is NOT NULL."""
    return sa.Column(name, kind, nullable=False, comment=comment)


def nullable(name: str, kind: Kind, comment: str) -> sa.Column[Any]:
    """Returns a column that may be NULL."""
    return sa.Column(name, kind, nullable=True, comment=comment)


def create_table(name: str, *columns: sa.Column[Any], key: Sequence[str], comment: str) -> None:
    """Creates a table with its primary key. Fails if the table exists."""
    op.create_table(name, *columns, sa.PrimaryKeyConstraint(*key), comment=comment, **OPTIONS)


def add_columns(table: str, *columns: sa.Column[Any]) -> None:
    """Adds the columns that the table lacks."""
    present = () if context.is_offline_mode() else sa.inspect(op.get_bind()).get_columns(table)
    names = {column["name"] for column in present}
    for column in columns:
        if column.name not in names:
            op.add_column(table, column)


def build_index(name: str, table: str, columns: Sequence[str], *, where: sa.TextClause | None = None) -> None:
    """Builds one index. `where`: a condition for the rows in the index, ignored by MySQL and MariaDB."""
    match op.get_context().dialect.name:
        case "postgresql" if not context.config.attributes.get("in_transaction"):
            with op.get_context().autocommit_block():
                _build_concurrently(name, table, list(columns), where)
        case "mysql" | "mariadb":
            if context.is_offline_mode() or not _is_there(name, table):  # these databases have no transactional DDL
                op.execute(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")
                op.execute(f"ALTER TABLE {table} ADD INDEX {name} ({', '.join(columns)}), ALGORITHM=INPLACE, LOCK=NONE")
        case _:
            op.create_index(name, table, list(columns), sqlite_where=where, postgresql_where=where)


def _build_concurrently(name: str, table: str, columns: list[str], where: sa.TextClause | None) -> None:
    if not context.is_offline_mode():
        # PostgreSQL takes the table's lock before it looks for the name. So no build runs when it finds the index.
        op.create_index(name, table, columns, if_not_exists=True, postgresql_concurrently=True, postgresql_where=where)
        if op.get_bind().execute(sa.text(_IS_VALID), {"name": name}).scalar():
            return
    op.drop_index(name, table, if_exists=True, postgresql_concurrently=True)
    op.create_index(name, table, columns, postgresql_concurrently=True, postgresql_where=where)


def _is_there(name: str, table: str) -> bool:
    return name in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
