"""reconciler_broker: the brokers that routes of topics have named (ports.KnownBrokers).

While a broker is missing from the route, the other brokers' "not found" is no absence. A process that starts later
knows a missing broker only from this table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from reconciler.contract.row_rules import brokers_after
from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import BROKER
from reconciler.ledger.database import LedgerDatabase
from reconciler.sql.tables import broker

_ROWS = RowReader(BROKER, ("broker", "gone_since_ms"))


class SqlKnownBrokers:
    """The known brokers in SQL. Thread-safe. A call without a change only reads. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def note(
        self, environment: str, topic: str, seen: Collection[str] | None, *, keep_seconds: float
    ) -> frozenset[str]:
        """Notes the brokers of the route. Returns all brokers that count as witnesses."""
        of_topic = (broker.c.environment == environment) & (broker.c.topic == topic)
        query = sa.select(broker.c.broker, broker.c.gone_since_ms).where(of_topic)
        with self._database.reading() as connection:
            now_ms = self._database.read_age_ms(connection)
            rows = [_ROWS.parse(row) for row in connection.execute(query)]
        # A broker with a damaged gone_since_ms counts as if it were in the route.
        known: dict[str, int | None] = {
            read.values["broker"]: read.values["gone_since_ms"] for read in rows if "broker" not in read.damaged
        }
        self._mend(of_topic, [read.values["broker"] for read in rows if read.damaged == {"gone_since_ms"}])
        after = brokers_after(known, seen, now_ms=now_ms, keep_seconds=keep_seconds)
        if after != known:
            self._write(environment, topic, known, after)
        return frozenset(after)

    def _mend(self, of_topic: sa.ColumnElement[bool], names: Sequence[str]) -> None:
        if names:
            with self._database.writing() as connection:
                unknown = sa.update(broker).where(of_topic & broker.c.broker.in_(names)).values(gone_since_ms=None)
                connection.execute(unknown)

    def _write(
        self, environment: str, topic: str, before: Mapping[str, int | None], after: Mapping[str, int | None]
    ) -> None:
        """Writes the difference. Allows for another process that has written the same difference, or has seen a broker
        that `after` lacks."""
        of_topic = (broker.c.environment == environment) & (broker.c.topic == topic)
        forgotten = sorted(before.keys() - after.keys())
        kept = sorted(before.keys() & after.keys())
        back = [name for name in kept if before[name] is not None and after[name] is None]
        missed = [name for name in kept if before[name] is None and after[name] is not None]
        rows = [
            {"environment": environment, "topic": topic, "broker": name, "gone_since_ms": None}
            for name in sorted(after.keys() - before.keys())
        ]
        with self._database.writing() as connection:
            if rows:
                self._database.insert_missing(connection, broker, rows)
            if back:
                connection.execute(
                    sa.update(broker).where(of_topic & broker.c.broker.in_(back)).values(gone_since_ms=None)
                )
            if missed:
                is_first = broker.c.gone_since_ms.is_(None)
                connection.execute(
                    sa.update(broker)
                    .where(of_topic & is_first & broker.c.broker.in_(missed))
                    .values(gone_since_ms=self._database.now())
                )
            if forgotten:
                is_still_away = broker.c.gone_since_ms.is_not(None)
                connection.execute(sa.delete(broker).where(of_topic & is_still_away & broker.c.broker.in_(forgotten)))
