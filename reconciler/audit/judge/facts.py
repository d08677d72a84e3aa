"""Facts that rules need about each key of one subscription. Facts are dense columns, indexed by the key's code.

Every column comes from a set or a minimum, so neither the order of rows nor a doubled row changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.audit.evidence.plan import LATE_COMMIT_MS_MAX, UNSEEN_LATES, GroupPlan, JudgePlan
from reconciler.audit.judge.keys import Codes, Longs
from reconciler.audit.judge.rows import NULL, Flags, Rows, Vocabulary
from reconciler.contract.tables import EVERY_GROUP, CandidateState, OutboxState
from reconciler.contract.verdicts import GIVEN_UP

#: Value for a missing time, later than all times.
NEVER = np.int64(np.iinfo(np.int64).max)

#: Gravity of a candidate's states. A later state wins. Of states at one time, the graver state wins.
_GRAVITY = (CandidateState.OPEN, CandidateState.SETTLED, CandidateState.QUARANTINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedRows:
    """Rows, with the code of each row's key."""

    rows: Rows
    codes: Codes

    def take(self, places: npt.NDArray[np.intp] | None) -> CodedRows:
        """Takes the rows at these places. None: all rows."""
        return self if places is None else CodedRows(rows=self.rows.take(places), codes=self.codes[places])


def flagged(codes: Codes, size: int) -> Flags:
    """Marks the codes that occur."""
    flags = np.zeros(size, np.bool_)
    flags[codes] = True
    return flags


def earliest(codes: Codes, times: Longs, size: int) -> Longs:
    """Finds the smallest time of each code, or NEVER if the code has no time."""
    found = np.full(size, NEVER, np.int64)
    found[codes] = times
    beaten = found[codes] > times
    if beaten.any():
        np.minimum.at(found, codes[beaten], times[beaten])
    return found


def largest(codes: Codes, numbers: Longs, size: int) -> Longs:
    """Finds the largest number of each code, or NULL if the code has no number."""
    found = np.full(size, NULL, np.int64)
    found[codes] = numbers
    beaten = found[codes] < numbers
    if beaten.any():
        np.maximum.at(found, codes[beaten], numbers[beaten])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """Facts of the outbox about a topic's keys. For a tombstone, `created_at` is the time of the tombstone's row."""

    size: int
    outbox: CodedRows
    #: Outbox rows that are no tombstones.
    commits: CodedRows
    committed: Flags
    tombstone: Flags
    created_at: Longs


