"""Whether a queue is still the one that was read, asked of its broker (contract/queue_proof.py says why).

A pull begins at the last record that was seen, so its answer shows that record and what came behind it at once. Pulls
are filtered by tag: where the filter leaves that record out, one unfiltered pull of one record shows it, after the
first one: a tail that was lost does not come back, so what is the same then was the same before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto

from reconciler.announcing.port import AnnouncementSource, PulledBatch
from reconciler.contract.queue_proof import NEAR_OFFSETS_MAX, QueueRecord
from reconciler.policy.ports import AnnouncementQueue


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
        return _pull_after_look(source, queue, tag=tag, position=position, last=last, maximum=maximum)
    pulled = source.pull(queue, tag=tag, offset=last.queue_offset, max_messages=maximum)
    if pulled.is_offset_illegal:
        if last.queue_offset >= pulled.min_offset:
            return Held.OTHER, None
        return Held.GONE, source.pull(queue, tag=tag, offset=position, max_messages=maximum)
    seen = next((one.record for one in pulled.messages if one.queue_offset == last.queue_offset), None)
    state = held(source, queue, last) if seen is None else (Held.SAME if seen == last else Held.OTHER)
    behind = [one for one in pulled.messages if one.queue_offset > last.queue_offset]
    if state is Held.OTHER or pulled.max_offset < position or any(one.queue_offset < position for one in behind):
        return Held.OTHER, None
    if not behind and pulled.next_offset <= position < pulled.max_offset:
        # A pull looks at a bounded number of entries: this one ended before what is new.
        return state, source.pull(queue, tag=tag, offset=position, max_messages=maximum)
    return state, replace(pulled, messages=behind, next_offset=max(position, pulled.next_offset))


def _pull_after_look(
    source: AnnouncementSource, queue: AnnouncementQueue, *, tag: str, position: int, last: QueueRecord, maximum: int
) -> tuple[Held, PulledBatch | None]:
    state = held(source, queue, last)
    if state is Held.OTHER:
        return state, None
    return state, source.pull(queue, tag=tag, offset=position, max_messages=maximum)
