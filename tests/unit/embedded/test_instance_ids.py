"""Topics and groups of hosted RocketMQ carry an instance id before a percent sign: everything is found under it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.push_consumer import PushConsumer
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.polling import eventually

TOPIC, GROUP = "MQ_INST_1_ab%ORDERS", "MQ_INST_1_ab%billing"


@pytest.mark.set_up(
    "a hosted RocketMQ that puts an instance id before the names of groups and topics (MQ_INST_1_ab%ORDERS)"
)
def test_message_of_an_instance_is_sent_back_and_comes_again_from_the_retry_topic_of_java() -> None:
    taken: list[tuple[str, int]] = []

    def listen(messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        taken.extend((message.topic, message.reconsume_times) for message in messages)
        return ConsumeStatus.RECONSUME_LATER if len(taken) == 1 else ConsumeStatus.CONSUME_SUCCESS

    settings = BrokerSettings(delay_levels=" ".join(["10ms"] * 18), auto_create_topic=False)
    with EmbeddedBroker(settings=settings) as broker, ClientInstance(broker.name_servers) as instance:
        Admin(instance.client).create_topic(broker.address, TOPIC, queues=1)
        instance.sender("order-service").send(Message(topic=TOPIC, body=b"x"))
        consumer = PushConsumer(GROUP, name_servers=broker.name_servers, settings=PushSettings(suspend_seconds=1.0))
        consumer.subscribe(TOPIC).register_listener(listen).start()
        try:
            eventually(lambda: len(taken) == 2, within_seconds=20)
        finally:
            consumer.shutdown()
        # NamespaceUtil.wrapNamespace puts the instance id behind the prefix.
        assert f"%RETRY%{GROUP}" in Admin(instance.client).topics(broker.address)
    assert taken == [(TOPIC, 0), (TOPIC, 1)]
