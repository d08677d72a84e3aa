"""What 5.5.0 alone does: the next offset of each pull goes into consumerOffset.json. No answer of the broker has it."""

from __future__ import annotations

import json
import re

import pytest

from reconciler.announcing.source import PULL_GROUP
from reconciler.evidence.queue_scan import SCAN_GROUP
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.message import Message
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_instance
from tests.services.rocketmq import marks
from tests.services.topics import create_topic, topic_name

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    ("version", "is_written"),
    [pytest.param("5.4.0", False, marks=marks("5.4.0")), pytest.param("5.5.0", True, marks=marks("5.5.0"))],
)
def test_offsets_of_our_pulls_are_told_by_no_broker_before_and_after_a_restart(
    version: str, new_rocketmq_cluster: ClusterFactory, *, is_written: bool
) -> None:
    cluster = new_rocketmq_cluster(version)
    broker = cluster.broker()
    topic = create_topic(broker.port, topic_name("pulled"), queues=1, name_server_port=cluster.name_server.port)
    queue = MessageQueue(topic=topic, broker_name=broker.name, queue_id=0)

    def told() -> tuple[list[int | None], list[str]]:
        with patient_instance(cluster.name_servers) as instance:
            offsets = [instance.offsets.of_group(broker.address, queue, group) for group in (SCAN_GROUP, PULL_GROUP)]
            return offsets, sorted(Admin(instance.client).groups_of_topic(broker.address, topic, asks_each=True))

    with patient_instance(cluster.name_servers) as instance:
        instance.sender("PG").send(Message(topic=topic, body=b"1"), queue=queue)
        for group in (SCAN_GROUP, PULL_GROUP):
            pull(instance.client, broker.address, PullRequest(queue=queue, offset=0, group=group))
    assert told() == ([None, None], [])
    broker.stop()
    text = (broker.folder / "store" / "config" / "consumerOffset.json").read_text()
    kept = json.loads(re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', text))  # fastjson quotes no number
    assert (f"{topic}@{SCAN_GROUP}" in kept.get("pullOffsetTable", {})) is is_written
    assert not [name for name in kept["offsetTable"] if "RECONCILER" in name]
    broker.start()
    assert told() == ([None, None], [])
