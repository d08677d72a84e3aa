"""Reads outboxes for the reconciler. All outboxes are read from their databases, except for one that may be read from a
held replica. A held replica is a copy that no longer follows its primary.

The copy of a SQLite file is no real replica. An absence in the copy is judged like an absence in a server's replica, by
the sign of life that has reached the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sqlalchemy as sa

from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.policy.evidence import Lookup, OutboxRow, Presence
from reconciler.sql.engines import reading
from reconciler.sql.identity import SIGN_OF_LIFE_ID
from reconciler.sql.tables import outbox_identity
from reconciler.sql.witness_database import DatabaseRole, absence


def read_sign_of_life(engine: sa.Engine) -> int | None:
    """Returns the time of the newest sign of life in this database."""
    with reading(engine) as connection:
        found: int | None = connection.scalar(
            sa.select(outbox_identity.c.swept_at_ms).where(outbox_identity.c.id == SIGN_OF_LIFE_ID)
        )
        return found


class OutboxAsSeen:
    """The port OutboxEvidence. Only the test's thread uses it."""

    def __init__(self, primary: SqlOutboxReader) -> None:
        self._primary = primary
        self._replica: tuple[SqlOutboxReader, DatabaseRole] | None = None

    def hold(self, reader: SqlOutboxReader, swept_at_ms: int | None) -> None:
        """Asks `reader` from now on, which reads one database from the copy. `swept_at_ms` is the copy's sign of
        life."""
        self._replica = (reader, DatabaseRole(is_primary=False, swept_at_ms=swept_at_ms))

    def release(self) -> None:
        """Lets the replica catch up with its primary."""
        self._replica = None

    def look_up(
        self, topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        """Answers like SqlOutboxReader. Absences in a held replica are judged by the product's rule for replicas."""
        if self._replica is None:
            return self._primary.look_up(topic, not_before_ms, now_ms=now_ms)
        reader, role = self._replica
        found = reader.look_up(topic, not_before_ms, now_ms=now_ms)
        return {key: _judged(lookup, role, not_before_ms[key]) for key, lookup in found.items()}


def _judged(lookup: Lookup[OutboxRow], role: DatabaseRole, not_before_ms: int) -> Lookup[OutboxRow]:
    if not lookup.is_absent:
        return lookup
    answers = tuple(replace(absence(one.witness, role, not_before_ms), identity=one.identity) for one in lookup.answers)
    if all(one.presence is Presence.ABSENT for one in answers):
        return lookup
    return Lookup(presence=Presence.UNKNOWN, answers=answers)
