"""The durable state of the announcement consumer: floors, quarantine, open outages (ports.AnnouncementLedger)."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.contract.row_rules import QUARANTINE_BODY_BYTES, bounded_text
from reconciler.contract.subscription import Subscription
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.floors import SqlFloors
from reconciler.ledger.outages import SqlOutages
from reconciler.policy.ports.announcing import AnnouncementQueue, Floor, RefusedAnnouncement
from reconciler.sql.tables import quarantine


class SqlAnnouncementLedger:
    """Floors and quarantine in SQL. Thread-safe. Every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, outages: SqlOutages, floors: SqlFloors) -> None:
        self._database = database
        self._outages = outages
        self._floors = floors

    def floor(self, subscription: Subscription, queue: AnnouncementQueue) -> Floor | None:
        """Returns the queue's floor. None if no floor was written yet, or the floor is damaged."""
        return self._floors.of_queue(subscription, queue)

    def quarantine(self, environment: str, refused: Sequence[RefusedAnnouncement]) -> None:
        """Stores each refused announcement once, with the first 4 KiB of its body."""
        if not refused:
            return
        rows = [
            {
                "environment": environment,
                "unique_key_topic": one.queue.unique_key_topic,
                "broker": one.queue.broker,
                "queue_id": one.queue.queue_id,
                "queue_offset": one.queue_offset,
                "reason": one.reason,
                "detail": bounded_text(one.detail),
                "body": one.body[:QUARANTINE_BODY_BYTES],
                "seen_at_ms": self._database.now(),
            }
            for one in refused
        ]
        with self._database.writing() as connection:
            self._database.insert_missing(connection, quarantine, rows)

    def open_outage_reason(self, environment: str) -> str | None:
        """Returns the reason of the open outage. None if no outage is open, or the scan of the open outage has
        ended."""
        current = self._outages.current(environment)
        return None if current is None or current.is_scanned else current.reason

    def open_outage(self, environment: str, *, reason: str, noticed_by: str) -> None:
        """Opens an outage unless one is open."""
        self._outages.open(environment, reason=reason, noticed_by=noticed_by)
