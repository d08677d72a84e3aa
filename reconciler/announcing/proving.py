"""Asks a broker whether a queue is still the queue that was read (contract/queue_proof.py explains why).

A pull begins at the last record that was seen, so its answer shows both this record and the records after it. Pulls are
filtered by tag. If the filter leaves the record out, an unfiltered pull of one record shows it. The proof of a pull is
asked for after the pull. A lost tail does not come back, so a record that is unchanged then was unchanged before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto

from reconciler.announcing.port import AnnouncementSource, PulledBatch
from reconciler.announcing.reader import PULL_MESSAGES_MAX
from reconciler.announcing.rules import PulledAnnouncement
from reconciler.contract.queue_proof import NEAR_OFFSETS_MAX, QueueRecord
from reconciler.policy.ports.announcing import AnnouncementQueue


class Held(Enum):
    """The answer of a broker about the offset of a known record."""

    SAME = auto()
    #: Another record is at the offset, or the queue ends before the offset.
    OTHER = auto()
    #: The broker deleted the record by age, or does not show it. Such an answer proves nothing and counts as no
    #: difference.
    GONE = auto()


def held(source: AnnouncementSource, queue: AnnouncementQueue, record: QueueRecord) -> Held:
    """Checks by an unfiltered pull whether the broker still has a record. Raises what the source raises."""
    seen = source.look(queue, offset=record.queue_offset)
    if seen.record is not None:
        return Held.SAME if seen.record == record else Held.OTHER
    return Held.OTHER if seen.max_offset <= record.queue_offset else Held.GONE


def newest_held(
    source: AnnouncementSource, queue: AnnouncementQueue, records: Sequence[QueueRecord]
) -> QueueRecord | None:
    """Returns the newest of the given records that the queue still has. The records are given in rising order. Returns
    None if no record is proved.

    The search halves the range between an unchanged record and a changed record. A whole trail takes 8 pulls.
    """
    found, low, high = None, 0, len(records)
    while low < high:
        middle = (low + high) // 2
        state = held(source, queue, records[middle])
        if state is Held.OTHER:
            high = middle
        else:  # records deleted by age are older than those that are left
            low = middle + 1
            found = records[middle] if state is Held.SAME else found
    return found


def pull_behind(
    source: AnnouncementSource, queue: AnnouncementQueue, *, tag: str, position: int, last: QueueRecord
) -> tuple[Held, PulledBatch | None]:
    """Returns the messages after the last record that was seen, and whether the broker still has that record.

    OTHER comes without messages. OTHER is also returned if records between the last record and the position have
    changed.
    """
    if position - last.queue_offset > NEAR_OFFSETS_MAX:
        return _pull_before_look(source, queue, tag=tag, position=position, last=last)
    pulled = source.pull(queue, tag=tag, offset=last.queue_offset, max_messages=PULL_MESSAGES_MAX)
    if pulled.is_offset_illegal:
        if last.queue_offset >= pulled.min_offset:
            return Held.OTHER, None
        pulled = source.pull(queue, tag=tag, offset=position, max_messages=PULL_MESSAGES_MAX)
        began_anew = pulled.min_offset <= last.queue_offset
        return (Held.OTHER, None) if began_anew else (Held.GONE, pulled)
    state, behind = _behind(source, queue, position=position, last=last, pulled=pulled)
    if state is not Held.OTHER and not behind and pulled.next_offset <= position < pulled.max_offset:
        # A pull looks at a limited number of entries. This pull ended before the new entries.
        new = source.pull(queue, tag=tag, offset=position, max_messages=PULL_MESSAGES_MAX)
        again = source.pull(queue, tag=tag, offset=last.queue_offset, max_messages=PULL_MESSAGES_MAX)
        state, _ = _behind(source, queue, position=position, last=last, pulled=again)
        return state, None if state is Held.OTHER else new
    if state is Held.OTHER:
        return state, None
    return state, replace(pulled, messages=behind, next_offset=max(position, pulled.next_offset))


def _behind(
    source: AnnouncementSource, queue: AnnouncementQueue, *, position: int, last: QueueRecord, pulled: PulledBatch
) -> tuple[Held, Sequence[PulledAnnouncement]]:
    """Takes a pull that began at the last record. Returns what the pull shows of this record, and the messages after
    it."""
    seen = next((one.record for one in pulled.messages if one.queue_offset == last.queue_offset), None)
    state = held(source, queue, last) if seen is None else (Held.SAME if seen == last else Held.OTHER)
    behind = [one for one in pulled.messages if one.queue_offset > last.queue_offset]
    if pulled.max_offset < position or any(one.queue_offset < position for one in behind):
        state = Held.OTHER
    return state, behind


def record_before(
    source: AnnouncementSource, queue: AnnouncementQueue, *, tag: str, following: int, last: QueueRecord | None
) -> tuple[Held, QueueRecord | None]:
    """Returns the record before the offset `following`, and whether this record proves that the queue is unchanged. No
    pull has returned a record between `last` and the offset.

    The function looks at the record, pulls again what was read, and looks at the record again. While the record stays,
    nothing before it changes. Without `last`, the function only looks at the record, and believes what was read.
    """
    seen = source.look(queue, offset=following - 1).record
    if seen is None or last is None:
        return Held.GONE, seen
    state, offset = held(source, queue, last), last.queue_offset + 1
    while state is not Held.OTHER and offset < following:
        pulled = source.pull(queue, tag=tag, offset=offset, max_messages=1)
        if pulled.is_offset_illegal and offset >= pulled.min_offset:
            return Held.OTHER, None
        offset, before = max(pulled.next_offset, pulled.min_offset), offset
        if offset <= before:
            return Held.GONE, None
        if any(one.queue_offset < following for one in pulled.messages):
            return Held.OTHER, None
    return (state, None) if state is Held.OTHER else (held(source, queue, seen), seen)


def _pull_before_look(
    source: AnnouncementSource, queue: AnnouncementQueue, *, tag: str, position: int, last: QueueRecord
) -> tuple[Held, PulledBatch | None]:
    pulled = source.pull(queue, tag=tag, offset=position, max_messages=PULL_MESSAGES_MAX)
    state = held(source, queue, last)
    return state, None if state is Held.OTHER else pulled
