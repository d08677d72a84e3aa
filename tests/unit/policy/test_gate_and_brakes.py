"""Which keys are looked at, at what cost."""

from __future__ import annotations

import pytest

from reconciler.contract.kept_facts import NOT_DECIDED
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvalidValue, InvariantViolation
from reconciler.evidence.watermark import CONSUMED
from reconciler.policy.brakes import BreakerRules, TokenBucket
from reconciler.policy.events import RoundFinished
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.judging.selection import SelectionRules, gate_of
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.repairing.case import RepairStep, back_off_seconds, require_legal
from reconciler.policy.repairing.repair import RepairRules
from reconciler.policy.repairing.rungs import Act
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

SUBSCRIPTION = Subscription(environment=ENVIRONMENT, topic=TOPIC, group="billing")
PLAN = SubscriptionPlan(subscription=SUBSCRIPTION, grace_period_seconds=30.0)
RULES = SelectionRules(skew_margin_seconds=10.0, retention_seconds=400.0)
NOW = 1_000_000


def known(at_ms: int) -> Watermark:
    return Watermark(state=WatermarkState.KNOWN, at_ms=at_ms, detail=CONSUMED())


# ---- the gate


@pytest.mark.parametrize(("first_seen", "due"), [(NOW - 30_001, True), (NOW - 30_000, True), (NOW - 29_999, False)])
def test_key_is_due_when_it_is_as_old_as_the_grace_period(first_seen: int, due: bool) -> None:
    gate = gate_of(NOW, known(NOW - 10_000), plan=PLAN, rules=RULES)
    assert (gate.lets_through(first_seen), gate.state) == (due, "open")


@pytest.mark.parametrize(("watermark", "due"), [(59_999, False), (60_000, False), (60_001, True)])
def test_key_is_due_when_the_watermark_has_passed_it_by_more_than_the_skew(watermark: int, due: bool) -> None:
    now = 120_000
    gate = gate_of(now, known(watermark), plan=PLAN, rules=RULES)
    assert (gate.lets_through(50_000), gate.state) == (due, "shut")


@pytest.mark.parametrize(("first_seen", "due"), [(NOW - 100_001, True), (NOW - 100_000, True), (NOW - 99_999, False)])
@pytest.mark.parametrize("watermark", [known(1), Watermark(state=WatermarkState.UNKNOWN, at_ms=0, detail=CONSUMED())])
def test_a_quarter_of_the_retention_opens_every_gate(watermark: Watermark, first_seen: int, due: bool) -> None:
    gate = gate_of(NOW, watermark, plan=PLAN, rules=RULES)
    assert gate.lets_through(first_seen) == due
    assert gate.state == ("shut" if watermark.state is WatermarkState.KNOWN else "unknown")


# ---- what a stopped group costs


@pytest.mark.promise("L2")
@pytest.mark.unmeasured
def test_stopped_consumers_cost_a_trickle_of_look_ups_and_no_repair() -> None:
    world = World()
    world.deliver(0)
    world.consume()
    process = world.process()
    for number in range(1, 400):
        world.deliver(number)
    world.rounds(process, 40, consume=False)
    # 200 s at one look-up a second, and the first burst.
    assert 100 < len(world.broker.look_ups) <= 200 + 10
    assert (world.broker.ends, world.broker.republished) == ([], [])
    assert {verdict for event in world.events.of(RoundFinished) for verdict in event.verdicts} == {"LAGGING"}
    world.rounds(process, 200)
    assert world.pending() == []
    rows = world.ledger.rows.candidates.values()
    assert {row.state for row in rows} == {CandidateState.SETTLED}


@pytest.mark.promise("L2")
def test_trickle_finds_a_lost_message_of_a_stopped_group() -> None:
    world = World()
    for number in range(1, 30):
        world.deliver(number)
    lost = world.lose(99)
    process = world.process()
    world.rounds(process, 30, consume=False)
    assert world.verdict(lost) == "LOST_CONFIRM"
    assert len(world.broker.ends) == 1


