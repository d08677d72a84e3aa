"""The life of one message: every witness's words in time order, what is missing said, what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.commands.asking.availability import away as is_away
from reconciler.commands.explain import Explanation
from reconciler.contract.facts import Code, Fact
from reconciler.contract.kept_facts import EFFECT_SEEN, REPAIR_DISMISSED
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Undecided, Verdict, what_ends
from reconciler.policy.evidence import (
    InboxRow,
    Lookup,
    OutboxRow,
    Presence,
    StoredMessage,
    TransactionState,
    WitnessAnswer,
)
from reconciler.policy.judging.suspect import UNDECIDED
from reconciler.policy.ports.ledger import Candidate, HeldTopic, Repair
from reconciler.policy.ports.rounds import KeyPlaces, RoundCounts, RoundDone
from reconciler.telling.life_events import HALF_STORED
from reconciler.telling.life_story import (
    DONE,
    GOES_ON,
    PERSON_MUST_LOOK,
    SETTLED_AS,
    WAITS_FOR_WORKER,
    LifeStory,
    life_story_of,
)
from reconciler.telling.ports.actions import Intent, OperatorAction
from reconciler.telling.ports.reports import LedgerLife, StoredRound
from reconciler.words import said
from reconciler.words import told as in_language
from tests.simulation.outbox_table import TableRow

Row = tuple[str, dict[str, Any]]

KEY = "7F000001" + "0" * 24
BILLING = Subscription(environment="test", topic="ORDERS", group="billing")
SHIPPING = Subscription(environment="test", topic="ORDERS", group="shipping")
NOTHING = LedgerLife(candidates=(), repairs=(), rounds=())
ABSENT: Lookup[InboxRow] = Lookup(presence=Presence.ABSENT)

ROW = TableRow(
    unique_key=KEY,
    topic="ORDERS",
    producer_group="orders",
    tag="paid",
    message_keys=None,
    business_id="o-7",
    half_broker="broker-1",
    half_commit_log_offset=4711,
    half_queue_offset=3,
    properties=None,
    body=None,
    content_digest=None,
    state=OutboxState.SETTLED,
    created_at_ms=1_000,
    announced_at_ms=1_010,
    settled_at_ms=9_000,
)
RECORDED: Lookup[OutboxRow] = Lookup(presence=Presence.FOUND, records=(ROW.seen,))
COPY = StoredMessage(
    unique_key=KEY,
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    real_topic="ORDERS",
    broker="broker-1",
    queue_id=0,
    queue_offset=3,
    commit_log_offset=4711,
    born_timestamp_ms=990,
    store_timestamp_ms=995,
    transaction_state=TransactionState.PREPARED,
    prepared_transaction_offset=0,
    producer_group="orders",
    check_times=None,
    reconsume_times=0,
    properties={"TAGS": "paid"},
    body=b"",
)
CANDIDATE = Candidate(
    subscription=BILLING,
    unique_key=KEY,
    shard=1,
    state=CandidateState.OPEN,
    verdict=Verdict.LOST_CONFIRM,
    loss_verdict=Verdict.LOST_CONFIRM,
    evidence={"half": "broker-1@4711"},
    attempts=2,
    first_seen_ms=2_000,
    next_at_ms=0,
    updated_at_ms=3_000,
)
REPAIR = Repair(
    environment="test",
    topic="ORDERS",
    scope=EVERY_GROUP,
    unique_key=KEY,
    state=RepairState.DONE,
    rung=Rung.END,
    token=None,
    lease_until_ms=None,
    attempts=1,
    next_at_ms=0,
    target={"broker": "broker-1"},
    answer="SUCCESS",
    created_at_ms=3_001,
    sent_at_ms=3_100,
    done_at_ms=8_100,
)
ROUND = StoredRound(
    done=RoundDone(
        shard=Shard(subscription=BILLING, number=1),
        epoch="e",
        generation=5,
        at_ms=2_000,
        offsets={},
        counts=RoundCounts(
            announced=1, matched=0, pending_before=0, pending_added=1, pending_matched=0, pending_after=1
        ),
    ),
    is_void=False,
    stored_at_ms=2_001,
)
EFFECT = InboxRow(
    group="billing", unique_key=KEY, topic="ORDERS", content_digest=None, source="message", applied_at_ms=3_200
)


def found(*records: object) -> Lookup[object]:
    seen = tuple(record.seen if isinstance(record, TableRow) else record for record in records)
    return Lookup(presence=Presence.FOUND, records=seen)


def story(
    *,
    outbox: object = None,
    copies: Mapping[str, object] | None = None,
    inboxes: Mapping[Subscription, object] | None = None,
    ledger: LedgerLife = NOTHING,
    away: tuple[Fact, ...] = (),
) -> LifeStory:
    return life_story_of(
        KEY,
        outbox=outbox or Lookup(presence=Presence.ABSENT),  # type: ignore[arg-type]  # records of one kind each
        copies=copies or {},  # type: ignore[arg-type]  # the same
        inboxes=inboxes or {},  # type: ignore[arg-type]  # the same
        ledger=ledger,
        away=away,
    )


def outlook_of(told: LifeStory) -> list[str]:
    return [said(line) for line in told.outlook]


def test_repaired_loss_is_told_in_time_order_with_its_evidence() -> None:
    committed = replace(COPY, topic="ORDERS", store_timestamp_ms=3_150, prepared_transaction_offset=4711)
    told = story(
        outbox=found(ROW),
        copies={"ORDERS half": found(COPY), "ORDERS committed": found(committed)},
        inboxes={BILLING: found(EFFECT)},
        ledger=LedgerLife(candidates=(CANDIDATE,), repairs=(REPAIR,), rounds=(ROUND,)),
    )
    assert [(e.at_ms, e.witness, said(e.what)) for e in told.events] == [
        (995, "broker", "half message stored"),
        (1_000, "outbox", "recorded in the local transaction, which has committed"),
        (1_010, "outbox", "announced on the unique-key topic"),
        (2_000, "ledger", "first seen unmatched for ORDERS/billing in round 5"),
        (3_000, "ledger", "verdict for ORDERS/billing: LOST_CONFIRM"),
        (3_001, "ledger", "repair opened for every group"),
        (3_100, "ledger", "repair sent by end for every group"),
        (3_150, "broker", "visible to consumers"),
        (3_200, "inbox", "took effect in billing"),
        (8_100, "ledger", "repair verified for every group"),
        (9_000, "outbox", "settled: every inbox has it"),
    ]
    evidence = {said(event.what): event.evidence for event in told.events}
    assert evidence["visible to consumers"]["from_half_at"] == 4711
    assert evidence["verdict for ORDERS/billing: LOST_CONFIRM"]["loss_verdict"] == "LOST_CONFIRM"
    assert evidence["repair sent by end for every group"]["target"] == {"broker": "broker-1"}
    assert evidence["recorded in the local transaction, which has committed"]["business_id"] == "o-7"
    assert outlook_of(told) == ["ORDERS/billing: done, the message took effect"]
    assert Explanation(stories=(told,)).exit_code == 0
    assert told.is_known


def test_tombstone_is_told_as_a_rollback_without_announcement() -> None:
    told = story(outbox=found(replace(ROW, state=OutboxState.ROLLED_BACK)))
    assert [said(e.what) for e in told.events] == ["a tombstone was written: the transaction counts as rolled back"]


def test_unannounced_row_and_unsent_repair_tell_only_what_happened() -> None:
    told = story(
        outbox=found(replace(ROW, announced_at_ms=None, settled_at_ms=None)),
        ledger=LedgerLife(
            candidates=(replace(CANDIDATE, loss_verdict=None),),
            repairs=(replace(REPAIR, scope="billing", sent_at_ms=None, done_at_ms=None),),
            rounds=(),
        ),
    )
    assert [said(e.what) for e in told.events] == [
        "recorded in the local transaction, which has committed",
        "verdict for ORDERS/billing: LOST_CONFIRM",
        "repair opened for billing",
    ]
    assert "loss_verdict" not in told.events[1].evidence


@pytest.mark.parametrize(
    ("name", "copy", "what"),
    [
        ("ORDERS half", replace(COPY, check_times=2), "half put back before check-back number 2"),
        ("ORDERS parked", COPY, "parked: the broker gave up asking"),
        ("ORDERS/billing retry", COPY, "put into the retry topic"),
        ("ORDERS/billing dead-letter", COPY, "put into the dead-letter topic"),
        ("ORDERS committed", COPY, "visible to consumers"),
    ],
)
def test_every_kind_of_copy_has_its_words(name: str, copy: StoredMessage, what: str) -> None:
    (event,) = story(copies={name: found(copy)}).events
    assert said(event.what) == what
    assert "from_half_at" not in event.evidence


def test_copy_and_effect_of_another_message_are_told_as_such() -> None:
    row = replace(ROW, content_digest=COPY.content_digest)
    theirs = replace(COPY, body=b"theirs", store_timestamp_ms=2_000)
    told = story(
        outbox=found(row),
        copies={"ORDERS half": found(COPY), "ORDERS committed": found(theirs)},
        inboxes={BILLING: found(replace(EFFECT, content_digest=theirs.content_digest))},
    )
    late = {event.witness: said(event.what) for event in told.events if event.at_ms >= 2_000}
    digests = f"{theirs.content_digest.hex()[:16]}, the outbox says {COPY.content_digest.hex()[:16]}"
    assert late["broker"] == f"visible to consumers, but of another message: its digest is {digests}"
    assert late["inbox"] == f"another message of this key took effect in billing: digest {digests}"
    assert HALF_STORED() in [event.what for event in told.events]
    assert outlook_of(told) == [
        f"{BILLING}: COLLISION, a person must look: the effect is of another message, digest {digests}. What ends it: "
        + said(what_ends(Verdict.COLLISION, KEY))
    ]


def test_second_message_of_one_business_id_names_the_first() -> None:
    (event,) = story(inboxes={BILLING: found(replace(EFFECT, duplicate_of="A" * 32))}).events
    assert said(event.what) == "stood for by another message of the same business id in billing"
    assert event.evidence["duplicate_of"] == "A" * 32


def test_witness_without_an_answer_is_named_and_is_no_evidence_of_absence() -> None:
    told = story(
        outbox=Lookup.unknown("outbox of orders", "gone"),
        copies={"ORDERS half": Lookup.unknown("broker-1", "no answer")},
        inboxes={BILLING: Lookup.unknown("inbox", "locked")},
    )
    assert told.events == ()
    assert len(told.silent) == 3
    assert "gone" in said(told.silent[0])
    assert told.outlook == (), "of a key that nobody has heard of, nothing is in flight"
    assert Explanation(stories=(told,)).exit_code == 2


def test_dependency_that_is_away_is_code_3_whether_the_key_is_known_or_not() -> None:
    refused = (is_away("rocketmq", "refused"),)
    for told in (story(away=refused), story(outbox=found(ROW), away=refused)):
        assert Explanation(stories=(told,)).exit_code == 3


FAILED = replace(REPAIR, state=RepairState.FAILED)
WAITS = replace(REPAIR, scope="billing", state=RepairState.OPEN, rung=Rung.HAND_OVER, sent_at_ms=None)
TAKES_IT_BACK = f"`reconciler repair {KEY} --cancel` takes it back"


@pytest.mark.parametrize(
    ("state", "repairs", "code", "part"),
    [
        (CandidateState.OPEN, (), GOES_ON, "the next rounds go on"),
        (CandidateState.SETTLED, (), SETTLED_AS, "settled as LOST_CONFIRM"),
        (CandidateState.QUARANTINED, (), PERSON_MUST_LOOK, "a person must look"),
        (CandidateState.OPEN, (FAILED,), PERSON_MUST_LOOK, "a person must look"),
        (CandidateState.OPEN, (replace(FAILED, scope="billing"),), PERSON_MUST_LOOK, "a person must look"),
        (CandidateState.OPEN, (replace(FAILED, scope="shipping"),), GOES_ON, "the next rounds go on"),
        (CandidateState.QUARANTINED, (WAITS,), WAITS_FOR_WORKER, TAKES_IT_BACK),
        (CandidateState.QUARANTINED, (FAILED, WAITS), WAITS_FOR_WORKER, TAKES_IT_BACK),
        (CandidateState.QUARANTINED, (replace(WAITS, scope="shipping"),), PERSON_MUST_LOOK, "a person must look"),
        (CandidateState.QUARANTINED, (replace(WAITS, token="t"),), PERSON_MUST_LOOK, "a person must look"),
        (CandidateState.OPEN, (replace(REPAIR, state=RepairState.SENT), WAITS), GOES_ON, "the next rounds go on"),
    ],
)
def test_outlook_tells_who_acts_next(state: CandidateState, repairs: tuple[Repair, ...], code: Code, part: str) -> None:
    ledger = LedgerLife(candidates=(replace(CANDIDATE, state=state),), repairs=repairs, rounds=())
    told = story(inboxes={BILLING: ABSENT}, ledger=ledger)
    (line,) = told.outlook
    assert line.code is code
    assert part in said(line)
    assert told.needs_a_person is (code is PERSON_MUST_LOOK)


def test_a_message_that_a_popping_group_was_handed_waits_for_its_effect() -> None:
    evidence = {UNDECIDED: {"by": Undecided.HANDED_OUT.value, "since_ms": 1}}
    handed_out = replace(CANDIDATE, verdict=Verdict.UNKNOWN, evidence=evidence)
    told = story(inboxes={BILLING: ABSENT}, ledger=LedgerLife(candidates=(handed_out,), repairs=(), rounds=()))
    (line,) = outlook_of(told)
    assert "The group was handed the message and shows no effect yet" in line
    assert "No act of the reconciler ends it" in line


def test_a_group_that_is_dismissed_needs_nobody_although_the_repair_of_another_one_has_failed() -> None:
    dismissed = replace(CANDIDATE, state=CandidateState.SETTLED, verdict=Verdict.QUARANTINED)
    ledger = LedgerLife(candidates=(dismissed,), repairs=(FAILED,), rounds=())
    told = story(inboxes={BILLING: ABSENT}, ledger=ledger)
    assert (told.is_dismissed, told.needs_a_person) == (True, False)
    assert outlook_of(told) == [f"{BILLING}: QUARANTINED, and a person has dismissed it: nothing is sent to this group"]


DISMISSED = replace(
    CANDIDATE,
    state=CandidateState.SETTLED,
    verdict=Verdict.QUARANTINED,
    evidence={"dismissed_by": "operator anna", "dismissed_because": "paid by hand"},
)
CLOSED_UNSENT = replace(
    REPAIR,
    attempts=0,
    sent_at_ms=None,
    answer_fact=REPAIR_DISMISSED(by="operator anna", reason="paid by hand"),
)


def test_a_dismissed_key_is_told_with_who_closed_it_when_and_why_and_its_repair_is_not_called_verified() -> None:
    born_closed = replace(CLOSED_UNSENT, scope="billing", created_at_ms=8_100)
    ledger = LedgerLife(candidates=(DISMISSED,), repairs=(CLOSED_UNSENT, born_closed), rounds=())
    told = story(inboxes={BILLING: ABSENT}, ledger=ledger)
    assert outlook_of(told) == [
        "ORDERS/billing: dismissed for billing by operator anna at 1970-01-01T00:00:03Z as QUARANTINED: paid by hand"
    ]
    assert told.is_dismissed
    assert [line for event in told.events if "repair" in (line := said(event.what))] == [
        "repair opened for every group",
        "repair for every group closed by the dismissal",
        "repair for billing closed by the dismissal",
    ]


def test_a_dismissed_key_that_took_effect_is_for_a_person_unless_its_row_was_what_the_person_saw() -> None:
    def outlook(verdict: Verdict, **seen: object) -> str:
        row = replace(DISMISSED, verdict=verdict, evidence=dict(DISMISSED.evidence) | seen)
        ledger = LedgerLife(candidates=(row,), repairs=(), rounds=())
        return said(story(inboxes={BILLING: found(EFFECT)}, ledger=ledger).outlook[0])

    second = "took effect, a person must look whether that was done by hand, too: dismissed for billing by"
    assert second in outlook(Verdict.QUARANTINED)
    assert second in outlook(Verdict.INCOMPLETE, effects_seen_ms=[EFFECT.applied_at_ms - 1])
    assert second in outlook(Verdict.INCOMPLETE, effects_seen_ms=[["damaged"]])
    done = "ORDERS/billing: done, the message took effect"
    assert outlook(Verdict.COLLISION, effects_seen_ms=[EFFECT.applied_at_ms]) == done
    assert outlook(Verdict.COLLISION) == done, "an earlier release noted nothing"


def test_a_dismissed_key_that_rounds_have_seen_take_effect_is_told_with_its_dismissal() -> None:
    seen = {"dismissed_at_ms": 2_000, "taken_back": {"verdict": "DEAD_LETTERED", "reason": "-", "at_ms": 3_000}}
    row = replace(
        DISMISSED,
        state=CandidateState.QUARANTINED,
        verdict=Verdict.COLLISION,
        evidence=dict(DISMISSED.evidence) | seen,
    )
    ledger = LedgerLife(candidates=(row,), repairs=(), rounds=())
    told = story(inboxes={BILLING: found(EFFECT)}, ledger=ledger)
    assert (told.is_dismissed, told.needs_a_person) == (False, True)
    (line,) = outlook_of(told)
    assert line == (
        "ORDERS/billing: took effect, a person must look whether that was done by hand, too: dismissed for billing by "
        "operator anna at 1970-01-01T00:00:02Z as DEAD_LETTERED: paid by hand. What ends it: "
        + said(what_ends(Verdict.COLLISION, KEY))
    )


def test_an_inbox_that_has_half_an_effect_has_given_an_answer() -> None:
    halfway = WitnessAnswer(witness="billing-1", presence=Presence.UNKNOWN, detail="incomplete", is_incomplete=True)
    away = WitnessAnswer(witness="billing-2", presence=Presence.UNKNOWN, detail="away")
    told = story(outbox=RECORDED, inboxes={BILLING: Lookup(presence=Presence.UNKNOWN, answers=(halfway,))})
    assert told.silent == ()
    assert "INCOMPLETE, a person must look" in said(told.outlook[0])
    told = story(inboxes={BILLING: Lookup(presence=Presence.UNKNOWN, answers=(halfway, away))})
    assert len(told.silent) == 1, "another database of the group did not answer"


def test_rolled_back_message_is_not_called_in_flight() -> None:
    tombstone = replace(ROW, state=OutboxState.ROLLED_BACK, announced_at_ms=None, settled_at_ms=None)
    assert outlook_of(story(outbox=found(tombstone), inboxes={BILLING: ABSENT})) == [
        f"{BILLING}: rolled back by its producer: nothing is delivered"
    ]


def test_held_loss_is_not_called_repaired_nor_left_to_rounds_that_may_not_repair_it() -> None:
    ledger = LedgerLife(candidates=(replace(CANDIDATE, state=CandidateState.OPEN),), repairs=(), rounds=())
    hold = HeldTopic(topic="ORDERS", kind=HoldKind.HOLD, since_ms=1, by="operator anna", reason="?")
    (held,), (elsewhere,) = (
        outlook_of(life_story_of(KEY, outbox=RECORDED, copies={}, inboxes={BILLING: ABSENT}, ledger=ledger, holds=[h]))
        for h in (hold, replace(hold, topic="OTHER"))
    )
    assert "not repaired while repairs of ORDERS are stopped (HOLD; see `reconciler status`)" in held
    assert "the next rounds go on" in elsewhere
    assert "; repaired" not in held


def test_verdict_that_rounds_repeat_for_hours_does_not_bury_the_rest_of_the_life() -> None:
    def verdict(at_ms: int, group: str = "billing", verdict: str = "LOST_CONFIRM", reason: str = "OPEN") -> Row:
        evidence = f'{{"reason": "{reason}"}}'
        place = {"topic": "ORDERS", "consumer_group": group, "verdict": verdict, "state": "OPEN"}
        return "verdict", {"at_ms": at_ms, "evidence": evidence, **place}

    rows = [verdict(at + n, group) for at in range(1_000, 9_000, 10) for n, group in enumerate(("billing", "shipping"))]
    rows += [verdict(10_000, verdict="UNKNOWN"), verdict(10_010), verdict(10_020, reason="SENT"), verdict(10_030)]
    told = life_story_of(KEY, outbox=RECORDED, copies={}, inboxes={}, ledger=NOTHING, history=rows)
    events = [(e.at_ms, e.what.fields["verdict"], dict(e.evidence)) for e in told.events if e.witness == "history"]
    often = {"state": "OPEN", "reason": "OPEN", "repeated": 799}
    assert events[:2] == [
        (1_000, "LOST_CONFIRM", often | {"until_ms": 8_990}),
        (1_001, "LOST_CONFIRM", often | {"until_ms": 8_991}),
    ]
    assert [(at, what) for at, what, _ in events[2:]] == [
        (10_000, "UNKNOWN"),
        *((at, "LOST_CONFIRM") for at in (10_010, 10_020, 10_030)),
    ]


def test_a_stream_of_a_later_release_is_passed_over() -> None:
    place = {"topic": "ORDERS", "group": "billing", "shard": 0, "generation": 7}
    rows: list[Row] = [("healed", {"at_ms": 1_000, **place}), ("announced", {"at_ms": 2_000, **place})]
    told = life_story_of(KEY, outbox=RECORDED, copies={}, inboxes={}, ledger=NOTHING, history=rows)
    assert [event.at_ms for event in told.events if event.witness == "history"] == [2_000]


def test_every_subscription_has_its_own_outlook() -> None:
    ledger = LedgerLife(candidates=(CANDIDATE,), repairs=(), rounds=())
    told = story(inboxes={BILLING: ABSENT, SHIPPING: found(replace(EFFECT, group="shipping"))}, ledger=ledger)
    assert [line.fields["subscription"] for line in told.outlook] == ["ORDERS/billing", "ORDERS/shipping"]
    assert told.outlook[1].code is DONE


def test_what_was_done_by_hand_is_a_part_of_the_life_with_its_name_and_end() -> None:
    intent = Intent(by="operator anna", command="repair", topic="ORDERS", group="billing", unique_key=KEY)
    done = OperatorAction(action_id="1", intent=intent, started_at_ms=5_000, ended_at_ms=5_100, result="sent end")
    begun = OperatorAction(action_id="2", intent=replace(intent, command="dismiss"), started_at_ms=6_000)
    absent: Lookup[OutboxRow] = Lookup(presence=Presence.ABSENT)
    told = life_story_of(KEY, outbox=absent, copies={}, inboxes={}, ledger=replace(NOTHING, actions=[done, begun]))
    assert [(e.at_ms, e.witness, said(e.what)) for e in told.events] == [
        (5_000, "operator", "repair by hand: sent end"),
        (6_000, "operator", "dismiss by hand: under way, or its process died"),
    ]
    assert told.events[0].evidence["by"] == "operator anna"


def in_redis(*, announced: bool = False, first_seen_ms: int | None = None, consumed: bool = False) -> Lookup[KeyPlaces]:
    places = KeyPlaces(is_announced=announced, first_seen_ms=first_seen_ms, is_consumed=consumed)
    return Lookup(presence=Presence.FOUND, records=(places,))


def told_of(witness: str, ledger: LedgerLife, places: dict[Subscription, Lookup[KeyPlaces]] | None) -> tuple[str, str]:
    """Presence and detail of BILLING's witness, of a message whose announcement no outbox has noted."""
    silent = replace(RECORDED, records=(replace(ROW, announced_at_ms=None).seen,))
    story = life_story_of(KEY, outbox=silent, copies={}, inboxes={BILLING: ABSENT}, ledger=ledger, places=places)
    (found,) = [one for one in story.testimonies if one.witness == witness]
    return found.presence, said(found.detail)


