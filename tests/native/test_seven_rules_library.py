"""Rules 4 to 7 for rocketmq-client-python: its life, its names, what C would cut off, its memory."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from typing import Any

import pytest

from checkback_producers.client_python_halves import SENDS_MAX
from checkback_producers.errors import NotRecorded
from checkback_producers.ports import Outcome
from checkback_producers.transaction import Transaction
from reconciler.contract.unique_key import shard_of
from reconciler.errors import BrokerBusy, BrokerUnavailable, InvalidValue, RequestTimeout, UsageError
from reconciler.rocketmq.wire.message import Message
from tests.native.orders import NAME_SERVERS, TOPIC, Orders, order
from tests.native.stand_in import StandIn
from tests.polling import eventually

# ---------------------------------------------------------------- 4: one life


def test_rule_4_a_shutdown_that_hangs_does_not_hang_the_service(
    orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    producer = orders.producer()
    for part in (producer._halves._native, producer._halves.plain._native, producer._halves._second._native):
        part._shutdown_timeout_seconds = 0.1
    orders.library.hang["shutdown"] = threading.Event()
    producer.shutdown()  # the library's own never ends
    assert "its shutdown hangs" in caplog.text
    assert producer._halves._native.is_stuck


def test_rule_4_calls_that_hang_are_not_shut_down_under(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    producer = orders.producer(send_timeout_seconds=0.1)
    producer._halves._native._shutdown_timeout_seconds = 0.1
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
        producer._halves.plain.send(order(), choose=lambda _count: 0)
    assert orders.cluster.halves == []


def test_rule_4_the_business_may_not_shut_the_library_down(orders: Orders) -> None:
    producer = orders.producer()

    def place(tx: Transaction) -> None:
        orders.place(tx)
        producer._halves._native.shutdown()

    with pytest.raises(UsageError, match="callbacks"):
        producer.send(order(), place)
    assert [outcome for _, outcome, _ in orders.cluster.ends] == ["COMMIT"]


def test_rule_4_a_producer_that_nobody_holds_is_not_collected(orders: Orders) -> None:
    producer = orders.producer()
    tx, outbox = producer.send(order(), orders.place), producer._outbox
    orders._open.clear()
    del producer
    gc.collect()
    assert orders.library.check_back(orders.cluster, tx.unique_key) == "COMMIT"
    assert outbox is not None
    outbox.close()  # what answers has its connections until the process ends


def test_rule_4_after_a_fork_it_is_another_process_whose_threads_are_gone(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = orders.producer()
    with monkeypatch.context() as child:
        child.setattr("reconciler.rocketmq.client.native_client.os.getpid", lambda: -1)
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
    with pytest.raises(RequestTimeout):  # the library's own answer never comes
        producer.send(order(), orders.place)
    orders.library.hang.pop("send").set()
    eventually(lambda: [end[1] for end in orders.cluster.ends] == ["ROLLBACK"], within_seconds=60)
    assert orders.names == []
    assert {name: n for name, n in producer.counts.as_dict().items() if n} == {"halves": 1, "halves_failed": 1}

    def goes_on() -> bool:
        with suppress(RequestTimeout):  # on a busy machine the short deadline strikes once more
            producer.send(order(), orders.place)
            return True
        return False

    eventually(goes_on, within_seconds=60)


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
    eventually(lambda: stand_in.live_messages == 0, within_seconds=60)


# ---------------------------------------------------------------- the weaker mode


def test_without_an_outbox_the_normal_end_counts(orders: Orders) -> None:
    producer = orders.producer(without_outbox=True)
    tx = producer.send(Message(topic=TOPIC, body=b"x"), lambda _tx: None)
    assert (tx.outcome, tx.is_announced, producer.is_weaker) == (Outcome.COMMIT, True, True)
    assert orders.library.check_back(orders.cluster, tx.unique_key) == "UNKNOWN"