def test_unknown_watermark_lets_only_the_trickle_through() -> None:
    world = World()
    lost = [world.lose(number) for number in range(60)]
    world.broker.watermark_known = False
    process = world.process()
    world.rounds(process, 4, consume=False)
    judged = [k for k in lost if world.candidate(k) is not None]
    assert 0 < len(judged) < 20


def test_key_that_is_lagging_is_not_asked_again_while_the_gate_is_shut() -> None:
    world = World(selection=SelectionRules(skew_margin_seconds=0.5, candidates_max=4))
    process = world.process()
    for number in range(1, 40):
        world.deliver(number)
    world.rounds(process, 60, every=20.0, consume=False)
    asked = len(world.broker.look_ups)
    assert asked <= 60 * 20


@pytest.mark.promise("L2")
@pytest.mark.unmeasured
@pytest.mark.parametrize("shards", [1, 2])
def test_a_flood_of_forged_keys_holds_up_no_loss_of_a_lagging_group(shards: int) -> None:
    world, calm = World(shards=shards), World(shards=shards)
    look_ups = []
    for one, forged in ((world, 3_000), (calm, 0)):
        one.deliver(1)
        one.announce(*(key(number) for number in range(1_000, 1_000 + forged)))
        process = one.process()
        one.rounds(process, 1, consume=False)
        lost = one.lose(99)
        one.rounds(process, 4, consume=False)
        assert one.events.of(RoundFinished)[-1].gate == "shut"
        assert one.verdict(lost) == "LOST_CONFIRM"
        look_ups.append(len(one.broker.look_ups))
    assert look_ups[0] == look_ups[1]
    assert {world.verdict(key(number)) for number in range(1_000, 4_000)} == {"REJECTED"}
    assert len(world.pending()) == 2


def test_keys_that_arrived_hold_up_no_loss_of_a_lagging_group() -> None:
    """Redis fell back: what was matched is pending again."""
    world = World(shards=1)
    for number in range(100, 900):
        world.deliver(number)
    world.consume(records=False)
    world.deliver(1)
    process = world.process()
    world.rounds(process, 1, consume=False)
    lost = world.lose(99)
    world.rounds(process, 4, consume=False)
    assert world.verdict(lost) == "LOST_CONFIRM"
    assert world.verdict(key(500)) == "CONSUMED"


def test_keys_behind_the_gate_that_only_brokers_can_tell_of_are_left_without_a_ledger_row() -> None:
    world = World(shards=1)
    for number in range(1, 700):
        world.deliver(number)
    process = world.process()
    world.rounds(process, 4, consume=False)
    assert 0 < len(world.ledger.rows.candidates) <= 20
    assert len(world.pending()) == 699


def test_a_tombstone_behind_the_gate_takes_no_place_of_a_loss() -> None:
    world = World(shards=1)
    for number in range(100, 200):
        half = world.broker.send_half(key(number))
        world.commit_locally(key(number), half, state=OutboxState.ROLLED_BACK)
        world.announce(key(number))
    world.deliver(1)
    process = world.process()
    world.rounds(process, 1, consume=False)
    lost = world.lose(99)
    world.rounds(process, 4, consume=False)
    assert world.verdict(lost) == "LOST_CONFIRM"
    assert world.verdict(key(150)) == "REJECTED"


def test_an_outbox_that_is_away_lets_the_trickle_go_on_and_rejects_nothing() -> None:
    world = World(shards=1)
    world.announce(*(key(number) for number in range(1_000, 1_600)))
    world.deliver(1)
    world.outbox.away = True
    process = world.process()
    world.rounds(process, 4, consume=False)
    assert {row.verdict for row in world.ledger.rows.candidates.values()} == {Verdict.UNKNOWN}
    assert len(world.ledger.rows.candidates) <= 20


