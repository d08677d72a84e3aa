"""How a block ends, and what is counted, when brokers, database or business fail in it."""

from __future__ import annotations

import asyncio

import pytest

from checkback_producers.errors import HalfNotSafe, NotRecorded
from checkback_producers.ports import Outcome
from checkback_producers.producer import TransactionalProducer
from checkback_producers.transaction import Completion, Transaction
from reconciler.errors import BrokerUnavailable, InvariantViolation, UsageError
from reconciler.policy.evidence import EndOutcome, SendAnswer
from tests.unit.producers.world import World, message


class BusinessFailed(Exception):
    """Of the service itself."""


def block(
    world: World, *, fails: bool = False, completion: Completion = "end", records: bool = True
) -> tuple[Transaction, dict[str, int]]:
    """One block of a new producer, and the producer's counters that are not 0."""
    producer = world.producer(completion=completion)
    tx = producer.transaction(message())
    try:
        with tx, world.engine.begin() as connection:
            if records:
                tx.record(connection)
            if fails:
                raise BusinessFailed
    except (BusinessFailed, NotRecorded):
        assert fails or not records
    return tx, counted(producer)


def counted(producer: TransactionalProducer) -> dict[str, int]:
    return {name: number for name, number in producer.counts.as_dict().items() if number}


def test_a_commit_is_counted_or_announced_otherwise(world: World) -> None:
    tx, counts = block(world)
    assert (tx.outcome, tx.is_announced, world.state(tx.unique_key)) == (Outcome.COMMIT, True, "ANNOUNCED")
    assert world.halves.ended == [(tx.unique_key, Outcome.COMMIT)]
    assert world.announcements.keys == [tx.unique_key]
    assert counts == {"halves": 1, "committed": 1}


def test_an_announcement_that_failed_is_taken_for_one_that_a_broker_has(world: World) -> None:
    world.announcements.failure = BrokerUnavailable("refused")
    tx, counts = block(world)
    assert (tx.outcome, tx.is_announced, world.state(tx.unique_key)) == (Outcome.COMMIT, False, "NEW")
    assert counts == {"halves": 1, "committed": 1, "announcements_failed": 1}


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (SendAnswer(outcome=EndOutcome.NO_ANSWER), None),
        (SendAnswer(outcome=EndOutcome.DONE, code=0), None),
        (SendAnswer(outcome=EndOutcome.DONE, code=0), BrokerUnavailable("refused")),
    ],
)
def test_an_end_that_failed_makes_a_committed_block_fail(
    world: World, answer: SendAnswer, failure: Exception | None
) -> None:
    world.halves.end_answer, world.halves.end_failure = answer, failure
    tx, counts = block(world)
    assert (tx.outcome, tx.is_announced) == (Outcome.COMMIT, True)
    is_done = failure is None and answer.outcome is EndOutcome.DONE
    assert counts == {"halves": 1, "committed": 1} | ({} if is_done else {"ends_failed": 1})


def test_a_business_that_failed_is_announced_or_left_open(world: World) -> None:
    tx, counts = block(world, fails=True)
    assert (tx.outcome, tx.is_announced, world.announcements.keys) == (Outcome.ROLLBACK, False, [])
    assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]
    assert counts == {"halves": 1, "rolled_back": 1}


def caused(error: Exception, cause: BaseException) -> Exception:
    """The error as it leaves a block that turned an interruption into it: asyncio.timeout does."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "weaker_outcome"),
    [
        (BusinessFailed(), Outcome.ROLLBACK),
        (asyncio.CancelledError(), Outcome.UNKNOWN),
        (KeyboardInterrupt(), Outcome.UNKNOWN),
        (GeneratorExit(), Outcome.UNKNOWN),
        (SystemExit(), Outcome.UNKNOWN),
        (caused(TimeoutError(), asyncio.CancelledError()), Outcome.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_block_that_was_interrupted_rolls_back_what_it_had_committed(
    world: World, error: BaseException, weaker_outcome: Outcome
) -> None:
    with pytest.raises(type(error)), world.producer().transaction(message()) as tx:  # noqa: PT012  # the block is tested
        with world.engine.begin() as connection:
            tx.record(connection)
        raise error
    assert (tx.outcome, world.halves.ended) == (Outcome.COMMIT, [(tx.unique_key, Outcome.COMMIT)])
    world.halves.ended.clear()
    with pytest.raises(type(error)), world.producer(without_outbox=True).transaction(message()) as weaker:
        raise error
    said = [] if weaker_outcome is Outcome.UNKNOWN else [(weaker.unique_key, weaker_outcome)]
    assert (weaker.outcome, world.halves.ended) == (weaker_outcome, said)


def test_a_block_without_record_is_committed_without_its_message(world: World) -> None:
    tx, counts = block(world, records=False)
    assert (tx.outcome, world.halves.ended) == (Outcome.ROLLBACK, [(tx.unique_key, Outcome.ROLLBACK)])
    assert counts == {"halves": 1, "rolled_back": 1, "not_recorded": 1}


def test_a_block_that_the_broker_asks_about_later_ends_by_itself(world: World) -> None:
    tx, counts = block(world, completion="check")
    assert (tx.outcome, tx.end_answer, world.halves.ended) == (Outcome.UNKNOWN, None, [])
    assert (world.announcements.keys, world.state(tx.unique_key)) == ([], "NEW")
    assert counts == {"halves": 1, "left_to_check_back": 1}


def test_a_half_that_is_not_there_or_not_safe_opens_a_block(world: World) -> None:
    producer = world.producer()
    world.halves.send_failure = BrokerUnavailable("refused")
    with pytest.raises(BrokerUnavailable), producer.transaction(message()):
        pytest.fail("it was entered")
    world.halves.send_failure, world.halves.unsafe_status = None, "FLUSH_DISK_TIMEOUT"
    unsafe = producer.transaction(message())
    with pytest.raises(HalfNotSafe), unsafe:
        pytest.fail("it was entered")
    assert (unsafe.outcome, unsafe.end_answer) == (Outcome.ROLLBACK, world.halves.end_answer)
    assert counted(producer) == {"halves": 2, "halves_failed": 1, "halves_not_safe": 1}


def test_a_block_is_used_twice_or_out_of_its_order(world: World) -> None:
    tx = world.producer().transaction(message())
    with pytest.raises(UsageError, match="no half was sent yet"):
        _ = tx.half
    with tx, world.engine.begin() as connection:
        tx.record(connection)
        with pytest.raises(UsageError, match="called already"):
            tx.record(connection)
    with world.engine.begin() as connection, pytest.raises(UsageError, match="the block has ended"):
        tx.record(connection)
    with pytest.raises(UsageError, match="one block"):
        tx.__enter__()
    other = world.producer().transaction(message())
    with pytest.raises(InvariantViolation, match="instead of"):
        other.attach(tx.half)
