"""An effect query in place of an inbox: its answer ends candidate and repair, and a delivered copy ends neither."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.facts import Fact
from reconciler.contract.query_answers import NO_ANSWER, NOT_THE_PRIMARY, NULL_STATE, OTHER_STATE, STATES_DIFFER
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Undecided
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, unknown
from reconciler.policy.evidence import ConsumeMode
from reconciler.policy.judging.suspect import EFFECT_QUERY, undecided_by
from reconciler.policy.repairing.repair import RepairRules
from tests.unit.policy.test_sends_by_query import COMMITTED, DAYS_3, deleted_but, lost, sent, the_repair, why
from tests.unit.policy.world import World, key

APPLIED = BusinessAnswer(BusinessState.APPLIED)
NOT_APPLIED = BusinessAnswer(BusinessState.NOT_APPLIED)
NO_ANSWERS = [
    NO_ANSWER(why="connection refused"),
    NOT_THE_PRIMARY(),
    NULL_STATE(),
    OTHER_STATE(state="'WHO KNOWS'"),
    STATES_DIFFER(),
]


def made(*groups: str, sends: bool = True) -> World:
    rules = RepairRules(enabled=sends, verify_after_seconds=4.0, claim_lease_seconds=20.0)
    world = World(groups=groups or ("billing",), repair=rules)
    world.with_query()
    world.with_effect_query()
    world.topic = replace(world.topic, sends_by_query=sends)
    world.broker.put_back_after_seconds = 30.0
    return world


@pytest.fixture
def world() -> World:
    return made()


def take(world: World, *groups: str, effects: bool = True) -> None:
    """The groups take what is there; their effects are seen by the query."""
    world.consume(*groups, effects=False)
    if effects:
        world.queries.effect_answers |= dict.fromkeys(world.deliveries, APPLIED)


def rounds(world: World, number: int, *, effects: bool = True) -> None:
    process = world.process()
    for _ in range(number):
        take(world, effects=effects)
        world.rounds(process, 1, consume=False)


def row(world: World, unique_key: str, group: str | None = None) -> tuple[CandidateState, str, str]:
    found = world.candidate(unique_key, group)
    assert found is not None
    return found.state, str(found.verdict), reason_in(found.evidence).code.name


def test_an_effect_that_the_query_finds_settles_a_delivered_message(world: World) -> None:
    it = world.deliver(1)
    rounds(world, 20)
    assert row(world, it) == (CandidateState.SETTLED, "CONSUMED", "reason.consumed-by-query")
    found = world.candidate(it)
    assert found is not None
    assert found.evidence[EFFECT_QUERY]["presence"] == "FOUND"  # type: ignore[index]
    assert "inbox" not in found.evidence
    assert (world.pending(), sent(world)) == ([], [])


@pytest.mark.parametrize("answer", [None, NOT_APPLIED])
def test_a_copy_below_the_groups_offset_ends_nothing_by_itself(world: World, answer: BusinessAnswer | None) -> None:
    it = world.deliver(1)
    if answer is not None:
        world.queries.effect_answers["billing", it] = answer
    rounds(world, 20, effects=False)
    assert row(world, it) == (CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED", "reason.passed-by-query")
    assert sent(world) == []


def test_a_copy_above_the_groups_offset_asks_nothing(world: World) -> None:
    it = world.deliver(1)
    process = world.process()
    world.rounds(process, 20, consume=False)
    assert row(world, it)[:2] == (CandidateState.OPEN, "LAGGING")
    assert world.queries.asked_effects == []


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_an_answer_that_says_nothing_settles_nothing(world: World, answer: Fact) -> None:
    it = world.deliver(1)
    world.queries.effects_away = answer
    rounds(world, 20)
    assert row(world, it) == (CandidateState.OPEN, "UNKNOWN", "reason.effect-query-unknown")
    world.queries.effects_away = None
    rounds(world, 60)
    assert row(world, it)[:2] == (CandidateState.SETTLED, "CONSUMED")


def test_an_effect_that_comes_late_ends_what_waits_for_a_person(world: World) -> None:
    it = world.deliver(1)
    rounds(world, 20, effects=False)
    assert row(world, it)[1] == "DELIVERED_NOT_APPLIED"
    world.queries.effect_answers["billing", it] = APPLIED
    process = world.process()
    for _ in range(20):
        world.clock.advance(60)
        world.rounds(process, 2, consume=False)
    assert row(world, it)[:2] == (CandidateState.SETTLED, "CONSUMED")


def test_a_group_that_pops_is_judged_by_the_query(world: World) -> None:
    """Its offset shows what was handed out, so without the query the message stays UNKNOWN."""
    world.broker.consumes = ConsumeMode.POP
    it = world.deliver(1)
    rounds(world, 20)
    assert row(world, it)[:2] == (CandidateState.SETTLED, "CONSUMED")
    other = world.deliver(2)
    rounds(world, 20, effects=False)
    assert row(world, other) == (CandidateState.OPEN, "UNKNOWN", "reason.popped")
    found = world.candidate(other)
    assert found is not None
    assert undecided_by(found.evidence)[0] is Undecided.HANDED_OUT


def test_a_repair_ends_when_the_query_finds_the_effect(world: World) -> None:
    it = lost(world)
    rounds(world, 40)
    assert (sent(world), the_repair(world, it).state) == ([it], RepairState.DONE)
    assert row(world, it)[:2] == (CandidateState.SETTLED, "CONSUMED")
    assert world.deliveries == [("billing", it)]


def test_a_copy_that_the_group_has_passed_ends_no_repair(world: World) -> None:
    """The handler acknowledged what was sent, and wrote nothing: there is no second copy, and a person hears of it."""
    it = lost(world)
    rounds(world, 60, effects=False)
    assert (sent(world), world.deliveries) == ([it], [("billing", it)])
    assert the_repair(world, it).state is not RepairState.DONE
    assert row(world, it)[:2] == (CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED")


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_without_an_answer_about_the_effect_nothing_is_called_lost(world: World, answer: Fact) -> None:
    world.queries.effects_away = answer
    it = lost(world)
    rounds(world, 40)
    assert row(world, it) == (CandidateState.OPEN, "UNKNOWN", "reason.effect-query-unknown")
    assert (world.repair(it), sent(world)) == (None, [])


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_without_an_answer_after_the_claim_nothing_is_sent(world: World, answer: Fact) -> None:
    world.broker.producers = True  # so nothing is sent yet
    it = lost(world)
    rounds(world, 20)
    assert row(world, it)[1] == "LOST_CONFIRM"
    world.queries.effects_away = answer
    world.broker.producers = False
    rounds(world, 30)
    assert (sent(world), why(world, it)) == ([], "reason.effect-unknown")
    world.queries.effects_away = None
    rounds(world, 30)
    assert sent(world) == [it]


def test_an_effect_that_came_another_way_after_the_proof_is_not_sent_for(world: World) -> None:
    world.broker.producers = True
    it = lost(world)
    rounds(world, 20)
    assert row(world, it)[1] == "LOST_CONFIRM"
    world.queries.effect_answers["billing", it] = APPLIED
    world.broker.producers = False
    rounds(world, 40)
    assert (sent(world), the_repair(world, it).state) == ([], RepairState.DONE)


def test_a_half_whose_message_took_effect_without_a_copy_is_no_loss(world: World) -> None:
    """The copy was deleted by age, and the half was put back."""
    first = world.broker.send_half(key(1))
    world.queries.answers[key(1)] = COMMITTED
    again = world.broker.put_back(first)
    world.broker.commit(first)
    take(world)
    world.clock.advance(DAYS_3)
    deleted_but(world, again, parks=False)
    world.announce(key(1))
    world.rounds(world.process(), 20, consume=False)
    assert row(world, key(1)) == (CandidateState.SETTLED, "CONSUMED", "reason.consumed-by-query")


@pytest.mark.parametrize("answer", [BusinessState.NO_ROW, BusinessState.ROLLED_BACK])
def test_nothing_is_asked_about_what_was_rolled_back(world: World, answer: BusinessState) -> None:
    world.broker.send_half(key(1))
    world.announce(key(1))
    world.queries.answers[key(1)] = BusinessAnswer(answer)
    rounds(world, 30)
    assert row(world, key(1))[:2] == (CandidateState.SETTLED, "REJECTED")
    assert world.queries.asked_effects == []


def test_the_effect_of_a_message_with_another_tag_hides_no_loss(world: World) -> None:
    """ORDER_PAID took effect; ORDER_SHIPPED has the same query key, and no copy."""
    shipped, paid = key(1), key(2)
    world.queries.keys |= {shipped: "order-7", paid: "order-7"}
    half = world.broker.send_half(paid, tag="paid")
    world.broker.commit(half)
    world.announce(paid)
    rounds(world, 10)
    world.broker.send_half(shipped, tag="shipped")
    world.announce(shipped)
    world.queries.answers[shipped] = COMMITTED
    world.queries.effect_answers["billing", shipped] = APPLIED
    rounds(world, 20)
    assert row(world, shipped)[:2] == (CandidateState.OPEN, "LOST_CONFIRM")
    assert sent(world) == []


@pytest.mark.parametrize("of_shipped", [None, NOT_APPLIED, APPLIED])
def test_a_copy_that_was_deleted_beside_other_tags_is_no_proved_loss(
    world: World, of_shipped: BusinessAnswer | None
) -> None:
    """ORDER_SHIPPED was delivered, and its copy was deleted by age; ORDER_PAID has the same query key. A row may be of
    either, so the query is not asked."""
    shipped, paid = key(1), key(2)
    world.queries.keys |= {shipped: "order-7", paid: "order-7"}
    world.broker.send_half(paid, tag="paid")
    first = world.broker.send_half(shipped, tag="shipped")
    world.announce(paid)
    world.queries.answers |= {shipped: COMMITTED, paid: COMMITTED}
    if of_shipped is not None:
        world.queries.effect_answers["billing", shipped] = of_shipped
    rounds(world, 10)
    again = world.broker.put_back(first)
    world.broker.commit(first)
    take(world, effects=False)
    world.clock.advance(DAYS_3)
    deleted_but(world, again, parks=False)
    world.announce(shipped)
    rounds(world, 20, effects=False)
    assert row(world, shipped) == (CandidateState.OPEN, "UNKNOWN", "reason.copy-may-be-gone-beside-other-tags")
    found = world.candidate(shipped)
    assert found is not None
    assert undecided_by(found.evidence)[0] is Undecided.CONTRADICTION
    assert (world.repair(shipped), sent(world), len(world.deliveries)) == (None, [], 1)


def test_in_shadow_mode_an_effect_closes_the_repair_that_was_never_sent() -> None:
    world = made(sends=False)
    it = lost(world)
    rounds(world, 20)
    assert (row(world, it)[1], the_repair(world, it).state) == ("LOST_CONFIRM", RepairState.OPEN)
    world.broker.commit(world.broker.halves[-1])
    rounds(world, 40)
    assert (row(world, it)[:2], the_repair(world, it).state, sent(world)) == (
        (CandidateState.SETTLED, "CONSUMED"), RepairState.DONE, [],
    )  # fmt: skip


def test_each_group_of_a_topic_is_judged_by_its_own_evidence() -> None:
    world = made("billing", "stock")
    billing, stock = world.topic.subscriptions
    world.topic = replace(world.topic, subscriptions=(billing, replace(stock, asks_effects=False)))
    it = lost(world)
    rounds(world, 40)
    assert row(world, it, "billing")[:2] == (CandidateState.SETTLED, "CONSUMED")
    assert row(world, it, "stock")[:2] == (CandidateState.SETTLED, "DELIVERED")
    assert (sent(world), the_repair(world, it).state) == ([it], RepairState.DONE)
    assert {group for group, _ in world.queries.asked_effects} == {"billing"}


def test_an_effect_that_comes_after_a_repair_has_passed_its_copy_ends_the_repair(world: World) -> None:
    it = lost(world)
    rounds(world, 80, effects=False)
    assert the_repair(world, it).state is not RepairState.FAILED, (
        "an effect query has no rows of ours that may be missing"
    )
    rounds(world, 120)
    assert (the_repair(world, it).state, sent(world)) == (RepairState.DONE, [it])


ELSEWHERE = [APPLIED, unknown(NO_ANSWER(why="connection refused"))]


@pytest.mark.parametrize("of_billing", ELSEWHERE)
def test_a_copy_for_every_group_is_not_sent_beside_an_effect_of_another_group(of_billing: BusinessAnswer) -> None:
    """Both groups had a copy, which was deleted by age; billing took effect, or nobody knows, and stock did not. No
    inbox would skip the second copy of billing."""
    world = made("billing", "stock")
    first = world.broker.send_half(key(1))
    world.queries.answers[key(1)] = COMMITTED
    world.clock.advance(60)
    again = world.broker.put_back(first)
    world.broker.commit(first)
    take(world, effects=False)
    world.queries.effect_answers["billing", key(1)] = of_billing
    world.clock.advance(DAYS_3)
    deleted_but(world, again, parks=False)
    world.announce(key(1))
    world.rounds(world.process(), 60, consume=False)
    assert (sent(world), len(world.deliveries)) == ([], 2)
    if of_billing is APPLIED:
        assert (the_repair(world, key(1)).state, why(world, key(1))) == (RepairState.FAILED, "repair.second-effect")
        assert row(world, key(1), "stock")[0] is CandidateState.QUARANTINED
    else:
        assert why(world, key(1)) == "reason.effect-unknown"


def test_an_unanswered_effect_of_one_group_holds_a_send_back_for_all() -> None:
    world = made("billing", "stock")
    it = lost(world)
    world.queries.effect_answers["billing", it] = unknown(NULL_STATE())
    rounds(world, 40, effects=False)
    assert (sent(world), why(world, it)) == ([], "reason.effect-unknown")
    del world.queries.effect_answers["billing", it]
    rounds(world, 40)
    assert (sent(world), the_repair(world, it).state) == ([it], RepairState.DONE)
