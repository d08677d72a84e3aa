"""Verdicts, as a part of the ledger in memory (memory.py), and the rows that verdicts and repairs share."""

from __future__ import annotations

import heapq
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from reconciler.clock import Clock
from reconciler.contract.facts import Fact
from reconciler.contract.row_rules import (
    FIRST_QUESTION_MS_MAX,
    STATE_RANK,
    bounded_text,
    is_asked_again,
    is_of_the_future,
    is_unreviewed,
    wait_ms,
)
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import LOSSES, Undecided, Verdict
from reconciler.policy.ports.ledger import Candidate, Repair, UndecidedRows, VerdictEntry

RepairKey = tuple[str, str, str, str]


def code_name(fact: Fact) -> str:
    """Returns the code of a fact in place of a sentence, for worlds in which nobody reads sentences."""
    return fact.code.name


class MemoryRepairRows:
    """The rows of one in-memory ledger. A caller must hold the lock while it uses the rows."""

    def __init__(
        self, clock: Clock, *, host_clock: Clock | None = None, english: Callable[[Fact], str] = code_name
    ) -> None:
        self.clock = clock
        self.host_clock = host_clock
        self.english = english
        self.lock = threading.RLock()
        self.candidates: dict[tuple[Subscription, str], Candidate] = {}
        #: Key of an UNKNOWN candidate -> the reason why it is undecided, and the time since which it is undecided.
        self.causes: dict[tuple[Subscription, str], tuple[Undecided, int]] = {}
        self.repairs: dict[RepairKey, Repair] = {}
        self.messages: dict[RepairKey, str] = {}

    def answered(self, row: Repair, answer: Fact | str) -> Repair:
        """Returns the row with the answer. An answer that is a text has no fact."""
        text, fact = (answer, None) if isinstance(answer, str) else (self.english(answer), answer)
        return replace(row, answer=bounded_text(text), answer_fact=fact)


