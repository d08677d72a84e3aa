"""Subscriptions whose announcements are half messages: what settles a key, and that a half proves no commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.answers import HALVES_LEFT
from reconciler.contract.query_answers import NO_ANSWER
from reconciler.contract.reasons import ANNOUNCED_BY_HALF
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.policy.commit_query import BusinessAnswer, digest_of, unknown
from reconciler.policy.evidence import ConsumeMode
from reconciler.policy.repairing.repair import RepairRules
from tests.unit.policy.test_commits_by_query import COMMITTED, NO_ROW, ROLLED_BACK, UNPROVED, reason, sent
from tests.unit.policy.world import TOPIC, World, evidence, key

OVER = (CandidateState.SETTLED, "DELIVERED")


@pytest.fixture
def world() -> World:
    """Without an inbox, in shadow mode, with the half as the announcement and a query for the commit."""
    made = World(repair=RepairRules(enabled=False, verify_after_seconds=4.0, claim_lease_seconds=20.0))
    made.with_query()
    made.inbox.configured = False
    plans = tuple(replace(plan, reads_halves=True) for plan in made.topic.subscriptions)
    made.topic = replace(made.topic, subscriptions=plans)
    return made


def half(world: World, number: int = 1) -> str:
    """A half that nothing has ended: it announces itself."""
    world.broker.send_half(key(number))
    world.announce(key(number))
    return key(number)


def row(world: World, unique_key: str) -> tuple[CandidateState, str]:
    found = world.candidate(unique_key)
    assert found is not None
    return found.state, str(found.verdict)


def test_a_message_below_the_groups_offset_is_delivered_and_asked_for_no_more(world: World) -> None:
    passed, ahead = world.deliver(1), world.deliver(2)
    process = world.process()
    world.rounds(process, 8, consume=False)
    assert row(world, ahead)[0] is CandidateState.OPEN, "above the offset nothing is delivered"
    world.broker.offsets[world.subscriptions[0].group] = 1
    world.rounds(process, 20, consume=False)
    assert row(world, passed) == OVER
    assert row(world, ahead)[0] is CandidateState.OPEN
    world.consume(effects=False)
    world.rounds(process, 40, consume=False)
    assert (row(world, ahead), world.pending(), world.queries.asked) == (OVER, [], [])


def test_a_group_that_pops_is_handed_the_message_only(world: World) -> None:
    world.broker.consumes = ConsumeMode.POP
    handed = world.deliver(1)
    world.consume(effects=False)
    world.rounds(world.process(), 20, consume=False)
    assert row(world, handed) == (CandidateState.OPEN, "UNKNOWN")


def test_without_the_mode_a_delivered_message_stays_unknown(world: World) -> None:
    plans = tuple(replace(plan, reads_halves=False) for plan in world.topic.subscriptions)
    world.topic = replace(world.topic, subscriptions=plans)
    passed = world.deliver(1)
    world.consume(effects=False)
    world.rounds(world.process(), 20, consume=False)
    assert row(world, passed) == (CandidateState.OPEN, "UNKNOWN")


def test_a_half_whose_row_says_committed_is_lost_and_a_delivery_by_the_broker_ends_its_repair(world: World) -> None:
    lost = half(world)
    world.queries.answers[lost] = COMMITTED
    process = world.process()
    world.rounds(process, 20, consume=False)
    repair = world.repair(lost)
    assert repair is not None
    assert (row(world, lost), repair.state, sent(world)) == ((CandidateState.OPEN, "LOST_CONFIRM"), RepairState.OPEN, 0)
    world.broker.commit(world.broker.halves[0])  # its producer came back and answered a check
    world.consume(effects=False)
    world.rounds(process, 40, consume=False)
    after = world.repair(lost)
    assert after is not None
    assert (row(world, lost), after.state, after.attempts, sent(world)) == (OVER, RepairState.DONE, 0, 0)


def test_a_half_that_nobody_has_read_yet_may_be_whose_row_it_is(world: World) -> None:
    """A first try was given up. The half of the second one is stored before its transaction commits, and read later."""
    first, second = half(world), key(2)
    for one in (first, second):
        world.queries.answers[one], world.queries.keys[one] = COMMITTED, "order-7"
    world.behind_consumers.unread = HALVES_LEFT(broker="broker-a", number=1)
    process = world.process()
    world.rounds(process, 20, consume=False)
    assert (row(world, first)[1], reason(world, first)) == ("UNKNOWN", "reason.siblings-unread")
    digest = digest_of("order-7")
    noted = world.ledger.halves.of_keys("test", "ORDERS", [digest])
    assert noted is not None
    of_second = replace(noted[digest][0], unique_key=second)
    world.behind_consumers.unread = None
    world.behind_consumers.on_read = lambda: world.ledger.halves.note("test", "ORDERS", [of_second])
    world.rounds(process, 40, consume=False)
    assert (row(world, first)[1], reason(world, first)) == ("UNKNOWN", "reason.no-sibling-delivered")


@pytest.mark.parametrize("answer", [answer for answer, _ in UNPROVED])
def test_a_half_is_no_commit(world: World, answer: BusinessAnswer) -> None:
    it = half(world)
    world.queries.answers[it] = answer
    world.rounds(world.process(), 40, consume=False)
    assert row(world, it)[1] == ("REJECTED" if answer in (NO_ROW, ROLLED_BACK) else "UNKNOWN")
    assert (world.repair(it), sent(world)) == (None, 0)


@pytest.mark.parametrize("answer", [NO_ROW, ROLLED_BACK])
def test_a_row_that_comes_later_opens_the_half_again(world: World, answer: BusinessAnswer) -> None:
    late = half(world)
    world.queries.answers[late] = answer
    process = world.process()
    world.rounds(process, 20, consume=False)
    assert row(world, late) == (CandidateState.SETTLED, "REJECTED")
    world.queries.answers[late] = COMMITTED
    for _ in range(10):
        world.clock.advance(60)
        world.rounds(process, 4, consume=False)
    assert row(world, late) == (CandidateState.OPEN, "LOST_CONFIRM")


def test_a_half_that_is_asked_for_again_is_asked_less_and_less(world: World) -> None:
    it = half(world)
    process = world.process()
    world.rounds(process, 20, consume=False)
    asked = len(world.queries.asked)
    for _ in range(60):
        world.clock.advance(60)
        world.rounds(process, 1, consume=False)
    assert row(world, it) == (CandidateState.SETTLED, "REJECTED")
    assert asked + 3 <= len(world.queries.asked) <= asked + 12


def test_a_half_that_was_put_back_announces_nothing_new(world: World) -> None:
    passed = world.deliver(1)
    world.consume(effects=False)
    process = world.process()
    world.rounds(process, 20, consume=False)
    world.broker.put_back(world.broker.halves[0])
    world.announce(passed)
    world.rounds(process, 20, consume=False)
    assert (row(world, passed), world.pending()) == (OVER, [])


def test_a_half_that_its_broker_has_given_up_is_lost_by_its_row_alone(world: World) -> None:
    verdicts = []
    for number, answer in enumerate((NO_ROW, unknown(UNPROVED[2][0].why), COMMITTED), start=1):  # type: ignore[arg-type]  # it has a reason
        it = half(world, number)
        given_up = world.broker.halves.pop()
        world.broker.parked.append(replace(given_up, topic="TRANS_CHECK_MAX_TIME_TOPIC"))
        world.queries.answers[it] = answer
        verdicts.append(it)
    world.rounds(world.process(), 30, consume=False)
    assert [row(world, it)[1] for it in verdicts] == ["REJECTED", "UNKNOWN", "PARKED"]


def announced_only(world: World) -> None:
    """The settings have neither a query nor an outbox from now on, and services announce."""
    plans = tuple(replace(plan, reads_halves=False) for plan in world.topic.subscriptions)
    world.topic = replace(world.topic, evidence=evidence(None), subscriptions=plans)


def sending(world: World) -> None:
    world.repair_rules = replace(world.repair_rules, enabled=True)


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_a_half_that_announced_itself_is_no_commit_once_announcements_are_trusted(world: World, rounds: int) -> None:
    world.queries.answers[key(1)] = unknown(NO_ANSWER(why="gone"))
    sending(world)
    undecided = half(world)
    world.reading.read_to_end(TOPIC)  # it is noted before its key counts as announced
    world.rounds(world.process(), rounds)
    announced_only(world)
    process = world.process()
    world.rounds(process, 60)
    assert (sent(world), row(world, undecided)) == (0, (CandidateState.OPEN, "UNKNOWN"))
    assert reason(world, undecided) == ANNOUNCED_BY_HALF.name
    announced = world.broker.send_half(key(2)).unique_key
    world.announce(announced)
    world.rounds(process, 60)
    assert [one for one, _, _ in world.broker.ends] == [announced], "what a service announces is trusted"


def test_a_loss_that_a_query_proved_is_not_sent_by_the_trust_in_announcements(world: World) -> None:
    world.queries.answers[key(1)] = COMMITTED
    sending(world)
    world.broker.producers = True
    proved = half(world)
    world.reading.read_to_end(TOPIC)
    world.rounds(world.process(), 20)
    repair = world.repair(proved)
    assert repair is not None
    assert repair.state is RepairState.OPEN
    announced_only(world)
    world.rounds(world.process(), 60)
    assert sent(world) == 0
    repair = world.repair(proved)
    assert repair is not None
    assert repair.why == ANNOUNCED_BY_HALF()