JUDGED = replace(NOTHING, candidates=(CANDIDATE,))
NOWHERE: Lookup[KeyPlaces] = Lookup(presence=Presence.ABSENT)
AWAY: Lookup[KeyPlaces] = Lookup.unknown("redis", "no answer")


@pytest.mark.parametrize(
    ("ledger", "places", "told"),
    [
        (NOTHING, in_redis(announced=True), ("FOUND", "announced, taken by no round yet")),
        (NOTHING, in_redis(first_seen_ms=5_000), ("FOUND", "pending since 1970-01-01T00:00:05Z")),
        (NOTHING, in_redis(consumed=True), ("FOUND", "its consumption is recorded")),
        (NOTHING, NOWHERE, ("ABSENT", "neither announced, nor pending, nor consumed in the last rounds")),
        (NOTHING, AWAY, ("UNKNOWN", "redis: UNKNOWN (no answer)")),
        (JUDGED, AWAY, ("UNKNOWN", "redis: UNKNOWN (no answer); in the ledger: pending, verifications: 2")),
        (NOTHING, None, ("UNKNOWN", "not asked")),
    ],
)
def test_what_the_ledger_remembers_is_told_as_what_redis_has(
    ledger: LedgerLife, places: Lookup[KeyPlaces] | None, told: tuple[str, str]
) -> None:
    assert told_of("redis", ledger, None if places is None else {BILLING: places}) == told


