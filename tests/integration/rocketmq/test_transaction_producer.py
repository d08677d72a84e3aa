"""Transactional messages against the embedded broker: what is answered, what is asked again, what is never run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import UsageError
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.producer.check_back import CheckBack
from reconciler.rocketmq.producer.ending import EndStatus
from reconciler.rocketmq.producer.transaction_producer import (
    HalfStoredUnsafely,
    LocalTransactionState,
    TransactionListener,
    TransactionMQProducer,
)
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.polling import eventually
from tests.services.patient_instance import patient_client, patient_instance

COMMIT, ROLLBACK, UNKNOWN = LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK, LocalTransactionState.UNKNOWN
State = LocalTransactionState | None


class Listener(TransactionListener):
    """Answers as it is told and keeps what it was asked."""

    def __init__(
        self,
        execute: Callable[[Message], State] = lambda _message: COMMIT,
        check: Callable[[ReceivedMessage], State] = lambda _message: UNKNOWN,
    ) -> None:
        self._execute = execute
        self._check = check
        self.executed: list[tuple[Message, object]] = []
        self.checked: list[ReceivedMessage] = []

    def execute_local_transaction(self, message: Message, arg: object) -> State:
        self.executed.append((message, arg))
        return self._execute(message)

    def check_local_transaction(self, message: ReceivedMessage) -> State:
        self.checked.append(message)
        return self._check(message)


def raising(_message: object) -> State:
    raise ValueError("business failed")


class Ends:
    """A passage that keeps the END requests that leave the client."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def __call__(self, _address: str, command: Command) -> Command:
        if command.code == RequestCode.END_TRANSACTION:
            self.commands.append(command)
        return command


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def watched(broker: EmbeddedBroker, ends: Ends) -> Iterator[ClientInstance]:
    """An instance whose END requests are kept."""
    with patient_client(outgoing=ends) as client, ClientInstance(broker.name_servers, client=client) as made:
        yield made


