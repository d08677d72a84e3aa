"""Differences between releases that the recordings do not show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.embedded.families import FAMILIES, family_named
from reconciler.embedded.index import key_hash
from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.frame import Serialization
from tests.embedded_cluster import EmbeddedCluster
from tests.polling import eventually
from tests.unit.embedded.raw_client import HALF_TOPIC, TOPIC, RawClient, body_of, end_fields, send_fields

ALL = list(FAMILIES)


def test_a_binary_request_costs_the_connection_on_3_2_6() -> None:
    with (
        EmbeddedBroker(family="3.2.6") as broker,
        RawClient(broker.address, serialization=Serialization.ROCKETMQ) as client,
        pytest.raises(ConnectionError),
    ):
        client.send_message()


@pytest.mark.parametrize("family", ALL)
def test_end_inside_a_record_is_refused(family: str) -> None:
    with EmbeddedBroker(family=family) as broker, RawClient(broker.address) as client:
        half = client.send_half(UNIQ_KEY="K1")
        inside = client.call(37, **end_fields(half, 8) | {"commitLogOffset": 5})
        assert inside.code == 1
        assert inside.remark is not None
        assert ("IllegalArgumentException" in inside.remark) is (family != "5.x")


@pytest.mark.parametrize("family", ALL)
def test_end_unknown_is_never_answered(family: str) -> None:
    with EmbeddedBroker(family=family) as broker, RawClient(broker.address) as client:
        half = client.send_half(UNIQ_KEY="K1")
        fields = {name: str(value) for name, value in end_fields(half, 0).items()}
        assert client.answer(client.send(37, fields), 0.1) is None
        assert client.end(half).code == 0


@pytest.mark.parametrize(("family", "quoted"), [("3.2.6", False), ("4.4", False), ("4.9", True), ("5.x", True)])
def test_routes_are_standard_json_for_new_clients_of_new_name_servers(family: str, quoted: bool) -> None:
    with EmbeddedBroker(family=family) as broker:
        for version, accepts, expected in ((253, "false", False), (253, "true", quoted), (409, "false", quoted)):
            with RawClient(broker.address, version=version) as client:
                client.send_message()
                body = client.call(105, topic=TOPIC, acceptStandardJsonOnly=accepts).body
                assert (b'{"0":' in body) is expected
                assert b'{0:"' in client.call(106).body


@pytest.mark.parametrize(("family", "before"), [("4.4", 17), ("4.9", 17), ("5.x", 0)])
def test_the_half_topic_is_routed_after_the_first_round_up_to_4_9(family: str, before: int) -> None:
    with EmbeddedBroker(family=family) as broker, RawClient(broker.address) as client:
        assert client.call(105, topic=HALF_TOPIC).code == before
        assert client.pull(HALF_TOPIC).code == (17 if before else 19)
        broker.check_now()
        assert client.call(105, topic=HALF_TOPIC).code == 0


@pytest.mark.parametrize(("family", "code"), [("4.4", 0), ("4.9", 16), ("5.x", 16)])
def test_new_brokers_refuse_sends_to_system_topics(family: str, code: int) -> None:
    with EmbeddedBroker(family=family) as broker, RawClient(broker.address) as client:
        broker.check_now()
        assert client.send_message(HALF_TOPIC).code == code


def test_the_index_finds_collisions_and_cuts_times_to_seconds() -> None:
    assert key_hash(TOPIC, "Aa") == key_hash(TOPIC, "BB")
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        client.send_message(KEYS="Aa other")
        assert [message.properties["KEYS"] for message in client.found(TOPIC, "BB")] == ["Aa other"]
        (stored,) = broker.stored(TOPIC)
        moment = stored.store_timestamp_ms
        assert client.query(TOPIC, "Aa", beginTimestamp=moment - 1000).code == 0
        assert client.query(TOPIC, "Aa", endTimestamp=moment - 1000).code == 22
        assert client.query(TOPIC, "Aa", beginTimestamp=moment + 1000).code == 22


def test_the_index_returns_the_newest_hits_oldest_first() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        for _ in range(70):
            client.send_message(KEYS="same")
        for wanted, expected in ((10, 10), (1000, 64)):
            found = [message.queue_offset for message in client.found(TOPIC, "same", maxNum=wanted)]
            assert found == list(range(70 - expected, 70))
        unique: dict[str, Any] = {"_UNIQUE_KEY_QUERY": "true", "maxNum": 64}
        assert len(client.found(TOPIC, "same", **unique)) == 32


def test_topics_are_made_by_sending_only_where_a_template_allows_it() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        assert client.send_message("Fresh").code == 0
        assert body_of(client.call(105, topic="Fresh"))["queueDatas"][0]["writeQueueNums"] == 4
        reply = client.call(310, b"x", a="P", b="Other", c="NoTemplate", d=4, e=0, f=0, g=0, h=0, i="", j=0)
        assert reply.code == 17
        assert reply.remark is not None
        assert reply.remark.startswith("topic[Other] not exist, apply first please!")
        assert client.send_message("Fresh", queue_id=4).code == 29
        assert client.send_message("spaces are illegal").code == 29
        assert client.send_message("T" * 128).code == 13
        assert client.send_message(body=b"x" * (4 * 1024 * 1024 + 1)).code == 13
        assert client.send_message(LONG="x" * 40_000).code == 13


def test_topics_groups_and_statistics_for_administrators() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        fields: dict[str, Any] = {
            "topic": "Made",
            "readQueueNums": 3,
            "writeQueueNums": 2,
            "perm": 6,
            "defaultTopic": "TBW102",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
            "attributes": "+message.type=TRANSACTION",
        }
        assert client.call(17, **fields).code == 0
        table = body_of(client.call(21))["topicConfigTable"]
        assert table["Made"]["readQueueNums"] == 3
        assert table["Made"]["attributes"] == {"message.type": "TRANSACTION"}
        group = {"groupName": "G", "retryMaxTimes": 2, "retryQueueNums": 1, "consumeEnable": False}
        assert client.call(200, json.dumps(group).encode()).code == 0
        assert client.pull("Made", consumerGroup="G").code == 16
        client.send_message("Made", queue_id=1)
        client.call(200, json.dumps({"groupName": "C"}).encode())
        client.call(15, consumerGroup="C", topic="Made", queueId=1, commitOffset=1)
        stats = body_of(client.call(202, topic="Made"))["offsetTable"]
        (message,) = broker.stored("Made")
        assert sorted((value["maxOffset"], value["lastUpdateTimestamp"]) for value in stats.values()) == [
            (0, 0),
            (1, message.store_timestamp_ms),
        ]
        client.call(15, consumerGroup="D", topic="Other", queueId=0, commitOffset=0)
        assert body_of(client.call(343, group="C"))["topicList"] == ["Made"]
        assert body_of(client.call(300, topic="Made"))["groupList"] == ["C"]
        consumed = body_of(client.call(208, consumerGroup="C"))["offsetTable"]
        assert sorted((value["brokerOffset"], value["consumerOffset"]) for value in consumed.values()) == [
            (0, 0),
            (0, 0),
            (1, 1),
        ]
        entries = body_of(client.call(321, topic="Made", queueId=1, index=0, count=5))
        assert [entry["physicOffset"] for entry in entries["queueData"]] == [0]
        assert body_of(client.call(28))["table"]["brokerVersionDesc"] == "V5_3_3"
        assert client.call(215, topic="Made").code == 0
        assert client.call(105, topic="Made").code == 17
        assert client.call(202, topic="Made").code == 17


def test_the_name_server_keeps_values() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        where: dict[str, Any] = {"namespace": "N", "key": "K"}
        assert client.call(101, **where).code == 22
        assert client.call(100, value="V", **where).code == 0
        assert client.call(101, **where).fields["value"] == "V"
        assert client.call(102, **where).code == 0
        assert client.call(101, **where).code == 22


def test_two_masters_share_a_name_server_and_a_dead_one_leaves_the_routes() -> None:
    with EmbeddedCluster(("a", "b")) as cluster, RawClient(cluster.name_servers) as names:
        for name in ("a", "b"):
            with RawClient(cluster[name].address) as client:
                assert client.send_message(body=name.encode()).code == 0

        def holders() -> list[str]:
            reply = names.call(105, topic=TOPIC)
            return sorted(data["brokerName"] for data in body_of(reply)["brokerDatas"]) if reply.code == 0 else []

        eventually(lambda: holders() == ["a", "b"], within_seconds=60)
        assert names.call(310, b"x").code == 3  # a name server only
        cluster["a"].stop()
        eventually(lambda: holders() == ["b"], within_seconds=60)
        cluster["a"].start()
        with RawClient(cluster["a"].address) as client:
            client.send_message()
        eventually(lambda: holders() == ["a", "b"], within_seconds=60)


def test_the_vip_port_serves_the_same_broker() -> None:
    with EmbeddedBroker() as broker:
        host, port = broker.address.split(":")
        with RawClient(broker.address) as client, RawClient(f"{host}:{int(port) - 2}") as vip:
            client.send_message(body=b"one")
            assert vip.pull().fields["maxOffset"] == "1"


def test_a_name_that_is_no_family_is_refused() -> None:
    assert family_named("5.3.3") is FAMILIES["5.x"]
    with pytest.raises(InvalidValue, match=r"3\.2\.6, 4\.2, 4\.4, 4\.9, 5\.x"):
        family_named("6.0")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x02ab",
        b"\x00\x00\x00\x10\x00\x00\x00\x08not json....",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_garbage_costs_that_connection_only(garbage: bytes) -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as victim, RawClient(broker.address) as other:
        victim.send_bytes(garbage)
        with pytest.raises(ConnectionError):
            victim.raw_answer()
        assert other.send_message().code == 0


def test_malformed_fields_and_bodies_get_an_error() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        assert client.call(11, topic=TOPIC).code == 1
        assert client.call(30, topic=TOPIC, queueId="one").code == 1
        assert client.call(34, b"no json").code == 1
        assert client.call(34, b'{"clientID":1,"producerDataSet":7,"consumerDataSet":[3]}').code == 0
        assert client.call(41, b'{"mqSet":[{"queueId":"x"}]}').code == 1
        assert client.call(323, topic=TOPIC, msgId="zz").code == 1
        assert client.call(310, b"x", **send_fields(TOPIC, 0, 0, {}) | {"f": 2**31}).code == 1
        assert client.call(310, b"x", **send_fields(TOPIC, 0, 0, {"KEYS": "\ud800"})).code == 1
        assert broker.stored(TOPIC) == []
