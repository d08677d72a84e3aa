"""Lines of commands on pages of another language: recognised as the product makes them, or left in English, marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from reconciler.commands.status.standstill import before_since
from reconciler.contract.tables import CandidateState, HoldKind, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import MEANINGS, Verdict
from reconciler.policy.account import (
    OrphanRow,
    OutboxReading,
    QueueReading,
    account_of,
    outbox_link,
    queue_link,
    rounds_link,
    unheard_link,
    verdicts_link,
)
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow, Presence
from reconciler.policy.lag import Lag
from reconciler.policy.life_story import LifeStory, life_story_of
from reconciler.policy.ports import HeldTopic, LedgerLife, PendingKey, VerdictCount
from reconciler.policy.undecided_keys import UndecidedKeys, undecided_link
from reconciler.web.console.catalogue import catalogue_of
from reconciler.web.console.told import RECOGNISED_CHARACTERS_MAX, as_told, known_lines
from reconciler.words import LANGUAGES
from tests.unit.service.test_life_story import (
    ABSENT,
    BILLING,
    CANDIDATE,
    COPY,
    EFFECT,
    JUDGED,
    KEY,
    NOTHING,
    NOWHERE,
    RECORDED,
    REPAIR,
    ROUND,
    ROW,
    in_redis,
)

NOW_MS = 10_000_000
CHINESE = catalogue_of("zh")
ELSEWHERE = [language for language in LANGUAGES if language != "en"]


def causes() -> Iterator[str]:
    """Of every link of the account that can be late, of groups that stand still, and of what lies before a group."""
    old = VerdictCount(
        subscription=BILLING, state=CandidateState.SETTLED, verdict=Verdict.BEFORE_SINCE, loss_verdict=None, count=3,
        oldest_ms=1,
    )  # fmt: skip
    yield from (line for at_ms in (5, 0) for line in before_since([old], {BILLING: at_ms}))
    yield from before_since([replace(old, state=CandidateState.OPEN)], {BILLING: 5})
    yield from (str(Lag(subscription=BILLING, waiting=3, since_ms=5, is_deserted=is_dead)) for is_dead in (False, True))
    calm = OutboxReading(producer_group="shop", now_ms=NOW_MS, swept_at_ms=NOW_MS - 9)
    late = replace(calm, oldest_key=KEY, oldest_ms=5)
    ahead = replace(calm, swept_at_ms=NOW_MS + 9_000)
    seen_outboxes = (calm, late, ahead, replace(late, oldest_ms=None))
    links = [outbox_link(seen, asked_ms=NOW_MS, pace_ms=0) for seen in seen_outboxes]
    for begin, end, taken in ((0, 9, None), (0, 9, 10), (5, 9, 3), (0, 9, 4)):
        for is_extra in (False, True):
            queue = QueueReading(name="broker-a queue 3 of KEYS", begin=begin, end=end, taken=taken, is_extra=is_extra)
            links.append(queue_link(queue, asked_ms=NOW_MS))
    for rounds, shards in (([], 4), ([ROUND], 4), ([ROUND], 0)):
        links.append(rounds_link(rounds, shards=shards, asked_ms=NOW_MS))
    links.append(verdicts_link(PendingKey(unique_key=KEY, first_seen_ms=5), asked_ms=NOW_MS))
    orphan = OrphanRow(unique_key=KEY, producer_group="shop", announced_ms=5)
    links.append(unheard_link(orphan, asked_ms=NOW_MS, ahead_ms=0))
    row = replace(CANDIDATE, evidence={"reason": MEANINGS[Verdict.UNKNOWN]})
    for count in (1, 3):
        keys = UndecidedKeys(
            subscription=BILLING, held=row, held_count=count, set_up_count=0, set_up_oldest_ms=None,
            other_oldest_ms=1, is_complete=True,
        )  # fmt: skip
        links.append(undecided_link(keys, asked_ms=NOW_MS))
    for link in links:
        yield link.cause
        if link.kind:
            many = account_of(BILLING, [link, link], asked_ms=10**12, within_ms=0, is_given=True)
            yield from (f"{BILLING}: {cause}" for cause in many.late)


def stories() -> Iterator[LifeStory]:
    """A message in every state, with every witness."""
    copies = {
        name: Lookup(presence=Presence.FOUND, records=(replace(COPY, check_times=times),))
        for name, times in (("a half", None), ("b half", 3), *((f"a {kind}", None) for kind in _KINDS))
    }
    held = HeldTopic(topic="ORDERS", kind=HoldKind.HOLD, since_ms=1, by="ann", reason="")
    for verdict, state, holds in product(Verdict, CandidateState, ((), (held,))):
        candidate = replace(CANDIDATE, verdict=verdict, state=state)
        repairs = [replace(REPAIR, scope=scope, rung=Rung.END, state=RepairState.OPEN) for scope in ("*", "billing")]
        ledger = LedgerLife(candidates=(candidate,), repairs=tuple(repairs), rounds=(ROUND,))
        yield life_story_of(KEY, outbox=RECORDED, copies=copies, inboxes={BILLING: ABSENT}, ledger=ledger, holds=holds)
    closed = [replace(REPAIR, scope=scope, answer="dismissed by operator anna: paid") for scope in ("*", "billing")]
    ledger = LedgerLife(candidates=(), repairs=tuple(closed), rounds=())
    yield life_story_of(KEY, outbox=RECORDED, copies={}, inboxes={BILLING: ABSENT}, ledger=ledger)
    unseen: Lookup[OutboxRow] = Lookup(presence=Presence.ABSENT)
    for announced, first_seen_ms, consumed in product((False, True), (None, 5), (False, True)):
        asked = {BILLING: in_redis(announced=announced, first_seen_ms=first_seen_ms, consumed=consumed)}
        for ledger in (NOTHING, JUDGED):
            yield life_story_of(KEY, outbox=unseen, copies={}, inboxes={BILLING: ABSENT}, ledger=ledger, places=asked)
    yield life_story_of(
        KEY, outbox=unseen, copies={}, inboxes={BILLING: ABSENT}, ledger=NOTHING, places={BILLING: NOWHERE}
    )
    yield life_story_of(KEY, outbox=unseen, copies={}, inboxes={}, ledger=NOTHING)
    effect: Lookup[InboxRow] = Lookup(presence=Presence.FOUND, records=(EFFECT,))
    for row, inbox in (
        (ROW, effect),
        (replace(ROW, announced_at_ms=None), ABSENT),
        (replace(ROW, state=OutboxState.ROLLED_BACK, announced_at_ms=None), ABSENT),
    ):
        outbox = Lookup(presence=Presence.FOUND, records=(row,))
        yield life_story_of(KEY, outbox=outbox, copies={}, inboxes={BILLING: inbox}, ledger=NOTHING)


_KINDS = ("committed", "parked", "retry", "dead-letter")


def lines() -> Iterator[str]:
    yield from causes()
    for story in stories():
        yield from story.outlook
        yield from (event.what for event in story.events)
        yield from (one.detail for one in story.testimonies if one.witness in ("announcement", "redis") and one.detail)


@pytest.mark.parametrize("language", ELSEWHERE)
def test_a_line_that_the_product_makes_is_told_in_the_language_of_the_page(language: str) -> None:
    words = catalogue_of(language)
    strange = {line for line in lines() if line and 'lang="en"' in as_told(line, words)}
    assert not strange


@pytest.mark.parametrize("language", ELSEWHERE)
def test_no_line_is_known_that_the_product_does_not_make(language: str) -> None:
    made = set(lines())
    inner = {part for line in made for part in _parts(line)}
    assert not [
        known.english.pattern for known in known_lines(language) if not any(map(known.english.fullmatch, inner))
    ]


def _parts(line: str) -> Iterator[str]:
    """The line, and what stands in it behind a colon or semicolon and before a bracket."""
    yield line
    yield line.rpartition(" (and ")[0]
    yield from line.split("; ")
    for mark in (": ", "; "):
        for at in [found.end() for found in re.finditer(re.escape(mark), line)]:
            yield line[at:]
            yield from line[at:].split("; ")
            yield line[at:].rpartition(" (and ")[0]


def test_values_are_kept_and_escaped() -> None:
    told = as_told("repair verified for <b>", CHINESE)
    assert told == "已核实对 &lt;b&gt; 的修复"
    assert as_told("ORDERS/billing: settled as CONSUMED", CHINESE) == "ORDERS/billing\uff1a已了结为 CONSUMED"


@pytest.mark.parametrize(
    "line", ["a driver's error", "ORDERS/billing: a driver's error", f"took effect in {'x' * 600}"]
)
def test_what_is_not_known_stays_english_and_is_marked(line: str) -> None:
    assert as_told(line, CHINESE) == as_told(line, catalogue_of("en"))
    assert 'lang="en"' in as_told(line, CHINESE)


def test_a_hostile_line_takes_no_time() -> None:
    pieces = (", a", ": ", "verdict for a: ", "announcements of a queue a of a wait from offset a on, ", "a: a; ")
    for piece in pieces:
        line = (piece * RECOGNISED_CHARACTERS_MAX)[:RECOGNISED_CHARACTERS_MAX]
        assert 'lang="en"' in as_told(line, CHINESE)
