"""Outboxes as the reconciler reads them: the databases themselves, or one of them on a replica that stands still.

A SQLite file is no replica of anything. So what its copy lacks is answered as the product answers for the replica of a
server: by the sign of life that has reached it.
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
    """When the last sweep ran whose sign of life is here."""
    with reading(engine) as connection:
        found: int | None = connection.scalar(
            sa.select(outbox_identity.c.swept_at_ms).where(outbox_identity.c.id == SIGN_OF_LIFE_ID)
        )
        return found


class OutboxAsSeen:
    """The port OutboxEvidence. Confined to the thread of the test."""

    def __init__(self, primary: SqlOutboxReader) -> None:
        self._primary = primary
        self._replica: tuple[SqlOutboxReader, DatabaseRole] | None = None

    def hold(self, reader: SqlOutboxReader, swept_at_ms: int | None) -> None:
        """From now on this reader is asked, one of whose databases is the copy that has this sign of life."""
        self._replica = (reader, DatabaseRole(is_primary=False, swept_at_ms=swept_at_ms))

    def release(self) -> None:
        """The replica has all that its primary has."""
        self._replica = None

    def look_up(
        self, topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        """As SqlOutboxReader; what is absent from a replica counts as the product's rule for replicas says."""
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