@pytest.mark.unmeasured
def test_trickle_walks_past_pages_of_known_keys() -> None:
    world = World(shards=1)
    process = world.process()
    for number in range(600):
        world.deliver(number)
    world.rounds(process, 90, every=10.0, consume=False)
    assert len(world.ledger.rows.candidates) == 600


# ---- what leaves pending


def test_key_that_the_ledger_has_closed_leaves_pending_when_redis_falls_back() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 10)
    assert world.verdict(lost) == "CONSUMED"
    look_ups = len(world.broker.look_ups)
    world.announce(lost)
    world.rounds(process, 6)
    assert world.pending() == []
    assert len(world.broker.look_ups) == look_ups


def test_closed_key_behind_a_shut_gate_leaves_pending_too() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 10)
    world.broker.watermark_known = False
    world.announce(lost)
    world.rounds(process, 6)
    assert world.pending() == []


def test_key_that_was_announced_before_its_commit_is_looked_at_again() -> None:
    """An early announcement by a stranger must not hide the loss that follows."""
    world = World()
    half = world.broker.send_half(key(1))
    world.announce(key(1))
    process = world.process()
    world.rounds(process, 6)
    assert world.verdict(key(1)) == "REJECTED"
    assert world.pending() == []
    world.commit_locally(key(1), half)
    world.announce(key(1))
    world.rounds(process, 12)
    candidate = world.candidate(key(1))
    assert candidate is not None
    assert (candidate.loss_verdict, candidate.verdict) == (Verdict.LOST_CONFIRM, Verdict.CONSUMED)


def test_row_whose_key_left_pending_by_a_match_is_finished_from_the_inbox() -> None:
    world = World()
    lost = world.deliver(1)
    process = world.process()
    world.broker.offsets["billing"] = 0
    world.rounds(process, 4, consume=False)
    assert world.verdict(lost) == "LAGGING"
    world.rounds(process, 1)
    assert world.pending() == []
    world.rounds(process, 10)
    assert world.verdict(lost) == "CONSUMED"


# ---- bounded work


def test_more_due_keys_than_a_round_may_verify_are_all_verified_in_turn() -> None:
    world = World(shards=3, selection=SelectionRules(skew_margin_seconds=0.5, candidates_max=30),
                  repair=RepairRules(enabled=False))  # fmt: skip
    lost = [world.lose(number) for number in range(200)]
    process = world.process()
    verified = [report.event.verified for _ in range(40) for report in world.rounds(process, 1) if report.event]
    assert max(verified) <= 30
    assert {world.verdict(k) for k in lost} == {"LOST_CONFIRM"}


def test_losses_that_are_followed_leave_most_of_a_round_to_new_keys() -> None:
    world = World(shards=1, selection=SelectionRules(skew_margin_seconds=0.5, candidates_max=40),
                  repair=RepairRules(enabled=False))  # fmt: skip
    process, proved = world.process(), []
    for turn in range(12):
        for number in range(40):
            world.lose(40 * turn + number)
        before = len(world.ledger.rows.candidates)
        world.rounds(process, 1)
        proved.append(len(world.ledger.rows.candidates) - before)
    assert proved[-4:] == [35] * 4
    followed = [world.candidate(key(number)) for number in range(40)]
    assert all(row is not None and row.attempts > 1 for row in followed)


@pytest.mark.unmeasured
def test_walk_over_many_known_keys_is_bounded_and_reaches_the_new_ones() -> None:
    world = World(
        shards=1,
        selection=SelectionRules(skew_margin_seconds=0.5, candidates_max=600, scan_max=1_000),
        repair=RepairRules(enabled=False, burst=1.0),
        breaker=BreakerRules(candidates_min=10),
    )
    for number in range(1_600):
        world.lose(number)
    process = world.process()
    world.rounds(process, 14)
    late = world.lose(5_000)
    world.rounds(process, 14)
    assert len(world.ledger.rows.candidates) == 1_601
    assert world.verdict(late) == "LOST_CONFIRM"


