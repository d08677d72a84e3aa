from __future__ import annotations

import pytest

from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.remoting_probe import RemotingProbe, route_names
from tests.services.rocketmq import marks

SEND_MESSAGE = 10
GET_MAX_OFFSET = 30


def send(port: int, topic: str) -> int:
    fields = {
        "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "",
        "reconsumeTimes": "0", "unitMode": "false",
    }  # fmt: skip
    with RemotingProbe(port) as probe:
        return probe.ask(SEND_MESSAGE, fields, b"body").code


@pytest.mark.parametrize("version", [pytest.param("4.9.7", marks=marks("4.9.7"))])
def test_two_brokers_are_routed_and_one_comes_back_with_its_data(
    new_rocketmq_cluster: ClusterFactory, version: str
) -> None:
    cluster = new_rocketmq_cluster(version, brokers=2)
    port = cluster.name_server.port
    for broker in cluster.brokers.values():
        assert send(broker.port, "T") == 0
    eventually(lambda: route_names(port, "T") == {"broker-1", "broker-2"}, within_seconds=10)
    first = cluster.broker("broker-1")
    first.kill()
    assert not first.running
    first.start()
    with RemotingProbe(first.port) as probe:
        assert probe.ask(GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}).fields["offset"] == "1"