def bodies(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    return [message.body for message in broker.stored(topic)]


def until_delivered(broker: EmbeddedBroker, topic: str) -> None:
    """Once, or once for each question: a broker asks again while an answer is under way, and obeys both."""
    assert set(eventually(lambda: bodies(broker, topic), within_seconds=60)) == {b"order"}


def message(topic: str, body: str = "order") -> Message:
    return Message(topic=topic, body=body.encode(), tags="paid", keys=("order-1",), properties={"colour": "red"})


@pytest.mark.parametrize(("execute", "reason"), [(lambda _m: None, "answered None"), (raising, "business failed")])
def test_a_listener_that_returns_none_or_raises_leads_to_unknown_with_the_reason(
    execute: Callable[[Message], State], reason: str, watched: ClientInstance, topic: str, ends: Ends
) -> None:
    with TransactionMQProducer("PG", Listener(execute), instance=watched) as producer:
        sent = producer.send_message_in_transaction(message(topic))
    assert (sent.local_state, sent.end_answer.status) == (UNKNOWN, EndStatus.NO_ANSWER)
    (end,) = ends.commands
    assert end.fields["commitOrRollback"] == "0"
    assert reason in (end.remark or "")


@pytest.mark.parametrize("check", [lambda _m: None, raising])
def test_a_checker_that_returns_none_or_raises_decides_nothing(
    check: Callable[[ReceivedMessage], State],
    broker: EmbeddedBroker,
    watched: ClientInstance,
    topic: str,
    ends: Ends,
) -> None:
    with TransactionMQProducer("PG", Listener(lambda _m: UNKNOWN, check), instance=watched) as producer:
        producer.send_message_in_transaction(message(topic))
        eventually(lambda: watched.shared(CheckBack).counts.unknown >= 2, within_seconds=60)
    assert {end.fields["commitOrRollback"] for end in ends.commands} == {"0"}
    assert bodies(broker, topic) == []


def test_a_lost_end_is_healed_by_check_back(broker: EmbeddedBroker, watched: ClientInstance, topic: str) -> None:
    broker.faults.drop_nth_end(1)
    listener = Listener(check=lambda _m: COMMIT)
    with TransactionMQProducer("PG", listener, instance=watched, end_timeout_seconds=0.2) as producer:
        sent = producer.send_message_in_transaction(message(topic))
        assert sent.end_answer.status is EndStatus.NO_ANSWER
        until_delivered(broker, topic)
        eventually(lambda: watched.shared(CheckBack).counts.accepted, within_seconds=60)
    (asked, *_) = listener.checked
    assert (asked.unique_key, asked.topic, asked.body) == (sent.unique_key, topic, b"order")
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize("executed", [COMMIT, UNKNOWN])
def test_a_group_is_asked_again_at_once_after_its_broker_closed_the_connection(
    executed: LocalTransactionState, broker: EmbeddedBroker, topic: str
) -> None:
    """With UNKNOWN the END wants no answer, so nothing but the closed connection tells; heartbeats come every 30 s."""
    broker.faults.close_on_end(1)
    listener = Listener(lambda _m: executed, lambda _m: COMMIT)
    with (
        patient_instance(broker.name_servers) as unhurried,
        TransactionMQProducer("PG", listener, instance=unhurried) as producer,
    ):
        producer.send_message_in_transaction(message(topic))
        until_delivered(broker, topic)
    assert broker.faults.counts["close_on_end"] == 1
    assert listener.checked


def test_a_checker_registered_without_sending_is_asked_at_once(
    broker: EmbeddedBroker, watched: ClientInstance, instance: ClientInstance, topic: str
) -> None:
    """What `reconciler sweep` does for a dead producer group."""
    dead = TransactionMQProducer("PG", Listener(lambda _m: UNKNOWN), instance=watched)
    dead.start()
    half = dead.send_half(message(topic))
    dead.shutdown()
    assert Admin(instance.client).producer_connections(broker.address, "PG") == []
    stand_in = TransactionMQProducer("PG", Listener(check=lambda _m: COMMIT), instance=instance)
    stand_in.start()
    assert stand_in.register_topics(topic) == {broker.address: None}
    assert len(Admin(instance.client).producer_connections(broker.address, "PG")) == 1
    until_delivered(broker, topic)
    assert broker.stored(topic)[0].properties["UNIQ_KEY"] == half.unique_key
    stand_in.shutdown()


def test_a_topic_that_appears_later_is_registered_as_soon_as_it_has_a_route(
    broker: EmbeddedBroker, instance: ClientInstance
) -> None:
    with (
        patient_instance(broker.name_servers) as waiting,
        TransactionMQProducer("PG", Listener(), instance=waiting) as p,
    ):
        assert p.register_topics("LaterTopic") == {}
        Admin(instance.client).create_topic(broker.address, "LaterTopic", queues=1)
        admin = Admin(instance.client)
        eventually(lambda: len(admin.producer_connections(broker.address, "PG")) == 1, within_seconds=60)


@pytest.mark.parametrize("status", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"])
def test_an_unsafe_half_is_rolled_back_and_nothing_is_run(
    status: str, broker: EmbeddedBroker, watched: ClientInstance, topic: str
) -> None:
    broker.faults.answer_flush(status, count=1)
    listener = Listener()
    producer = TransactionMQProducer("PG", listener, instance=watched)
    with producer, pytest.raises(HalfStoredUnsafely, match=status) as caught:
        producer.send_message_in_transaction(message(topic))
    assert caught.value.end_answer.status is EndStatus.DONE
    assert listener.executed == []
    assert bodies(broker, topic) == []


def test_a_delay_level_on_a_transactional_message_is_refused(watched: ClientInstance, topic: str) -> None:
    listener = Listener()
    producer = TransactionMQProducer("PG", listener, instance=watched)
    with producer, pytest.raises(UsageError, match="cannot be delayed"):
        producer.send_message_in_transaction(Message(topic=topic, body=b"x", delay_level=3))
    assert listener.executed == []


def test_a_refused_end_does_not_raise_and_tells(broker: EmbeddedBroker, watched: ClientInstance, topic: str) -> None:
    broker.faults.busy(RequestCode.END_TRANSACTION, count=1)
    with TransactionMQProducer("PG", Listener(), instance=watched) as producer:
        sent = producer.send_message_in_transaction(message(topic))
    assert sent.end_answer.status is EndStatus.REFUSED_FOR_NOW


def test_a_producer_that_is_shut_down_is_no_longer_asked(
    broker: EmbeddedBroker, watched: ClientInstance, instance: ClientInstance, topic: str
) -> None:
    listener = Listener(lambda _m: UNKNOWN, lambda _m: UNKNOWN)
    producer = TransactionMQProducer("PG", listener, instance=watched).start()
    producer.send_message_in_transaction(message(topic))
    eventually(lambda: listener.checked, within_seconds=60)
    producer.shutdown()
    assert Admin(instance.client).producer_connections(broker.address, "PG") == []
    with pytest.raises(UsageError, match="not started"):
        producer.send_half(message(topic))


def test_checks_above_the_queue_are_dropped_counted_and_asked_again(
    broker: EmbeddedBroker, watched: ClientInstance, topic: str
) -> None:
    go_on = threading.Event()

    def slow(_message: ReceivedMessage) -> State:
        go_on.wait(300)
        return COMMIT

    listener = Listener(lambda _m: UNKNOWN, slow)
    with TransactionMQProducer("PG", listener, instance=watched, check_threads_max=1, check_queue=1) as producer:
        for number in range(4):
            producer.send_message_in_transaction(message(topic, f"m{number}"))
        eventually(lambda: watched.shared(CheckBack).counts.dropped >= 2, within_seconds=60)
        go_on.set()
        eventually(lambda: set(bodies(broker, topic)) == {b"m0", b"m1", b"m2", b"m3"}, within_seconds=60)
