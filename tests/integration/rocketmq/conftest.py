"""Brokers for the client's producers and consumers: embedded ones with short intervals, in this process."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.errors import TransientError
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import MessageQueue, TopicNotFound
from reconciler.rocketmq.consumer.process_queue import CacheLimits
from reconciler.rocketmq.consumer.push_consumer import (
    ConsumeFrom,
    ConsumeStatus,
    PushConsumer,
    PushSettings,
    ReceivedMessage,
)
from reconciler.rocketmq.wire.message import Message
from tests.polling import eventually
from tests.services.patient_instance import patient_instance

NUMBERS = itertools.count(1)


def quick_settings() -> BrokerSettings:
    """Check-backs, retries and long polls within tenths of a second."""
    return BrokerSettings(
        transaction_timeout_seconds=0.2,
        check_interval_seconds=0.2,
        check_max=10_000,  # a client that stands still for seconds is asked again: 15 questions are over within three
        finished_batch_interval_seconds=0.05,
        delay_levels=" ".join(["100ms"] * 18),
        suspend_scan_interval_seconds=0.1,
    )


def unique_name(prefix: str) -> str:
    """A topic or group of one test."""
    return f"{prefix}{next(NUMBERS)}"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=quick_settings()) as embedded:
        yield embedded


@pytest.fixture
def instance(broker: EmbeddedBroker) -> Iterator[ClientInstance]:
    """For sending and asking."""
    with patient_instance(broker.name_servers, heartbeat_interval_seconds=1.0) as made:
        yield made


@pytest.fixture
def topic(broker: EmbeddedBroker, instance: ClientInstance) -> str:
    return new_topic(instance, broker.address)


def new_topic(instance: ClientInstance, address: str, *, queues: int = 4) -> str:
    name = unique_name("Topic")
    Admin(instance.client).create_topic(address, name, queues=queues)
    eventually(lambda: has_queues(instance, name, queues), within_seconds=60)
    return name


def has_queues(instance: ClientInstance, topic: str, count: int) -> bool:
    """Whether the topic is routed with so many queues; the route appears a moment after the topic."""
    try:
        return len(instance.routes.refresh(topic).readable_queues) == count
    except TopicNotFound:
        return False


def send(instance: ClientInstance, topic: str, bodies: Sequence[str]) -> list[str]:
    """Sends ordinary messages, one a body, and returns their unique keys."""
    sender = instance.sender("SENDERS")
    return [sender.send(Message(topic=topic, body=body.encode())).unique_key for body in bodies]


def sent(instance: ClientInstance, topic: str, body: str) -> bool:
    """One try to send to a broker that may be away."""
    try:
        return bool(send(instance, topic, [body]))
    except TransientError:
        return False


def send_to(instance: ClientInstance, queue: MessageQueue, bodies: Sequence[str]) -> None:
    """Sends into one queue, in order."""
    sender = instance.sender("SENDERS")
    for body in bodies:
        sender.send(Message(topic=queue.topic, body=body.encode()), queue=queue)


class Collector:
    """A listener that keeps what it got. `answer` may decide per message."""

    def __init__(self, answer: Callable[[ReceivedMessage], ConsumeStatus | None] | None = None) -> None:
        self._answer = answer or (lambda _message: ConsumeStatus.CONSUME_SUCCESS)
        self._lock = threading.Lock()
        self.messages: list[ReceivedMessage] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeStatus | None:
        with self._lock:
            self.messages.extend(messages)
        return [self._answer(message) for message in messages][-1]

    @property
    def bodies(self) -> list[str]:
        with self._lock:
            return [message.body.decode() for message in self.messages]


class Consumers:
    """Starts consumers with short intervals and stops those that are left."""

    def __init__(self, name_servers: str) -> None:
        self.name_servers = name_servers
        self.stack = contextlib.ExitStack()

    def start(
        self,
        group: str,
        topic: str,
        listener: Callable[[Sequence[ReceivedMessage]], ConsumeStatus | None],
        *,
        expression: str = "*",
        orderly: bool = False,
        consume_from: ConsumeFrom = ConsumeFrom.FIRST,
        threads: int = 4,
        batch_size: int = 1,
        pull_batch_size: int = 32,
        pull_interval_seconds: float = 0.0,
        max_reconsume_times: int = 16,
        limits: CacheLimits | None = None,
        commit_seconds: float = 0.1,
        shutdown_seconds: float = 10.0,
    ) -> PushConsumer:
        settings = PushSettings(
            consume_from=consume_from,
            threads=threads,
            batch_size=batch_size,
            pull_batch_size=pull_batch_size,
            pull_interval_seconds=pull_interval_seconds,
            max_reconsume_times=max_reconsume_times,
            limits=limits or CacheLimits(),
            offset_commit_interval_seconds=commit_seconds,
            rebalance_interval_seconds=1.0,
            orderly_suspend_seconds=0.05,
            local_retry_seconds=0.1,
            suspend_seconds=2.0,
            shutdown_timeout_seconds=shutdown_seconds,
        )
        consumer = PushConsumer(group, name_servers=self.name_servers, settings=settings)
        consumer.subscribe(topic, expression).register_listener(listener, orderly=orderly).start()
        self.stack.callback(consumer.shutdown)
        return consumer


@pytest.fixture
def consumers(broker: EmbeddedBroker) -> Iterator[Consumers]:
    made = Consumers(broker.name_servers)
    with made.stack:
        yield made


def held_queues(consumer: PushConsumer, topic: str) -> list[int]:
    """Queues of the topic that the member holds."""
    return sorted(held.queue.queue_id for held in consumer.assigned() if held.queue.topic == topic)


def stored_offsets(instance: ClientInstance, group: str, topic: str) -> list[int | None]:
    """The group's offset in every queue of the topic, as the broker has it."""
    route = instance.routes.route(topic)
    return [
        instance.offsets.of_group(route.masters[queue.broker_name], queue, group) for queue in route.readable_queues
    ]
