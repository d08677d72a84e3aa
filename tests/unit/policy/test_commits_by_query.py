"""A commit query in place of an outbox: a row of the business proves the commit, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.query_answers import NO_ANSWER, NO_KEY, NOT_THE_PRIMARY, NULL_STATE, STATES_DIFFER, YOUNG
from reconciler.contract.tables import CandidateState
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, unknown
from reconciler.policy.judging.suspect import COMMIT_QUERY, UNDECIDED
from tests.unit.policy.world import World, key

COMMITTED = BusinessAnswer(BusinessState.COMMITTED)
ROLLED_BACK = BusinessAnswer(BusinessState.ROLLED_BACK)
NO_ROW = BusinessAnswer(BusinessState.NO_ROW)
#: Nothing of this proves a commit; the reason that is on record.
UNPROVED = [
    (NO_ROW, "reason.no-business-row"),
    (ROLLED_BACK, "reason.business-rolled-back"),
    (unknown(NULL_STATE()), "reason.business-unknown"),
    (unknown(STATES_DIFFER()), "reason.business-unknown"),
    (unknown(NO_KEY(source="KEYS", type="text")), "reason.business-unknown"),
    (unknown(NOT_THE_PRIMARY()), "reason.business-unknown"),
    (unknown(NO_ANSWER(why="canceling statement due to statement timeout")), "reason.business-unknown"),
    (unknown(YOUNG(seconds=600)), "reason.business-unknown"),
]


@pytest.fixture
def world() -> World:
    made = World()
    made.with_query()
    return made


def sent(world: World) -> int:
    return len(world.broker.ends) + len(world.broker.republished)


def reason(world: World, unique_key: str) -> str:
    row = world.candidate(unique_key)
    assert row is not None
    facts = row.evidence["facts"]
    return str(facts["reason"][0])  # type: ignore[index]


def test_a_row_of_the_business_proves_the_loss_of_what_was_announced(world: World) -> None:
    lost = world.lose(1)
    world.queries.answers[lost] = COMMITTED
    process = world.process()
    for _ in range(8):
        world.rounds(process, 1)
        row = world.candidate(lost)
        if row is not None and row.verdict == "LOST_CONFIRM":
            break
    assert row is not None
    assert (row.verdict, row.evidence[COMMIT_QUERY]) == ("LOST_CONFIRM", {"state": "committed"})
    assert {copy.unique_key for copy in world.queries.asked} == {lost}


def test_nothing_is_sent_by_a_query_even_where_repairs_are_enabled(world: World) -> None:
    lost = world.lose(1)
    world.queries.answers[lost] = COMMITTED
    world.rounds(world.process(), 40)
    repair = world.repair(lost)
    assert repair is not None
    assert (sent(world), repair.attempts) == (0, 0)
    world.clock.advance(60)  # no other process has it any more
    _, outcome = world.process().keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert outcome.outcome == "waits"
    by_hand = world.process().keys_by_hand.to_hand_over(
        world.subscriptions[0], lost, first_seen_ms=repair.created_at_ms
    )
    assert (by_hand.message, sent(world)) == (None, 0)


@pytest.mark.parametrize(("answer", "why"), UNPROVED)
def test_what_is_no_committed_row_proves_no_loss_and_ends_nothing(
    world: World, answer: BusinessAnswer, why: str
) -> None:
    lost = world.lose(1)
    world.queries.answers[lost] = answer
    world.rounds(world.process(), 30)
    row = world.candidate(lost)
    assert row is not None
    assert (row.verdict, row.state, reason(world, lost)) == ("UNKNOWN", CandidateState.OPEN, why)
    assert (world.repair(lost), sent(world), world.pending()) == (None, 0, [lost])


def test_a_row_that_is_seen_late_proves_it_then(world: World) -> None:
    lost = world.lose(1)
    world.queries.answers[lost] = unknown(YOUNG(seconds=600))
    process = world.process()
    world.rounds(process, 10)
    row = world.candidate(lost)
    assert row is not None
    assert (row.verdict, UNDECIDED in row.evidence) == ("UNKNOWN", False), "time alone decides it"
    world.queries.answers[lost] = COMMITTED
    world.rounds(process, 30)
    assert world.verdict(lost) == "LOST_CONFIRM"


def test_what_is_in_its_topic_is_asked_of_nobody(world: World) -> None:
    fine, lagging = world.deliver(1), world.deliver(2)
    process = world.process()
    world.rounds(process, 8, consume=False)
    assert {world.verdict(one) for one in (fine, lagging)} <= {"LAGGING", "UNKNOWN"}
    world.consume()
    world.rounds(process, 8)
    assert (world.pending(), world.queries.asked) == ([], [])


def test_a_parked_half_tells_the_key_where_no_half_is_left(world: World) -> None:
    half = world.broker.send_half(key(1))
    world.broker.halves.remove(half)
    world.broker.parked.append(replace(half, topic="TRANS_CHECK_MAX_TIME_TOPIC"))
    world.announce(key(1))
    world.queries.answers[key(1)] = COMMITTED
    world.rounds(world.process(), 8)
    assert world.verdict(key(1)) == "PARKED"


def test_an_announcement_without_a_half_is_no_commit(world: World) -> None:
    world.announce(key(1))
    world.rounds(world.process(), 30)
    assert (world.verdict(key(1)), reason(world, key(1))) == ("UNKNOWN", "reason.no-key-copy")
    assert (world.queries.asked, world.ledger.repairs.of_keys("test", "ORDERS", [key(1)])) == ([], {})


def test_a_half_of_another_topic_tells_no_key(world: World) -> None:
    half = world.broker.send_half(key(1))
    world.broker.halves[:] = [replace(half, real_topic="OTHERS")]
    world.announce(key(1))
    world.rounds(world.process(), 20)
    assert (world.verdict(key(1)), world.queries.asked) == ("UNKNOWN", [])


def two_tries(world: World, *, tag: str | None = "paid") -> tuple[str, str]:
    """Two messages of one business key, of which a row says that it was committed; the tag is the second one's."""
    first, second = key(1), key(2)
    for unique_key, its_tag in ((first, "paid"), (second, tag)):
        world.broker.send_half(unique_key, tag=its_tag)
        world.queries.answers[unique_key] = COMMITTED
        world.queries.keys[unique_key] = "order-7"
    return first, second


