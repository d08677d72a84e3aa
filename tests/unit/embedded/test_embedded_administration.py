"""What administrators and operators ask: forwarding, forbidden groups and topics, slow readers, name server lists."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from reconciler.embedded.broker import Broker
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.errors import ConfigurationError, InvalidValue, UsageError
from tests.embedded_cluster import EmbeddedCluster
from tests.polling import eventually
from tests.unit.embedded.raw_client import TOPIC, RawClient, body_of, consumer_heartbeat, pull_fields

GROUP = "CG_A"


@pytest.mark.parametrize("code", [307, 309])
def test_questions_for_a_consumer_are_passed_on_and_back(code: int) -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as consumer, RawClient(broker.address) as operator:
        sent = consumer.send_message(body=b"content")
        consumer.call(34, json.dumps(consumer_heartbeat("1@1", GROUP)).encode())
        where: dict[str, Any] = {"consumerGroup": GROUP, "clientId": "1@1", "msgId": sent.fields["msgId"]}
        opaque = operator.send(code, where)
        asked = consumer.await_push(code)
        assert not asked.is_oneway
        assert (b"content" in asked.body) is (code == 309)
        consumer.respond(asked, b'{"properties":{}}')
        answer = operator.answer(opaque)
        assert answer is not None
        assert answer.body == b'{"properties":{}}'
        assert operator.call(code, **where | {"clientId": "1@2"}).code == 1


def test_nothing_is_made_by_itself_where_that_is_forbidden() -> None:
    settings = BrokerSettings(auto_create_topic=False, auto_create_group=False)
    with EmbeddedBroker(settings=settings) as broker, RawClient(broker.address) as client:
        assert client.call(105, topic="TBW102").code == 17
        assert client.send_message().code == 17
        topic: dict[str, Any] = {"topic": TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": "false"}
        assert client.call(17, **topic).code == 0
        assert client.send_message().code == 0
        assert client.pull().code == 26
        assert client.call(15, consumerGroup=GROUP, topic=TOPIC, queueId=0, commitOffset=1).code == 26
        assert client.call(36, group=GROUP, offset=0, delayLevel=0, maxReconsumeTimes=1).code == 26
        assert client.call(200, json.dumps({"groupName": GROUP}).encode()).code == 0
        assert client.pull().code == 0
        groups = body_of(client.call(201))["subscriptionGroupTable"]
        assert groups[GROUP]["retryMaxTimes"] == 16
        assert client.call(207, groupName=GROUP).code == 0
        assert client.pull().code == 26


def test_a_broker_and_a_topic_can_be_closed_for_reading() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        client.send_message()
        topic: dict[str, Any] = {"topic": TOPIC, "readQueueNums": 4, "writeQueueNums": 4, "perm": 2, "order": "false"}
        client.call(17, **topic)
        assert client.pull().code == 16
        client.call(17, **topic | {"perm": 6})
        assert client.pull().code == 0
        assert client.call(25, b"brokerPermission=2\n").code == 0
        assert client.pull().code == 16
        assert client.call(25, b"brokerPermission=six\n").code == 1


def test_delay_levels_and_retention_change_while_it_runs() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        client.send_message()
        assert client.call(25, b"# a comment\nmessageDelayLevel=10ms 20ms\nfileReservedTime=1\nunknown=1\n").code == 0
        client.send_message(body=b"soon", DELAY="9")  # above the last level: the last level
        eventually(lambda: b"soon" in [message.body for message in broker.stored(TOPIC)], within_seconds=60)
        assert b"fileReservedTime=1\n" in client.call(26).body
        assert client.call(25, b"messageDelayLevel=soon\n").code == 1


def _is_stuck(client: RawClient, fields: dict[str, str]) -> bool:
    try:
        client.send(11, fields)
    except TimeoutError:
        return True
    return False


def test_a_reader_that_does_not_read_is_not_read_from_either() -> None:
    """Else its unread answers would fill the broker's memory."""
    with EmbeddedBroker() as broker, RawClient(broker.address) as client, RawClient(broker.address) as slow:
        client.send_message(body=b"x" * 250_000)
        fields = {name: str(value) for name, value in pull_fields(TOPIC, 0, 0).items()}
        slow._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        slow._socket.settimeout(0.3)
        assert any(_is_stuck(slow, fields) for _ in range(200_000))
        assert client.send_message().code == 0  # others are served


