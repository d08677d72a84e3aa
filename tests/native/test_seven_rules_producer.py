"""The seven rules for rocketmq-client-python: each test is one way in which services lost messages or crashed."""

from __future__ import annotations

import logging
import threading

import pytest

from checkback_producers.errors import HalfNotSafe, NotCommitted, NotRecorded
from checkback_producers.ports import Outcome
from checkback_producers.transaction import Transaction
from reconciler.clock import SystemClock
from reconciler.contract.tables import OutboxState
from reconciler.contract.unique_key import shard_of
from reconciler.errors import BrokerUnavailable, UsageError
from reconciler.policy.evidence import EndOutcome
from tests.native.orders import GROUP, Orders, order
from tests.polling import eventually

# ---------------------------------------------------------------- 1: callbacks


@pytest.mark.parametrize("error", [ValueError("no stock"), KeyboardInterrupt(), SystemExit(3)])
def test_rule_1_an_exception_of_the_business_is_not_answered_with_commit(orders: Orders, error: BaseException) -> None:
    producer = orders.producer()

    def place(tx: Transaction) -> None:
        with orders.engine.begin() as connection:
            tx.record(connection)
            raise error

    with pytest.raises(type(error)) as caught:
        producer.send(order(), place)
    assert caught.value is error
    ((key, outcome, _),) = orders.cluster.ends
    assert outcome == "ROLLBACK"
    assert [(row.unique_key, row.state) for row in orders.rows()] == [(key, OutboxState.ROLLED_BACK)]
    assert orders.announced() == []


def test_rule_1_an_exception_after_the_commit_does_not_undo_it(orders: Orders) -> None:
    producer = orders.producer()

    def place(tx: Transaction) -> None:
        orders.place(tx)
        raise ValueError("the mail could not be sent")

    with pytest.raises(ValueError, match="mail"):
        producer.send(order(), place)
    ((key, outcome, _),) = orders.cluster.ends
    assert outcome == "COMMIT"
    assert [announced for _, announced in orders.announced()] == [key]


