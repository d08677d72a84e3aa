"""Sends that rest on a row of the business: what is asked after the claim decides, and a producer is never raced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.contract.answers import HALVES_LEFT
from reconciler.contract.kept_facts import QUERY_NOT_ACCEPTED
from reconciler.contract.query_answers import NO_ANSWER, NOT_THE_PRIMARY, NULL_STATE
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Undecided
from reconciler.policy.commit_evidence import CommitEvidence
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, digest_of, unknown
from reconciler.policy.evidence import EndOutcome, ProducerLook, SendAnswer, StoredMessage
from reconciler.policy.judging.suspect import undecided_by
from reconciler.policy.ports.evidence import Horizon
from reconciler.policy.ports.ledger import NotedHalf, Repair
from reconciler.policy.repairing.case import ATTEMPTS_MAX, HELD_BACK_SECONDS_MAX
from reconciler.words import said
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

COMMITTED = BusinessAnswer(BusinessState.COMMITTED)


@pytest.fixture
def world() -> World:
    made = World()
    made.with_query()
    made.topic = replace(made.topic, sends_by_query=True)
    made.broker.put_back_after_seconds = 30.0
    return made


def lost(world: World, number: int = 1, **half: object) -> str:
    """A half whose END never came; a row says that its transaction was committed."""
    world.broker.send_half(key(number), **half)  # type: ignore[arg-type]
    world.queries.answers[key(number)] = COMMITTED
    world.announce(key(number))
    return key(number)


def sent(world: World) -> list[str]:
    return [one for one, _, commits in world.broker.ends if commits] + [
        one.unique_key for one in world.broker.republished
    ]


def the_repair(world: World, unique_key: str) -> Repair:
    found = world.repair(unique_key)
    assert found is not None
    return found


def why(world: World, unique_key: str) -> str:
    answer = the_repair(world, unique_key).why
    assert answer is not None
    return answer.code.name


def test_a_loss_is_sent_once_and_its_half_is_not_rolled_back(world: World) -> None:
    one = lost(world)
    world.rounds(world.process(), 40)
    assert sent(world) == [one]
    assert world.broker.ends[-1][2], "END ROLLBACK is off"
    assert len(world.broker.ends) == 1
    assert world.deliveries == [("billing", one)]
    assert the_repair(world, one).state is RepairState.DONE


def test_without_an_inbox_a_repair_ends_with_the_offset_that_passes_its_copy(world: World) -> None:
    without_inbox(world)
    one = lost(world)
    world.rounds(world.process(), 40)
    assert (sent(world), world.verdict(one), the_repair(world, one).state) == ([one], "DELIVERED", RepairState.DONE)
    why = the_repair(world, one).why
    assert why is not None
    assert "effect" not in said(why), "the group's offset shows no effect"


def without_inbox(world: World) -> None:
    world.inbox.configured = False
    plans = tuple(replace(plan, reads_halves=True) for plan in world.topic.subscriptions)
    world.topic = replace(world.topic, subscriptions=plans)


DAYS_3 = 3 * 86_400


def deleted_but(world: World, half: StoredMessage, *, parks: bool) -> None:
    """Brokers delete by age all but the newest copy of the half; `parks`: they have given it up."""
    world.broker.halves[:] = [] if parks else [half]
    if parks:
        world.broker.give_up(half)
    world.broker.copies.clear()
    world.broker.offsets.clear()


@pytest.mark.parametrize("parks", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_half_that_outlived_its_delivered_copy_is_never_sent_without_an_inbox(
    world: World, parks: bool, is_new: bool
) -> None:
    """END came for an older copy of the half; days later only a younger one is left. `is_new`: the group answers for
    messages since later."""
    without_inbox(world)
    if is_new:
        since_ms = world.clock.now_ms() + DAYS_3 * 1000
        plans = tuple(replace(p, since_ms=since_ms, is_since_noted=True) for p in world.topic.subscriptions)
        world.topic = replace(world.topic, subscriptions=plans)
    first = world.broker.send_half(key(1))
    world.queries.answers[key(1)] = COMMITTED
    world.clock.advance(60)
    again = world.broker.put_back(first)
    world.broker.commit(first)
    world.clock.advance(60)
    again = world.broker.put_back(again)
    world.consume(effects=False)
    world.clock.advance(DAYS_3)
    deleted_but(world, again, parks=parks)
    world.announce(key(1))
    world.rounds(world.process(), 60)
    assert (world.verdict(key(1)), sent(world), world.repair(key(1))) == ("UNKNOWN", [], None)
    row = world.candidate(key(1))
    assert row is not None
    assert reason_in(row.evidence).code.name == "reason.copy-may-be-gone"
    assert undecided_by(row.evidence)[0] is Undecided.CONTRADICTION
    assert len(world.deliveries) == 1


@pytest.mark.parametrize("parks", [False, True])
def test_by_an_announcement_alone_a_half_that_outlived_its_copy_is_not_sent_without_an_inbox(parks: bool) -> None:
    """Neither by END nor anew: END on an older half copy has delivered it days ago."""
    world = World(trust_announcements=True)
    world.inbox.configured = False
    first = world.broker.send_half(key(1))
    again = world.broker.put_back(first)
    world.broker.commit(first)
    world.consume(effects=False)
    world.clock.advance(DAYS_3)
    deleted_but(world, again, parks=parks)
    world.announce(key(1))
    world.rounds(world.process(), 60)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.verdict, reason_in(row.evidence).code.name) == ("UNKNOWN", "reason.copy-may-be-gone")
    assert (sent(world), world.deliveries) == ([], [("billing", key(1))])


@pytest.mark.parametrize("parks", [False, True])
def test_what_may_have_been_delivered_is_given_up_when_its_half_is_deleted_too(world: World, parks: bool) -> None:
    """So a person can dismiss it: without a half it stays unknown for ever."""
    without_inbox(world)
    first = world.broker.send_half(key(1))
    world.queries.answers[key(1)] = COMMITTED
    again = world.broker.put_back(first)
    world.clock.advance(DAYS_3)
    deleted_but(world, again, parks=parks)
    world.announce(key(1))
    process = world.process()
    world.rounds(process, 20)
    assert world.verdict(key(1)) == "UNKNOWN"
    world.broker.halves.clear()
    world.broker.parked.clear()
    world.rounds(process, 20)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state) == ("QUARANTINED", CandidateState.QUARANTINED)
    assert "one may have been delivered and deleted by age" in str(row.evidence["reason"])


def test_a_key_that_no_half_was_ever_seen_of_is_given_up_once_brokers_may_have_deleted_it(world: World) -> None:
    world.announce(key(1))
    process = world.process()
    world.rounds(process, 20)
    assert world.verdict(key(1)) == "UNKNOWN", "its broker may be the one that nobody knows of yet"
    world.clock.advance(19 * 3_600)
    world.rounds(process, 20)
    assert world.verdict(key(1)) == "QUARANTINED"


def send_once(world: World) -> None:
    """Rounds up to the first send that a broker has executed; its copy is not consumed yet."""
    process = world.process()
    for _ in range(40):
        if world.broker.copies:
            return
        world.rounds(process, 1, consume=False)
    raise AssertionError("nothing was sent")


@pytest.mark.parametrize("parks", [False, True])
def test_what_was_sent_is_not_sent_again_once_its_copy_may_have_been_deleted(world: World, parks: bool) -> None:
    """No process ran between the send and the end of retention."""
    without_inbox(world)
    one = lost(world)
    world.clock.advance(40)
    again = world.broker.put_back(world.broker.halves[0])
    send_once(world)
    younger = world.broker.put_back(again)
    world.consume(effects=False)
    world.clock.advance(4 * 86_400)
    deleted_but(world, younger, parks=parks)
    world.rounds(world.process(owner="reconciler-2"), 60)
    assert (sent(world), world.deliveries) == ([one], [("billing", one)])
    assert (the_repair(world, one).state, why(world, one)) == (RepairState.FAILED, "reason.copy-may-be-gone")
    assert world.verdict(one) == "QUARANTINED"


def test_what_was_republished_may_lie_where_its_half_does_not(world: World) -> None:
    """The first half copy is still there, at a broker that keeps more."""
    without_inbox(world)
    world.broker.scripted = [SendAnswer(outcome=EndOutcome.HALF_GONE, code=1)]
    one = lost(world)
    (half,) = world.broker.halves
    world.broker.give_up(half)
    send_once(world)
    assert len(world.broker.republished) == 1
    world.consume(effects=False)
    world.clock.advance(4 * 86_400)
    world.broker.copies.clear()
    world.broker.offsets.clear()
    world.rounds(world.process(owner="reconciler-2"), 60)
    assert world.deliveries == [("billing", one)]
    assert (the_repair(world, one).state, why(world, one)) == (RepairState.FAILED, "reason.copy-may-be-gone")


@pytest.mark.parametrize(("hours", "sends"), [(17, True), (19, False)])
@pytest.mark.parametrize("parks", [False, True])
def test_a_half_that_was_put_back_is_sent_while_brokers_are_sure_to_have_its_copy(
    world: World, parks: bool, hours: int, sends: bool
) -> None:
    without_inbox(world)
    first = world.broker.send_half(key(1))
    world.queries.answers[key(1)] = COMMITTED
    world.clock.advance(hours * 3_600)
    deleted_but(world, world.broker.put_back(first), parks=parks)
    world.announce(key(1))
    world.rounds(world.process(), 60)
    assert sent(world) == ([key(1)] if sends else [])


def test_an_old_half_is_sent_while_its_first_copy_is_there(world: World) -> None:
    without_inbox(world)
    one = lost(world)
    world.clock.advance(DAYS_3)
    world.broker.put_back(world.broker.halves[0])
    world.rounds(world.process(), 60)
    assert sent(world) == [one]


def test_the_first_copy_at_one_broker_tells_nothing_of_a_half_at_another(world: World) -> None:
    without_inbox(world)
    lost(world)
    again = world.broker.put_back(world.broker.send_half(key(1), broker="broker-b"))
    world.clock.advance(DAYS_3)
    world.broker.halves[:] = [world.broker.halves[0], again]
    world.rounds(world.process(), 60)
    assert (world.verdict(key(1)), sent(world)) == ("UNKNOWN", [])


def test_a_message_that_was_given_up_is_republished_once(world: World) -> None:
    """Its broker asks nobody any more: producers that are connected answer nothing."""
    world.broker.producers = True
    one = lost(world)
    (half,) = world.broker.halves
    world.broker.halves.clear()
    world.broker.give_up(half)
    world.rounds(world.process(), 40)
    assert [copy.unique_key for copy in world.broker.republished] == [one]
    assert (world.broker.ends, the_repair(world, one).state) == ([], RepairState.DONE)


def test_a_half_is_ended_beside_its_producers_once_its_broker_has_given_it_up(world: World) -> None:
    world.broker.producers = True
    one = lost(world)
    (half,) = world.broker.halves
    process = world.process()
    world.rounds(process, 40)
    assert (sent(world), why(world, one)) == ([], "repair.producer-connected")
    world.broker.give_up(half)
    world.rounds(process, 40)
    assert sent(world) == [one]


@pytest.mark.parametrize(("producers", "told"), [(True, "connected"), (None, "unknown")])
def test_nothing_is_sent_while_a_producer_may_answer_its_broker(
    world: World, producers: bool | None, told: str
) -> None:
    world.broker.producers = producers
    one = lost(world)
    process = world.process()
    world.rounds(process, 60)
    assert (sent(world), why(world, one)) == ([], f"repair.producer{'s' if producers is None else ''}-{told}")
    world.broker.producers, world.broker.producers_left_ms = False, world.clock.now_ms()
    world.rounds(process, 5)
    assert sent(world) == [], "a producer that starts again is waited for, for a round of questions"
    world.rounds(process, 40)
    assert sent(world) == [one]


def test_a_half_of_two_brokers_waits_for_the_producers_of_both(world: World) -> None:
    lost(world)
    world.broker.send_half(key(1), broker="broker-b")
    asked: set[str] = set()
    look = world.broker.producers_of

    def looks(half: StoredMessage) -> ProducerLook:
        asked.add(half.broker)
        return replace(look(half), is_connected=half.broker == "broker-b")

    world.broker.producers_of = looks  # type: ignore[method-assign]
    world.rounds(world.process(), 40)
    assert (sent(world), asked) == ([], {"broker-a", "broker-b"})


def test_a_producer_that_comes_back_after_the_claim_is_seen_before_the_send(world: World) -> None:
    one = lost(world)
    process = world.process()

    def comes_back() -> None:
        if the_repair(world, one).state is RepairState.SENDING:
            world.broker.producers = True

    looked: list[bool] = []
    original = world.broker.producers_of

    def look(half: StoredMessage) -> ProducerLook:
        comes_back()
        looked.append(the_repair(world, one).state is RepairState.SENDING)
        return original(half)

    world.broker.producers_of = look  # type: ignore[method-assign]
    world.rounds(process, 40)
    assert looked.count(True) == 1, "the look before the byte"
    assert (sent(world), the_repair(world, one).state) == ([], RepairState.OPEN)


def when_it_is_sent(world: World, unique_key: str, act: Callable[[], object]) -> None:
    """Done once, between the claim of a send and its byte."""
    original, done = world.reading.is_newest, list[str]()

    def look(half: StoredMessage) -> bool | None:
        if not done and the_repair(world, unique_key).state is RepairState.SENDING:
            done.append(unique_key)
            act()
        return original(half)

    world.reading.is_newest = look  # type: ignore[method-assign]


def test_a_half_that_is_put_back_after_the_claim_is_ended_by_its_newest_copy(world: World) -> None:
    """END on an older copy delivers, and its broker goes on asking about the newest: a late answer would deliver
    again."""
    one = lost(world)
    when_it_is_sent(world, one, lambda: world.broker.put_back(world.broker.halves[-1]))
    world.rounds(world.process(), 60)
    assert world.broker.ends == [(one, world.broker.halves[-1].commit_log_offset, True)]
    assert (world.deliveries, the_repair(world, one).state) == ([("billing", one)], RepairState.DONE)


def test_a_message_that_is_delivered_after_the_claim_is_not_sent(world: World) -> None:
    """The END of its producer was long under way."""
    one = lost(world)

    def arrives() -> None:
        world.broker.commit(world.broker.halves[-1])

    when_it_is_sent(world, one, arrives)
    world.rounds(world.process(), 60)
    assert (sent(world), world.deliveries) == ([], [("billing", one)])
    assert (the_repair(world, one).state, the_repair(world, one).attempts) == (RepairState.DONE, 0)


def test_a_broker_that_does_not_say_whether_it_has_put_a_half_back_is_sent_nothing(world: World) -> None:
    one = lost(world)
    when_it_is_sent(world, one, lambda: setattr(world.reading, "tells_no_newest", True))
    process = world.process()
    world.rounds(process, 20)
    said, before = Counter[str](), the_repair(world, one)
    for _ in range(120):
        world.rounds(process, 1, every=15.0)
        repair = the_repair(world, one)
        if repair.why is not None and repair != before:
            said[f"{repair.why.fields.get('outcome')}: {repair.why.fields.get('said')}"] += 1
        before = repair
    assert said["HELD_BACK: broker-a may have put the half back since"] > ATTEMPTS_MAX
    assert (sent(world), the_repair(world, one).state, the_repair(world, one).attempts) == ([], RepairState.OPEN, 0)
    world.reading.tells_no_newest = False
    world.rounds(process, 60)
    assert (sent(world), the_repair(world, one).attempts) == ([one], 1)


def test_a_broker_that_never_says_whether_it_has_put_a_half_back_is_told_to_a_person(world: World) -> None:
    one = lost(world)
    when_it_is_sent(world, one, lambda: setattr(world.reading, "tells_no_newest", True))
    process = world.process()
    world.rounds(process, 60)
    world.clock.advance(HELD_BACK_SECONDS_MAX)
    world.rounds(process, 80, every=120.0)
    assert (sent(world), the_repair(world, one).state, why(world, one)) == ([], RepairState.FAILED, "repair.too-often")


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (BusinessAnswer(BusinessState.NO_ROW), "no-business-row"),
        (BusinessAnswer(BusinessState.ROLLED_BACK), "business-rolled-back"),
        (unknown(NULL_STATE()), "business-unknown"),
        (unknown(NOT_THE_PRIMARY()), "business-unknown"),
        (unknown(NO_ANSWER(why="gone")), "business-unknown"),
    ],
)
def test_what_the_primary_says_after_the_claim_decides(world: World, later: BusinessAnswer, told: str) -> None:
    world.broker.producers = True
    one = lost(world)
    process = world.process()
    world.rounds(process, 30)
    assert world.verdict(one) == "LOST_CONFIRM"
    world.queries.answers[one] = later
    world.broker.producers = False
    world.rounds(process, 60)
    assert (sent(world), why(world, one)) == ([], f"reason.{told}")
    world.queries.answers[one] = COMMITTED
    world.rounds(process, 60)
    assert sent(world) == [one]


def noted(unique_key: str, *, of: str, tag: str = "paid") -> NotedHalf:
    return NotedHalf(
        unique_key=unique_key, broker="broker-a", key_digest=digest_of(of), tag_digest=digest_of(tag), stored_at_ms=1
    )


@pytest.mark.parametrize(("tag", "told"), [("paid", "siblings"), ("shipped", "siblings-of-other-tags")])
def test_another_message_of_its_key_that_came_since_keeps_it_from_being_sent(world: World, tag: str, told: str) -> None:
    """Of another tag, too: a query sees no tag, so a row proves neither of the two."""
    world.broker.producers = True
    one = lost(world)
    process = world.process()
    world.rounds(process, 30)
    world.ledger.halves.note(ENVIRONMENT, TOPIC, [noted(key(2), of=one, tag=tag)])
    world.broker.producers = False
    world.rounds(process, 60)
    assert (sent(world), why(world, one)) == ([], f"reason.{told}")


def test_a_message_of_another_tag_is_waited_for_ever_less_often(world: World) -> None:
    world.broker.producers = True
    one = lost(world)
    process = world.process()
    world.rounds(process, 30)
    world.ledger.halves.note(ENVIRONMENT, TOPIC, [noted(key(2), of=one, tag="shipped")])
    world.broker.producers = False
    asked = world.reading.reads
    world.rounds(process, 720)
    assert world.reading.reads - asked <= 40, "in an hour"
    assert why(world, one) == "reason.siblings-of-other-tags"


def rolled_back_and_passed(world: World) -> None:
    world.broker.rollback_evident_after = 60.0
    world.broker.past_check = True


@pytest.mark.parametrize("told", ["ended-or-asked", "not-put-back"])
def test_a_half_that_its_producer_rolled_back_is_not_sent(world: World, told: str) -> None:
    """The row of its key may have come without any half: by an import, or by a request that found the order paid."""
    world.broker.put_back_after_seconds = None
    if told == "ended-or-asked":
        rolled_back_and_passed(world)
    one = lost(world)
    world.clock.advance(120 if told == "ended-or-asked" else 0)
    world.rounds(world.process(), 60)
    assert (sent(world), why(world, one)) == ([], f"repair.{told}")


@pytest.mark.parametrize("ahead_seconds", [0, 60, 3_600])
def test_a_half_that_was_put_back_before_its_producers_left_is_not_sent(world: World, ahead_seconds: int) -> None:
    """A broker puts a half back before it asks: the answer may have been a rollback. Its clock may be ahead."""
    world.broker.producers = True
    one = lost(world)
    process = world.process()
    world.rounds(process, 20)
    world.broker.put_back_after_seconds = None
    world.broker.halves[:] = [
        replace(half, store_timestamp_ms=half.store_timestamp_ms + ahead_seconds * 1000) for half in world.broker.halves
    ]
    world.broker.producers, world.broker.producers_left_ms = False, world.clock.now_ms()
    world.rounds(process, 40)
    assert (sent(world), why(world, one)) == ([], "repair.not-put-back")


@pytest.mark.parametrize("is_parked", [False, True])
def test_a_producer_that_answers_and_leaves_while_half_queues_are_read_leaves_nothing_to_send(
    world: World, is_parked: bool
) -> None:
    one = lost(world)
    half = world.broker.halves[0]
    if is_parked:
        world.broker.halves.clear()
        world.broker.give_up(half)

    def answers() -> None:
        repair = world.repair(one)
        # An open half is sent at the second look for producers.
        if repair is not None and (is_parked or world.ledger_clock.now_ms() - repair.created_at_ms > 30_000):
            world.reading.on_read = lambda: None
            world.broker.commit(half)

    world.reading.on_read = answers
    world.rounds(world.process(), 25)
    assert (sent(world), world.deliveries) == ([], [("billing", one)])


def test_an_index_that_fell_behind_while_half_queues_were_read_hides_no_copy(world: World) -> None:
    """What it had come to when the pass began proves nothing of an answer that came since."""
    one = lost(world)
    reads: list[str] = []
    world.reading.on_read = lambda: reads.append(one)
    proved = world.broker.horizon

    def horizon(topic: str) -> Horizon:
        found = Horizon(at_ms={}) if reads else proved(topic)
        reads.clear()
        return found

    world.broker.horizon = horizon  # type: ignore[method-assign]
    world.rounds(world.process(), 40)
    assert (sent(world), why(world, one)) == ([], "reason.copies-unknown")


def sent_anew(world: World, *, keys: str, tag: str = "paid") -> None:
    """By the service itself, without a half: another unique key, the business's own in KEYS."""
    half = world.broker.send_half(key(7), tag=tag)
    world.broker.halves.remove(half)
    world.broker.commit(replace(half, properties={**half.properties, "KEYS": keys}))


