"""Every way out of `with producer.transaction(...)`, on real databases."""

# ruff: noqa: PT012, SIM117  # the block is what is tested, nested as services nest it

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from checkback_producers import Outcome
from checkback_producers.errors import HalfNotSafe, KeyTaken, NotCommitted, NotRecorded, RolledBackAlready
from reconciler.contract.announcement import decode_announcement
from reconciler.contract.content_digest import content_digest
from reconciler.contract.unique_key import shard_of
from reconciler.errors import BrokerUnavailable, ConfigurationError, RequestTimeout, UsageError
from reconciler.policy.evidence import EndOutcome, SendAnswer
from reconciler.sql.database_time import now_ms_sql
from tests.unit.producers.world import TOPIC, World, message


class BusinessFailed(Exception):
    """The service's own error."""


@pytest.fixture
def world(both: World) -> World:
    """Every case of this file holds on both faces."""
    return both


def database_now_ms(world: World) -> int:
    with world.engine.connect() as connection:
        return int(connection.execute(sa.text(f"SELECT {now_ms_sql(world.engine.dialect.name)}")).scalar_one())


@pytest.mark.pooled
def test_a_commit_is_ended_announced_and_marked(world: World) -> None:
    producer = world.producer()
    before_ms = database_now_ms(world)
    with producer.transaction(message(), business_id="order-1") as tx, world.database.begin() as connection:
        tx.record(connection)
        world.do_business(connection, "order-1")
    assert tx.outcome is Outcome.COMMIT
    assert world.halves.ended == [(tx.unique_key, Outcome.COMMIT)]
    assert tx.end_answer == SendAnswer(outcome=EndOutcome.DONE, code=0)
    assert world.state(tx.unique_key) == "ANNOUNCED"
    assert world.did_business("order-1")
    (sent,) = world.announcements.sent
    (announced,) = decode_announcement(sent.body).keys
    row = world.row(tx.unique_key)
    assert (sent.unique_key_topic, sent.tag) == ("RECONCILER_UNIQUE_KEY", TOPIC)
    assert sent.queue_id == shard_of(tx.unique_key, 4)
    assert announced.unique_key == tx.unique_key
    assert announced.tag == "paid"
    assert announced.committed_at_ms == row.created_at_ms
    assert before_ms <= row.created_at_ms <= row.announced_at_ms <= database_now_ms(world)


def test_the_row_keeps_the_half_and_the_digest_of_what_a_consumer_sees(world: World) -> None:
    producer = world.producer(keep_bodies=True)
    sent = message(properties={"currency": "€"}, body=bytes(range(256)))
    with producer.transaction(sent) as tx, world.database.begin() as connection:
        tx.record(connection)
    row = world.row(tx.unique_key)
    (half,) = world.halves.sent
    assert half.properties == {"currency": "€", "BUSINESS_ID": tx.business_id, "RECONCILER_OUTBOX": world.mark}
    assert len(tx.business_id) == 26
    assert (row.half_broker, row.half_commit_log_offset, row.half_queue_offset) == ("broker-a", 4_000_000_000_000, 7)
    assert (row.topic, row.producer_group, row.tag, row.message_keys) == (TOPIC, "order-service", "paid", "o-1 c-7")
    assert row.business_id == tx.business_id
    assert row.body == bytes(range(256))
    assert json.loads(row.properties) == {
        "BUSINESS_ID": tx.business_id,
        "RECONCILER_OUTBOX": world.mark,
        "currency": "€",
    }
    assert row.content_digest == content_digest(
        topic=TOPIC, tags="paid", keys="o-1 c-7", properties=half.properties, body=half.body
    )


def test_without_keep_bodies_no_content_is_stored(world: World) -> None:
    with world.producer().transaction(message(tags=None, keys=())) as tx, world.database.begin() as connection:
        tx.record(connection)
    row = world.row(tx.unique_key)
    assert (row.body, row.properties, row.tag, row.message_keys) == (None, None, None, None)


def test_a_forgotten_record_rolls_the_message_back_and_says_so(world: World) -> None:
    producer = world.producer()
    with pytest.raises(NotRecorded, match="without its message"), producer.transaction(message()) as tx:
        with world.database.begin() as connection:
            world.do_business(connection, "unheard")
    assert tx.outcome is Outcome.ROLLBACK
    assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]
    assert world.announcements.sent == []
    assert world.state(tx.unique_key) is None
    assert producer.counts.as_dict()["not_recorded"] == 1


