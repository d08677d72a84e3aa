"""What rocketmq-client-python does to a service that uses it as it is: the stand-in has the traps that it guards."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from reconciler.rocketmq.client.native_client import load_library
from tests.native.orders import NAME_SERVERS
from tests.native.stand_in import StandIn


@pytest.fixture
def producer(stand_in: StandIn) -> Any:
    client = load_library(transactions=True).client
    made = client.TransactionMQProducer("naive", lambda _message: client.TransactionStatus.COMMIT)
    made.set_name_server_address(NAME_SERVERS)
    made.start()
    return made


def message(client: Any) -> Any:
    made = client.Message("ORDERS")
    made.set_body("one\0order")
    return made


def crashes(stand_in: StandIn) -> str:
    """What happened, taken note of: the fixture would fail the test for it."""
    found, stand_in.crashes = "; ".join(stand_in.crashes), []
    return found


def test_an_exception_of_the_business_vanishes_and_send_says_ok(
    stand_in: StandIn, producer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = load_library(transactions=True).client
    vanished: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", vanished.append)

    def local(_message: Any, _argument: Any) -> None:
        raise KeyboardInterrupt

    assert producer.send_message_in_transaction(message(client), local).status == client.SendStatus.OK
    assert [each.exc_type for each in vanished] == [KeyboardInterrupt]
    assert len(stand_in.cluster(NAME_SERVERS).ends) == 1  # with whatever lay on the stack


def test_id_in_the_local_transaction_is_undefined(stand_in: StandIn, producer: Any) -> None:
    client = load_library(transactions=True).client

    def local(received: Any, _argument: Any) -> Any:
        return client.TransactionStatus.COMMIT if received.id else client.TransactionStatus.UNKNOWN

    producer.send_message_in_transaction(message(client), local)
    assert "GetMessageId of a message on its way" in crashes(stand_in)


def test_the_first_halves_are_asked_back_by_nobody_and_messages_leak_and_are_cut_off(
    stand_in: StandIn, producer: Any
) -> None:
    client = load_library(transactions=True).client
    sent = producer.send_message_in_transaction(message(client), lambda _m, _a: client.TransactionStatus.UNKNOWN)
    cluster = stand_in.cluster(NAME_SERVERS)
    assert stand_in.check_back(cluster, sent.msg_id) is None
    assert cluster.halves[0][1].body == b"one"
    assert stand_in.live_messages == 1


def test_two_name_servers_share_one_connection(stand_in: StandIn, producer: Any) -> None:
    client = load_library(transactions=True).client
    second = client.TransactionMQProducer("naive-2", lambda _message: client.TransactionStatus.COMMIT)
    second.set_name_server_address("127.0.0.2:9876")
    second.start()
    second.send_message_in_transaction(message(client), lambda _m, _a: client.TransactionStatus.COMMIT)
    assert len(stand_in.cluster(NAME_SERVERS).halves) == 1
    assert stand_in.cluster("127.0.0.2:9876").halves == []


def test_the_wrong_moment_crashes(stand_in: StandIn, producer: Any) -> None:
    client = load_library(transactions=True).client
    message(client).set_property("colour", None)
    producer.shutdown()
    producer.start()
    found = crashes(stand_in)
    assert "abort: SetMessageProperty with NULL" in found
    assert "start of a transaction that is closed" in found
