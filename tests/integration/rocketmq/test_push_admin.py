"""What an administrator asks of a running consumer through the broker."""

from __future__ import annotations

import json

from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.push_consumer import ConsumeStatus, PushConsumer
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.tolerant_json import parse_object
from tests.integration.rocketmq.conftest import Collector, Consumers, held_queues, send, stored_offsets
from tests.polling import eventually


def ask(
    instance: ClientInstance, broker: EmbeddedBroker, code: RequestCode, consumer: PushConsumer, **fields: str
) -> Command:
    named = {"consumerGroup": consumer.group, "clientId": consumer.instance.client_id, **fields}
    return instance.client.request(broker.address, Command(code=code, fields=named), timeout_seconds=5)


def test_the_running_info_names_the_queues_and_what_is_subscribed(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    consumer = consumers.start("G", topic, Collector(), expression="a || b")
    eventually(lambda: len(held_queues(consumer, topic)) == 4, within_seconds=60)
    answer = ask(instance, broker, RequestCode.GET_CONSUMER_RUNNING_INFO, consumer, jstackEnable="false")
    assert answer.code == 0
    info = parse_object(answer.body)
    properties, subscribed, queues = info["properties"], info["subscriptionSet"], info["mqTable"]
    assert isinstance(properties, dict)
    assert isinstance(subscribed, list)
    assert isinstance(queues, dict)
    assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert [row["subString"] for row in subscribed if isinstance(row, dict) and row["topic"] == topic] == ["a || b"]
    of_topic = [key for key in queues if isinstance(key, tuple) and ("topic", topic) in key]
    assert len(of_topic) == 4


def test_a_message_can_be_consumed_directly_and_the_listener_s_answer_is_told(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    send(instance, topic, ["bad"])
    got = Collector(lambda m: None if m.body == b"bad" else ConsumeStatus.CONSUME_SUCCESS)
    consumer = consumers.start("G", topic, got, max_reconsume_times=0)
    eventually(lambda: len(got.messages) == 1, within_seconds=60)
    answer = ask(
        instance,
        broker,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        consumer,
        msgId=got.messages[0].offset_message_id,
        brokerName="embedded",
    )
    assert answer.code == 0
    assert json.loads(answer.body)["consumeResult"] == "CR_RETURN_NULL"
    assert got.messages[1].body == b"bad"


def test_resetting_offsets_makes_the_consumer_go_back(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    send(instance, topic, ["a", "b", "c", "d"])
    got = Collector()
    consumer = consumers.start("G", topic, got)
    eventually(lambda: stored_offsets(instance, "G", topic) == [1] * 4, within_seconds=60)
    table = ",".join(
        f'{{"brokerName":"embedded","queueId":{queue},"topic":"{topic}"}}:0' for queue in held_queues(consumer, topic)
    )
    request = Command(
        code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        fields={"topic": topic, "group": "G", "timestamp": "0", "isForce": "true"},
        body=f'{{"offsetTable":{{{table}}}}}'.encode(),
    )
    # As the broker does it: one-way, on the consumer's connection.
    consumer.instance._dispatch(broker.address, request)
    eventually(lambda: sorted(got.bodies) == ["a", "a", "b", "b", "c", "c", "d", "d"], within_seconds=60)
    eventually(lambda: stored_offsets(instance, "G", topic) == [1] * 4, within_seconds=60)
    status = Command(
        code=RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields={"topic": topic, "group": "G", "clientAddr": ""}
    )
    told = consumer.instance._dispatch(broker.address, status)
    assert told is not None
    offsets = parse_object(told.body)["messageQueueTable"]
    assert isinstance(offsets, dict)
    assert list(offsets.values()) == [1, 1, 1, 1]


def test_a_request_for_a_group_that_is_not_here_is_answered(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    consumer = consumers.start("G", topic, Collector())
    stray = Command(code=RequestCode.GET_CONSUMER_RUNNING_INFO, fields={"consumerGroup": "OTHER"})
    told = consumer.instance._dispatch(broker.address, stray)
    assert told is not None
    assert told.code == 1
