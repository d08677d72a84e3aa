"""A person gives the group a message once more, by what the tools of RocketMQ offer: the effect stays one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers import business_id
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.push import TransactionalConsumer
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.integration.consumers.faces import Decorator, pool_of, waits_for
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.patient_instance import patient_instance
from tests.services.topics import create_topic, topic_name
from tests.unit.consumers.messages import KeptRecorder, effect_count, pay, sqlite_url


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


@pytest.fixture
def instance(broker: EmbeddedBroker) -> Iterator[ClientInstance]:
    with patient_instance(broker.name_servers) as opened:
        yield opened


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return create_topic(broker.port, topic_name("ORDERS"), queues=2, name_server_port=broker.port)


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """Every case of this file holds on both faces: the client does not know which one the handler has."""
    return sqlite_url(tmp_path)


def consumed_directly(
    instance: ClientInstance, broker: EmbeddedBroker, consumer: TransactionalConsumer, of: ReceivedMessage
) -> str:
    """The listener's answer to CONSUME_MESSAGE_DIRECTLY (309): what a dashboard's "resend" asks for."""
    fields = {
        "consumerGroup": consumer.group,
        "clientId": consumer.consumer.instance.client_id,
        "msgId": of.offset_message_id,
        "brokerName": broker.broker_name,
    }
    request = Command(code=RequestCode.CONSUME_MESSAGE_DIRECTLY, fields=fields)
    answer = instance.client.request(broker.name_servers, request, timeout_seconds=20)
    return str(json.loads(answer.body)["consumeResult"])


def test_a_dashboard_that_has_a_message_consumed_directly_adds_no_effect(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, engine: sa.Engine, handling: Decorator
) -> None:
    """In the middle of its delivery, and when all is over."""
    seen: list[ConsumedMessage] = []
    begun: list[object] = []
    may_end = threading.Event()

    def handler(received: ConsumedMessage, connection: sa.Connection) -> None:
        seen.append(received)
        pay(received, connection)
        assert len(seen) > 1 or waits_for(may_end)

    recorder = KeptRecorder()
    wrapped = handling(engine, group=topic_name("billing"), topics=topic, recorder=recorder)(handler)
    sa.event.listen(pool_of(wrapped), "checkout", lambda *about: begun.append(about))
    key = instance.sender("order-service").send(Message(topic=topic, body=b"1")).unique_key
    with TransactionalConsumer(wrapped, name_servers=broker.name_servers) as consumer:
        eventually(lambda: seen, within_seconds=60)
        first = seen[0]
        assert isinstance(first, ReceivedMessage)
        answers: list[str] = []
        asking = threading.Thread(
            target=lambda: answers.append(consumed_directly(instance, broker, consumer, first)), name="dashboard"
        )
        asking.start()
        eventually(lambda: len(begun) >= 2, within_seconds=60, message="the dashboard's delivery is on its way, too")
        may_end.set()
        asking.join(60)
        eventually(lambda: effect_count(engine) == 1, within_seconds=60)
        answers.append(consumed_directly(instance, broker, consumer, first))
        assert answers == ["CR_SUCCESS", "CR_SUCCESS"]
        eventually(lambda: len(recorder.recorded) == 3, within_seconds=60)
    assert effect_count(engine, key) == effect_count(engine) == 1


def test_a_copy_under_the_same_key_adds_no_effect(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, engine: sa.Engine, handling: Decorator
) -> None:
    recorder = KeptRecorder()
    wrapped = handling(engine, group=topic_name("billing"), topics=topic, recorder=recorder)(pay)
    sender = instance.sender("order-service")
    key = sender.send(Message(topic=topic, body=b"1", tags="paid")).unique_key
    copies = [sender.send(Message(topic=topic, body=b"1", tags="paid", unique_key=key)).unique_key for _ in range(3)]
    assert copies == [key] * 3
    with TransactionalConsumer(wrapped, name_servers=broker.name_servers):
        eventually(lambda: len(recorder.recorded) == 4, within_seconds=60)
    assert effect_count(engine, key) == effect_count(engine) == 1


@pytest.mark.parametrize("dedupes", [True, False])
def test_a_message_that_is_sent_again_under_a_new_key_has_one_effect_only_with_dedupe_by(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, engine: sa.Engine, dedupes: bool, handling: Decorator
) -> None:
    recorder = KeptRecorder()
    by = business_id if dedupes else None
    group = topic_name("billing")
    wrapped = handling(engine, group=group, topics=topic, recorder=recorder, dedupe_by=by)(pay)
    sender = instance.sender("order-service")
    again = {"BUSINESS_ID": "order-1"}
    keys = {sender.send(Message(topic=topic, body=b"1", properties=again)).unique_key for _ in range(2)}
    assert len(keys) == 2
    with TransactionalConsumer(wrapped, name_servers=broker.name_servers):
        eventually(lambda: {key for _, key in recorder.recorded} == keys, within_seconds=60)
    assert effect_count(engine) == (1 if dedupes else 2)
