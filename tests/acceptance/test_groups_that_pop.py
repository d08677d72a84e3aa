"""The whole daemon and a group that pops: what it holds is left alone, what was lost is repaired once."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.received_message import ReceivedMessage, received
from reconciler.sql.engines import open_engine
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.polling import eventually
from tests.services.patient_instance import patient_instance

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]


class PoppingService:
    """A group as its broker sees it that pops: its offset passes what is in its hands, and no member is connected.

    The embedded broker does not serve POP; a real one does in tests/brokers/test_pop_groups.py.
    """

    def __init__(self, deployed: Deployment, instance: ClientInstance) -> None:
        self._deployed = deployed
        self._instance = instance
        self._masters = instance.routes.masters(deployed.topic)
        self.in_hand: list[ReceivedMessage] = []
        mode = {"topic": deployed.topic, "consumerGroup": deployed.group, "mode": "POP", "popShareQueueNum": 0}
        for address in self._masters.values():
            command = Command(code=RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())
            require_success(instance.client.request(address, command), "SET_MESSAGE_REQUEST_MODE")

    def take(self) -> set[str]:
        """Everything that is there; the keys of all that is in its hands by now."""
        client, offsets, group = self._instance.client, Offsets(self._instance.client), self._deployed.group
        for queue in self._instance.routes.read_queues(self._deployed.topic):
            address = self._masters[queue.broker_name]
            offset = offsets.of_group(address, queue, group) or 0
            page = pull(client, address, PullRequest(queue=queue, offset=offset, group=group))
            self.in_hand += [received(record) for record in page.records]
            offsets.store(address, queue, group, page.records[-1].queue_offset + 1 if page.records else offset)
        return {message.unique_key for message in self.in_hand}

    def apply(self) -> None:
        """The effect of everything in its hands."""
        engine = open_engine(f"sqlite:///{self._deployed.inbox}", lock_timeout_seconds=30, must_exist=True)
        effects = sa.table("effects", sa.column("unique_key"), sa.column("applied_at_ms"))

        @transactional_handler(engine, group=self._deployed.group, topics=self._deployed.topic)
        def handle(message: ReceivedMessage, connection: sa.Connection) -> None:
            connection.execute(sa.insert(effects).values(unique_key=message.unique_key, applied_at_ms=1))

        for message in self.in_hand:
            handle(message)
        engine.dispose()


def test_what_a_group_that_pops_holds_is_not_repaired_and_its_lost_messages_are(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment(subscription='since = "everything"')
    deployed.run("run")
    producer = deployed.producer()
    with patient_instance(deployed.name_servers) as instance:
        service = PoppingService(deployed, instance)
        delivered = set(deployed.commit(3, producer=producer))
        lost = set(deployed.commit(2, lose=True, producer=producer))
        everything = delivered | lost
        eventually(lambda: service.take() == everything, within_seconds=120, message="lost messages are repaired")
        # Held for longer than the grace period: nothing is said of what nothing shows.
        eventually(lambda: deployed.verdicts().keys() >= everything, within_seconds=60)
        eventually(
            lambda: {deployed.verdicts()[key] for key in delivered} == {"UNKNOWN"},
            within_seconds=60,
            message="verdicts",
        )
        status = deployed.command("status", "--output", "json")
        (group,) = status.document["subscriptions"]
        assert "handed out by POP" in group["watermark_detail"]
        service.apply()
    eventually(lambda: set(deployed.verdicts().values()) == {"CONSUMED"}, within_seconds=120, message="all consumed")
    eventually(lambda: deployed.repairs() == dict.fromkeys(lost, "DONE"), within_seconds=60, message="repairs done")
    assert deployed.effects() == sorted(everything)
    assert deployed.copies() == dict.fromkeys(everything, 1), "nothing was sent twice"
