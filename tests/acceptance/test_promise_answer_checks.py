"""`reconciler sweep` with answer_checks = true answers the broker for a producer group that is dead as a whole."""

from __future__ import annotations

import pytest

from reconciler.rocketmq.producer.transaction_producer import TransactionMQProducer
from reconciler.rocketmq.wire.message import Message
from tests.acceptance.conftest import DeploymentFactory
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.patient_instance import patient_instance

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.timeout(180)]


def test_halves_of_a_dead_group_are_committed_by_the_sweeper_and_unknown_ones_left_alone(
    new_deployment: DeploymentFactory, embedded_broker: EmbeddedBroker
) -> None:
    embedded_broker.configure({"transactionCheckMax": "100", "transactionCheckInterval": "1000"})
    deployed = new_deployment()
    text = deployed.config.read_text()
    deployed.config.write_text(text.replace("[[producers]]\n", "[[producers]]\nanswer_checks = true\n"))
    producer = deployed.producer()
    lost = deployed.commit(2, lose=True, producer=producer)
    with (
        patient_instance(deployed.name_servers) as instance,
        TransactionMQProducer(deployed.producer_group, None, instance=instance) as another,
    ):
        # The same group, no row: its producer may have died before its commit, or have another outbox.
        unknown = another.send_half(Message(topic=deployed.topic, body=b"no row")).unique_key
    producer.shutdown()

    deployed.consume()
    sweeper = deployed.run("sweep")
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=60)
    eventually(lambda: f"check-back of {unknown}" in sweeper.output, within_seconds=60)
    assert sweeper.end() == 0
    rows = deployed.rows(deployed.outbox, "SELECT unique_key FROM reconciler_outbox")
    assert sorted(rows) == sorted(lost), "a stand-in writes no tombstone"
    assert deployed.effects() == sorted(lost)
