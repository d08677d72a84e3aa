"""Finds the messages of a business id: an index that is built beside running producers.

PostgreSQL builds it outside of any transaction. An upgrade that runs beside the build waits for it; the rest of an
interrupted build is invalid, and is dropped. MySQL and MariaDB build it in place; the short locks at its start and end
give up instead of letting writers queue behind them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

revision = "0004_business_id"
down_revision = "0003_filter"
branch_labels = None
depends_on = None

TABLE = "reconciler_outbox"
INDEX = "ix_reconciler_outbox_business_created"
COLUMNS = ["business_id", "created_at_ms"]
#: MySQL and MariaDB: longest wait for transactions that have touched the table.
LOCK_WAIT_SECONDS = 2
_IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"


def upgrade() -> None:
    """Makes the index; older releases write it without knowing."""
    match op.get_context().dialect.name:
        case "postgresql":
            with op.get_context().autocommit_block():
                _build_concurrently()
        case "mysql" | "mariadb":
            if context.is_offline_mode() or not _is_there():  # DDL there is in no transaction: it may be built already
                op.execute(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")
                op.execute(
                    f"ALTER TABLE {TABLE} ADD INDEX {INDEX} ({', '.join(COLUMNS)}), ALGORITHM=INPLACE, LOCK=NONE"
                )
        case _:
            op.create_index(INDEX, TABLE, COLUMNS)


def _build_concurrently() -> None:
    if not context.is_offline_mode():
        # Takes the table's lock before it looks for the name: so no build is running when it has found the index.
        op.create_index(INDEX, TABLE, COLUMNS, if_not_exists=True, postgresql_concurrently=True)
        if op.get_bind().execute(sa.text(_IS_VALID), {"name": INDEX}).scalar():
            return
    op.drop_index(INDEX, TABLE, if_exists=True, postgresql_concurrently=True)
    op.create_index(INDEX, TABLE, COLUMNS, postgresql_concurrently=True)


def _is_there() -> bool:
    return INDEX in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(TABLE)}


def downgrade() -> None:
    """Drops it."""
    op.drop_index(INDEX, TABLE)
