"""A redelivery through %RETRY% carries more properties than the first delivery: its content must still be equal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from checkback_consumers.handler import transactional_handler
from reconciler.rocketmq.client.heartbeat import ConsumeFrom
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.rocketmq.consumer.push_consumer import PushConsumer
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.polling import eventually
from tests.services import rocketmq
from tests.services.fixtures import SharedClusters
from tests.services.patient_instance import patient_instance
from tests.services.topics import create_topic, topic_name
from tests.unit.consumers.messages import effect_count, inbox_engine, pay, sqlite_url

VERSIONS = ("3.2.6", "4.2.0", "4.9.7", "5.3.3")


@pytest.mark.parametrize("version", [pytest.param(version, marks=rocketmq.marks(version)) for version in VERSIONS])
def test_a_redelivery_is_a_duplicate_never_a_collision(
    version: str, shared_clusters: SharedClusters, tmp_path: Path
) -> None:
    cluster = shared_clusters.get(version)
    broker_port = int(cluster.broker().address.rpartition(":")[2])
    name_server_port = int(cluster.name_servers.rpartition(":")[2])
    topic = create_topic(broker_port, topic_name("ORDERS"), queues=2, name_server_port=name_server_port)
    group = topic_name("billing")
    with inbox_engine(sqlite_url(tmp_path)) as engine, patient_instance(cluster.name_servers) as instance:
        wrapped = transactional_handler(engine, group=group, topics=topic)(pay)
        times: list[int] = []

        def loses_its_first_acknowledgement(messages: Sequence[ReceivedMessage]) -> ConsumeStatus | FailedAt:
            status = wrapped.listener(messages)
            times.append(messages[0].reconsume_times)
            return status if messages[0].reconsume_times else ConsumeStatus.RECONSUME_LATER

        message = Message(
            topic=topic, body=b"x" * 10_000, tags="paid", keys=("order-1", "order-2"), properties={"BUSINESS_ID": "1"}
        )
        key = instance.sender("order-service").send(message).unique_key
        consumer = PushConsumer(
            group, name_servers=cluster.name_servers, settings=PushSettings(consume_from=ConsumeFrom.FIRST)
        )
        consumer.subscribe(topic).register_listener(loses_its_first_acknowledgement)
        with consumer:
            eventually(lambda: wrapped.counts.duplicates, within_seconds=90)
        assert (wrapped.counts.applied, wrapped.counts.duplicates, wrapped.counts.collisions) == (1, 1, 0)
        assert sorted(times) == [0, 1]
        assert effect_count(engine, key) == 1
