"""reconciler_broker: brokers that were seen in the routes of topics (ports.KnownBrokers).

Without it a process that starts after a broker has left the route takes "not found" of all others for an absence.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from reconciler.contract.row_rules import storable_names
from reconciler.ledger.database import LedgerDatabase
from reconciler.sql.tables import broker


class SqlKnownBrokers:
    """Known brokers in SQL. Shared by threads; a call that changes nothing is one SELECT. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def note(
        self, environment: str, topic: str, seen: Collection[str] | None, *, keep_seconds: float
    ) -> frozenset[str]:
        """Notes the brokers of the route and returns all that count."""
        of_topic = (broker.c.environment == environment) & (broker.c.topic == topic)
        query = sa.select(broker.c.broker, broker.c.gone_since_ms).where(of_topic)
        with self._database.reading() as connection:
            now_ms = connection.execute(sa.select(self._database.now())).scalar_one()
            known: dict[str, int | None] = {row.broker: row.gone_since_ms for row in connection.execute(query)}
        here = set(known) if seen is None else set(storable_names(seen))
        new = [] if seen is None else sorted(here - set(known))
        back = [] if seen is None else sorted(name for name in here & set(known) if known[name] is not None)
        missed = sorted(name for name, since in known.items() if since is None and name not in here)
        away = {name: since for name, since in known.items() if since is not None and name not in back}
        too_long_ago = now_ms - round(keep_seconds * 1000)
        forgotten = sorted(name for name, since in away.items() if since < too_long_ago)
        if new or back or missed or forgotten:
            self._write(environment, topic, new=new, back=back, missed=missed, forgotten=forgotten)
        return frozenset({*known, *new}.difference(forgotten))

    def _write(
        self, environment: str, topic: str, *, new: list[str], back: list[str], missed: list[str], forgotten: list[str]
    ) -> None:
        of_topic = (broker.c.environment == environment) & (broker.c.topic == topic)
        rows = [
            {"environment": environment, "topic": topic, "broker": name, "gone_since_ms": None} for name in sorted(new)
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
