"""A row of the business says that an order was committed, and several halves are tries of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.query_answers import NO_ANSWER
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Undecided
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, digest_of, unknown
from reconciler.policy.judging.suspect import undecided_by
from reconciler.policy.ports.ledger import NAMED_BY_PLACE, NotedHalf
from tests.unit.policy.test_commits_by_query import reason, sent
from tests.unit.policy.test_sends_by_query import DAYS_3, without_inbox
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

COMMITTED = BusinessAnswer(BusinessState.COMMITTED)
FIRST, SECOND = key(1), key(2)
#: Said of it, and by what it is undecided.
CALM = ("UNKNOWN", "reason.sibling-delivered", Undecided.SET_UP)
FOR_A_PERSON = ("UNKNOWN", "reason.no-sibling-delivered", Undecided.CONTRADICTION)


@pytest.fixture(params=["inbox", "no inbox"])
def world(request: pytest.FixtureRequest) -> World:
    made = World()
    made.with_query()
    if request.param == "no inbox":
        without_inbox(made)
    return made


def tried(world: World, *unique_keys: str) -> None:
    """Halves of one order, which announce themselves; its row says that it was committed."""
    for one in unique_keys:
        half = world.broker.send_half(one)
        world.queries.answers[one] = COMMITTED
        world.queries.keys[one] = "order-7"
        noted(world, one, stored_at_ms=half.store_timestamp_ms)
        world.announce(one)


def noted(world: World, unique_key: str, *, stored_at_ms: int) -> None:
    """As the reader of half topics notes it, before it announces it."""
    half = NotedHalf(
        unique_key=unique_key,
        broker="broker-a",
        key_digest=digest_of("order-7"),
        tag_digest=digest_of("paid"),
        stored_at_ms=stored_at_ms,
    )
    world.ledger.halves.note(ENVIRONMENT, TOPIC, [half])


def delivered(world: World, unique_key: str) -> None:
    half = next(one for one in world.broker.halves if one.unique_key == unique_key)
    world.broker.commit(half)
    world.consume()


def said(world: World, unique_key: str) -> tuple[str, str, Undecided | None]:
    row = world.candidate(unique_key)
    assert row is not None
    return str(row.verdict), reason(world, unique_key), undecided_by(row.evidence)[0]


def test_of_tries_of_which_none_was_delivered_a_person_hears(world: World) -> None:
    tried(world, FIRST, SECOND)
    world.rounds(world.process(), 20)
    assert [said(world, one) for one in (FIRST, SECOND)] == [FOR_A_PERSON] * 2
    assert (world.repair(FIRST), world.repair(SECOND), sent(world)) == (None, None, 0)


def test_a_try_beside_a_delivered_one_raises_no_alarm(world: World) -> None:
    tried(world, FIRST, SECOND)
    delivered(world, SECOND)
    process = world.process()
    world.rounds(process, 20)
    assert said(world, FIRST) == CALM
    asked = len(world.queries.asked)
    world.rounds(process, 360, every=10.0)
    assert len(world.queries.asked) - asked <= 2, "in an hour"
    assert said(world, FIRST) == CALM


def test_a_try_beside_a_delivered_one_raises_none_when_brokers_have_deleted_both(world: World) -> None:
    tried(world, FIRST, SECOND)
    delivered(world, SECOND)
    process = world.process()
    world.rounds(process, 20)
    world.clock.advance(DAYS_3)
    world.broker.copies.clear()
    world.broker.offsets.clear()
    world.rounds(process, 4)
    assert said(world, FIRST) == CALM
    world.broker.halves.clear()
    world.clock.advance(DAYS_3)
    world.rounds(process, 4)
    assert said(world, FIRST) == ("REJECTED", "reason.sibling-delivered", None), "nothing can tell more of it"
    row = world.candidate(FIRST)
    assert row is not None
    assert row.state is CandidateState.SETTLED


def test_a_try_beside_a_delivered_one_is_looked_at_ever_less_often(world: World) -> None:
    """As long as brokers keep its half."""
    tried(world, FIRST, SECOND)
    delivered(world, SECOND)
    process = world.process()
    world.rounds(process, 20)
    asked = len(world.queries.asked)
    world.rounds(process, 72 * 6, every=600.0)
    assert 0 < len(world.queries.asked) - asked <= 24, "in three days"
    assert said(world, FIRST) == CALM


@pytest.mark.parametrize("days", [0, 3])
def test_of_an_order_whose_older_try_brokers_may_have_deleted_a_person_hears_so(world: World, days: int) -> None:
    """That one may have been delivered; the consumers may miss the other one all the same."""
    noted(world, SECOND, stored_at_ms=world.clock.now_ms())
    world.clock.advance(days * 86_400)
    tried(world, FIRST)
    world.rounds(world.process(), 40)
    told = ("UNKNOWN", "reason.sibling-may-be-gone", Undecided.CONTRADICTION)
    assert said(world, FIRST) == (told if days else FOR_A_PERSON)


def test_that_no_try_was_delivered_stays_known_when_brokers_would_have_deleted_it(world: World) -> None:
    tried(world, FIRST, SECOND)
    process = world.process()
    world.rounds(process, 20)
    world.clock.advance(DAYS_3)
    world.rounds(process, 20)
    assert said(world, FIRST) == FOR_A_PERSON


def test_a_second_try_that_is_delivered_late_ends_the_alarm(world: World) -> None:
    tried(world, FIRST, SECOND)
    process = world.process()
    world.rounds(process, 20)
    assert said(world, FIRST) == FOR_A_PERSON
    delivered(world, SECOND)
    world.rounds(process, 30)
    assert said(world, FIRST) == CALM


def test_no_person_hears_of_tries_that_brokers_may_still_ask_about(world: World) -> None:
    """A second try that has just begun, beside a first one that is long over."""
    world.broker.check_back_wait = 60.0
    tried(world, FIRST)
    world.queries.answers[FIRST] = BusinessAnswer(BusinessState.NO_ROW)
    process = world.process()
    world.rounds(process, 4)
    world.clock.advance(90)
    tried(world, FIRST, SECOND)
    world.broker.halves.pop(1)
    world.rounds(process, 8)
    assert [said(world, one) for one in (FIRST, SECOND)] == [("UNKNOWN", "reason.siblings", None)] * 2
    world.rounds(process, 20)
    assert [said(world, one) for one in (FIRST, SECOND)] == [FOR_A_PERSON] * 2


def test_a_broker_that_does_not_say_whether_a_try_was_delivered_is_waited_for(world: World) -> None:
    tried(world, FIRST, SECOND)
    asks = world.broker.committed_copies

    def silent(topic: str, unique_key: str, **how: object) -> object:
        world.broker.unknown = {"copies"} if unique_key == SECOND else set()
        return asks(topic, unique_key, **how)  # type: ignore[arg-type]

    world.broker.committed_copies = silent  # type: ignore[assignment,method-assign]
    world.rounds(world.process(), 20)
    assert said(world, FIRST) == ("UNKNOWN", "reason.copies-unknown", Undecided.WITNESS)


def test_of_a_try_without_a_key_that_can_be_followed_nothing_is_concluded(world: World) -> None:
    tried(world, FIRST)
    noted(world, f"{NAMED_BY_PLACE}{7:020d}", stored_at_ms=1)
    world.rounds(world.process(), 20)
    assert said(world, FIRST) == ("UNKNOWN", "reason.siblings", Undecided.SET_UP)


def test_what_its_broker_has_given_up_beside_another_try_is_for_a_person(world: World) -> None:
    tried(world, FIRST, SECOND)
    world.broker.parked += [replace(one, topic="TRANS_CHECK_MAX_TIME_TOPIC") for one in world.broker.halves]
    world.broker.halves.clear()
    world.rounds(world.process(), 20)
    assert [said(world, one) for one in (FIRST, SECOND)] == [FOR_A_PERSON] * 2


def test_an_undecided_key_whose_halves_are_deleted_is_given_up(world: World) -> None:
    """A person can dismiss it then: nothing tells its key of the business any more."""
    tried(world, FIRST, SECOND)
    process = world.process()
    world.rounds(process, 20)
    world.broker.halves.clear()
    world.clock.advance(DAYS_3)
    world.rounds(process, 20)
    row = world.candidate(FIRST)
    assert row is not None
    assert (row.state, reason(world, FIRST)) == (CandidateState.QUARANTINED, "reason.given-up")


@pytest.mark.parametrize("silent", ["copies", "halves", "business", "siblings"])
def test_a_look_without_an_answer_does_not_forget_that_another_try_was_delivered(world: World, silent: str) -> None:
    """By the next one brokers have deleted its copy."""
    tried(world, FIRST, SECOND)
    delivered(world, SECOND)
    process = world.process()
    world.rounds(process, 20)
    assert said(world, FIRST) == CALM
    world.clock.advance(DAYS_3)
    if silent == "business":
        world.queries.answers[FIRST] = unknown(NO_ANSWER(why="gone"))
    elif silent == "siblings":
        world.ledger.halves.note = lambda *_, **__: False  # type: ignore[method-assign]
    else:
        world.broker.unknown = {silent}
    world.rounds(process, 4)
    assert said(world, FIRST) == CALM
    world.queries.answers[FIRST] = COMMITTED
    world.ledger.halves.__dict__.pop("note", None)
    world.broker.unknown = set()
    world.broker.copies.clear()
    world.broker.offsets.clear()
    world.clock.advance(DAYS_3)
    world.rounds(process, 20)
    assert said(world, FIRST) == CALM
