"""Rights that only some brokers or groups need: doctor and status try them where rounds need them, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.commands.asking.broker_rights import refusals
from reconciler.contract.broker_rights import OF_GROUPS_THAT_POP
from reconciler.contract.subscription import Subscription
from reconciler.embedded.access_control import BrokerUser
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.policy.evidence import WatermarkState
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.codes import ROCKSDB_HALF_TOPIC, MQVersion, RequestCode, ResponseCode, pop_retry_topics
from reconciler.rocketmq.wire.frame import Command
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import broker_evidence
from tests.services.secured_roles import GROUP, SECRET, TOPIC, granted, rights_of, settings_of, user_of
from tests.unit.rocketmq.scripted import ScriptedCluster

V5_4 = MQVersion.V5_3_3 + 2
RETRY_TOPIC, _ = pop_retry_topics(TOPIC, GROUP)
OF = Subscription(environment="test", topic=TOPIC, group=GROUP)
#: As an administrator makes what a cluster with a group that pops has.
ADMIN = BrokerUser(access_key=user_of("topics create"), secret_key=SECRET, is_admin=True)
POP_RIGHTS = [" ".join(one) for right in OF_GROUPS_THAT_POP for one in granted(right, is_acl=False)]


def tried(settings_folder: Path, name_servers: str) -> list[str]:
    """The rights that doctor and status find lacking."""
    with Connections(settings_of("doctor", name_servers, settings_folder)) as connections:
        return [error.right for error in refusals(connections)]


@contextmanager
def a_group_that_pops(*, rights: list[str], folder: Path) -> Iterator[str]:
    """Name servers of a broker on which doctor has these rights besides its own."""
    own = [" ".join(right) for right in rights_of("doctor", is_acl=False)]
    doctor = BrokerUser(access_key=user_of("doctor"), secret_key=SECRET, rights=(*own, *rights))
    settings = BrokerSettings(auto_create_topic=False)
    with EmbeddedBroker(family="5.x", settings=settings, users=[ADMIN, doctor]) as broker:
        with Connections(settings_of("topics create", broker.name_servers, folder)) as connections:
            (address,) = connections.rocketmq.cluster_addresses()
            connections.admin.create_group(address, GROUP)
            for topic in (TOPIC, RETRY_TOPIC, "RECONCILER_UNIQUE_KEY", "RECONCILER_PROBE"):
                connections.admin.create_topic(address, topic, queues=1)
            (name,) = connections.rocketmq.routes.brokers()
            queue = MessageQueue(topic=RETRY_TOPIC, broker_name=name, queue_id=0)
            connections.rocketmq.offsets.store(address, queue, GROUP, 0)
        yield broker.name_servers


def test_what_a_group_that_pops_needs_is_enough_for_its_watermark(tmp_path: Path) -> None:
    with a_group_that_pops(rights=POP_RIGHTS, folder=tmp_path) as name_servers:
        assert not tried(tmp_path, name_servers)
        with Connections(settings_of("doctor", name_servers, tmp_path)) as connections:
            watermark = broker_evidence(connections).watermark(OF)
    assert watermark.state is WatermarkState.REACHED, watermark.detail


@pytest.mark.parametrize("lacking", POP_RIGHTS)
def test_right_on_retries_of_a_group_that_pops_is_told_before_a_key_stays_unknown(lacking: str, tmp_path: Path) -> None:
    rights = [right for right in POP_RIGHTS if right != lacking]
    action, kind, name = lacking.split()
    with a_group_that_pops(rights=rights, folder=tmp_path) as name_servers:
        (right,) = tried(tmp_path, name_servers)
    assert action in right.split(" on ")[0]
    assert right.endswith(f" on {kind} {name}")


@pytest.mark.parametrize(("version", "lacking"), [(V5_4, [f"SUB or GET on topic {ROCKSDB_HALF_TOPIC}"]), (479, [])])
def test_right_on_halves_in_rocksdb_is_tried_where_halves_are_looked_up_there(
    version: int, lacking: list[str], tmp_path: Path
) -> None:
    with ScriptedCluster(versions=(version,), topic=TOPIC) as cluster:

        def query(request: Command) -> Command:
            if request.fields["topic"] != ROCKSDB_HALF_TOPIC:
                return cluster.broker.refuse(request, ResponseCode.QUERY_NOT_FOUND, "can not find message")
            text = (
                f"User:one has no permission to access Topic:{ROCKSDB_HALF_TOPIC} from 127.0.0.1, no matched policies."
            )
            return cluster.broker.refuse(request, ResponseCode.NO_PERMISSION, text)

        cluster.broker.on(RequestCode.QUERY_MESSAGE, query)
        assert tried(tmp_path, cluster.name_server.address) == lacking


@pytest.mark.parametrize(("version", "asked"), [(MQVersion.of_release("4.4.0"), False), (V5_4, True)])
def test_a_broker_before_5_0_is_not_asked_what_it_never_answers(version: int, asked: bool, tmp_path: Path) -> None:
    with ScriptedCluster(versions=(version,), topic=TOPIC) as cluster:
        cluster.broker.on(RequestCode.GET_BROKER_CONFIG, lambda request: cluster.broker.success(request, body=b"a=b"))
        tried(tmp_path, cluster.name_server.address)
        codes = {request.code for request in cluster.broker.asked}
    assert (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER in codes) is asked
