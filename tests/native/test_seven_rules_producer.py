"""The seven rules for rocketmq-client-python: each test is one way in which services lost messages or crashed."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pytest

from producers.client_python_halves import SENDS_MAX
from producers.errors import HalfNotSafe, NotCommitted, NotRecorded
from producers.ports import Outcome
from producers.transaction import Transaction
from reconciler.clock import SystemClock
from reconciler.contract.tables import OutboxState
from reconciler.contract.unique_key import shard_of
from reconciler.errors import BrokerBusy, BrokerUnavailable, InvalidValue, RequestTimeout, UsageError
from reconciler.evidence import EndOutcome
from reconciler.rocketmq.message import Message
from tests.native.orders import GROUP, NAME_SERVERS, TOPIC, Orders, order
from tests.native.stand_in import StandIn
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

    producer._native._answer = answer
    assert orders.library.check_back(orders.cluster, tx.unique_key) == "UNKNOWN"
    assert producer._native.check_failure is failure
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
    eventually(lambda: [end[1] for end in orders.cluster.ends] == ["UNKNOWN"], within_seconds=5)


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
    assert producer.counts.as_dict() == {"halves": 1, "halves_not_safe": 1}


def test_a_broker_that_is_away_runs_no_local_transaction(orders: Orders) -> None:
    producer = orders.producer()
    orders.library.is_broker_away = True
    with pytest.raises(BrokerUnavailable, match="No route info"):
        producer.send(order(), orders.place)
    assert orders.names == []
    assert producer.counts.as_dict() == {"halves": 1, "halves_failed": 1}


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


# ---------------------------------------------------------------- 4: one life


def test_rule_4_a_shutdown_that_hangs_does_not_hang_the_service(
    orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    producer = orders.producer()
    for part in (producer._native._native, producer._native.plain._native, producer._native._second._native):
        part._shutdown_timeout_seconds = 0.1
    orders.library.hang["shutdown"] = threading.Event()
    began = SystemClock().monotonic_seconds()
    producer.shutdown()
    assert SystemClock().monotonic_seconds() - began < 5
    assert "its shutdown hangs" in caplog.text
    assert producer._native._native.is_stuck


def test_rule_4_calls_that_hang_are_not_shut_down_under(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    producer = orders.producer(send_timeout_seconds=0.1)
    producer._native._native._shutdown_timeout_seconds = 0.1
    orders.library.hang["send"] = threading.Event()
    with pytest.raises(RequestTimeout):
        producer.send(order(), orders.place)
    producer.shutdown()
    assert "calls hang in it" in caplog.text
    assert orders.library.client("transaction").state == "running"


def test_rule_4_nothing_is_used_before_its_start_or_after_its_end(orders: Orders) -> None:
    producer = orders.producer(started=False)
    with pytest.raises(UsageError):
        producer.send(order(), orders.place)
    producer.start()
    producer.shutdown()
    producer.shutdown()  # harmless
    with pytest.raises(UsageError):
        producer.send(order(), orders.place)
    with pytest.raises(UsageError, match="cannot be started"):
        producer.start()
    with pytest.raises(UsageError, match="never again"):
        producer._native.plain.send(order(), choose=lambda _count: 0)
    assert orders.cluster.halves == []


def test_rule_4_the_business_may_not_shut_the_library_down(orders: Orders) -> None:
    producer = orders.producer()

    def place(tx: Transaction) -> None:
        orders.place(tx)
        producer._native._native.shutdown()

    with pytest.raises(UsageError, match="callbacks"):
        producer.send(order(), place)
    assert [outcome for _, outcome, _ in orders.cluster.ends] == ["COMMIT"]


def test_rule_4_a_producer_that_nobody_holds_is_not_collected(orders: Orders) -> None:
    tx = orders.producer().send(order(), orders.place)
    orders._open.clear()
    gc.collect()
    assert orders.library.check_back(orders.cluster, tx.unique_key) == "COMMIT"


def test_rule_4_after_a_fork_it_is_another_process_whose_threads_are_gone(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = orders.producer()
    with monkeypatch.context() as child:
        child.setattr("reconciler.rocketmq.native_client.os.getpid", lambda: -1)
        with pytest.raises(UsageError, match="fork"):
            producer.send(order(), orders.place)
    assert orders.cluster.halves == []


# ---------------------------------------------------------------- 5: names


def test_rule_5_two_clusters_in_one_process_are_not_mixed_up(orders: Orders) -> None:
    first, second = orders.producer(), orders.producer(name_servers="127.0.0.2:9876;127.0.0.3:9876")
    one, two = (producer.send(order(), lambda tx: orders.place(tx, tx.unique_key)) for producer in (first, second))
    clusters = orders.library.clusters
    assert [key for key, _ in clusters[NAME_SERVERS].halves] == [one.unique_key]
    assert [key for key, _ in clusters["127.0.0.2:9876;127.0.0.3:9876"].halves] == [two.unique_key]


def test_rule_5_announcements_never_use_the_transactional_producer(orders: Orders) -> None:
    orders.producer().send(order(), orders.place)
    assert len(orders.announced()) == 1  # on the transactional one: a crash, which the fixture would report


def test_rule_5_uneven_brokers_cost_look_ups_and_are_said_once(
    orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    orders.library.queues = 6
    producer = orders.producer()
    keys = [producer.send(order(), lambda tx: orders.place(tx, tx.unique_key)).unique_key for _ in range(3)]
    assert [key for _, key in orders.announced()] == keys
    assert caplog.text.count("has 6 queues") == 1


def test_rule_5_each_of_two_brokers_gets_the_queue_of_the_shard(orders: Orders) -> None:
    orders.library.queues = 8
    producer = orders.producer()
    for _ in range(40):
        producer.send(order(), lambda tx: orders.place(tx, tx.unique_key))
    assert all(index % 4 == shard_of(key, 4) for index, key in orders.announced())
    assert {index // 4 for index, _ in orders.announced()} == {0, 1}


# ---------------------------------------------------------------- 6: before C


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"body": b"cut\0off"}, "body"),
        ({"body": b"x" * 131_073}, "body"),
        ({"topic": "orders%made"}, "topic"),
        ({"tags": "pa\0id"}, "tags"),
        ({"keys": ("o\x7f1",)}, "keys"),
        ({"properties": {"colour": "bl\0ue"}}, "properties['colour']"),
        ({"properties": {"co\x0blour": "blue"}}, "properties"),
        ({"flag": 1}, "flag"),
        ({"unique_key": "0" * 32}, "unique_key"),
        ({"delay_level": 3}, "delay_level"),
    ],
)
def test_rule_6_what_c_would_cut_off_or_crash_on_never_gets_there(
    orders: Orders, changes: dict[str, Any], field: str
) -> None:
    producer = orders.producer()
    with pytest.raises(InvalidValue) as refused:
        producer.send(order(**changes), orders.place)
    assert refused.value.field == field
    assert orders.cluster.halves == []
    assert orders.names == []


@pytest.mark.parametrize("changes", [{"topic": "a.b"}, {"body": b""}, {"properties": {"colour": None}}])
def test_rule_6_some_messages_cannot_even_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        order(**changes)


def test_rule_6_something_else_than_a_message_is_refused(orders: Orders) -> None:
    with pytest.raises(InvalidValue):
        orders.producer().send(b"body", orders.place)  # type: ignore[arg-type]  # the accident


def test_rule_6_a_larger_body_is_allowed_on_purpose(orders: Orders) -> None:
    producer = orders.producer(max_body_bytes=1_000_000)
    producer.send(order(body=b"x" * 500_000), orders.place)
    assert len(orders.cluster.halves[0][1].body) == 500_000


def test_rule_6_the_deadline_is_ours_and_a_late_half_is_rolled_back(orders: Orders) -> None:
    producer = orders.producer(send_timeout_seconds=0.2)
    orders.library.hang["send"] = threading.Event()
    began = SystemClock().monotonic_seconds()
    with pytest.raises(RequestTimeout):
        producer.send(order(), orders.place)
    assert SystemClock().monotonic_seconds() - began < 5
    orders.library.hang.pop("send").set()
    eventually(lambda: [end[1] for end in orders.cluster.ends] == ["ROLLBACK"], within_seconds=5)
    assert orders.names == []
    assert producer.counts.as_dict() == {"halves": 1, "halves_failed": 1}
    producer.send(order(), orders.place)  # and it goes on


def test_rule_6_sends_that_hang_do_not_pile_up(orders: Orders) -> None:
    producer = orders.producer(send_timeout_seconds=0.01)
    orders.library.hang["send"] = threading.Event()
    for _ in range(SENDS_MAX):
        with pytest.raises(RequestTimeout):
            producer.send(order(), orders.place)
    with pytest.raises(BrokerBusy, match="hang in librocketmq"):
        producer.send(order(), orders.place)
    orders.library.hang["send"].set()


def test_rule_6_the_local_transaction_stays_on_the_callers_thread(orders: Orders) -> None:
    threads: list[threading.Thread] = []

    def place(tx: Transaction) -> None:
        threads.append(threading.current_thread())
        orders.place(tx)

    orders.producer().send(order(), place)
    assert threads == [threading.current_thread()]


def test_rule_6_groups_and_name_servers_are_looked_at_first(orders: Orders) -> None:
    for wrong in ({"group": "orders\0"}, {"group": ""}, {"name_servers": "nowhere"}):
        with pytest.raises(InvalidValue):
            orders.producer(started=False, **wrong)


# ---------------------------------------------------------------- 7: memory


def test_rule_7_no_message_outlives_its_send(orders: Orders, stand_in: StandIn) -> None:
    producer = orders.producer()
    producer.send(order(), orders.place)
    with pytest.raises(NotRecorded):
        producer.send(order(), lambda _tx: None)
    stand_in.refusal = b"topic not exist"
    with pytest.raises(BrokerUnavailable, match="topic not exist"):
        producer.send(order(), orders.place)
    eventually(lambda: stand_in.live_messages == 0, within_seconds=5)


# ---------------------------------------------------------------- the weaker mode


def test_without_an_outbox_the_normal_end_counts(orders: Orders) -> None:
    producer = orders.producer(without_outbox=True)
    tx = producer.send(Message(topic=TOPIC, body=b"x"), lambda _tx: None)
    assert (tx.outcome, tx.is_announced, producer.is_weaker) == (Outcome.COMMIT, True, True)
    assert orders.library.check_back(orders.cluster, tx.unique_key) == "UNKNOWN"
