"""reconciler_environment: the cluster that an environment is used for (ports.EnvironmentUses).

The age of a use is measured in database time. A use far in the future, written before a clock was set back, has ended,
too. An environment has one row, and rows are never deleted.
"""

from __future__ import annotations

import sqlalchemy as sa

from reconciler.contract.row_rules import NAME_CHARACTERS, bounded_text, use_of, use_text, wait_ms
from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import ENVIRONMENT
from reconciler.ledger.database import LedgerDatabase
from reconciler.policy.ports.environment import USE_SECONDS, EnvironmentUse
from reconciler.sql.tables import environment_row

_ROWS = RowReader(ENVIRONMENT, ("brokers", "by", "renewed_at_ms"), otherwise={"brokers": ""})


class SqlEnvironmentUses:
    """The uses of environments in SQL. Thread-safe. Raises DatabaseAway."""

    place = "the ledger"

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def current(self, environment: str) -> EnvironmentUse | None:
        """Runs one SELECT for the row, and one for the time."""
        c = environment_row.c
        query = sa.select(c.brokers, c.by, c.renewed_at_ms).where(c.environment == environment)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                return None
            now_ms = self._database.read_now_ms(connection)
        values = _ROWS.parse(row).values
        if abs(now_ms - values["renewed_at_ms"]) > wait_ms(USE_SECONDS):
            return None
        brokers, redis = use_of(values["brokers"])
        return EnvironmentUse(brokers=brokers, redis=redis, by=values["by"], renewal=str(values["renewed_at_ms"]))

    def renew(self, environment: str, brokers: frozenset[str], *, by: str, redis: str = "") -> None:
        """Runs an UPDATE. If no row exists, runs an INSERT."""
        values = {
            "brokers": use_text(brokers, redis),
            "by": bounded_text(by, NAME_CHARACTERS),
            "renewed_at_ms": self._database.now(),
        }
        with self._database.writing() as connection:
            update = sa.update(environment_row).where(environment_row.c.environment == environment).values(**values)
            if connection.execute(update).rowcount == 0:
                self._database.insert_missing(connection, environment_row, [{"environment": environment, **values}])