class MemoryCandidates:
    """Candidates over a dictionary."""

    def __init__(self, rows: MemoryRepairRows) -> None:
        self._rows = rows

    def of_keys(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Candidate]:
        """Returns the rows that exist."""
        with self._rows.lock:
            found = ((key, self._rows.candidates.get((subscription, key))) for key in unique_keys)
            return {key: row for key, row in found if row is not None}

    def record(self, shard: Shard, entries: Sequence[VerdictEntry]) -> None:
        """Inserts or updates one row per entry."""
        with self._rows.lock:
            for entry in entries:
                self._record(shard, entry)

    def _record(self, shard: Shard, seen: VerdictEntry) -> None:
        key = (shard.subscription, seen.unique_key)
        old = self._rows.candidates.get(key)
        if old is not None and STATE_RANK[old.state] > STATE_RANK[seen.state]:
            return
        now_ms = self._rows.clock.now_ms()
        self._rows.causes.pop(key, None)
        if seen.undecided_by is not None and seen.undecided_since_ms is not None:
            self._rows.causes[key] = (seen.undecided_by, seen.undecided_since_ms)
        loss = seen.verdict if seen.verdict in LOSSES else None
        self._rows.candidates[key] = Candidate(
            subscription=shard.subscription,
            unique_key=seen.unique_key,
            shard=shard.number,
            state=seen.state,
            verdict=seen.verdict,
            loss_verdict=old.loss_verdict if old is not None and old.loss_verdict is not None else loss,
            evidence=dict(seen.evidence),
            attempts=1 if old is None else old.attempts + 1,
            first_seen_ms=seen.first_seen_ms if old is None else min(old.first_seen_ms, seen.first_seen_ms),
            next_at_ms=now_ms + wait_ms(seen.wait_seconds),
            updated_at_ms=now_ms,
            ask_again_at_ms=None if seen.ask_again_seconds is None else now_ms + wait_ms(seen.ask_again_seconds),
        )

    def open_losses(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """Returns OPEN losses that are due, beginning with the oldest loss."""
        found = self._open(subscription, lambda row: row.loss_verdict is not None)
        now_ms = self._rows.clock.now_ms()
        return sorted(found, key=lambda row: (row.next_at_ms > now_ms, row.first_seen_ms, row.unique_key))[:limit]

    def open_due(self, subscription: Subscription, *, shards: Collection[int], limit: int) -> Sequence[Candidate]:
        """Returns OPEN rows of the shards that are due, sorted by due time."""
        found = self._open(subscription, lambda row: row.shard in shards)
        return sorted(found, key=lambda row: (row.next_at_ms, row.unique_key))[:limit]

    def due_subscriptions(self, environment: str) -> Collection[Subscription]:
        """Returns the subscriptions of OPEN rows that are due."""
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            due = (row for row in self._rows.candidates.values() if row.next_at_ms <= now_ms)
            is_open = {row.subscription for row in due if row.state is CandidateState.OPEN}
        return {of for of in is_open if of.environment == environment}

    def undecided(
        self, subscription: Subscription, *, limit: int, after: Candidate | None = None
    ) -> Sequence[Candidate]:
        """Returns a page of UNKNOWN rows, beginning with the oldest row."""
        found = self._undecided(subscription)
        if after is not None:
            found = [r for r in found if (r.first_seen_ms, r.unique_key) > (after.first_seen_ms, after.unique_key)]
        return found[:limit]

    def undecided_rows(
        self, subscription: Subscription, by: Undecided | None, *, most: int,
        since_before_ms: int | None = None, since_after_ms: int | None = None,
    ) -> UndecidedRows | None:  # fmt: skip
        """Counts undecided rows, and returns the oldest one."""
        with self._rows.lock:
            causes = {key: cause for (owner, key), cause in self._rows.causes.items() if owner == subscription}
            rows = self._undecided(subscription)
        if by is None:
            found = [row for row in rows[:most] if row.unique_key not in causes]
        else:
            of_cause = {
                key
                for key, (cause, since_ms) in causes.items()
                if cause is by and (since_after_ms or 0) < since_ms < (since_before_ms or sys.maxsize)
            }
            found = [row for row in rows if row.unique_key in of_cause][:most]
        return UndecidedRows(count=len(found), oldest=found[0] if found else None)

    def _undecided(self, subscription: Subscription) -> list[Candidate]:
        with self._rows.lock:
            found = [
                row
                for (owner, _key), row in self._rows.candidates.items()
                if owner == subscription
                and (row.state, row.verdict, row.loss_verdict) == (CandidateState.OPEN, Verdict.UNKNOWN, None)
            ]
        return sorted(found, key=lambda row: (row.first_seen_ms, row.unique_key))

    def _open(self, subscription: Subscription, wanted: Callable[[Candidate], bool]) -> list[Candidate]:
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            return [
                row
                for (owner, _key), row in self._rows.candidates.items()
                if owner == subscription
                and row.state is CandidateState.OPEN
                and (row.next_at_ms <= now_ms or _is_of_the_future(row, now_ms))
                and wanted(row)
            ]

    def reopen(self, row: Candidate) -> bool:
        """Makes a closed row OPEN and due again."""
        with self._rows.lock:
            key = (row.subscription, row.unique_key)
            now = self._rows.candidates.get(key)
            as_read = now is not None and (now.state, now.verdict) == (row.state, row.verdict)
            if now is None or now.state is CandidateState.OPEN or not as_read:
                return False
            now_ms = self._rows.clock.now_ms()
            self._rows.candidates[key] = replace(
                now, state=CandidateState.OPEN, next_at_ms=now_ms, updated_at_ms=now_ms, ask_again_at_ms=None
            )
            return True

    def unreviewed_rows(self, subscription: Subscription, *, most: int) -> UndecidedRows:
        """Counts the REJECTED rows that nobody has reviewed yet, and returns the oldest one."""
        with self._rows.lock:
            until_ms = self._rows.clock.now_ms() + FIRST_QUESTION_MS_MAX
            found = [
                row
                for (owner, _key), row in self._rows.candidates.items()
                if owner == subscription
                and (row.state, row.verdict) == (CandidateState.SETTLED, Verdict.REJECTED)
                and (row.ask_again_at_ms or 0) <= until_ms
                and is_unreviewed(row.ask_again_at_ms, updated_at_ms=row.updated_at_ms)
            ]
        first = heapq.nsmallest(most, found, key=lambda row: row.ask_again_at_ms or 0)
        oldest = min(first, key=lambda row: (row.first_seen_ms, row.unique_key), default=None)
        return UndecidedRows(count=len(first), oldest=oldest)

    def to_ask_again(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """Returns rows whose ask_again_at_ms has passed, sorted by this time."""
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            waiting = [
                (row.ask_again_at_ms, row)
                for (owner, _key), row in self._rows.candidates.items()
                if owner == subscription
                and row.ask_again_at_ms is not None
                and is_asked_again(row.ask_again_at_ms, now_ms=now_ms)
            ]
        return [row for _, row in heapq.nsmallest(limit, waiting, key=lambda place: (place[0] > now_ms, place[0]))]

    def ask_later(
        self, subscription: Subscription, unique_keys: Sequence[str], *, seconds: float | None,
        stays_unreviewed: bool = False,
    ) -> None:  # fmt: skip
        """Writes the time at which to ask again. None: nobody asks again."""
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            at_ms = None if seconds is None else now_ms + wait_ms(seconds)
            for row in self._asked_again(subscription, unique_keys):
                changed_ms = now_ms if stays_unreviewed else row.updated_at_ms
                put_off = replace(row, ask_again_at_ms=at_ms, updated_at_ms=changed_ms)
                self._rows.candidates[subscription, row.unique_key] = put_off

    def take_back(self, shard: Shard, unique_keys: Sequence[str]) -> None:
        """Makes rows that wait to be asked again OPEN and due, except dismissed ones."""
        with self._rows.lock:
            for row in self._asked_again(shard.subscription, unique_keys):
                if not row.is_dismissed:
                    self._rows.candidates[shard.subscription, row.unique_key] = replace(row, shard=shard.number)
                    self.reopen(row)

    def wake_dismissed(self, subscription: Subscription, entries: Sequence[VerdictEntry]) -> Collection[str]:
        """Makes dismissed rows QUARANTINED, and returns their keys."""
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            found = self.of_keys(subscription, [seen.unique_key for seen in entries])
            woken = [seen for seen in entries if seen.unique_key in found and found[seen.unique_key].is_dismissed]
            for seen in woken:
                self._rows.candidates[subscription, seen.unique_key] = replace(
                    found[seen.unique_key],
                    state=seen.state,
                    verdict=seen.verdict,
                    evidence=dict(seen.evidence),
                    updated_at_ms=now_ms,
                    ask_again_at_ms=None
                    if seen.ask_again_seconds is None
                    else now_ms + wait_ms(seen.ask_again_seconds),
                )
        return [seen.unique_key for seen in woken]

    def before_since(
        self, subscription: Subscription, loss_verdict: Verdict | None, *, limit: int, after: Candidate | None = None
    ) -> Sequence[Candidate]:
        """Returns a page of BEFORE_SINCE rows, beginning with the newest row."""
        with self._rows.lock:
            found = [
                row
                for (owner, _key), row in self._rows.candidates.items()
                if owner == subscription and _is_before_since(row) and row.loss_verdict is loss_verdict
            ]
        found.sort(key=lambda row: (row.first_seen_ms, row.unique_key), reverse=True)
        if after is not None:
            found = [r for r in found if (r.first_seen_ms, r.unique_key) < (after.first_seen_ms, after.unique_key)]
        return found[:limit]

    def answer_for(self, shard: Shard, unique_keys: Sequence[str]) -> None:
        """Makes BEFORE_SINCE rows OPEN and due."""
        with self._rows.lock:
            for row in self.of_keys(shard.subscription, unique_keys).values():
                if _is_before_since(row):
                    self._rows.candidates[shard.subscription, row.unique_key] = replace(row, shard=shard.number)
                    self.reopen(row)

    def _asked_again(self, subscription: Subscription, unique_keys: Sequence[str]) -> list[Candidate]:
        found = self.of_keys(subscription, unique_keys).values()
        return [row for row in found if row.ask_again_at_ms is not None]


def _is_before_since(row: Candidate) -> bool:
    return (row.state, row.verdict) == (CandidateState.SETTLED, Verdict.BEFORE_SINCE)


def _is_of_the_future(row: Candidate, now_ms: int) -> bool:
    return is_of_the_future(next_at_ms=row.next_at_ms, updated_at_ms=row.updated_at_ms, now_ms=now_ms)