def test_a_forgotten_commit_leaves_a_tombstone_and_says_so(world: World) -> None:
    producer = world.producer()
    with pytest.raises(NotCommitted), producer.transaction(message()) as tx, world.database.connect() as connection:
        tx.record(connection)
        world.do_business(connection, "gone")
        # connect() without commit: SQLAlchemy rolls back when the connection is given back
    assert tx.outcome is Outcome.ROLLBACK
    assert world.state(tx.unique_key) == "ROLLED_BACK"
    assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]
    assert world.announcements.sent == []
    assert not world.did_business("gone")


def test_an_exception_of_the_business_stays_as_it_is(world: World) -> None:
    failure = BusinessFailed("no stock")
    with pytest.raises(BusinessFailed) as raised, world.producer().transaction(message()) as tx:
        with world.database.begin() as connection:
            tx.record(connection)
            world.do_business(connection, "no stock")
            raise failure
    assert raised.value is failure
    assert raised.value.__cause__ is None
    assert tx.outcome is Outcome.ROLLBACK
    assert world.state(tx.unique_key) == "ROLLED_BACK"
    assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]


def test_an_exception_after_the_commit_does_not_undo_it(world: World) -> None:
    with pytest.raises(BusinessFailed), world.producer().transaction(message()) as tx:
        with world.database.begin() as connection:
            tx.record(connection)
        raise BusinessFailed
    assert tx.outcome is Outcome.COMMIT
    assert world.halves.ended == [(tx.unique_key, Outcome.COMMIT)]
    assert world.announcements.keys == [tx.unique_key]


def test_an_exception_before_the_record_rolls_back_without_touching_the_database(world: World) -> None:
    with pytest.raises(BusinessFailed), world.producer().transaction(message()) as tx:
        raise BusinessFailed
    assert tx.outcome is Outcome.ROLLBACK
    assert world.state(tx.unique_key) is None


@pytest.mark.parametrize(
    "answer",
    [
        SendAnswer(outcome=EndOutcome.REFUSED_FOR_NOW, code=2, detail="busy"),
        SendAnswer(outcome=EndOutcome.HALF_GONE, code=1, detail="find prepared transaction message failed"),
        SendAnswer(outcome=EndOutcome.NO_ANSWER, detail="3 s"),
    ],
)
def test_an_end_that_is_refused_or_lost_changes_nothing(world: World, answer: SendAnswer) -> None:
    producer = world.producer()
    world.halves.end_answer = answer
    with producer.transaction(message()) as tx, world.database.begin() as connection:
        tx.record(connection)
    assert tx.outcome is Outcome.COMMIT
    assert tx.end_answer == answer
    assert world.halves.ended == [(tx.unique_key, Outcome.COMMIT)], "END is never repeated"
    assert world.announcements.keys == [tx.unique_key]
    assert producer.counts.as_dict()["ends_failed"] == 1


def test_a_transport_that_raises_at_end_does_not_fail_a_committed_block(world: World) -> None:
    world.halves.end_failure = RequestTimeout("no answer")
    with world.producer().transaction(message()) as tx, world.database.begin() as connection:
        tx.record(connection)
    assert tx.end_answer is not None
    assert tx.end_answer.outcome is EndOutcome.NOT_SENT
    assert world.announcements.keys == [tx.unique_key]


def test_an_announcement_that_fails_leaves_the_row_for_the_sweeper(world: World) -> None:
    producer = world.producer()
    world.announcements.failure = BrokerUnavailable("connection refused")
    with producer.transaction(message()) as tx, world.database.begin() as connection:
        tx.record(connection)
    assert tx.outcome is Outcome.COMMIT
    assert world.state(tx.unique_key) == "NEW"
    assert producer.counts.as_dict()["announcements_failed"] == 1


def test_a_half_that_is_not_safe_is_rolled_back_and_the_block_not_entered(world: World) -> None:
    world.halves.unsafe_status = "FLUSH_DISK_TIMEOUT"
    tx = world.producer().transaction(message())
    with pytest.raises(HalfNotSafe, match="FLUSH_DISK_TIMEOUT"), tx:
        pytest.fail("the block was entered")
    assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]
    assert tx.outcome is Outcome.ROLLBACK


