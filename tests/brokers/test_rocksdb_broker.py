"""RocketMQ from 5.4 on with all that it can keep in RocksDB: what is there is found and can be ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.policy.evidence import Lookup, Presence, StoredMessage
from reconciler.policy.ports.evidence import Horizon
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.sending import SendResult
from reconciler.rocketmq.producer.ending import EndDecision
from reconciler.rocketmq.producer.transaction_producer import (
    LocalTransactionState,
    TransactionListener,
    TransactionMQProducer,
)
from reconciler.rocketmq.wire.codes import PROBE_TOPIC, ROCKSDB_HALF_TOPIC
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import end_half, patient_instance
from tests.services.rocketmq import RocketMQCluster, marks
from tests.services.topics import create_topic, topic_name

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

GROUP = "PG_rocksdb"
NOBODY = "0" * 32

#: Properties of MessageStoreConfig 5.4.0 and 5.5.0; all of them are off as delivered, but for the two of index files.
INDEX = {"indexRocksDBEnable": "true", "indexFileWriteEnable": "false", "indexFileReadEnable": "false"}
HALVES = {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}
QUEUES = {"storeType": "defaultRocksDB"}
SETTINGS = {
    "everything": {**INDEX, **HALVES, **QUEUES},
    "index": INDEX,
    "both indexes": {"indexRocksDBEnable": "true"},
    "halves": HALVES,
}

NIGHTLY = pytest.mark.nightly


class Broker:
    """One broker, the witness that asks it, and a topic."""

    def __init__(self, cluster: RocketMQCluster, instance: ClientInstance) -> None:
        self.cluster = cluster
        self.instance = instance
        self.name = cluster.broker().name
        self.address = cluster.broker().address
        self.evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1.0)
        self.topic = self.create(topic_name("rocksdb"))
        self.create(PROBE_TOPIC)

    def create(self, topic: str) -> str:
        port, name_server = self.cluster.broker().port, self.cluster.name_server.port
        return create_topic(port, topic, queues=1, name_server_port=name_server)

    def half(self) -> SendResult:
        return self.instance.sender(GROUP).send(Message(topic=self.topic, body=b"payment"), is_half=True)

    def commit(self, half: SendResult) -> int | None:
        client, decision = self.instance.client, EndDecision.COMMIT
        return end_half(client, half, decision, address=self.address, group=GROUP, from_transaction_check=True).code

    def horizon(self) -> Horizon:
        """Of a probe that was found."""
        return eventually(
            lambda: horizon if self.name in (horizon := self.evidence.horizon(self.topic)).at_ms else None,
            within_seconds=60,
            message="a probe out of the index",
        )

    def halves(self, key: str) -> Lookup[StoredMessage]:
        return self.evidence.half_copies(self.topic, key, horizon=self.horizon(), not_before_ms=0, outbox=None)()

    def copies(self, key: str) -> Lookup[StoredMessage]:
        return self.evidence.committed_copies(self.topic, key, horizon=self.horizon(), not_before_ms=0)()


def way(version: str, name: str, *more: pytest.MarkDecorator) -> ParameterSet:
    """A release, and one of SETTINGS."""
    return pytest.param((version, SETTINGS[name]), id=f"{version}-{name}", marks=[*marks(version), *more])


@pytest.fixture(
    params=[
        way("5.5.0", "everything"),
        way("5.4.0", "everything", NIGHTLY),
        *(way("5.5.0", name, NIGHTLY) for name in ("index", "both indexes", "halves")),
    ],
)
def broker(request: pytest.FixtureRequest, new_rocketmq_cluster: ClusterFactory) -> Iterator[Broker]:
    version, properties = request.param
    cluster = new_rocketmq_cluster(version, properties=properties)
    with patient_instance(cluster.name_servers) as instance:
        yield Broker(cluster, instance)


def test_what_a_broker_with_rocksdb_has_is_not_called_absent(broker: Broker) -> None:
    delivered, lost = broker.half(), broker.half()
    assert broker.commit(delivered) == 0
    half = broker.halves(lost.unique_key)
    assert half.presence is Presence.FOUND, half.reason
    assert (half.records[0].commit_log_offset, half.records[0].real_topic) == (lost.commit_log_offset, broker.topic)
    copy = broker.copies(delivered.unique_key)
    assert copy.presence is Presence.FOUND, copy.reason
    # Asked in the same way, what is not there is absent: the witness has not just gone blind.
    for nothing in (broker.halves(NOBODY), broker.copies(NOBODY), broker.copies(lost.unique_key)):
        assert nothing.presence is Presence.ABSENT, nothing.reason
    # The half that was found is the one that END needs.
    assert broker.commit(lost) == 0
    eventually(lambda: broker.copies(lost.unique_key).is_found, within_seconds=60)


class Later(TransactionListener):
    """Says nothing until it is asked, and then for the third time."""

    def __init__(self) -> None:
        self.asked = 0

    def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    def check_local_transaction(self, message: ReceivedMessage) -> LocalTransactionState:
        self.asked += 1
        return LocalTransactionState.COMMIT if self.asked > 2 else LocalTransactionState.UNKNOWN


@pytest.mark.parametrize(
    "version",
    [pytest.param(version, marks=[*marks(version), NIGHTLY]) for version in ("5.5.0", "5.4.0")],
)
def test_an_open_half_in_rocksdb_stays_one_copy_and_its_check_is_answered(
    version: str, new_rocketmq_cluster: ClusterFactory
) -> None:
    """Else one that waits would look like one that was rolled back."""
    cluster = new_rocketmq_cluster(version, properties={**HALVES, "transactionCheckMax": "15"})
    with patient_instance(cluster.name_servers) as instance:
        broker, listener = Broker(cluster, instance), Later()
        with TransactionMQProducer(GROUP, listener, instance=instance).start(broker.topic) as producer:
            sent = producer.send_message_in_transaction(Message(topic=broker.topic, body=b"payment"))
            eventually(lambda: listener.asked > 1, within_seconds=60, message="a second check")
            (half,) = broker.halves(sent.unique_key).records
            assert (half.topic, half.check_times) == (ROCKSDB_HALF_TOPIC, None)
            assert broker.evidence.rollback_evident_after_seconds(half) is None
            eventually(lambda: broker.copies(sent.unique_key).is_found, within_seconds=60)
            assert len(broker.halves(sent.unique_key).records) == 1
