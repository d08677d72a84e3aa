"""reconciler_floor: the offset from which announcements are read again after Redis lost everything, and its proof.

If a ledger was not upgraded, it has no column for proofs, and floors are read and written without proofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.keyspace import offsets_field
from reconciler.contract.queue_proof import QueueProof, next_floor, read_proof
from reconciler.contract.row_rules import is_storable
from reconciler.contract.row_values import RowReader
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import FLOOR
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.newer_column import NewerColumn
from reconciler.ledger.subscription_rows import named, of_subscription
from reconciler.policy.ports.announcing import AnnouncementQueue, Floor
from reconciler.sql.tables import floor, is_whole_number

_PROOF = floor.c.proof.name
_LEAST = tuple(column for column in floor.c if column.name != _PROOF)
_ROWS = RowReader(FLOOR)

_WITHOUT_PROOFS = (
    "after a loss of Redis announcements are read from the earliest one, and what was seen of queues is forgotten when "
    "the process ends"
)


class SqlFloors:
    """The floors in SQL. Thread-safe. Each floor is written in one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._proofs = NewerColumn(floor.c.proof, without=_WITHOUT_PROOFS)
        #: Subscription -> queue -> the floor and the proof of the last call of `tell`: only a cache.
        self._told: dict[Subscription, Mapping[str, tuple[int, QueueProof | None]]] = {}

    def of_queue(self, subscription: Subscription, queue: AnnouncementQueue) -> Floor | None:
        """Returns the queue's floor. None if no floor was written yet, or the floor is damaged."""
        wanted = (floor.c.broker == queue.broker) & (floor.c.queue_id == queue.queue_id)
        with self._database.reading() as connection:
            return next(iter(self._sound(connection, subscription, wanted)), None)

    def of(self, subscription: Subscription) -> Sequence[Floor]:
        """Returns every floor of a subscription, by queue. A damaged value reads as 0 or None."""
        with self._database.reading() as connection:
            return [_floor(subscription, values) for values, _ in self._rows(connection, subscription, sa.true())]

    def tell(
        self, subscription: Subscription, offsets: Mapping[str, int], proofs: Mapping[str, QueueProof] | None = None
    ) -> None:
        """Stores the floors of a round. Asks the database only if a value differs from the last call."""
        known = self._told.get(subscription, {})
        told = {queue: (offset, (proofs or {}).get(queue)) for queue, offset in offsets.items()}
        wanted = {queue: one for queue, one in told.items() if known.get(queue) != one}
        if not wanted:
            return
        with self._database.reading() as connection:
            has_proofs = self.keeps_proofs(connection)
            stored = {
                offsets_field(one.broker, one.queue_id): one for one in self._sound(connection, subscription, sa.true())
            }
        for queue in sorted(wanted):
            self._write(subscription, queue, stored.get(queue), wanted[queue], has_proofs=has_proofs)
        self._told[subscription] = {**known, **wanted}

    def _write(
        self,
        subscription: Subscription,
        queue: str,
        old: Floor | None,
        told: tuple[int, QueueProof | None],
        *,
        has_proofs: bool,
    ) -> None:
        after = told if old is None else next_floor((old.queue_offset, old.proof), told)
        broker, _, queue_id = queue.rpartition("/")
        if after is None or not is_storable(broker) or not _is_number(queue_id):
            return  # no database can store this name: without a floor, the queue is read from its first announcement
        offset, proof = after
        identity = named(subscription) | {"broker": broker, "queue_id": int(queue_id)}
        now = self._database.now()
        values: dict[str, Any] = {"queue_offset": offset, "updated_at_ms": now}
        dialect = self._database.engine.dialect.name
        is_as_read = (floor.c.queue_offset < offset) | ~is_whole_number(floor.c.queue_offset, dialect)
        if has_proofs:
            values[_PROOF] = None if proof is None else proof.text
            # a floor that does not rise is changed only if it still has the values that were read
            if old is not None and old.queue_offset >= offset:
                was = floor.c.proof.is_(None) if old.proof is None else floor.c.proof == old.proof.text
                is_as_read = (floor.c.queue_offset == old.queue_offset) & was
        row = sa.update(floor).where(*(floor.c[name] == value for name, value in identity.items()), is_as_read)
        with self._database.writing() as connection:
            if old is None:
                self._database.insert_missing(connection, floor, [identity | values])
            connection.execute(row.values(**values))

    def _sound(
        self, connection: sa.Connection, subscription: Subscription, wanted: sa.ColumnElement[bool]
    ) -> Sequence[Floor]:
        rows = self._rows(connection, subscription, wanted)
        return [_floor(subscription, values) for values, damaged in rows if not damaged - {_PROOF}]

    def _rows(
        self, connection: sa.Connection, subscription: Subscription, wanted: sa.ColumnElement[bool]
    ) -> Sequence[tuple[Mapping[str, Any], frozenset[str]]]:
        query = (
            sa.select(*_LEAST, floor.c.proof if self.keeps_proofs(connection) else sa.null())
            .where(of_subscription(subscription, floor), wanted)
            .order_by(floor.c.broker, floor.c.queue_id)
        )
        return [(read.values, read.damaged) for read in map(_ROWS.parse, connection.execute(query))]

    def keeps_proofs(self, connection: sa.Connection) -> bool:
        """Returns True if the table has the column for proofs. Logs a missing column once."""
        return self._proofs.is_there(connection)


def _floor(subscription: Subscription, values: Mapping[str, Any]) -> Floor:
    return Floor(
        subscription=subscription,
        broker=values["broker"],
        queue_id=values["queue_id"],
        queue_offset=values["queue_offset"],
        updated_at_ms=values["updated_at_ms"],
        proof=read_proof(values[_PROOF] or ""),
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
