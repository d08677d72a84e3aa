from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.policy.evidence import FilterKind
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import RequestCode
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster

OF = Subscription(environment="test", topic="Orders", group="billing")


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        yield made


@pytest.fixture
def instance(cluster: ScriptedCluster) -> Iterator[ClientInstance]:
    with ClientInstance(cluster.name_server.address, client=cluster.client) as made:
        yield made


def subscribes(broker: ScriptedBroker, kind: str) -> None:
    body = json.dumps({"subscriptionTable": {"Orders": {"subString": "a", "expressionType": kind}}}).encode()
    broker.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda request: broker.success(request, body=body))


def asked(instance: ClientInstance) -> FilterKind:
    return RemotingBrokerEvidence(instance, skew_margin_seconds=1).filter_kind(OF)


def test_how_a_group_filters_is_what_its_members_told_the_brokers(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    broker = cluster.broker
    subscribes(broker, "SQL92")
    assert asked(instance) is FilterKind.SQL92
    subscribes(broker, "TAG")
    assert asked(instance) is FilterKind.TAG
    broker.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda request: broker.refuse(request, 206, "not online"))
    assert asked(instance) is FilterKind.NONE
    broker.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda request: broker.refuse(request, 16, "no permission"))
    assert asked(instance) is FilterKind.UNKNOWN


def test_it_is_asked_once_for_many_keys(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    subscribes(cluster.broker, "SQL92")
    evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
    assert {evidence.filter_kind(OF) for _ in range(50)} == {FilterKind.SQL92}
    asked_for = [
        command for command in cluster.broker.asked if command.code == RequestCode.GET_CONSUMER_CONNECTION_LIST
    ]
    assert len(asked_for) == 1


def test_a_topic_without_a_route_tells_nothing(instance: ClientInstance) -> None:
    other = Subscription(environment="test", topic="NOWHERE", group="billing")
    assert RemotingBrokerEvidence(instance, skew_margin_seconds=1).filter_kind(other) is FilterKind.UNKNOWN