def test_a_message_that_its_service_sent_anew_is_not_sent_again(world: World) -> None:
    one = lost(world)
    sent_anew(world, keys=f"other {one}")
    world.rounds(world.process(), 40)
    assert (sent(world), why(world, one)) == ([], "repair.sent-anew")
    assert (the_repair(world, one).state, world.verdict(one)) == (RepairState.FAILED, "QUARANTINED")


@pytest.mark.parametrize(("keys", "tag"), [("another-order", "paid"), (key(1), "shipped")])
def test_a_message_of_another_key_or_tag_is_not_that_message_sent_anew(world: World, keys: str, tag: str) -> None:
    one = lost(world)
    sent_anew(world, keys=keys, tag=tag)
    world.rounds(world.process(), 40)
    assert sent(world) == [one]


def test_an_index_that_does_not_say_what_was_sent_anew_keeps_it_from_being_sent(world: World) -> None:
    world.broker.unknown = {"messages of key"}
    one = lost(world)
    world.rounds(world.process(), 40)
    assert (sent(world), why(world, one)) == ([], "reason.copies-unknown")


def test_of_two_tries_whose_repairs_were_open_before_they_knew_of_each_other_none_is_sent(world: World) -> None:
    """Both are claimed together; a row of the business is of one of them."""
    world.broker.producers = True
    tries = [lost(world, 1), lost(world, 2)]
    process = world.process()
    world.rounds(process, 30)
    assert [the_repair(world, one).state for one in tries] == [RepairState.OPEN] * 2
    world.queries.keys = dict.fromkeys(tries, "order-7")
    world.broker.producers = False
    world.rounds(process, 60)
    assert sent(world) == []
    assert [why(world, one) for one in tries] == ["reason.siblings"] * 2


