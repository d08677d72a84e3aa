"""Every rung of the verification ladder, on evidence from a broker in memory; no verdict without its evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.reasons import YOUNG
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.brakes import BreakerRules
from reconciler.policy.evidence import QueuePosition
from reconciler.policy.judging.judgement import state_of
from reconciler.policy.judging.waits import wait_seconds
from reconciler.policy.ports.evidence import Horizon
from tests.unit.policy.judging import judged, reason
from tests.unit.policy.world import TOPIC, World, key


def test_inbox_row_with_the_same_content_is_consumed() -> None:
    world = World()
    lost = world.deliver(1)
    world.consume(records=False)
    entry = judged(world, lost)
    assert (entry.verdict, entry.state) == (Verdict.CONSUMED, CandidateState.SETTLED)
    assert world.broker.look_ups == []


def test_inbox_row_with_another_content_is_a_collision() -> None:
    world = World()
    lost = world.deliver(1)
    world.inbox.rows["billing", lost] = world.inbox_row("billing", lost, b"other" * 6)
    assert judged(world, lost).verdict is Verdict.COLLISION


@pytest.mark.parametrize("commits", [True, False])
def test_inbox_row_of_another_topic_is_a_collision_also_without_a_digest(*, commits: bool) -> None:
    world = World()
    lost = world.deliver(1) if commits else key(1)
    row = world.inbox_row("billing", lost, None)
    world.inbox.rows["billing", lost] = replace(row, topic="REFUNDS")
    entry = judged(world, lost)
    assert entry.verdict is Verdict.COLLISION
    assert "topic REFUNDS" in reason(entry)


def test_unknown_digest_is_no_collision() -> None:
    world = World()
    lost = world.deliver(1)
    world.inbox.rows["billing", lost] = world.inbox_row("billing", lost, None)
    entry = judged(world, lost)
    assert entry.verdict is Verdict.CONSUMED
    assert entry.evidence["compared"] == "not the effect: the inbox row has no digest"


def test_effect_without_an_outbox_row_is_still_consumed() -> None:
    world = World()
    world.inbox.rows["billing", key(1)] = world.inbox_row("billing", key(1), b"x" * 32)
    assert judged(world, key(1)).verdict is Verdict.CONSUMED


@pytest.mark.parametrize("witness", ["inbox", "outbox", "copies", "halves", "parked"])
def test_a_witness_that_does_not_answer_is_unknown_never_a_loss(witness: str) -> None:
    world = World()
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half)
    if witness in ("inbox", "outbox"):
        setattr(getattr(world, witness), "away", True)  # noqa: B010 - the name is a parameter
    else:
        world.broker.unknown.add(witness)
    if witness == "parked":
        world.broker.halves.clear()
    entry = judged(world, key(1))
    assert (entry.verdict, entry.state) == (Verdict.UNKNOWN, CandidateState.OPEN)


def test_effect_is_not_settled_while_the_outbox_cannot_be_compared() -> None:
    world = World()
    lost = world.deliver(1)
    world.consume(records=False)
    world.outbox.away = True
    assert judged(world, lost).verdict is Verdict.UNKNOWN


def test_index_that_is_not_proved_to_have_passed_the_announcement_proves_nothing() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.proves_horizon = False
    assert judged(world, lost).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("tags", "verdict"), [({"paid"}, "LOST_CONFIRM"), ({"refund"}, "FILTERED"), (None, "LOST_CONFIRM")]
)
def test_tag_of_the_outbox_decides_before_any_broker_is_asked(tags: set[str] | None, verdict: str) -> None:
    world = World(tags={"billing": frozenset(tags)} if tags is not None else {})
    lost = world.lose(1)
    assert judged(world, lost).verdict == verdict
    assert bool(world.broker.look_ups) == (verdict != "FILTERED")


def test_message_without_a_tag_passes_only_a_group_that_takes_all() -> None:
    world = World(tags={"billing": frozenset({"paid"})})
    half = world.broker.send_half(key(1), tag=None)
    world.commit_locally(key(1), half, tag=None)
    assert judged(world, key(1)).verdict is Verdict.FILTERED


@pytest.mark.parametrize(("behind_ms", "verdict"), [(499, "UNKNOWN"), (500, "UNKNOWN"), (501, "LOST_CONFIRM")])
def test_absent_counts_only_if_the_index_has_passed_the_announcement_by_the_skew(behind_ms: int, verdict: str) -> None:
    world = World(skew=0.5, breaker=BreakerRules(candidates_min=10))
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 1)
    seen_ms = world.clock.now_ms()
    world.broker.horizon_at_ms = seen_ms + behind_ms
    world.rounds(process, 3)
    assert world.verdict(lost) == verdict


def test_positions_are_read_before_the_index_is_proved() -> None:
    """A retry copy of a passed message is older than the positions: only a later horizon covers it."""
    world = World(groups=("billing", "shipping"))
    process, lost = world.proved_loss()
    assert world.broker.snapshot == ["positions", "horizon"]
    world.broker.snapshot.clear()
    process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert world.broker.snapshot == ["positions", "positions", "horizon"]


# ---- rung 3


def test_copy_that_the_group_has_not_reached_is_lagging() -> None:
    world = World()
    lost = world.deliver(1)
    entry = judged(world, lost)
    assert (entry.verdict, entry.state) == (Verdict.LAGGING, CandidateState.OPEN)
    world.broker.offsets["billing"] = 0
    assert judged(world, lost).verdict is Verdict.LAGGING


def test_unknown_offsets_are_unknown() -> None:
    world = World()
    lost = world.deliver(1)
    world.broker.positions_known = False
    entry = judged(world, lost)
    assert entry.verdict is Verdict.UNKNOWN
    assert "a broker did not answer" in reason(entry)


def test_copy_in_a_queue_that_no_consumer_reads_is_unknown_and_the_queue_is_named() -> None:
    world = World()
    lost = world.deliver(1)
    world.broker.copies = [replace(world.broker.copies[0], queue_id=7)]
    entry = judged(world, lost)
    assert entry.verdict is Verdict.UNKNOWN
    assert f"{TOPIC} queue 7 on broker-a" in reason(entry)


def test_acknowledged_without_an_effect_is_shown_and_not_repaired() -> None:
    world = World()
    lost = world.deliver(1)
    world.consume(effects=False)
    entry = judged(world, lost)
    assert (entry.verdict, entry.state) == (Verdict.DELIVERED_NOT_APPLIED, CandidateState.QUARANTINED)


def test_effect_that_is_committed_while_the_offset_is_read_is_seen() -> None:
    world = World()
    lost = world.deliver(1)
    world.consume(effects=False)
    world.inbox.later.append((1, world.inbox_row("billing", lost)))
    assert judged(world, lost).verdict is Verdict.CONSUMED


def test_inbox_that_goes_away_before_it_is_asked_again_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    lost = world.deliver(1)
    world.consume(effects=False)
    positions = world.broker.positions

    def away_afterwards(subscription: object) -> object:
        world.inbox.away = True
        return positions(subscription)  # type: ignore[arg-type]

    monkeypatch.setattr(world.broker, "positions", away_afterwards)
    assert judged(world, lost).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("topic", "offset", "verdict"),
    [
        ("%RETRY%billing", 5, Verdict.RETRYING),
        ("SCHEDULE_TOPIC_XXXX", 5, Verdict.RETRYING),
        ("%RETRY%billing", 0, Verdict.DELIVERED_NOT_APPLIED),
    ],
)
def test_message_that_waits_for_its_retry_is_retrying(topic: str, offset: int, verdict: Verdict) -> None:
    """Not once its group has acknowledged the copy."""
    world = World()
    lost = world.deliver(1)
    copy = world.broker.copies[0]
    world.consume(effects=False)
    world.broker.in_group_topic("billing", "retry", replace(copy, queue_offset=offset), topic=topic)
    assert judged(world, lost).verdict is verdict


def test_retention_that_passes_between_two_look_ups_is_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Message and copy for its next try are deleted after the one was found and before the other is asked for."""
    world = World()
    lost = world.deliver(1)
    world.consume(effects=False)
    group_copies = world.broker.group_copies

    def deleted_meanwhile(subscription: Subscription, unique_key: str, *, horizon: Horizon) -> object:
        world.broker.copies.clear()
        world.broker.halves.clear()
        return group_copies(subscription, unique_key, horizon=horizon)

    monkeypatch.setattr(world.broker, "group_copies", deleted_meanwhile)
    assert judged(world, lost).verdict is Verdict.UNKNOWN
    assert judged(world, lost).verdict is Verdict.EXPIRED, "which is repaired, if a body was kept"


