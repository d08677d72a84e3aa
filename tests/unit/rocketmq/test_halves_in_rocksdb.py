"""RocketMQ 5.4 can keep halves in a topic of its own, by a setting that no answer shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.policy.evidence import Presence
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import HALF_TOPIC, ROCKSDB_HALF_TOPIC, MQVersion, RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.words import said
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedCluster

V5_4 = MQVersion.V5_3_3 + 2
PROPERTIES = {"REAL_TOPIC": "Orders", "PGROUP": "PG"}


@pytest.mark.parametrize("topic", [HALF_TOPIC, ROCKSDB_HALF_TOPIC])
def test_a_half_in_rocksdb_is_not_called_absent(topic: str) -> None:
    half = record(topic=topic, properties=PROPERTIES)
    with ScriptedCluster(versions=(V5_4,)) as cluster:
        cluster.broker.answers_queries({topic: [half]})
        found = cluster.lookups.view_message("Orders", half.unique_key or "")()
        assert [one.commit_log_offset for one in found.records] == [half.physical_offset]
        assert found.records[0].real_topic == "Orders"
        assert [answer.presence for answer in found.answers] == [Presence.FOUND]  # once a broker
        cluster.broker.answers_queries({})
        assert cluster.lookups.view_message("Orders", half.unique_key or "")().is_absent


@pytest.mark.set_up(
    "RocketMQ 5.4 and 5.5 with halves or its index in RocksDB (transRocksDBEnable, indexFileReadEnable=false)"
)
@pytest.mark.parametrize("silent_about", [HALF_TOPIC, ROCKSDB_HALF_TOPIC])
def test_a_half_is_not_absent_while_one_of_its_two_places_does_not_answer(silent_about: str) -> None:
    with ScriptedCluster(versions=(V5_4,)) as cluster:

        def query(request: Command) -> Command:
            code = 1 if request.fields["topic"] == silent_about else 22
            return cluster.broker.refuse(request, code, "the index is broken")

        cluster.broker.on(RequestCode.QUERY_MESSAGE, query)
        answer = cluster.lookups.view_message("Orders", "KEY")()
        assert answer.is_unknown
        assert "the index is broken" in said(answer.reason)


def test_an_older_broker_is_not_asked_for_halves_in_rocksdb() -> None:
    with ScriptedCluster(versions=(MQVersion.V5_3_3,)) as cluster:
        cluster.broker.answers_queries({})
        assert cluster.lookups.view_message("Orders", "KEY")().is_absent
        asked = [one.fields["topic"] for one in cluster.broker.asked if one.code == RequestCode.QUERY_MESSAGE]
        assert asked == [HALF_TOPIC]


def test_an_open_half_in_rocksdb_which_is_never_put_back_is_not_taken_for_rolled_back() -> None:
    config = b"transactionTimeOut=1000\ntransactionCheckInterval=2000\n"
    with ScriptedCluster(versions=(V5_4,)) as cluster:
        cluster.broker.on(RequestCode.GET_BROKER_CONFIG, lambda request: cluster.broker.success(request, body=config))
        cluster.broker.answers_queries({ROCKSDB_HALF_TOPIC: [record(topic=ROCKSDB_HALF_TOPIC, properties=PROPERTIES)]})
        half = cluster.lookups.view_message("Orders", record().unique_key or "")().records[0]
        with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
            evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
            assert evidence.rollback_evident_after_seconds(replace(half, topic=HALF_TOPIC)) == 5.0
            assert evidence.rollback_evident_after_seconds(half) is None