def test_a_copy_that_is_there_is_not_joined_by_another_one(world: World) -> None:
    """However its group passed it: more than one copy is never sent by a row of the business."""
    one = lost(world)
    process = world.process()
    world.rounds(process, 40, consume=False)
    assert sent(world) == [one]
    world.broker.offsets["billing"] = len(world.broker.copies)
    world.rounds(process, 80, consume=False)
    assert sent(world) == [one]


def test_an_end_without_an_answer_is_asked_about_before_another_one(world: World) -> None:
    world.broker.scripted = [SendAnswer(outcome=EndOutcome.NO_ANSWER, detail="timed out")]
    world.broker.executes_unanswered = False
    one = lost(world)
    asked: list[int] = []
    world.broker.on_end = lambda _half: asked.append(len(world.queries.asked))
    world.rounds(world.process(), 60)
    assert sent(world) == [one, one]
    assert asked[0] < asked[1], "the business was asked again"
    assert the_repair(world, one).state is RepairState.DONE


def test_nothing_is_republished_by_what_a_row_said_before_an_end(world: World) -> None:
    """Its broker has given the half up meanwhile, and the row has changed: it is asked again."""
    world.broker.scripted = [SendAnswer(outcome=EndOutcome.HALF_GONE, code=1)]
    one = lost(world)
    (half,) = world.broker.halves

    def ends(_half: object) -> None:
        world.broker.halves.clear()
        world.broker.give_up(half)
        world.queries.answers[one] = BusinessAnswer(BusinessState.ROLLED_BACK)

    world.broker.on_end = ends
    world.rounds(world.process(), 60)
    assert (len(world.broker.ends), world.broker.republished) == (1, [])
    assert why(world, one) == "reason.business-rolled-back"