def test_of_two_brokers_with_copies_at_one_offset_each_has_to_have_its_own_to_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    lost = world.deliver(1)
    world.consume(effects=False)
    (copy,) = world.broker.copies
    twin = replace(copy, broker="broker-b")
    world.broker.copies.append(twin)
    positions, group_copies = world.broker.positions, world.broker.group_copies

    def on_both(subscription: Subscription) -> list[QueuePosition]:
        found = positions(subscription) or ()
        return [*found, *(replace(one, broker=twin.broker) for one in found)]

    def deleted_meanwhile(subscription: Subscription, unique_key: str, *, horizon: Horizon) -> object:
        world.broker.copies.remove(twin)
        return group_copies(subscription, unique_key, horizon=horizon)

    monkeypatch.setattr(world.broker, "positions", on_both)
    assert judged(world, lost).verdict is Verdict.DELIVERED_NOT_APPLIED
    monkeypatch.setattr(world.broker, "group_copies", deleted_meanwhile)
    assert judged(world, lost).verdict is Verdict.UNKNOWN, "a copy for the next try may have gone with it"


def test_dead_letter_is_quarantined() -> None:
    world = World()
    lost = world.deliver(1)
    world.consume(effects=False)
    world.broker.in_group_topic("billing", "dead-letter", world.broker.copies[0], topic="%DLQ%billing")
    entry = judged(world, lost)
    assert (entry.verdict, entry.state) == (Verdict.DEAD_LETTERED, CandidateState.QUARANTINED)