def test_rule_1_a_check_that_raises_is_answered_unknown(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    producer = orders.producer()
    tx = producer.send(order(), orders.place)
    failure = KeyboardInterrupt()

    def answer(_half: object) -> Outcome:
        raise failure

    producer._halves._answer = answer
    assert orders.library.check_back(orders.cluster, tx.unique_key) == "UNKNOWN"
    assert producer._halves.check_failure is failure
    assert "answered UNKNOWN" in caplog.text


def test_rule_1_reading_the_outcome_is_interrupted_and_nothing_is_claimed(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = orders.producer()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "conclude", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.send(order(), orders.place)
    eventually(lambda: [end[1] for end in orders.cluster.ends] == ["UNKNOWN"], within_seconds=60)


# ---------------------------------------------------------------- 2: evidence


def test_rule_2_the_key_is_read_from_the_property_and_offsets_stay_unknown(orders: Orders) -> None:
    tx = orders.producer().send(order(), orders.place, business_id="order-7")
    ((half_key, half),) = orders.cluster.halves
    assert tx.unique_key == half_key
    assert (tx.outcome, tx.is_announced, tx.business_id) == (Outcome.COMMIT, True, "order-7")
    assert tx.end_answer is not None
    assert tx.end_answer.outcome is EndOutcome.NO_ANSWER
    assert half.properties[b"BUSINESS_ID"] == b"order-7"
    assert (half.properties[b"TAGS"], half.properties[b"KEYS"], half.body) == (b"paid", b"o-1 c-7", b"one order")
    (row,) = orders.rows()
    assert (row.unique_key, row.state) == (half_key, OutboxState.ANNOUNCED)
    assert (row.half_broker, row.half_commit_log_offset, row.half_queue_offset) == (None, None, None)
    assert row.content_digest is not None
    assert orders.announced() == [(shard_of(half_key, 4), half_key)]


def test_rule_2_an_ok_of_send_is_no_commit(orders: Orders) -> None:
    producer = orders.producer()

    def forgets_to_commit(tx: Transaction) -> None:
        with orders.engine.connect() as connection:
            tx.record(connection)

    with pytest.raises(NotCommitted):
        producer.send(order(), forgets_to_commit)
    with pytest.raises(NotRecorded):
        producer.send(order(), lambda _tx: None)
    assert [outcome for _, outcome, _ in orders.cluster.ends] == ["ROLLBACK", "ROLLBACK"]
    assert orders.announced() == []


def test_rule_2_an_open_transaction_leaves_the_outcome_to_check_back(orders: Orders) -> None:
    producer = orders.producer()
    with orders.engine.connect() as outer:

        def place(tx: Transaction) -> None:
            tx.record(outer)

        tx = producer.send(order(), place)
        assert tx.outcome is Outcome.UNKNOWN
        outer.commit()
    assert [outcome for _, outcome, _ in orders.cluster.ends] == ["UNKNOWN"]
    assert orders.library.check_back(orders.cluster, tx.unique_key) == "COMMIT"


def test_rule_2_a_library_that_fails_after_the_commit_changes_nothing(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = orders.producer(end_timeout_seconds=0.1)
    orders.library.hang["end"] = threading.Event()
    tx = producer.send(order(), orders.place)
    assert (tx.outcome, tx.is_announced) == (Outcome.COMMIT, True)
    assert "hangs after the local transaction" in caplog.text
    orders.library.hang["end"].set()


def test_a_half_that_is_not_safe_runs_no_local_transaction(orders: Orders) -> None:
    producer = orders.producer()
    orders.library.half_status = 1
    with pytest.raises(HalfNotSafe, match="FLUSH_DISK_TIMEOUT"):
        producer.send(order(), orders.place)
    assert orders.names == []
    assert [outcome for _, outcome, _ in orders.cluster.ends] == ["ROLLBACK"]
    assert {name: n for name, n in producer.counts.as_dict().items() if n} == {"halves": 1, "halves_not_safe": 1}


def test_a_broker_that_is_away_runs_no_local_transaction(orders: Orders) -> None:
    producer = orders.producer()
    orders.library.is_broker_away = True
    with pytest.raises(BrokerUnavailable, match="No route info"):
        producer.send(order(), orders.place)
    assert orders.names == []
    assert {name: n for name, n in producer.counts.as_dict().items() if n} == {"halves": 1, "halves_failed": 1}


# ---------------------------------------------------------------- 3: registration


def test_rule_3_a_half_of_the_first_second_is_asked_back(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    producer = orders.producer()
    assert GROUP in orders.cluster.registered  # before the first half
    assert "is registered for check-back" in caplog.text
    tx = producer.send(order(), orders.place)
    assert orders.library.check_back(orders.cluster, tx.unique_key, times=2) == "COMMIT"


def test_rule_3_a_producer_that_never_sends_answers_for_the_one_that_was_killed(orders: Orders) -> None:
    killed = orders.producer()
    tx = killed.send(order(), orders.place)
    killed.shutdown()
    orders.producer()
    assert orders.library.check_back(orders.cluster, tx.unique_key) == "COMMIT"


def test_rule_3_one_slow_answer_at_the_start_leaves_nobody_unasked(
    orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    orders.library.refused_sends = 2  # "No route info", as a slow machine gets it
    orders.producer()
    assert GROUP in orders.cluster.registered
    assert "is registered for check-back" in caplog.text


def test_rule_3_the_log_says_when_nobody_will_be_asked(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    orders.library.is_broker_away = True
    orders.producer()
    assert GROUP not in orders.cluster.registered
    assert "could not be registered for check-back" in caplog.text
    assert "No route info" in caplog.text


def test_check_back_answers_from_the_outbox_alone(orders: Orders) -> None:
    producer = orders.producer(completion="check")
    with producer.transaction(order()) as committed:
        orders.place(committed)
    now_ms = SystemClock().now_ms()
    with pytest.raises(NotRecorded), producer.transaction(order()) as forgotten:
        pass
    assert [outcome for _, outcome, _ in orders.cluster.ends] == ["UNKNOWN", "UNKNOWN"]
    assert committed.outcome is Outcome.UNKNOWN
    assert orders.announced() == []  # the sweeper's part
    ask = orders.library.check_back
    assert ask(orders.cluster, committed.unique_key, born_timestamp_ms=now_ms) == "COMMIT"
    assert ask(orders.cluster, forgotten.unique_key, born_timestamp_ms=now_ms) == "UNKNOWN"
    assert ask(orders.cluster, forgotten.unique_key, born_timestamp_ms=now_ms, times=15) == "ROLLBACK"


def test_a_block_needs_completion_by_check(orders: Orders) -> None:
    with pytest.raises(UsageError, match="local_transaction"):
        orders.producer().transaction(order())
