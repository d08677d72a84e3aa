"""TransactionMQProducer on every broker."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import BrokerRefused
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.rocketmq.producer.ending import EndStatus
from reconciler.rocketmq.producer.transaction_producer import (
    LocalTransactionState,
    TransactionListener,
    TransactionMQProducer,
    TransactionsRejected,
)
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.conformance.steps import Steps
from tests.polling import eventually
from tests.unit.policy.fake_broker import FakeBroker

State = LocalTransactionState
Answer = Callable[[], State | None]


class Listener(TransactionListener):
    """Answers as it is told and keeps what it was asked."""

    def __init__(self, local: Answer, check: Answer = lambda: State.COMMIT) -> None:
        self._local = local
        self._check = check
        self._lock = threading.Lock()
        #: Unique key and argument of each message.
        self.executed: list[tuple[str | None, object]] = []
        self.checked: list[ReceivedMessage] = []

    def execute_local_transaction(self, message: Message, arg: object) -> State | None:
        self.executed.append((message.unique_key, arg))
        return self._local()

    def check_local_transaction(self, message: ReceivedMessage) -> State | None:
        with self._lock:
            self.checked.append(message)
        return self._check()


def explode() -> State:
    raise RuntimeError("the local transaction failed")


def producer(steps: Steps, topic: str, listener: Listener) -> TransactionMQProducer:
    made = TransactionMQProducer(f"PG_{topic}", listener, instance=steps.instance)
    return made.start(topic)


def test_commit_is_delivered_with_the_halfs_key(steps: Steps) -> None:
    topic = steps.target.new_topic("tx_commit", queues=1)
    listener = Listener(lambda: State.COMMIT)
    with producer(steps, topic, listener) as sending:
        message = Message(topic=topic, body=b"paid", tags="T", keys=("order-1",), properties={"a": "b"})
        result = sending.send_message_in_transaction(message, "argument")
    assert (result.local_state, result.end_answer.status) == (State.COMMIT, EndStatus.DONE)
    assert listener.executed == [(result.unique_key, "argument")]
    (copy,) = steps.until_delivered(topic, 1)
    assert copy.unique_key == result.unique_key == result.transaction_id
    assert (copy.body, copy.tags, copy.properties["a"]) == (b"paid", "T", "b")
    assert copy.keys == (("order-1",) if steps.expect.indexes_unique_key else (result.unique_key, "order-1"))
    assert copy.prepared_transaction_offset == result.half.commit_log_offset


def test_rollback_is_never_delivered(steps: Steps) -> None:
    topic = steps.target.new_topic("tx_rollback", queues=1)
    with producer(steps, topic, Listener(lambda: State.ROLLBACK)) as sending:
        result = sending.send_message_in_transaction(Message(topic=topic, body=b"not paid"))
    assert (result.local_state, result.end_answer.status) == (State.ROLLBACK, EndStatus.DONE)
    steps.send(topic, b"marker")
    assert [record.body for record in steps.until_delivered(topic, 1)] == [b"marker"]


@pytest.mark.parametrize("local", [explode, lambda: None, lambda: State.UNKNOWN], ids=["raises", "None", "UNKNOWN"])
def test_without_a_clear_answer_check_back_decides(steps: Steps, local: Answer) -> None:
    topic = steps.target.new_topic("tx_check", queues=1)
    listener = Listener(local)
    with producer(steps, topic, listener) as sending:
        result = sending.send_message_in_transaction(Message(topic=topic, body=b"asked back"))
        assert (result.local_state, result.end_answer.status) == (State.UNKNOWN, EndStatus.NO_ANSWER)
        assert steps.delivered(topic) == [] or listener.checked
        if not steps.expect.has_half_topic:  # the broker never asks: the reconciler's case
            assert listener.checked == []
            return
        (copy,) = steps.until_delivered(topic, 1, within_seconds=60)
        assert copy.unique_key == result.unique_key
        asked = listener.checked[0]
        assert (asked.topic, asked.unique_key, asked.body) == (topic, result.unique_key, b"asked back")


def test_check_back_can_roll_back(steps: Steps) -> None:
    topic = steps.target.new_topic("tx_check_rollback", queues=1)
    listener = Listener(lambda: State.UNKNOWN, lambda: State.ROLLBACK)
    with producer(steps, topic, listener) as sending:
        sending.send_message_in_transaction(Message(topic=topic, body=b"not paid"))
        if steps.expect.has_half_topic:
            eventually(lambda: listener.checked, within_seconds=60, message="a check-back")
        steps.send(topic, b"marker")
        assert [record.body for record in steps.until_delivered(topic, 1)] == [b"marker"]


def test_the_group_is_registered_before_its_first_half_and_leaves(steps: Steps) -> None:
    topic = steps.target.new_topic("tx_group")
    group = f"PG_{topic}"
    address = steps.target.broker
    half = FakeBroker(ManualClock(), name=steps.target.broker_name).send_half("K", topic=topic, group=group)
    evidence = RemotingBrokerEvidence(steps.instance, skew_margin_seconds=10.0)
    assert steps.admin.producer_connections(address, group) == []
    assert evidence.producers_of(half).is_connected is False
    with producer(steps, topic, Listener(lambda: State.COMMIT)):
        assert evidence.producers_of(half).is_connected is steps.expect.has_half_topic
        (connection,) = steps.admin.producer_connections(address, group)
        assert connection.client_id == steps.instance.client_id
        assert connection.language == "PYTHON"
    eventually(
        lambda: steps.admin.producer_connections(address, group) == [],
        within_seconds=60,
        message="the group to be gone",
    )


def test_a_broker_that_takes_no_transactions_is_named_as_such(steps: Steps) -> None:
    topic = steps.target.new_topic("tx_rejected")
    listener = Listener(lambda: State.COMMIT)
    steps.configure(rejectTransactionMessage="true")
    try:
        with producer(steps, topic, listener) as sending, pytest.raises(TransactionsRejected) as refused:
            sending.send_message_in_transaction(Message(topic=topic, body=b"half"))
    finally:
        steps.configure(rejectTransactionMessage="false")
    assert isinstance(refused.value, BrokerRefused)
    assert "rejectTransactionMessage=true" in str(refused.value)
    assert listener.executed == []