@pytest.mark.parametrize("kind", ["retry", "dead-letter"])
def test_group_topic_that_does_not_answer_is_unknown(kind: str) -> None:
    world = World()
    lost = world.deliver(1)
    world.consume(effects=False)
    world.broker.unknown.add(kind)
    assert judged(world, lost).verdict is Verdict.UNKNOWN


def test_tag_of_the_copy_decides_only_where_there_is_no_outbox() -> None:
    world = World(tags={"billing": frozenset({"refund"})})
    lost = world.deliver(1)
    world.outbox.away = True
    assert judged(world, lost).verdict is Verdict.UNKNOWN
    del world.outbox.rows[lost]
    world.outbox.away = False
    assert judged(world, lost).verdict is Verdict.REJECTED, "which is looked at again when it is announced again"
    world.without_evidence()
    assert judged(world, lost).verdict is Verdict.FILTERED


# ---- repairs that are under way, or over


def test_loss_under_repair_asks_no_broker() -> None:
    world = World()
    process, lost = world.proved_loss()
    world.broker.look_ups.clear()
    judged_again = process.keys_by_hand.judge_one(world.subscriptions[0], lost)
    assert judged_again.entry.verdict is Verdict.LOST_CONFIRM
    assert "repair is OPEN" in reason(judged_again.entry)
    assert world.broker.look_ups == []


@pytest.mark.parametrize("state", [RepairState.DONE, RepairState.FAILED])
def test_loss_whose_repair_has_ended_is_quarantined_not_repaired_again(state: RepairState) -> None:
    world = World()
    process, lost = world.proved_loss()
    row = world.repair(lost)
    assert row is not None
    identity = ("test", TOPIC, "*", lost)
    world.ledger.rows.repairs[identity] = replace(row, state=state, attempts=1, sent_at_ms=1, answer="it ended")
    entry = process.keys_by_hand.judge_one(world.subscriptions[0], lost).entry
    assert (entry.verdict, entry.state) == (Verdict.QUARANTINED, CandidateState.QUARANTINED)
    candidate = world.candidate(lost)
    assert candidate is not None
    assert candidate.loss_verdict is Verdict.LOST_CONFIRM


# ---- states, waits, evidence


def test_every_verdict_has_a_state() -> None:
    states = {verdict: state_of(verdict) for verdict in Verdict}
    settled = {v for v, s in states.items() if s is CandidateState.SETTLED}
    quarantined = {v for v, s in states.items() if s is CandidateState.QUARANTINED}
    assert settled == {
        Verdict.CONSUMED, Verdict.DELIVERED, Verdict.FILTERED, Verdict.BEFORE_SINCE, Verdict.REJECTED,
    }  # fmt: skip
    assert quarantined == {
        Verdict.COLLISION, Verdict.QUARANTINED, Verdict.DEAD_LETTERED, Verdict.DELIVERED_NOT_APPLIED,
        Verdict.INCOMPLETE,
    }  # fmt: skip


def test_waits_double_and_stay_bounded() -> None:
    from reconciler.policy.judging.judgement import Judgement

    def wait(verdict: Verdict, attempts: int, *, was_lost: bool = False) -> float:
        judgement = Judgement(verdict=verdict, reason=YOUNG())
        return wait_seconds(judgement, attempts=attempts, grace_period_seconds=30.0, was_lost=was_lost)

    assert [wait(Verdict.UNKNOWN, n) for n in (0, 1, 2, 9, 500)] == [5.0, 10.0, 20.0, 60.0, 60.0]
    assert [wait(Verdict.LAGGING, n) for n in (0, 1, 9)] == [30.0, 60.0, 300.0]
    assert [wait(Verdict.LAGGING, n, was_lost=True) for n in (0, 1, 9)] == [30.0, 30.0, 30.0]
    assert wait(Verdict.LOST_CONFIRM, 0) == wait(Verdict.LOST_CONFIRM, 9) == 7.5


def test_evidence_names_every_witness_that_was_asked() -> None:
    world = World()
    lost = world.lose(1)
    evidence = judged(world, lost).evidence
    assert {"reason", "inbox", "outbox", "committed_copies", "half_copies", "outbox_state", "half_at"} <= set(evidence)
    assert "weaker" not in evidence
    assert evidence["half_age_seconds"] == pytest.approx(60.0, abs=0.1)
