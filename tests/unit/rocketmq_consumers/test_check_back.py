"""What the broker asks back is answered from a database: nothing in the message itself may stand in the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zstandard

from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient, RequestHandler
from reconciler.rocketmq.producer import transaction_producer
from reconciler.rocketmq.producer.check_back import CheckBack, CheckCounts, CheckRequest
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState
from reconciler.rocketmq.producer.transaction_producer import TransactionMQProducer
from reconciler.rocketmq.wire.codes import HALF_TOPIC, RequestCode, SystemFlag
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.record import encode_record
from tests.polling import eventually
from tests.unit.rocketmq.missing_packages import without_package
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster

KEY = "7F0000010000000000000000000000AA"
PACKED = zstandard.compress(b"order" * 1_000)


class Client(RemotingClient):
    """Lets a test ask what a broker would."""

    def on_request(self, code: int, handler: RequestHandler) -> None:
        self.ask = handler


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    made.on(RequestCode.END_TRANSACTION, made.success)
    yield made
    made.close()


@pytest.mark.parametrize("body", [PACKED, PACKED[:-8]], ids=["no package for it", "damaged"])
def test_a_half_whose_body_cannot_be_read_here_is_answered(
    body: bytes, client: Client, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    if body is PACKED:
        without_package(monkeypatch, "zstandard")
    asked: list[CheckRequest] = []

    def answer(request: CheckRequest) -> LocalTransactionState:
        asked.append(request)
        return LocalTransactionState.COMMIT

    check_back = ClientInstance("127.0.0.1:9", client=client, clock=client.clock).shared(CheckBack)
    check_back.register("PG", answer)
    half = record(
        topic=HALF_TOPIC,
        body=body,
        properties={"PGROUP": "PG", "REAL_TOPIC": "Orders"},
        system_flag=int(SystemFlag.COMPRESSED | SystemFlag.COMPRESSION_ZSTD),
    )
    fields = {"tranStateTableOffset": "5", "commitLogOffset": "1000"}
    question = Command(code=RequestCode.CHECK_TRANSACTION_STATE, fields=fields, body=encode_record(half))
    client.ask(broker.address, question)
    eventually(lambda: check_back.counts.accepted == 1, within_seconds=60)
    check_back.close()
    assert [end.fields["commitOrRollback"] for end in broker.asked] == ["8"]
    assert [(request.message.unique_key, request.message.body) for request in asked] == [(KEY, body)]
    assert asked[0].body_error
    assert check_back.counts == CheckCounts(
        received=1, accepted=1, not_accepted=0, unknown=0, dropped=0, unmatched=0, unreadable_bodies=1
    )


def test_a_broker_that_joins_the_cluster_later_learns_of_the_group_as_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nobody is ever asked about the halves that it has."""
    monkeypatch.setattr(transaction_producer, "_CLUSTER_SECONDS", 0.0)
    with ScriptedCluster(versions=(479, 479)) as cluster:
        first, later = cluster.brokers
        del cluster.name_server.cluster[later.name]
        with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
            producer = TransactionMQProducer("PG", None, instance=instance).start()
            assert producer.register_everywhere() == {first.address: None}
            cluster.name_server.cluster[later.name] = {0: later.address}
            assert producer.register_everywhere() == {first.address: None, later.address: None}
            producer.shutdown()
