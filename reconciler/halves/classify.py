"""Decides the fate of halves from their copies and from the ends that were seen. The functions are pure.

A check puts a younger copy of an open half at the end of the half queue, and moves the saved offset past the older
copy. So each half below the saved offset was ended, has a younger copy, or was given up. No OP record names the older
copies, so only the newest copy of a key counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from reconciler.halves.ended import OffsetBits
from reconciler.halves.values import CheckRules, Half, HalfCopy, HalfFate

#: Longest time of a check round (TransactionalMessageServiceImpl.MAX_PROCESS_TIME_LIMIT). A round saves its offset at
#: its end.
LONGEST_ROUND_SECONDS = 60.0

Identity = tuple[str, str]


class NotEnded:
    """Collects the newest copy of each half that was not ended. The copies must come in the order of their queue.

    An object keeps one value for each half that is open, or was open while its queue was read.
    """

    def __init__(self, ended: OffsetBits) -> None:
        self._ended = ended
        self._newest: dict[Identity, HalfCopy] = {}

    def add(self, copy: HalfCopy) -> None:
        """Adds the next copy of the queue. A copy that was ended ends the half, whatever earlier copies the half
        has."""
        if copy.queue_offset not in self._ended:
            self._newest[copy.identity] = copy
        elif copy.is_put_back:
            self._newest.pop(copy.identity, None)

    def copies(self) -> list[HalfCopy]:
        """Returns the copies that nothing has ended so far. The list begins with the oldest copy."""
        left = [copy for copy in self._newest.values() if copy.queue_offset not in self._ended]
        return sorted(left, key=lambda copy: (copy.born_ms, copy.queue_offset))


def newest_of_each(copies: Iterable[HalfCopy]) -> dict[Identity, HalfCopy]:
    """Returns for each half the copy that was stored last."""
    newest: dict[Identity, HalfCopy] = {}
    for copy in copies:
        known = newest.get(copy.identity)
        if known is None or (copy.store_ms, copy.commit_log_offset) >= (known.store_ms, known.commit_log_offset):
            newest[copy.identity] = copy
    return newest


def open_halves(
    copies: Iterable[HalfCopy],
    *,
    rules: CheckRules,
    now_ms: int,
    delivered: Mapping[Identity, bool | None],
    ended_before: Collection[Identity],
) -> Iterator[Half]:
    """Yields the states of halves whose newest copy was not ended.

    `delivered`: half -> True if the message is in its topic. None or a missing half means unknown. `ended_before` names
    halves with an older copy that was ended. A broker forgets this end once it has put a younger copy back
    (fillOpRemoveMap).
    """
    for copy in copies:
        in_topic = delivered.get(copy.identity)
        is_fresh = now_ms - copy.store_ms < rules.ended_seen_after_seconds * 1000
        if in_topic and is_fresh and not copy.is_put_back:
            continue  # committed a moment ago: the usual case
        if in_topic:
            state = HalfFate.DELIVERED
        elif copy.identity in ended_before and in_topic is False:
            state = HalfFate.ENDED
        elif is_fresh:
            state = HalfFate.FRESH
        else:
            state = HalfFate.OPEN
        yield replace(asked_on(copy, rules, state), is_looked_up=in_topic is not None)


def unnamed_halves(
    copies: Iterable[HalfCopy], *, rules: CheckRules, now_ms: int, delivered: Mapping[Identity, bool | None]
) -> Iterator[Half]:
    """Yields the states of halves whose OP records cannot be read (4.3 to 4.6). The copies lie at or after the saved
    offset. A half that is not in its topic counts as open if two rounds had time to pass the half."""
    for copy in copies:
        in_topic = delivered.get(copy.identity)
        if in_topic:
            continue
        passed_ms = copy.born_ms + round((copy.left_alone_seconds + 2 * rules.interval_seconds) * 1000)
        state = HalfFate.OPEN if now_ms > passed_ms else HalfFate.FRESH
        yield replace(asked_on(copy, rules, state), is_looked_up=in_topic is not None)


def uncounted_halves(
    copies: Iterable[HalfCopy], *, rules: CheckRules, now_ms: int, delivered: Mapping[Identity, bool | None]
) -> Iterator[Half]:
    """Yields the states of halves in RocksDB that nothing has ended. After the last question, the broker deletes its
    record of a half without a trace. An END still works after the deletion (TransactionalMessageRocksDBService)."""
    for copy in copies:
        in_topic = delivered.get(copy.identity)
        until_ms = copy.born_ms + round((copy.left_alone_seconds + rules.asked_for_seconds) * 1000)
        kept_ms = copy.store_ms + round(rules.retention_seconds * 1000)
        is_asked = now_ms <= until_ms
        if now_ms - copy.store_ms < rules.ended_seen_after_seconds * 1000:
            if in_topic:
                continue
            state = HalfFate.FRESH
        elif in_topic:
            state = HalfFate.DELIVERED if is_asked else HalfFate.GIVEN_UP_DELIVERED
        else:
            state = HalfFate.OPEN if is_asked else HalfFate.GIVEN_UP
        yield Half(
            copy=copy,
            state=state,
            asked_until_ms=until_ms if is_asked else None,
            kept_until_ms=kept_ms,
            is_looked_up=in_topic is not None,
        )


def walked_halves(copies: Iterable[HalfCopy], *, rules: CheckRules, now_ms: int) -> Iterator[Half]:
    """Yields the states of halves whose outcome is not in the log (up to 4.2, where no broker asks)."""
    for copy in copies:
        is_fresh = now_ms - copy.store_ms < rules.ended_seen_after_seconds * 1000
        kept_ms = copy.store_ms + round(rules.retention_seconds * 1000)
        yield Half(copy=copy, state=HalfFate.FRESH if is_fresh else HalfFate.OPEN, kept_until_ms=kept_ms)


def given_up(
    copies: Iterable[HalfCopy], *, rules: CheckRules, delivered: Mapping[Identity, bool | None]
) -> Iterator[Half]:
    """Yields the states of halves about which their broker no longer asks."""
    for copy in copies:
        in_topic = delivered.get(copy.identity)
        state = HalfFate.GIVEN_UP_DELIVERED if in_topic else HalfFate.GIVEN_UP
        kept_ms = copy.store_ms + round(rules.retention_seconds * 1000)
        yield Half(copy=copy, state=state, kept_until_ms=kept_ms, is_looked_up=in_topic is not None)


def asked_on(copy: HalfCopy, rules: CheckRules, state: HalfFate) -> Half:
    """Returns a half about which its broker still asks, with the approximate time of the last question.

    Each round asks once. A half as old as the retention is given up without a question (needSkip).
    """
    left = max(0, rules.questions_max - copy.asked)
    kept_ms = copy.born_ms + round(rules.retention_seconds * 1000)
    first_seconds = 0.0 if copy.asked else copy.left_alone_seconds
    last_ms = copy.store_ms + round((first_seconds + left * rules.interval_seconds) * 1000)
    return Half(
        copy=copy, state=state, questions_left=left, asked_until_ms=min(last_ms, kept_ms), kept_until_ms=kept_ms
    )


def stands_seconds(copy: HalfCopy, rules: CheckRules, *, now_ms: int, started_ms: int) -> float | None:
    """Returns the seconds for which the check service has not moved from the half at its saved offset. `copy` is this
    half, which was not ended. Returns None if a round may still reach the half. `started_ms` is the time at which the
    broker started."""
    return overdue_seconds(
        (now_ms - max(copy.store_ms, started_ms)) / 1000,
        left_alone_seconds=copy.left_alone_seconds,
        interval_seconds=rules.interval_seconds,
    )


def overdue_seconds(waited_seconds: float, *, left_alone_seconds: float, interval_seconds: float) -> float | None:
    """Returns the waiting time of a half at the saved offset if a round should have passed the half by now. Otherwise
    returns None."""
    longest = left_alone_seconds + 2 * interval_seconds + LONGEST_ROUND_SECONDS
    return waited_seconds if waited_seconds > longest else None