def test_workers_are_handed_nothing_over_by_a_row_of_the_business() -> None:
    """What their handler is given rests on an outbox row."""
    world = World(repair_order=(Rung.END, Rung.HAND_OVER))
    world.with_query()
    world.topic = replace(world.topic, sends_by_query=True)
    world.broker.put_back_after_seconds = 30.0
    world.broker.scripted = [SendAnswer(outcome=EndOutcome.HALF_GONE, code=1)]
    one = lost(world)
    world.rounds(world.process(), 40)
    assert (the_repair(world, one).state, why(world, one)) == (RepairState.OPEN, "repair.no-outbox")
    assert world.repair(one, scope="billing") is None


def test_without_the_setting_a_loss_is_proved_and_nothing_is_sent(world: World) -> None:
    world.topic = replace(world.topic, sends_by_query=False)
    one = lost(world)
    world.rounds(world.process(), 60)
    assert (world.verdict(one), sent(world), world.broker.ends) == ("LOST_CONFIRM", [], [])
    assert why(world, one) == "repair.no-outbox"


def test_nothing_is_sent_by_a_query_that_nobody_stands_by(world: World) -> None:
    """One that was changed, or whose acceptance was withdrawn or lost with the ledger."""
    world.queries.unaccepted = QUERY_NOT_ACCEPTED(topic=TOPIC)
    one = lost(world)
    process = world.process()
    world.rounds(process, 40)
    assert (world.verdict(one), sent(world), world.reading.reads) == ("LOST_CONFIRM", [], 0)
    world.queries.unaccepted = None
    world.rounds(process, 40)
    assert sent(world) == [one]