def topic_facts(outbox: CodedRows, size: int, vocabulary: Vocabulary) -> TopicFacts:
    """Reads an outbox. If a key has a committed row and a tombstone, the committed row counts.

    Of several rows, the earliest counts.
    """
    is_tombstone = outbox.rows.names["state"] == vocabulary.number(OutboxState.ROLLED_BACK)
    times = outbox.rows.times["created_at_ms"]
    if not is_tombstone.any():
        created_at = earliest(outbox.codes, times, size)
        return TopicFacts(
            size=size,
            outbox=outbox,
            commits=outbox,
            committed=created_at != NEVER,
            tombstone=np.zeros(size, np.bool_),
            created_at=created_at,
        )
    commits = outbox.take(np.flatnonzero(~is_tombstone))
    created_at = earliest(commits.codes, commits.rows.times["created_at_ms"], size)
    committed = created_at != NEVER
    ended_at = earliest(outbox.codes[is_tombstone], times[is_tombstone], size)
    return TopicFacts(
        size=size,
        outbox=outbox,
        commits=commits,
        committed=committed,
        tombstone=~committed & (ended_at != NEVER),
        created_at=np.where(committed, created_at, ended_at),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairFacts:
    """Repairs that were sent and reach the group. `first_sent` has times by scope. NEVER: the time is not known."""

    seen: Flags
    sent: Flags
    first_sent: tuple[Longs, Longs]
    #: Time at which the loss was proved.
    created_at: Longs


def repair_facts(repairs: CodedRows, group: str, size: int, vocabulary: Vocabulary) -> RepairFacts:
    """Reads a topic's repairs.

    The time of the first send is known if the time was stored, or if the repair has a single send.
    """
    scopes = (vocabulary.number(EVERY_GROUP), vocabulary.number(group))
    reaching = repairs.take(np.flatnonzero(np.isin(repairs.rows.names["scope"], scopes)))
    times = reaching.rows.times
    first, last, attempts = times["first_sent_at_ms"], times["sent_at_ms"], times["attempts"]
    sent_at = np.where(first != NULL, first, np.where(attempts == 1, last, NULL))
    sent = attempts > 0

    def first_sent(scope: int) -> Longs:
        rows = sent & (sent_at != NULL) & (reaching.rows.names["scope"] == scope)
        return earliest(reaching.codes[rows], sent_at[rows], size)

    return RepairFacts(
        seen=flagged(reaching.codes, size),
        sent=flagged(reaching.codes[sent], size),
        first_sent=(first_sent(scopes[0]), first_sent(scopes[1])),
        created_at=earliest(reaching.codes, times["created_at_ms"], size),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Facts that rules need (rules.py), one element per key code."""

    #: True: the key belongs to the subscription's window.
    present: Flags
    #: Time that decides to which window the key belongs.
    key_time: Longs
    #: Time at which the commit was first seen. NEVER: no row shows it.
    seen_at: Longs
    committed: Flags
    tombstone: Flags
    created_at: Longs
    accepted: Flags
    effect: Flags
    #: Time of the inbox row. NEVER: the key has no inbox row.
    applied_at: Longs
    #: True: an inbox row says that the handler ended the transaction before the handler returned.
    incomplete: Flags
    #: Number of effects in the business tables. NULL: the key has no row there.
    effects: Longs
    repair: RepairFacts
    digests_differ: Flags
    unnecessary: Flags
    announced_at: Longs
    consumed_at: Longs
    #: True: the history has the announcement, or the ledger knows the key. All keys are True if history or ledger is
    #: not given.
    watched: Flags
    quarantined: Flags
    unaccounted: Flags
    #: Time of the snapshot that lacks an unaccounted key. -1 for other keys.
    looked_at: Longs
    #: True: the message was committed, and the grace period is over.
    old: Flags
    #: True: the message was applied more than `late_after_seconds` after the commit.
    late: Flags
    #: True: the outbox of every producer group was given.
    outboxes_complete: bool
    #: Halves of the window that are in no class. No outbox says whether they were committed, and no effect is known.
    unproved: Flags


def accepted_tags(topic: TopicFacts, asked: GroupPlan, vocabulary: Vocabulary) -> Flags:
    """Marks commits whose tag the group takes. A message without a tag is taken only by a group that takes all tags."""
    if asked.tags is None:
        return topic.committed
    numbers = [vocabulary.number(tag) for tag in sorted(asked.tags)]
    return flagged(topic.commits.codes[np.isin(topic.commits.rows.names["tag"], numbers)], topic.size)


def candidate_states(rows: CodedRows, size: int, vocabulary: Vocabulary) -> tuple[Flags, Flags]:
    """Marks keys with a candidate. Also marks keys whose candidate is QUARANTINED or given up in the newest state."""
    if not len(rows.codes):
        none = np.zeros(size, np.bool_)
        return none, none
    names, gravity = rows.rows.names, np.zeros(len(rows.codes), np.int64)
    for place, state in enumerate(_GRAVITY):
        gravity[names["state"] == vocabulary.number(state)] = place
    given_up = np.isin(names["verdict"], [vocabulary.number(verdict) for verdict in sorted(GIVEN_UP)])
    gravity[(names["state"] == vocabulary.number(CandidateState.SETTLED)) & given_up] = len(_GRAVITY) - 1
    newest = largest(rows.codes, rows.rows.times["updated_at_ms"] * len(_GRAVITY) + gravity, size)
    seen = newest != NULL
    return seen, seen & (newest % len(_GRAVITY) == len(_GRAVITY) - 1)


def key_times(topic: TopicFacts, window_start_ms: int, seen_at: Longs, repaired: Longs, late_after_ms: int) -> Longs:
    """Finds each key's time: the time of the outbox row, or the earliest time at which any evidence shows the key.

    A transaction may commit long after its row was written. By then the window of the row's time may have been audited.
    So a commit that was first seen more than `late_after_ms` after its row gets the time of that sight, minus
    `late_after_ms`. An audit waits for `late_after_ms`, so it knows all commits that were seen in time. A commit that
    was never seen counts at twice `late_after_ms` after its row. If such a commit is first seen more than
    LATE_COMMIT_MS_MAX later, its time stays the same, because the window of that time has been audited. A key that only
    business effects show has no time. Such a key counts at the window's start.
    """
    times = np.where(topic.created_at != NEVER, topic.created_at, np.where(seen_at == NEVER, repaired, seen_at))
    times = np.where(times == NEVER, window_start_ms, times)
    after_ms = seen_at - times - late_after_ms
    after_ms = np.where(
        (seen_at == NEVER) | (after_ms > LATE_COMMIT_MS_MAX), UNSEEN_LATES * late_after_ms, np.maximum(after_ms, 0)
    )
    return np.where(topic.committed, times + after_ms, times)


def digests_differ(suspects: Flags, commits: CodedRows, inbox: CodedRows) -> Flags:
    """Marks each suspect whose digest in the outbox differs from the digest in the inbox.

    If rows have several digests, the smallest digest counts.
    """
    differ = np.zeros(len(suspects), np.bool_)
    if commits.rows.digests is None or inbox.rows.digests is None or not suspects.any():
        return differ
    sent, consumed = _digest_by_code(commits, suspects), _digest_by_code(inbox, suspects)
    both, at_sent, at_consumed = np.intersect1d(sent[0], consumed[0], assume_unique=True, return_indices=True)
    differ[both] = (sent[1][at_sent] != consumed[1][at_consumed]).any(axis=1)
    return differ


def _digest_by_code(coded: CodedRows, wanted: Flags) -> tuple[Codes, npt.NDArray[np.uint64]]:
    """Finds the sorted codes that have a digest, and the smallest digest of each code."""
    assert coded.rows.digests is not None  # noqa: S101 - asked by the caller
    words, there = coded.rows.digests
    rows = np.flatnonzero(there & wanted[coded.codes])
    codes, words = coded.codes[rows], words[rows]
    columns: list[npt.NDArray[Any]] = [words[:, place].byteswap() for place in reversed(range(words.shape[1]))]
    columns.append(codes)
    order = np.lexsort(columns)
    codes, first = np.unique(codes[order], return_index=True)
    return codes, words[order[first]]


def quarantined_by_history(left: CodedRows, plan: JudgePlan, size: int, vocabulary: Vocabulary) -> Flags:
    """Marks keys that the history calls quarantined. Marks no key if a ledger was given."""
    if plan.ledger:
        return np.zeros(size, np.bool_)
    rows = left.rows.names["reason"] == vocabulary.number(CandidateState.QUARANTINED)
    return flagged(left.codes[rows], size)