def test_answers_to_a_burst_of_pulls_do_not_pile_up_in_memory() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client, RawClient(broker.address) as greedy:
        client.send_message(body=b"x" * 250_000)
        fields = {name: str(value) for name, value in pull_fields(TOPIC, 0, 0).items()}
        opaques = [greedy.send(11, fields) for _ in range(500)]  # 125 MB of answers

        async def unsent(inner: Broker) -> int:
            transports = [channel._transport for channel in inner.channels._open]
            return max(transport.get_write_buffer_size() for transport in transports if transport is not None)

        assert max(broker._in_loop(unsent) for _ in range(20)) < 8 * 1024 * 1024
        assert client.send_message().code == 0
        answers = [greedy.answer(opaque) for opaque in opaques]
        assert all(answer is not None and answer.code == 0 for answer in answers)


def test_the_name_server_lists_topics_and_forgets_them() -> None:
    with EmbeddedCluster(("a",)) as cluster, RawClient(cluster.name_servers) as names:
        with RawClient(cluster["a"].address) as client:
            client.send_message()
        eventually(lambda: TOPIC in body_of(names.call(206))["topicList"], within_seconds=60)
        assert TOPIC in body_of(names.call(224, cluster="DefaultCluster"))["topicList"]
        assert names.call(219, namespace="N").code == 22
        names.call(100, namespace="ORDER_TOPIC_CONFIG", key=TOPIC, value="a:4")
        assert body_of(names.call(219, namespace="ORDER_TOPIC_CONFIG"))["table"] == {TOPIC: "a:4"}
        assert body_of(names.call(105, topic=TOPIC))["orderTopicConf"] == "a:4"
        assert names.call(216, topic=TOPIC).code == 0
        assert names.call(105, topic=TOPIC).code == 17
        assert names.call(103, compressed="true", brokerName="x", brokerId=0).code == 1
        with RawClient(cluster["a"].address) as client:
            client.send_message("Another")  # the next registration brings everything back
        eventually(lambda: names.call(105, topic=TOPIC).code == 0, within_seconds=60)


def test_a_taken_port_and_a_bad_address_are_errors_of_configuration() -> None:
    with EmbeddedBroker() as broker:
        with pytest.raises(ConfigurationError, match="cannot listen"):
            EmbeddedBroker(listen=broker.address).start()
        with pytest.raises(UsageError):
            broker.start()
    for listen in ("nowhere", "127.0.0.1:99999", ":1", "127.0.0.1:2"):
        with pytest.raises(InvalidValue):
            EmbeddedBroker(listen=listen).start()
    with pytest.raises(UsageError):
        broker.check_now()
    broker.stop()  # harmless


def test_it_serves_ipv6() -> None:
    with EmbeddedBroker(listen="[::1]:0") as broker:
        assert broker.address.startswith("[::1]:")
        with RawClient(broker.address.replace("[", "").replace("]", "")) as client:
            sent = client.send_message(body=b"six")
            assert len(sent.fields["msgId"]) == 56
            (message,) = broker.stored(TOPIC)
            assert message.sys_flag & 0x30 == 0x30
            assert message.body == b"six"


def test_dropped_connections_take_their_groups_along() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        client.call(34, json.dumps(consumer_heartbeat("1@1", GROUP)).encode())
        broker.drop_connections()
        with pytest.raises((ConnectionError, OSError)):
            client.call(28)
        with RawClient(broker.address) as again:
            eventually(lambda: again.call(38, consumerGroup=GROUP).code == 1, within_seconds=60)
