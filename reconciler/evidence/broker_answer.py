"""The answers of single brokers to a look-up, and their merged answer: FOUND, ABSENT or UNKNOWN."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from reconciler.contract.answers import BOTH, MAY_BE_MORE, NO_BROKER, NO_HIT, OTHER_HITS, RECORDS
from reconciler.contract.facts import Fact
from reconciler.errors import MissingDependency, ProtocolViolation, ReconcilerError
from reconciler.evidence.stored_message import stored_message
from reconciler.policy.evidence import Lookup, Presence, StoredMessage, WitnessAnswer, as_foreign
from reconciler.rocketmq.wire.record import MessageRecord

#: The number of hits that a look-up asks for. Brokers return at most 64 (maxMsgsNumBatch).
MAXIMUM_HITS = 32

Accepts: TypeAlias = Callable[[MessageRecord], bool]


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """The answer of one broker."""

    broker_name: str
    presence: Presence
    detail: Fact | str
    records: tuple[StoredMessage, ...] = ()
    #: True if the broker has an unreadable record of this key.
    is_damaged: bool = False
    #: True if the broker may have more records of this key.
    is_partial: bool = False

    def and_elsewhere(self, other: BrokerAnswer) -> BrokerAnswer:
        """Merges one broker's answers for two topics: FOUND if one is FOUND, ABSENT only if both are ABSENT."""
        presence = next(
            p for p in (Presence.FOUND, Presence.UNKNOWN, Presence.ABSENT) if p in (self.presence, other.presence)
        )
        detail = self.detail if self.detail == other.detail else BOTH(one=self._fact, other=other._fact)
        is_damaged = self.is_damaged or other.is_damaged
        is_partial = any(one.is_partial or one.presence is Presence.UNKNOWN for one in (self, other))
        return BrokerAnswer(self.broker_name, presence, detail, self.records + other.records, is_damaged, is_partial)

    @property
    def _fact(self) -> Fact:
        return as_foreign(self.detail) if isinstance(self.detail, str) else self.detail

    def doubted(self, doubt: str) -> BrokerAnswer:
        """If another broker may have answered, returns UNKNOWN instead of ABSENT, and marks other answers as partial.
        `doubt`: why another broker may have answered. "" means no doubt."""
        if doubt and self.presence is Presence.ABSENT:
            return replace(self, presence=Presence.UNKNOWN, detail=doubt)
        return replace(self, is_partial=True) if doubt else self


def answer_of_hits(
    broker_name: str, hits: list[MessageRecord], accepts: Accepts, maximum: int = MAXIMUM_HITS
) -> BrokerAnswer:
    """Returns the accepted hits. Without an accepted hit, returns ABSENT, or UNKNOWN if `maximum` other hits may hide
    one."""
    # If a record has the key in KEYS and in UNIQ_KEY, the index returns the record twice.
    equal = {hit.physical_offset: hit for hit in hits if accepts(hit)}
    if equal:
        records, faults = _read(equal[offset] for offset in sorted(equal))
        # A record is not damaged if this process only lacks the package that reads it.
        is_damaged = bool(faults) and not any(isinstance(fault, MissingDependency) for fault in faults)
        if not records:
            return BrokerAnswer(broker_name, Presence.UNKNOWN, str(faults[0]), is_damaged=is_damaged)
        is_partial = bool(faults) or len(hits) >= maximum
        number = RECORDS(number=len(records))
        return BrokerAnswer(broker_name, Presence.FOUND, number, records, is_damaged, is_partial)
    if len(hits) >= maximum:
        return BrokerAnswer(broker_name, Presence.UNKNOWN, MAY_BE_MORE(number=len(hits)))
    return BrokerAnswer(broker_name, Presence.ABSENT, OTHER_HITS(number=len(hits)) if hits else NO_HIT())


def _read(hits: Iterable[MessageRecord]) -> tuple[tuple[StoredMessage, ...], list[ReconcilerError]]:
    """Returns the readable records, and the errors of the unreadable records."""
    records: list[StoredMessage] = []
    faults: list[ReconcilerError] = []
    for hit in hits:
        try:
            records.append(stored_message(hit))
        except (ProtocolViolation, MissingDependency) as error:
            faults.append(error)
    return tuple(records), faults


def merge_answers(of_brokers: list[BrokerAnswer]) -> Lookup[StoredMessage]:
    """Returns FOUND if any broker has a record, ABSENT only if every answer is ABSENT, otherwise UNKNOWN."""
    answers = tuple(
        WitnessAnswer(
            witness=one.broker_name,
            presence=one.presence,
            detail=one.detail,
            is_damaged=one.is_damaged,
            is_partial=one.is_partial,
        )
        for one in sorted(of_brokers, key=lambda one: one.broker_name)
    )
    records = [record for one in of_brokers for record in one.records]
    records.sort(key=lambda record: (record.store_timestamp_ms, record.broker, record.commit_log_offset))
    presences = {one.presence for one in of_brokers}
    if records:
        return Lookup(presence=Presence.FOUND, records=tuple(records), answers=answers)
    if not of_brokers:
        return Lookup.unknown("route", NO_BROKER())
    if presences == {Presence.ABSENT}:
        return Lookup(presence=Presence.ABSENT, answers=answers)
    return Lookup(presence=Presence.UNKNOWN, answers=answers)