def test_a_redis_that_lost_its_memory_looks_like_the_ledger() -> None:
    presence, detail = told_of("redis", JUDGED, {BILLING: NOWHERE})
    assert presence == "ABSENT"
    assert detail.endswith("in the ledger: pending, verifications: 2")


def test_an_announcement_that_redis_proves_is_not_known() -> None:
    for places, told in (
        (in_redis(announced=True), ("FOUND", "it waits in Redis for the next round")),
        (in_redis(first_seen_ms=5_000), ("FOUND", "a round has taken it")),
        (in_redis(consumed=True), ("UNKNOWN", "neither the outbox, nor Redis, nor a verdict tells of one")),
    ):
        assert told_of("announcement", NOTHING, {BILLING: places}) == told


def test_a_redis_that_does_not_answer_is_named_once_and_the_story_is_not_called_complete() -> None:
    story = life_story_of(
        KEY,
        outbox=RECORDED,
        copies={},
        inboxes={BILLING: ABSENT, SHIPPING: ABSENT},
        ledger=NOTHING,
        places={BILLING: AWAY, SHIPPING: AWAY},
    )
    assert [said(line) for line in story.silent] == ["redis: UNKNOWN (no answer)"]
    assert not story.is_at_rest


def test_the_answer_of_a_repair_is_shown_as_a_fact_and_another_ones_words_as_they_are() -> None:
    verified = replace(REPAIR, answer="the effect is there", answer_fact=EFFECT_SEEN())
    for repair, chinese in ((verified, "没有消费组缺少这条消息"), (replace(REPAIR, answer="applied"), "applied")):
        told = story(inboxes={BILLING: ABSENT}, ledger=LedgerLife(candidates=(), repairs=(repair,), rounds=()))
        (answer,) = [event.evidence for event in told.events if "answer" in event.evidence]
        assert answer["answer"] == repair.answer, "as 0.2.0 shows it"
        assert in_language(answer, "zh")["answer"] == chinese
