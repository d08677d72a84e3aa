"""What became of halves, decided from their copies and from what was ended. Pure.

A check puts a younger copy of an open half at the end of the half queue and goes on; its saved offset passes the older
copy. So below that offset each half was ended, has a younger copy, or was given up. The older copies are named by no OP
record: only the newest one of a key counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from reconciler.halves.ended import OffsetBits
from reconciler.halves.values import CheckRules, Half, HalfCopy, HalfFate

#: TransactionalMessageServiceImpl.MAX_PROCESS_TIME_LIMIT: how long a round may take, which saves its offset at its end.
LONGEST_ROUND_SECONDS = 60.0

Identity = tuple[str, str]


class NotEnded:
    """The newest copy of each half that nothing has ended yet, out of copies in the order of their queue.

    Memory: one value a half that is open, or was while its queue was read.
    """

    def __init__(self, ended: OffsetBits) -> None:
        self._ended = ended
        self._newest: dict[Identity, HalfCopy] = {}

    def add(self, copy: HalfCopy) -> None:
        """The next copy of the queue. One that was ended ends its half, whatever lies before it."""
        if copy.queue_offset not in self._ended:
            self._newest[copy.identity] = copy
        elif copy.is_put_back:
            self._newest.pop(copy.identity, None)

    def copies(self) -> list[HalfCopy]:
        """Those that nothing has ended by now, the oldest first."""
        left = [copy for copy in self._newest.values() if copy.queue_offset not in self._ended]
        return sorted(left, key=lambda copy: (copy.born_ms, copy.queue_offset))


def newest_of_each(copies: Iterable[HalfCopy]) -> dict[Identity, HalfCopy]:
    """The copy of each half that was stored last."""
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
    """States of halves whose newest copy was not ended.

    `delivered`: whether the message is in its topic; None, or missing: nobody knows. `ended_before`: an older copy was
    ended, which the broker forgets as soon as it has put a younger one back (fillOpRemoveMap).
    """
    for copy in copies:
        in_topic = delivered.get(copy.identity)
        is_fresh = now_ms - copy.store_ms < rules.ended_seen_after_seconds * 1000
        if in_topic and is_fresh and not copy.is_put_back:
            continue  # committed a moment ago, as most are
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
    """The same where no OP record can be read (4.3 to 4.6): a half at or behind the saved offset that is not in its
    topic is open once two rounds have had the time to pass it."""
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
    """States of halves in RocksDB that nothing ended: after the last question the broker deletes its record of them
    without a trace, and an END still works (TransactionalMessageRocksDBService)."""
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
    """States of halves whose outcome is not in the log (up to 4.2, where no broker asks)."""
    for copy in copies:
        is_fresh = now_ms - copy.store_ms < rules.ended_seen_after_seconds * 1000
        kept_ms = copy.store_ms + round(rules.retention_seconds * 1000)
        yield Half(copy=copy, state=HalfFate.FRESH if is_fresh else HalfFate.OPEN, kept_until_ms=kept_ms)


def given_up(
    copies: Iterable[HalfCopy], *, rules: CheckRules, delivered: Mapping[Identity, bool | None]
) -> Iterator[Half]:
    """States of halves that their broker asks about no more."""
    for copy in copies:
        in_topic = delivered.get(copy.identity)
        state = HalfFate.GIVEN_UP_DELIVERED if in_topic else HalfFate.GIVEN_UP
        kept_ms = copy.store_ms + round(rules.retention_seconds * 1000)
        yield Half(copy=copy, state=state, kept_until_ms=kept_ms, is_looked_up=in_topic is not None)


def asked_on(copy: HalfCopy, rules: CheckRules, state: HalfFate) -> Half:
    """A half that its broker goes on asking about, and about until when.

    Each round asks once. A half that is as old as the retention is given up without a question (needSkip).
    """
    left = max(0, rules.questions_max - copy.asked)
    kept_ms = copy.born_ms + round(rules.retention_seconds * 1000)
    first_seconds = 0.0 if copy.asked else copy.left_alone_seconds
    last_ms = copy.store_ms + round((first_seconds + left * rules.interval_seconds) * 1000)
    return Half(
        copy=copy, state=state, questions_left=left, asked_until_ms=min(last_ms, kept_ms), kept_until_ms=kept_ms
    )


def stands_seconds(copy: HalfCopy, rules: CheckRules, *, now_ms: int, started_ms: int) -> float | None:
    """How long the check service has stood before the half at its saved offset, which nothing has ended; None where a
    round may still come to it. `started_ms`: of the broker."""
    return overdue_seconds(
        (now_ms - max(copy.store_ms, started_ms)) / 1000,
        left_alone_seconds=copy.left_alone_seconds,
        interval_seconds=rules.interval_seconds,
    )


def overdue_seconds(waited_seconds: float, *, left_alone_seconds: float, interval_seconds: float) -> float | None:
    """The time that a half at the saved offset has waited, where a round has had to pass it by then; else None."""
    longest = left_alone_seconds + 2 * interval_seconds + LONGEST_ROUND_SECONDS
    return waited_seconds if waited_seconds > longest else None
