"""Proves that a queue is still the queue that was read. Offsets alone prove nothing, because a broker may assign an
offset again.

A broker that lost its tail, or whose topic was created again, stores other records at offsets that were read before.
Causes of a lost tail are an asynchronous flush, a fail-over to a slave that was behind, and a restored store. So the
announcement consumer stores beside its offset the last record before this offset, and a *trail* of earlier records: one
per minute for an hour, and one per hour for TRAIL_HOURS.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

#: Reading continues by a proof only if its record lies at most this number of offsets before its offset
#: (announcing/proving.py).
NEAR_OFFSETS_MAX = 1_000

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
#: Hours of the trail. Brokers keep messages for a shorter time by default (72 h).
TRAIL_HOURS = 96
#: Maximum number of records of a trail, even if brokers' clocks jump.
TRAIL_RECORDS_MAX = 60 + TRAIL_HOURS + 4

_PLAIN_KEY = re.compile(r"[0-9A-Za-z_-]{0,64}")
_RECORD = re.compile(r"(\d{1,19}) (\d{1,19}) (\d{1,19}) ([0-9A-Za-z_-]{0,64})", re.ASCII)
_PROOF = re.compile(r"(\d{1,19}) (.*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """One record of a queue. Time, place in the log and key distinguish the record from any other record that may get
    the same offset."""

    queue_offset: int
    stored_at_ms: int
    commit_log_offset: int
    #: UNIQ_KEY, or its hash. Any sender can write this property, so a value that is no plain text of up to 64
    #: characters is hashed.
    unique_key: str

    @property
    def text(self) -> str:
        """Returns four words, which read_record reads."""
        return f"{self.queue_offset} {self.stored_at_ms} {self.commit_log_offset} {self.unique_key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProof:
    """The offset that is read next, and the last record that was seen before it."""

    following: int
    record: QueueRecord

    @property
    def text(self) -> str:
        """Returns five words, which read_proof reads."""
        return f"{self.following} {self.record.text}"


def beginning_before(offset: int) -> QueueRecord:
    """Returns the record that means "no record before this offset". Only for an offset at which the broker has
    confirmed the queue's beginning."""
    return QueueRecord(queue_offset=offset - 1, stored_at_ms=0, commit_log_offset=0, unique_key="")


class StoredRecord(Protocol):
    """A message as a broker returned it (reconciler/rocketmq/wire/record.py)."""

    @property
    def queue_offset(self) -> int:
        """The message's place in the queue."""
        ...

    @property
    def store_timestamp_ms(self) -> int:
        """When the broker stored the message, by the broker's clock."""
        ...

    @property
    def physical_offset(self) -> int:
        """The message's place in the commit log."""
        ...

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY, as the message's sender wrote it."""
        ...


def record_of(stored: StoredRecord) -> QueueRecord:
    """Returns what distinguishes the message from any other message at its offset, whatever its sender wrote as its
    key."""
    unique_key = stored.unique_key
    if _PLAIN_KEY.fullmatch(unique_key) is None:
        unique_key = hashlib.sha256(unique_key.encode("utf-8", "surrogatepass")).hexdigest()
    return QueueRecord(
        queue_offset=stored.queue_offset,
        stored_at_ms=max(0, stored.store_timestamp_ms),
        commit_log_offset=max(0, stored.physical_offset),
        unique_key=unique_key,
    )


def read_record(text: str) -> QueueRecord | None:
    """Returns the record in a text. None: the text is damaged and proves nothing."""
    found = _RECORD.fullmatch(text)
    if found is None:
        return None
    queue_offset, stored_at_ms, commit_log_offset, unique_key = found.groups()
    return QueueRecord(
        queue_offset=int(queue_offset),
        stored_at_ms=int(stored_at_ms),
        commit_log_offset=int(commit_log_offset),
        unique_key=unique_key,
    )


def read_proof(text: str) -> QueueProof | None:
    """Returns the proof in a text. None: the text is damaged and proves nothing."""
    found = _PROOF.fullmatch(text)
    record = None if found is None else read_record(found.group(2))
    if found is None or record is None or record.queue_offset >= int(found.group(1)):
        return None
    return QueueProof(following=int(found.group(1)), record=record)


def trail_text(trail: Iterable[QueueRecord]) -> str:
    """Returns one line per record. The first line is the oldest record."""
    return "\n".join(record.text for record in trail)


def read_trail(text: str) -> tuple[QueueRecord, ...]:
    """Returns the records of a trail, beginning with the oldest. Damaged lines are left out."""
    records = (read_record(line) for line in text.split("\n")[:TRAIL_RECORDS_MAX])
    return _rising(record for record in records if record is not None)


def with_record(trail: Sequence[QueueRecord], record: QueueRecord) -> tuple[QueueRecord, ...]:
    """Returns the trail after the consumer saw this record. The trail stays unchanged while its last entry is younger
    than a minute.

    An age is the difference between two store times of the broker. Entries at or above the new record's offset belong
    to a queue that was replaced.
    """
    kept = [one for one in trail if one.queue_offset < record.queue_offset]
    if len(kept) == len(trail) and kept and abs(record.stored_at_ms - kept[-1].stored_at_ms) < _MINUTE_MS:
        return tuple(trail)
    kept.append(record)
    hours: set[int] = set()
    thinned: list[QueueRecord] = []
    for one in kept:
        age_ms = record.stored_at_ms - one.stored_at_ms
        if age_ms > TRAIL_HOURS * _HOUR_MS:
            continue
        hour = one.stored_at_ms // _HOUR_MS
        if age_ms <= _HOUR_MS or hour not in hours:
            thinned.append(one)
        hours.add(hour)
    return tuple(thinned[-TRAIL_RECORDS_MAX:])


def next_floor(
    stored: tuple[int, QueueProof | None], told: tuple[int, QueueProof | None]
) -> tuple[int, QueueProof | None] | None:
    """Returns offset and proof of the next floor, from the stored floor and from the floor of a new round. None: the
    stored floor stays.

    The floor rises, except to an offset whose record is older than the record of the stored floor: such a record
    belongs to a queue that was replaced. The floor sinks if the round's record is younger and lies lower, because the
    queue began again or lost its tail. A lower floor is always safe, because announcements are only read again. A floor
    that rises without a proof keeps its old proof. The old proof still marks a place up to which everything is settled.
    """
    (old_offset, old_proof), (offset, proof) = stored, told
    if offset == old_offset:
        if proof is None or proof == old_proof:
            return None
        is_better = (
            old_proof is None
            or old_proof.following != offset
            or proof.record.stored_at_ms > old_proof.record.stored_at_ms
        )
        return told if is_better else None
    if offset > old_offset:
        if proof is None or old_proof is None:
            return offset, proof or old_proof
        return None if proof.record.stored_at_ms < old_proof.record.stored_at_ms else told
    if proof is None or old_proof is None:
        return None
    old, new = old_proof.record, proof.record
    begins_anew = new.stored_at_ms > old.stored_at_ms and new.queue_offset < old.queue_offset
    return told if begins_anew else None


def _rising(records: Iterable[QueueRecord]) -> tuple[QueueRecord, ...]:
    rising: list[QueueRecord] = []
    for record in records:
        if not rising or record.queue_offset > rising[-1].queue_offset:
            rising.append(record)
    return tuple(rising)
