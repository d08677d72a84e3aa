"""Whether a queue is still the one that was read, asked of its broker (contract/queue_proof.py says why).

A pull begins at the last record that was seen, so its answer shows that record and what came behind it at once. Pulls
are filtered by tag: where the filter leaves that record out, one unfiltered pull of one record shows it. What proves a
pull is asked for after it: a tail that was lost does not come back, so what is the same then was the same before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto

from reconciler.announcing.port import AnnouncementSource, PulledBatch
from reconciler.announcing.rules import PulledAnnouncement
from reconciler.contract.queue_proof import NEAR_OFFSETS_MAX, QueueRecord
from reconciler.policy.ports.announcing import AnnouncementQueue


class Held(Enum):
    """What the broker has at the offset of a record."""

    SAME = auto()
    #: Another record, or the queue ends before it.
    OTHER = auto()
    #: The broker deleted it by age, or does not show it: that proves nothing, and is no difference.
    GONE = auto()


def held(source: AnnouncementSource, queue: AnnouncementQueue, record: QueueRecord) -> Held:
    """One unfiltered pull of one record. Raises what the source raises."""
    seen = source.look(queue, offset=record.queue_offset)
    if seen.record is not None:
        return Held.SAME if seen.record == record else Held.OTHER
    return Held.OTHER if seen.max_offset <= record.queue_offset else Held.GONE


def newest_held(
    source: AnnouncementSource, queue: AnnouncementQueue, records: Sequence[QueueRecord]
) -> QueueRecord | None:
    """The newest record that the queue still has, of those given, which rise. None: none is proved.

    Halves the stretch between one that is the same and one that is not: 8 pulls for a whole trail.
    """
    found, low, high = None, 0, len(records)
    while low < high:
        middle = (low + high) // 2
        state = held(source, queue, records[middle])
        if state is Held.OTHER:
            high = middle
        else:  # what is gone by age is older than what is left
            low = middle + 1
            found = records[middle] if state is Held.SAME else found
    return found


def pull_behind(
    source: AnnouncementSource, queue: AnnouncementQueue, *, tag: str, position: int, last: QueueRecord, maximum: int
) -> tuple[Held, PulledBatch | None]:
    """Messages behind the last record that was seen, and what the broker has in its place.

    OTHER comes without messages, and also if what lies between record and position is not what it was.
    """
    if position - last.queue_offset > NEAR_OFFSETS_MAX:
        return _pull_before_look(source, queue, tag=tag, position=position, last=last, maximum=maximum)
    pulled = source.pull(queue, tag=tag, offset=last.queue_offset, max_messages=maximum)
    if pulled.is_offset_illegal:
        if last.queue_offset >= pulled.min_offset:
            return Held.OTHER, None
        pulled = source.pull(queue, tag=tag, offset=position, max_messages=maximum)
        began_anew = pulled.min_offset <= last.queue_offset
        return (Held.OTHER, None) if began_anew else (Held.GONE, pulled)
    state, behind = _behind(source, queue, position=position, last=last, pulled=pulled)
    if state is not Held.OTHER and not behind and pulled.next_offset <= position < pulled.max_offset:
        # A pull looks at a bounded number of entries: this one ended before what is new.
        new = source.pull(queue, tag=tag, offset=position, max_messages=maximum)
        again = source.pull(queue, tag=tag, offset=last.queue_offset, max_messages=maximum)
        state, _ = _behind(source, queue, position=position, last=last, pulled=again)
        return state, None if state is Held.OTHER else new
    if state is Held.OTHER:
        return state, None
    return state, replace(pulled, messages=behind, next_offset=max(position, pulled.next_offset))


def _behind(
    source: AnnouncementSource, queue: AnnouncementQueue, *, position: int, last: QueueRecord, pulled: PulledBatch
) -> tuple[Held, Sequence[PulledAnnouncement]]:
    """What a pull that began at the last record shows of it, and the messages behind it."""
    seen = next((one.record for one in pulled.messages if one.queue_offset == last.queue_offset), None)
    state = held(source, queue, last) if seen is None else (Held.SAME if seen == last else Held.OTHER)
    behind = [one for one in pulled.messages if one.queue_offset > last.queue_offset]
    if pulled.max_offset < position or any(one.queue_offset < position for one in behind):
        state = Held.OTHER
    return state, behind


def record_before(
    source: AnnouncementSource, queue: AnnouncementQueue, *, tag: str, following: int, last: QueueRecord | None
) -> tuple[Held, QueueRecord | None]:
    """The record before an offset, where no pull returned one between `last` and it, and whether it proves that.

    The record is looked at, then what was read is pulled again, then the record is looked at again: while it stays,
    nothing before it changes. Without `last` the record alone is looked at: what was read is believed.
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
    source: AnnouncementSource, queue: AnnouncementQueue, *, tag: str, position: int, last: QueueRecord, maximum: int
) -> tuple[Held, PulledBatch | None]:
    pulled = source.pull(queue, tag=tag, offset=position, max_messages=maximum)
    state = held(source, queue, last)
    return state, None if state is Held.OTHER else pulled