def test_a_query_that_is_withdrawn_after_the_claim_sends_nothing(world: World) -> None:
    one = lost(world)
    (half,) = world.broker.halves
    world.broker.halves.clear()
    world.broker.give_up(half)
    withdrawn = QUERY_NOT_ACCEPTED(topic=TOPIC)
    world.reading.on_read = lambda: setattr(world.queries, "unaccepted", withdrawn)
    world.rounds(world.process(), 40)
    assert (world.reading.reads, sent(world), the_repair(world, one).state) == (1, [], RepairState.OPEN)


def test_a_half_that_is_left_at_another_broker_is_not_rolled_back(world: World) -> None:
    """A retried send left it; its row may still be that of a later try."""
    one = lost(world)
    world.broker.send_half(one, broker="broker-b")
    world.rounds(world.process(), 60)
    assert ([commits for _, _, commits in world.broker.ends], the_repair(world, one).state) == (
        [True],
        RepairState.DONE,
    )


def test_nothing_is_sent_while_a_half_that_may_share_its_key_is_not_read(world: World) -> None:
    world.reading.unread = HALVES_LEFT(broker="broker-a", number=3)
    one = lost(world)
    process = world.process()
    world.rounds(process, 40)
    assert (world.verdict(one), sent(world), why(world, one)) == ("LOST_CONFIRM", [], "reason.siblings-unread")
    world.reading.unread = None
    world.rounds(process, 20)
    assert sent(world) == [one]