def test_a_half_that_could_not_be_sent_ends_nothing(world: World) -> None:
    world.halves.send_failure = BrokerUnavailable("connection refused")
    with pytest.raises(BrokerUnavailable), world.producer().transaction(message()):
        pytest.fail("the block was entered")
    assert world.halves.ended == []


@pytest.mark.pooled
def test_a_tombstone_makes_record_and_the_local_transaction_fail(world: World) -> None:
    producer = world.producer()
    with pytest.raises(RolledBackAlready), producer.transaction(message()) as tx:
        # The broker asked for the last time while the service was on its way to its database.
        last_round = producer.check_answerer.answer(world.checked(tx.unique_key, check_times=15))
        assert last_round is Outcome.ROLLBACK
        with world.database.begin() as connection:
            tx.record(connection)
            world.do_business(connection, "too late")
    assert not world.did_business("too late")
    assert tx.outcome is Outcome.ROLLBACK
    assert world.state(tx.unique_key) == "ROLLED_BACK"


def test_a_twin_of_the_key_fails_and_only_this_half_is_rolled_back(world: World) -> None:
    producer = world.producer()
    with producer.transaction(message()) as first, world.database.begin() as connection:
        first.record(connection)
    with pytest.raises(KeyTaken), producer.transaction(message(unique_key=first.unique_key)) as second:
        with world.database.begin() as connection:
            second.record(connection)
    assert second.outcome is Outcome.ROLLBACK
    assert world.state(first.unique_key) == "ANNOUNCED"


def test_record_twice_is_refused_and_the_first_one_counts(world: World) -> None:
    with world.producer().transaction(message()) as tx, world.database.begin() as connection:
        tx.record(connection)
        with pytest.raises(UsageError, match="called already"):
            tx.record(connection)
    assert tx.outcome is Outcome.COMMIT


def test_record_after_the_block_is_refused(world: World) -> None:
    with pytest.raises(NotRecorded), world.producer().transaction(message()) as tx:
        pass
    with pytest.raises(UsageError, match="has ended"), world.database.begin() as connection:
        tx.record(connection)


def test_completion_by_check_back_sends_nothing_at_the_end(world: World) -> None:
    producer = world.producer(completion="check")
    with producer.transaction(message()) as tx, world.database.begin() as connection:
        tx.record(connection)
    assert (tx.outcome, tx.end_answer) == (Outcome.UNKNOWN, None)
    assert world.halves.ended == []
    assert world.announcements.sent == []
    assert world.state(tx.unique_key) == "NEW"
    assert producer.check_answerer.answer(world.checked(tx.unique_key)) is Outcome.COMMIT


def test_completion_by_check_back_still_rolls_back_a_missing_record(world: World) -> None:
    with pytest.raises(NotRecorded), world.producer(completion="check").transaction(message()) as tx:
        pass
    assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]


@pytest.mark.parametrize("fails", [False, True])
def test_the_weaker_mode_follows_the_block_alone(world: World, fails: bool) -> None:
    producer = world.producer(without_outbox=True)
    assert producer.is_weaker
    try:
        with producer.transaction(message()) as tx:
            if fails:
                raise BusinessFailed
    except BusinessFailed:
        assert fails
    expected = Outcome.ROLLBACK if fails else Outcome.COMMIT
    assert world.halves.ended == [(tx.unique_key, expected)]
    assert world.announcements.keys == ([] if fails else [tx.unique_key])
    assert producer.check_answerer.answer(world.checked(tx.unique_key, check_times=15)) is Outcome.UNKNOWN


def test_the_weaker_mode_has_nothing_to_record(world: World) -> None:
    producer = world.producer(without_outbox=True)
    with pytest.raises(UsageError, match="weaker mode"), producer.transaction(message()) as tx:
        with world.database.begin() as connection:
            tx.record(connection)


@pytest.mark.pooled
def test_a_missing_table_is_named_at_start(new_database_url: Callable[[], str]) -> None:
    world = World(new_database_url())
    try:
        with pytest.raises(ConfigurationError, match="run reconciler db upgrade"):
            world.producer(outbox_url=new_database_url())
        assert not world.halves.is_running
    finally:
        world.close()
