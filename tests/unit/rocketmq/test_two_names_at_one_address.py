"""A host died, another broker got its address, and name servers still list both: who answers there?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.horizon import PROBE_GROUP, PROBE_NOT_TO_BE_SENT, Probes
from reconciler.evidence.queue_ends import QueueEnd, QueueEnds
from reconciler.policy.evidence import WatermarkState
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import PROBE_TOPIC, RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message_id import encode_offset_message_id
from reconciler.rocketmq.wire.properties import decode_properties
from reconciler.words import said
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedCluster

KEY = record().unique_key or ""


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """broker-a is there and indexes at once; dead-z is said to be at its address, too."""
    with ScriptedCluster() as made:
        broker = made.broker
        probes: list[str] = []

        def send(request: Command) -> Command:
            probes.append(decode_properties(request.fields["i"])["UNIQ_KEY"])
            fields = {"msgId": encode_offset_message_id("127.0.0.1", 1, 0), "queueId": "0", "queueOffset": "0"}
            return broker.success(request, fields)

        def query(request: Command) -> Command:
            if request.fields["topic"] != PROBE_TOPIC or request.fields["key"] not in probes:
                return broker.refuse(request, 22)
            return broker.success(request, body=encode_record(record(topic=PROBE_TOPIC, key=request.fields["key"])))

        broker.on(RequestCode.SEND_MESSAGE_V2, send)
        broker.on(RequestCode.QUERY_MESSAGE, query)
        made.name_server.routes["Orders"]["dead-z"] = ({0: broker.address}, 1, 1, 6)
        yield made


def test_the_index_of_one_broker_does_not_stand_for_that_of_another_with_its_address(cluster: ScriptedCluster) -> None:
    sender = cluster.sender(PROBE_GROUP)
    answers = Probes(cluster.client, cluster.routes, sender, cluster.unique_keys).probe("Orders")
    expected = PROBE_NOT_TO_BE_SENT(why=f"broker-a and dead-z are both said to be at {cluster.broker.address}")
    assert {name: (answer.at_ms, answer.why) for name, answer in answers.items()} == {
        "broker-a": (None, expected),
        "dead-z": (None, expected),
    }
    del cluster.name_server.routes["Orders"]["dead-z"]
    alone = Probes(cluster.client, cluster.routes, sender, cluster.unique_keys).horizon("Orders")
    assert set(alone.at_ms) == {"broker-a"}


def test_what_a_broker_lacks_is_not_absent_at_another_with_its_address(cluster: ScriptedCluster) -> None:
    for lookup in (
        cluster.lookups.committed_copies("Orders", KEY)(),
        cluster.lookups.view_message("Orders", KEY)(),
        cluster.lookups.at_offset("Orders", "dead-z", 1_000, KEY)(),
    ):
        assert lookup.is_unknown
    lookup = cluster.lookups.committed_copies("Orders", KEY)()
    assert "broker-a and dead-z are both said to be at" in said(lookup.reason)
    cluster.broker.on(
        RequestCode.VIEW_MESSAGE_BY_ID,
        lambda request: cluster.broker.refuse(request, 1, "can not find message by the offset, 1000"),
    )
    assert cluster.lookups.at_offset("Orders", "dead-z", 1_000, KEY)().is_unknown
    cluster.broker.answers_queries({"Orders": [record()]})
    assert cluster.lookups.committed_copies("Orders", KEY)().is_found


def _has_queues_up_to_5(cluster: ScriptedCluster) -> None:
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        cluster.broker.on(code, lambda request: cluster.broker.success(request, {"offset": "5"}))


def test_offsets_of_one_broker_are_no_watermark_of_another_with_its_address(cluster: ScriptedCluster) -> None:
    cluster.broker.on(
        RequestCode.QUERY_CONSUMER_OFFSET, lambda request: cluster.broker.success(request, {"offset": "5"})
    )
    _has_queues_up_to_5(cluster)
    with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
        evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
        found = evidence.watermark(Subscription(environment="test", topic="Orders", group="G"))
        assert (found.state, "dead-z" in said(found.detail)) == (WatermarkState.UNKNOWN, True)


def test_ends_of_queues_of_one_broker_are_none_of_another_with_its_address(cluster: ScriptedCluster) -> None:
    """An end that is no further than what was taken would say that no announcement waits."""
    _has_queues_up_to_5(cluster)
    found, silent = QueueEnds(cluster.client, cluster.routes).of_topic("Orders", {"dead-z": [0]})
    doubt = f"broker-a and dead-z are both said to be at {cluster.broker.address}"
    nothing: list[QueueEnd] = []
    assert (found, silent) == (nothing, {"broker-a": doubt, "dead-z": doubt})
    del cluster.name_server.routes["Orders"]["dead-z"]
    found, silent = QueueEnds(cluster.client, cluster.routes).of_topic("Orders", {})
    assert ([(end.queue.broker_name, end.end) for end in found], list(silent)) == ([("broker-a", 5)], ["dead-z"])