def test_half_queues_that_have_more_are_read_on_in_the_next_round(world: World) -> None:
    world.reading.unread = HALVES_LEFT(broker="broker-a", number=3)
    lost(world)
    process = world.process()
    world.rounds(process, 10)
    assert world.reading.reads > 0
    reads = world.reading.reads
    world.rounds(process, 20, every=1.5)
    assert world.reading.reads == reads + 20


def test_a_half_of_its_key_that_is_read_after_its_row_keeps_it_from_being_sent(world: World) -> None:
    one = lost(world)
    another = noted(key(2), of=one)
    world.reading.on_read = lambda: world.ledger.halves.note(ENVIRONMENT, TOPIC, [another], replaces=True)
    world.rounds(world.process(), 40)
    assert (sent(world), why(world, one)) == ([], "reason.siblings")


def test_a_half_whose_group_has_the_name_of_its_topic_is_left_to_its_broker(world: World) -> None:
    """Proxies name the group of their clients so, and no broker shows these."""
    (source,) = world.topic.evidence.sources
    world.topic = replace(world.topic, evidence=CommitEvidence((replace(source, producer_group=TOPIC),)))
    one = lost(world, group=TOPIC)
    (half,) = world.broker.halves
    process = world.process()
    world.rounds(process, 60)
    assert (sent(world), why(world, one)) == ([], "repair.producers-behind-proxy")
    world.broker.give_up(half)
    world.rounds(process, 40)
    assert sent(world) == [one]
