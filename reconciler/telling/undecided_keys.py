"""Decides which UNKNOWN keys are an alarm.

A key is an alarm if a witness that should answer keeps it undecided, or if witnesses contradict each other. Keys that
the configuration cannot decide are only counted, because nobody can change that at night. Keys that a popping group was
handed wait for the group, like messages above a group's offset. A verdict may name a time; keys that wait for such a
time are left out. Rows of a release that stored no cause are left out, too.

The ledger stores the cause in a column. If the ledger was not upgraded, the cause is read from the evidence of the
oldest rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.subscription import Subscription
from reconciler.contract.verdicts import Undecided
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.judging.suspect import undecided_by
from reconciler.policy.ports.ledger import Candidate, Candidates, UndecidedRows
from reconciler.telling.account import Link, mirrored, passed

KEY = Code("undecided.key", unique_key=Field.NAME, at_ms=Field.TIME, why=Field.FACT)
KEYS = Code("undecided.keys", unique_key=Field.NAME, at_ms=Field.TIME, why=Field.FACT, number=Field.NUMBER)
_BEYOND: Mapping[str, Field] = {"subscription": Field.NAME, "number": Field.NUMBER, "at_ms": Field.TIME}
BEYOND_SET_UP = Code("undecided.beyond-set-up", **_BEYOND)
BEYOND_SET_UP_AT_LEAST = Code("undecided.beyond-set-up-at-least", **_BEYOND)
HANDED_OUT = Code("undecided.handed-out", **_BEYOND)

#: Maximum number of pages of a subscription's UNKNOWN rows that are read if the ledger was not upgraded. The oldest
#: rows come first.
PAGES_MAX = 20
#: Maximum number of rows of one cause that are counted.
COUNTED_MAX = PAGES_MAX * PAGE_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedKeys:
    """The UNKNOWN keys of one subscription that have no proved loss, as far as they were counted."""

    subscription: Subscription
    #: The oldest key before which the accounted-until time stops, and the number of such keys.
    held: Candidate | None
    held_count: int
    #: Number of keys that the configuration cannot decide.
    set_up_count: int
    set_up_oldest_ms: int | None
    #: Number of keys that the group was handed and whose effect has been missing for too long.
    handed_out_count: int
    handed_out_oldest_ms: int | None
    #: The time at which the oldest of all keys was first seen that the configuration can decide.
    other_oldest_ms: int | None
    #: False: there are more keys than were counted.
    is_complete: bool


def none_undecided(subscription: Subscription) -> UndecidedKeys:
    """Returns the value for a subscription without UNKNOWN keys."""
    return UndecidedKeys(
        subscription=subscription,
        held=None,
        held_count=0,
        set_up_count=0,
        set_up_oldest_ms=None,
        handed_out_count=0,
        handed_out_oldest_ms=None,
        other_oldest_ms=None,
        is_complete=True,
    )


def read_undecided(
    candidates: Candidates, subscription: Subscription, *, asked_ms: int, within_ms: int, handed_out_ms: int | None
) -> UndecidedKeys:
    """Reads and counts the UNKNOWN keys of a subscription. Raises DatabaseAway.

    A key stops the accounted-until time if a witness has kept the key undecided for `within_ms`, or at once if
    witnesses contradict each other about the key, or if the time since when it is undecided lies that far ahead.
    `handed_out_ms`: for so long the effect of a message that the group was handed may be missing. None: for ever.
    """

    def rows(by: Undecided | None, **since: int) -> UndecidedRows | None:
        return candidates.undecided_rows(subscription, by, most=COUNTED_MAX, **since)

    contradicted = rows(Undecided.CONTRADICTION)
    late = rows(Undecided.WITNESS, since_before_ms=asked_ms - within_ms)
    # Redis' clock dates the cause. If it is ahead, no key would ever be late by the ledger's clock.
    ahead = rows(Undecided.WITNESS, since_after_ms=asked_ms + within_ms)
    of_witness, of_set_up, of_none = rows(Undecided.WITNESS), rows(Undecided.SET_UP), rows(None)
    handed_out, waiting = rows(Undecided.HANDED_OUT), UndecidedRows(count=0, oldest=None)
    if handed_out is not None and handed_out.count and handed_out_ms is not None:
        waiting = rows(Undecided.HANDED_OUT, since_before_ms=asked_ms - handed_out_ms) or waiting
    if not (contradicted and late and ahead and of_witness and of_set_up and of_none and handed_out):
        return _read_one_by_one(
            candidates, subscription, asked_ms=asked_ms, within_ms=within_ms, handed_out_ms=handed_out_ms
        )
    held = [found.oldest for found in (contradicted, late, ahead) if found.oldest is not None]
    others = [found.oldest for found in (contradicted, of_witness, of_none, handed_out) if found.oldest is not None]
    return UndecidedKeys(
        subscription=subscription,
        held=min(held, key=_age, default=None),
        held_count=contradicted.count + late.count + ahead.count,
        set_up_count=of_set_up.count,
        set_up_oldest_ms=None if of_set_up.oldest is None else of_set_up.oldest.first_seen_ms,
        handed_out_count=waiting.count,
        handed_out_oldest_ms=None if waiting.oldest is None else waiting.oldest.first_seen_ms,
        other_oldest_ms=min((row.first_seen_ms for row in others), default=None),
        is_complete=of_set_up.count < COUNTED_MAX,
    )


def _age(row: Candidate) -> tuple[int, str]:
    return row.first_seen_ms, row.unique_key


def _read_one_by_one(
    candidates: Candidates, subscription: Subscription, *, asked_ms: int, within_ms: int, handed_out_ms: int | None
) -> UndecidedKeys:
    held: list[Candidate] = []
    set_up: list[int] = []
    others: list[int] = []
    handed_out: list[int] = []
    after: Candidate | None = None
    is_complete = False
    for _ in range(PAGES_MAX):
        page = candidates.undecided(subscription, limit=PAGE_KEYS, after=after)
        for row in page:
            by, since_ms = undecided_by(row.evidence)
            (set_up if by is Undecided.SET_UP else others).append(row.first_seen_ms)
            since_ms = row.first_seen_ms if since_ms is None else since_ms
            if by is Undecided.CONTRADICTION or (by is Undecided.WITNESS and abs(asked_ms - since_ms) > within_ms):
                held.append(row)
            if by is Undecided.HANDED_OUT and handed_out_ms is not None and asked_ms - since_ms > handed_out_ms:
                handed_out.append(row.first_seen_ms)
        if len(page) < PAGE_KEYS:
            is_complete = True
            break
        after = page[-1]
    return UndecidedKeys(
        subscription=subscription,
        held=held[0] if held else None,
        held_count=len(held),
        set_up_count=len(set_up),
        set_up_oldest_ms=min(set_up, default=None),
        handed_out_count=len(handed_out),
        handed_out_oldest_ms=min(handed_out, default=None),
        other_oldest_ms=min(others, default=None),
        is_complete=is_complete,
    )


def undecided_link(found: UndecidedKeys, *, asked_ms: int, witnesses: tuple[str, ...] = ()) -> Link:
    """Returns the link for undecided keys: every key that was seen before the oldest held key is decided.

    `witnesses`: the names of all witnesses of the subscription.
    """
    if found.held is None:
        return passed(asked_ms)
    row, others = found.held, found.held_count - 1
    why = reason_in(row.evidence)
    if others > 0:
        cause = KEYS(unique_key=row.unique_key, at_ms=row.first_seen_ms, why=why, number=others)
    else:
        cause = KEY(unique_key=row.unique_key, at_ms=row.first_seen_ms, why=why)
    by, _ = undecided_by(row.evidence)
    needs = () if by is Undecided.CONTRADICTION else witnesses
    return Link(until_ms=mirrored(row.first_seen_ms, asked_ms), cause=cause, needs=needs)


def beyond_set_up(found: UndecidedKeys) -> Fact | None:
    """Returns a fact about the number of keys that the configuration cannot decide. None: there are no such keys."""
    if found.set_up_oldest_ms is None:
        return None
    code = BEYOND_SET_UP if found.is_complete else BEYOND_SET_UP_AT_LEAST
    return code(subscription=str(found.subscription), number=found.set_up_count, at_ms=found.set_up_oldest_ms)


def handed_out(found: UndecidedKeys) -> Fact | None:
    """Returns a fact about messages that a popping group was handed long ago, without an effect so far. None: there are
    no such messages."""
    if found.handed_out_oldest_ms is None:
        return None
    of, at_ms = str(found.subscription), found.handed_out_oldest_ms
    return HANDED_OUT(subscription=of, number=found.handed_out_count, at_ms=at_ms)
