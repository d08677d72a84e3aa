"""The life of one message in the middle of its repair; every text from outside is hostile."""

from __future__ import annotations

from dataclasses import replace

from reconciler.contract.answers import NO_ROW
from reconciler.contract.reasons import DAMAGED
from reconciler.contract.stored_facts import with_texts
from reconciler.contract.tables import RepairState
from reconciler.policy.evidence import InboxRow, Lookup, Presence, WitnessAnswer, as_foreign
from reconciler.telling.life_story import LifeStory, life_story_of
from reconciler.telling.ports.actions import Intent, OperatorAction
from reconciler.telling.ports.reports import LedgerLife
from reconciler.words import said
from tests.unit.service.test_life_story import BILLING, CANDIDATE, COPY, KEY, REPAIR, ROUND, ROW, SHIPPING, in_redis
from tests.unit.web.console_world import HOSTILE
from tests.unit.web.reports import facts_of

NEXT_MS = 1_700_000_060_000


def _absent(witness: str) -> tuple[WitnessAnswer, ...]:
    answer = WitnessAnswer(witness=witness, presence=Presence.ABSENT, detail=f"no row {HOSTILE}")
    return answer, replace(answer, detail=NO_ROW())


def _found(witness: str) -> tuple[WitnessAnswer, ...]:
    return (WitnessAnswer(witness=witness, presence=Presence.FOUND, detail=f"one row {HOSTILE}"),)


def story_of(key: str = KEY, *, silent: str = HOSTILE, away: tuple[str, ...] = (HOSTILE,)) -> LifeStory:
    """Lost, found and sent again; one inbox has nothing and one does not answer."""
    row = replace(ROW, tag=HOSTILE, business_id=HOSTILE, producer_group=HOSTILE)
    why = DAMAGED(looks=2, damage=as_foreign(HOSTILE))
    evidence = with_texts({"reason": why, HOSTILE: {"deep": HOSTILE}, "taken_back": {"reason": why}}, said)
    candidate = replace(CANDIDATE, evidence=evidence, next_at_ms=NEXT_MS)
    repair = replace(REPAIR, state=RepairState.SENT, done_at_ms=None, next_at_ms=NEXT_MS, answer=HOSTILE)
    by_hand = OperatorAction(
        action_id="a-1",
        intent=Intent(by=HOSTILE, command="repair", unique_key=key, detail=HOSTILE),
        started_at_ms=4_000,
        ended_at_ms=None,
        result=None,
    )
    unanswered: Lookup[InboxRow] = Lookup.unknown("inbox", silent)
    return life_story_of(
        key,
        outbox=Lookup(presence=Presence.FOUND, records=(row.seen,), answers=_found("outbox")),
        copies={
            f"{HOSTILE} half": Lookup(
                presence=Presence.FOUND, records=(replace(COPY, broker=HOSTILE),), answers=_found("broker-1")
            ),
            "ORDERS committed": Lookup(presence=Presence.ABSENT, answers=_absent("broker-1")),
        },
        inboxes={BILLING: Lookup(presence=Presence.ABSENT, answers=_absent("inbox")), SHIPPING: unanswered},
        places={
            BILLING: in_redis(first_seen_ms=NEXT_MS),
            SHIPPING: Lookup.unknown("redis", silent),
        },
        ledger=LedgerLife(candidates=(candidate,), repairs=(repair,), rounds=(ROUND,), actions=(by_hand,)),
        away=facts_of(*away),
    )