def test_a_row_that_may_be_of_another_message_of_its_key_and_tag_proves_no_loss(world: World) -> None:
    tries = two_tries(world)
    for one in tries:
        world.announce(one)
    world.rounds(world.process(), 30)
    told = ("UNKNOWN", "reason.no-sibling-delivered")
    assert [(world.verdict(one), reason(world, one)) for one in tries] == [told] * 2
    assert (world.repair(tries[0]), world.repair(tries[1]), sent(world)) == (None, None, 0)


def test_a_message_of_another_tag_has_a_row_of_its_own(world: World) -> None:
    tries = two_tries(world, tag="shipped")
    for one in tries:
        world.announce(one)
    world.rounds(world.process(), 30)
    assert [world.verdict(one) for one in tries] == ["LOST_CONFIRM", "LOST_CONFIRM"]


def test_the_row_is_taken_for_that_of_a_message_that_was_seen_delivered(world: World) -> None:
    first, second = two_tries(world)
    world.announce(second)
    half = next(one for one in world.broker.halves if one.unique_key == second)
    world.broker.commit(half)
    world.rounds(world.process(), 8, consume=False)
    assert world.verdict(second) in ("LAGGING", "UNKNOWN")
    world.announce(first)
    world.rounds(world.process(), 30)
    assert (world.verdict(first), reason(world, first)) == ("UNKNOWN", "reason.sibling-delivered")


def test_a_ledger_that_cannot_keep_halves_proves_no_loss(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = world.lose(1)
    world.queries.answers[lost] = COMMITTED
    monkeypatch.setattr(world.ledger.halves, "note", lambda *_: False)
    process = world.process()
    world.rounds(process, 30)
    assert (world.verdict(lost), reason(world, lost)) == ("UNKNOWN", "reason.siblings-unknown")
    monkeypatch.undo()
    world.rounds(process, 30)
    assert world.verdict(lost) == "LOST_CONFIRM"


def test_a_loss_that_heals_by_itself_ends_its_repair_without_a_send(world: World) -> None:
    lost = world.lose(1)
    world.queries.answers[lost] = COMMITTED
    process = world.process()
    world.rounds(process, 30)
    assert world.verdict(lost) == "LOST_CONFIRM"
    world.broker.commit(next(half for half in world.broker.halves if half.unique_key == lost))
    world.rounds(process, 40)
    repair = world.repair(lost)
    assert repair is not None
    assert (repair.state, sent(world), world.verdict(lost)) == ("DONE", 0, "CONSUMED")