def test_shard_that_another_owner_took_over_in_the_round_is_left_to_it() -> None:
    world = World(shards=1)
    lost = world.lose(1)
    first = world.process(owner="first")
    world.rounds(first, 2)
    world.clock.advance(30)
    original = world.broker.watermark

    def steal(subscription: Subscription) -> Watermark:
        world.clock.advance(30)
        assert world.shards.take(world.shard(lost), token="second", lease_seconds=60)
        return original(subscription)

    world.broker.watermark = steal  # type: ignore[method-assign]
    first.run(world.subscriptions[0])
    assert world.candidate(lost) is None


# ---- brakes


def test_bucket_lets_its_rate_through_and_pays_debts_first() -> None:
    bucket = TokenBucket(2.0, burst=3.0)
    assert bucket.available(0.0) == 3
    bucket.charge(3)
    assert bucket.available(0.4) == 0
    assert bucket.available(0.5) == 1
    bucket.charge(5)
    assert bucket.available(1.0) == 0
    assert bucket.available(2.9) == 0
    assert bucket.available(3.1) == 1
    assert bucket.available(100.0) == 3


def test_open_rows_of_a_stopped_shard_starve_no_other_shard() -> None:
    world = World(shards=2, selection=SelectionRules(skew_margin_seconds=0.5, candidates_max=8))
    process, subscription = world.process(), world.subscriptions[0]
    world.broker.unknown.add("halves")
    lost = [world.lose(number) for number in range(1, 41)]
    for _ in range(12):
        world.clock.advance(5)
        process.run(subscription)
    world.broker.unknown.clear()
    stopped = world.topic.shards_of(subscription)[1]
    world.shards._memory(stopped).epoch = "staging:abcd"  # another environment's marker
    world.rounds(process, 60)
    rows = world.ledger.candidates.of_keys(subscription, lost)
    healthy = {row.verdict for row in rows.values() if row.shard != stopped.number}
    assert healthy == {Verdict.CONSUMED}
    assert {row.shard for row in rows.values() if row.state is CandidateState.OPEN} == {stopped.number}


# ---- plain values


def test_only_legal_transitions_are_written() -> None:
    legal = {(a, b) for a in RepairState for b in RepairState if allowed(a, b)}
    states = RepairState
    assert legal == {
        (states.OPEN, states.OPEN), (states.OPEN, states.SENDING), (states.OPEN, states.SENT),
        (states.OPEN, states.FAILED), (states.SENDING, states.SENDING), (states.SENDING, states.SENT),
        (states.SENDING, states.OPEN), (states.SENDING, states.FAILED), (states.SENT, states.SENT),
        (states.SENT, states.DONE), (states.SENT, states.OPEN), (states.SENT, states.FAILED),
    }  # fmt: skip


def allowed(before: RepairState, after: RepairState) -> bool:
    try:
        require_legal(before, after)
    except InvariantViolation:
        return False
    return True


def test_back_off_doubles_and_stays_bounded() -> None:
    assert [back_off_seconds(n) for n in (0, 1, 4, 8, 9, 100)] == [1.0, 2.0, 16.0, 256.0, 300.0, 300.0]


def test_act_without_a_message_is_a_bug() -> None:
    decision = RepairStep(act=Act.END, state=RepairState.SENDING, rung=Rung.END, reason=NOT_DECIDED())
    with pytest.raises(InvariantViolation):
        _ = decision.subject


def test_group_that_is_not_configured_is_named() -> None:
    with pytest.raises(InvalidValue, match="subscription"):
        World().process().run(Subscription(environment=ENVIRONMENT, topic=TOPIC, group="strangers"))


def test_more_shards_than_a_walk_may_see_keys_are_walked_in_turn() -> None:
    world = World(shards=4, selection=SelectionRules(skew_margin_seconds=0.5, scan_max=1))
    lost = [world.lose(number) for number in range(4)]
    world.rounds(world.process(), 30)
    assert {world.verdict(k) for k in lost} == {"CONSUMED"}
