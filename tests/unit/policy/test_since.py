"""A subscription answers for messages since its first round: a group that is added owes nothing of what came before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reconciler.commands.acts.repair import ManualRepairReport, _repair
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict, what_ends
from reconciler.policy.judging import earlier_since
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.round import ReconcileRound
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

SHIPPING = Subscription(environment=ENVIRONMENT, topic=TOPIC, group="shipping")


def running(*, repair_order: tuple[Rung, ...] | None = None) -> World:
    """Billing has had rounds for a minute."""
    world = World(since_ms=None, **({} if repair_order is None else {"repair_order": repair_order}))  # type: ignore[arg-type]
    world.rounds(world.process(), 12)
    return world


def add(world: World, subscription: Subscription = SHIPPING, *, announced: Sequence[str] = (),
        at_the_end: bool = True, since_ms: int | None = None) -> ReconcileRound:  # fmt: skip
    """The settings name another group, whose offsets begin at the end, or at the beginning; it reads every announcement
    from the earliest on. A process that has them."""
    plan = SubscriptionPlan(subscription=subscription, grace_period_seconds=10.0, since_ms=since_ms)
    world.topic = replace(world.topic, subscriptions=(*world.topic.subscriptions, plan))
    world.subscriptions.append(subscription)
    if at_the_end:
        world.broker.offsets[subscription.group] = len([c for c in world.broker.copies if c.topic == TOPIC])
    for unique_key in announced:
        world.shards._memory(world.shard(unique_key, subscription)).half.add(unique_key)
    return world.process()


def closed(world: World, unique_key: str, group: str = "shipping") -> tuple[CandidateState, str]:
    row = world.candidate(unique_key, group)
    assert row is not None, "no round has looked at the key"
    return row.state, str(row.verdict)


def kept(world: World, number: int) -> str:
    """A committed message with its body in the outbox, of which brokers have nothing."""
    half = world.broker.send_half(key(number))
    world.commit_locally(key(number), half, body=half.body, properties={"user": "value"})
    world.broker.halves.remove(half)
    return key(number)


def test_what_was_delivered_before_the_group_came_is_not_called_unapplied() -> None:
    world = running()
    old = [world.deliver(number) for number in range(20)]
    world.rounds(world.process(), 12)
    later = add(world, announced=old)
    world.rounds(later, 12)
    assert {closed(world, one) for one in old} == {(CandidateState.SETTLED, "BEFORE_SINCE")}
    new = world.deliver(99)
    world.consume("billing")
    world.broker.offsets["shipping"] = len(world.broker.copies)  # passed without an effect
    world.rounds(later, 12, consume=False)
    assert closed(world, new) == (CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")


def test_what_was_delivered_before_the_group_came_is_so_where_no_broker_tells_whether_it_comes_again() -> None:
    world = running()
    old = world.deliver(1)
    world.rounds(world.process(), 12)
    later = add(world, announced=[old])
    world.broker.unknown.add("retry")
    world.rounds(later, 12)
    assert closed(world, old) == (CandidateState.SETTLED, "BEFORE_SINCE")


def test_a_group_that_is_added_while_redis_is_lost_owes_nothing_of_before() -> None:
    world = running()
    old = world.deliver(1)
    world.rounds(world.process(), 12)
    world.shards.wipe()
    world.rounds(world.process(), 1)
    later = add(world, announced=[old])
    assert world.recovery().run(ENVIRONMENT) is not None  # before its first round
    world.rounds(later, 12)
    assert closed(world, old) == (CandidateState.SETTLED, "BEFORE_SINCE")


def test_a_group_that_starts_at_the_beginning_has_its_effects_and_no_verdict() -> None:
    world = running()
    old = world.deliver(1)
    world.rounds(world.process(), 12)
    later = add(world, announced=[old], at_the_end=False)
    world.rounds(later, 12)
    assert ("shipping", old) in world.inbox.rows
    assert world.candidate(old, "shipping") is None or closed(world, old)[1] == "CONSUMED"


def test_a_kept_body_from_before_the_group_is_not_sent_for_it_alone() -> None:
    world = running()
    old = kept(world, 1)
    world.inbox.rows["billing", old] = world.inbox_row("billing", old)
    world.clock.advance(60)
    world.rounds(add(world, announced=[old]), 12)
    assert closed(world, old) == (CandidateState.SETTLED, "BEFORE_SINCE")
    assert world.repair(old) is None
    assert not world.broker.republished


@pytest.mark.parametrize("groups", [("billing",), ("billing", "shipping")])
@pytest.mark.parametrize("is_kept", [False, True], ids=["half", "kept body"])
def test_what_was_lost_before_the_first_round_of_all_is_sent_to_everybody_whoever_came_later(
    groups: tuple[str, ...], *, is_kept: bool
) -> None:
    """The topic is new here, or Redis and the ledger were lost at once: nobody tells that groups were given it."""
    world = World(since_ms=None)
    lost = kept(world, 1) if is_kept else world.lose(1)
    world.clock.advance(60)
    process = add(world, announced=[lost], at_the_end=False) if len(groups) > 1 else world.process()
    world.announce(lost)
    world.rounds(process, 20)
    assert {group for group, _ in world.inbox.rows} == set(groups)
    assert world.repair(lost).state is RepairState.DONE  # type: ignore[union-attr]


def test_a_kept_body_from_before_the_time_that_a_person_set_is_not_sent() -> None:
    world = World(since_ms=None)
    lost = kept(world, 1)
    world.clock.advance(60)
    set_ms = world.clock.now_ms()
    world.topic = replace(
        world.topic, subscriptions=tuple(replace(plan, since_ms=set_ms) for plan in world.topic.subscriptions)
    )
    world.announce(lost)
    world.rounds(world.process(), 20)
    assert closed(world, lost, "billing") == (CandidateState.SETTLED, "BEFORE_SINCE")
    assert not world.broker.republished


def test_a_copy_that_came_after_the_proof_of_its_loss_is_left_to_groups_that_were_there() -> None:
    """The repair is open when END comes at last; meanwhile a person has set a later time for every group."""
    world = World(since_ms=None, repair_order=(Rung.REPUBLISH,))
    lost = world.lose(1)
    (half,) = world.broker.halves
    world.commit_locally(lost, half, body=half.body, properties={"user": "value"})
    world.clock.advance(60)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="a person", reason="to look first")
    process = world.process()
    process.keys_by_hand.judge_one(world.subscriptions[0], lost)
    process.run(world.subscriptions[0])
    assert world.repair(lost).state is RepairState.OPEN  # type: ignore[union-attr]
    world.broker.commit(half)
    world.clock.advance(60)
    set_ms = world.clock.now_ms()
    world.topic = replace(
        world.topic, subscriptions=tuple(replace(plan, since_ms=set_ms) for plan in world.topic.subscriptions)
    )
    world.broker.offsets["billing"] = len(world.broker.copies)
    world.ledger.holds.lift(ENVIRONMENT, TOPIC, HoldKind.HOLD)
    world.rounds(world.process(), 20, consume=False)
    assert not world.broker.republished
    assert world.repair(lost).state is RepairState.DONE  # type: ignore[union-attr]


@pytest.mark.parametrize("has_effect", [True, False])
def test_a_kept_body_that_the_groups_that_were_there_have_is_not_sent_to_those_that_came_later(
    *, has_effect: bool
) -> None:
    """The repair is open when the copy comes at last, and brokers have deleted it by age when it may go on."""
    world = running(repair_order=(Rung.REPUBLISH,))
    lost = kept(world, 1)
    world.clock.advance(60)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="a person", reason="to look first")
    process = add(world)
    process.run(SHIPPING)
    process.keys_by_hand.judge_one(world.subscriptions[0], lost)
    process.run(world.subscriptions[0])
    assert world.repair(lost).state is RepairState.OPEN  # type: ignore[union-attr]
    if has_effect:
        world.inbox.rows["billing", lost] = world.inbox_row("billing", lost)
    world.ledger.holds.lift(ENVIRONMENT, TOPIC, HoldKind.HOLD)
    world.rounds(process, 20)
    assert bool(world.broker.republished) is not has_effect
    assert world.repair(lost).state is RepairState.DONE  # type: ignore[union-attr]


def test_a_hand_over_goes_to_the_groups_that_were_there() -> None:
    world = running(repair_order=(Rung.HAND_OVER,))
    lost = kept(world, 1)
    world.clock.advance(60)
    process = add(world)
    process.run(SHIPPING)
    world.announce(lost)
    for _ in range(12):
        world.rounds(process, 1)
        world.run_replay_workers()
    assert ("billing", lost) in world.inbox.rows
    assert ("shipping", lost) not in world.inbox.rows
    assert (world.repair(lost, "shipping"), closed(world, lost)[1]) == (None, "BEFORE_SINCE")
    assert world.repair(lost).state is RepairState.DONE  # type: ignore[union-attr]


def test_a_loss_that_was_proved_by_its_half_is_sent_although_the_half_goes_meanwhile() -> None:
    world = World(since_ms=None, repair_order=(Rung.REPUBLISH,))
    lost = world.lose(1)
    half = world.broker.halves[0]
    world.commit_locally(lost, half, body=half.body, properties={"user": "value"})
    world.clock.advance(60)
    process = world.process()
    process.keys_by_hand.judge_one(world.subscriptions[0], lost)
    process.run(world.subscriptions[0])
    world.broker.halves.clear()
    world.broker.copies.clear()
    world.rounds(process, 12)
    assert ("billing", lost) in world.inbox.rows


@pytest.mark.parametrize("known_by", ["rounds", "candidates", "Redis"])
def test_a_subscription_from_before_this_release_answers_for_every_message(known_by: str) -> None:
    world = World(since_ms=None)
    old = world.deliver(1)
    world.broker.offsets["billing"] = 1
    if known_by == "candidates":
        world.process().keys_by_hand.judge_one(world.subscriptions[0], world.lose(2))
    else:
        world.process().run(world.subscriptions[0])
        if known_by == "Redis":
            world.ledger = type(world.ledger)(world.clock)  # restored from before its first round
    world.ledger.rounds._rows.since_ms.clear()
    world.clock.advance(60)
    world.rounds(world.process(), 3, consume=False)
    assert closed(world, old, "billing") == (CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")


def test_the_time_is_noted_once_though_redis_is_wiped_and_another_process_comes() -> None:
    world = running()
    noted = world.ledger.rounds.since_ms(world.subscriptions[0])
    assert noted is not None
    world.shards.wipe()
    world.rounds(world.process(owner="reconciler-2"), 12)
    assert world.ledger.rounds.since_ms(world.subscriptions[0]) == noted


@pytest.mark.parametrize("wrong_by_seconds", [-3_600.0, 3_600.0])
def test_of_the_clocks_that_of_the_past_counts(wrong_by_seconds: float) -> None:
    world = World(since_ms=None)
    world.redis_clock.wrong_by_seconds = wrong_by_seconds
    began_ms = world.clock.now_ms()
    world.process().run(world.subscriptions[0])
    assert world.ledger.rounds.since_ms(world.subscriptions[0]) == began_ms + min(0, round(wrong_by_seconds * 1000))


def test_within_the_margin_of_clocks_a_message_counts_as_the_groups() -> None:
    world = running()
    world.rounds(world.process(), 12)
    near = world.deliver(1)
    world.clock.advance(0.4)
    later = add(world, announced=[near])
    later.run(SHIPPING)
    world.rounds(later, 12)
    assert closed(world, near) == (CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")


def test_a_setting_overrules_the_ledger_both_ways_and_what_it_settled_is_judged_again() -> None:
    world = running()
    old = world.deliver(1)
    world.rounds(world.process(), 12)
    world.rounds(add(world, announced=[old]), 12)
    assert closed(world, old)[1] == "BEFORE_SINCE"
    world.topic = replace(
        world.topic, subscriptions=tuple(replace(p, since_ms=0) for p in world.topic.subscriptions)
    )  # since = "everything"
    world.announce(old)
    world.rounds(world.process(), 12)
    assert closed(world, old) == (CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")
    new = world.deliver(2)
    world.broker.offsets["shipping"] = len(world.broker.copies)
    world.clock.advance(60)
    later = replace(world.topic.subscriptions[1], since_ms=world.clock.now_ms())
    world.topic = replace(world.topic, subscriptions=(world.topic.subscriptions[0], later))
    world.rounds(world.process(), 12, consume=False)
    assert closed(world, new) == (CandidateState.SETTLED, "BEFORE_SINCE")


def with_since(world: World, since_ms: int | None) -> None:
    """A person sets `since` of shipping and restarts `run`."""
    billing, shipping = world.topic.subscriptions
    world.topic = replace(world.topic, subscriptions=(billing, replace(shipping, since_ms=since_ms)))


@pytest.mark.parametrize("page_keys", [500, 2])
def test_messages_that_an_earlier_since_brings_back_are_judged_although_nobody_announces_them(
    page_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may have rows that stay closed, and others behind them that do not."""
    monkeypatch.setattr(earlier_since, "PAGE_KEYS", page_keys)
    world = running()
    older = [world.deliver(number) for number in range(3, 6)]  # seen at once, these come first in a page
    world.rounds(world.process(), 12)
    middle_ms = world.clock.now_ms()
    world.clock.advance(60)
    younger = [world.deliver(number) for number in range(3)]
    world.rounds(world.process(), 12)
    world.rounds(add(world, announced=[*older, *younger]), 12)
    assert {closed(world, one) for one in [*older, *younger]} == {(CandidateState.SETTLED, "BEFORE_SINCE")}
    with_since(world, middle_ms)
    earlier = world.process()
    world.rounds(earlier, 12)
    assert {closed(world, one) for one in older} == {(CandidateState.SETTLED, "BEFORE_SINCE")}
    assert {closed(world, one) for one in younger} == {(CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")}
    with_since(world, 0)
    world.rounds(world.process(), 12)
    assert {closed(world, one) for one in older} == {(CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")}
    assert not world.broker.republished


@pytest.mark.parametrize("dry_run", [True, False])
def test_repair_says_of_a_key_that_waits_for_a_person_that_nothing_is_sent(dry_run: bool) -> None:
    world = running()
    old = world.deliver(1)
    world.rounds(world.process(), 12)
    world.rounds(add(world, announced=[old]), 12)
    with_since(world, 0)
    line = _repair(world.process().keys_by_hand, world.topic, SHIPPING, old, dry_run=dry_run)
    assert (line.verdict, line.outcome) == ("DELIVERED_NOT_APPLIED", "waits")
    assert line.reason == what_ends(Verdict.DELIVERED_NOT_APPLIED, old)
    assert not line.ended_well
    assert ManualRepairReport(keys=(line,), dry_run=dry_run).exit_code == 4


def test_a_setting_that_is_taken_away_again_brings_back_what_it_left_out() -> None:
    world = running()
    world.rounds(add(world), 12)
    new = world.deliver(1)
    world.consume("billing")
    world.broker.offsets["shipping"] = len(world.broker.copies)
    world.clock.advance(60)
    with_since(world, world.clock.now_ms())
    world.rounds(world.process(), 12, consume=False)
    assert closed(world, new) == (CandidateState.SETTLED, "BEFORE_SINCE")
    with_since(world, None)
    world.rounds(world.process(), 12, consume=False)
    assert closed(world, new) == (CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")


def test_what_is_brought_back_is_opened_in_pages_and_a_crash_between_them_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(earlier_since, "PAGE_KEYS", 3)
    monkeypatch.setattr(earlier_since, "PAGES_MAX", 2)
    world = running()
    old = [world.deliver(number) for number in range(20)]
    world.rounds(world.process(), 12)
    world.rounds(add(world, announced=old), 12)
    with_since(world, 0)
    process = world.process()
    process.run(SHIPPING)
    states = [closed(world, one)[0] for one in old]
    assert states.count(CandidateState.OPEN) == 3
    world.rounds(process, 3)
    assert CandidateState.SETTLED in {closed(world, one)[0] for one in old}
    world.rounds(world.process(owner="reconciler-2"), 60)  # the first one is gone
    assert {closed(world, one) for one in old} == {(CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")}


def test_while_nothing_is_changed_a_key_that_is_announced_again_costs_no_look_up() -> None:
    world = running()
    old = world.deliver(1)
    world.rounds(world.process(), 12)
    later = add(world, announced=[old])
    world.rounds(later, 12)
    before = len(world.broker.look_ups)
    world.announce(old)
    world.rounds(later, 12)
    assert len(world.broker.look_ups) == before
    assert closed(world, old)[1] == "BEFORE_SINCE"
