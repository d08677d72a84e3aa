from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.policy.evidence import FilterKind
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import MQVersion, RequestCode
from tests.unit.rocketmq.scripted import Handler, ScriptedBroker, ScriptedCluster

OF = Subscription(environment="test", topic="Orders", group="billing")


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        yield made


@pytest.fixture
def instance(cluster: ScriptedCluster) -> Iterator[ClientInstance]:
    with ClientInstance(cluster.name_server.address, client=cluster.client) as made:
        yield made


def subscribes(broker: ScriptedBroker, kind: str, **others: str) -> None:
    kinds = {"Orders": kind} | others
    table = {topic: {"subString": "a", "expressionType": one} for topic, one in kinds.items()}
    body = json.dumps({"subscriptionTable": table}).encode()
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


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize(
    ("told", "kind"), [(("SQL92", "TAG"), FilterKind.SQL92), (("", None), FilterKind.UNKNOWN)], ids=str
)
def test_of_what_two_brokers_say_the_one_counts_that_settles_less(
    told: tuple[str | None, ...], kind: FilterKind, *, is_turned: bool
) -> None:
    """Empty: nobody is connected. None: the broker does not tell."""
    with ScriptedCluster(versions=(479, 479)) as two:
        for broker, said in zip(two.brokers, reversed(told) if is_turned else told, strict=True):
            if said:
                subscribes(broker, said)
            elif said is None:
                broker.close()
            else:
                broker.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, partial(broker.refuse, code=206))
        with ClientInstance(two.name_server.address, client=two.client) as instance:
            assert asked(instance) is kind


@pytest.mark.parametrize(
    ("codes", "is_deserted"),
    [
        ((206, 206), True),
        ((206, 0), False),
        ((0, 206), False),
        ((206, 16), False),
        ((206, 1), False),
        ((206, None), False),
        ((206, "no master"), False),
        (("no master", 206), False),
    ],
)
def test_a_group_is_deserted_only_where_every_broker_says_that_nobody_is_connected(
    codes: tuple[int | str | None, ...], is_deserted: bool
) -> None:
    def connected(broker: ScriptedBroker, code: int | str | None) -> Handler:
        members = {"connectionSet": [{"clientId": "c", "clientAddr": "127.0.0.1:1", "language": "JAVA", "version": 1}]}
        return lambda request: (
            broker.success(request, body=json.dumps(members).encode())
            if code == 0
            else broker.refuse(request, int(code or 0), "said so")
        )

    with ScriptedCluster(versions=(MQVersion.V4_9_8,) * 2) as two:
        for broker, code in zip(two.brokers, codes, strict=True):
            if code == "no master":
                two.name_server.routes[OF.topic][broker.name] = ({1: broker.address}, 1, 1, 6)
                continue
            broker.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, connected(broker, code))
            if code is None:
                broker.close()
        with ClientInstance(two.name_server.address, client=two.client) as instance:
            assert RemotingBrokerEvidence(instance, skew_margin_seconds=1).is_deserted(OF) is is_deserted


def test_it_is_asked_once_for_many_keys(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    subscribes(cluster.broker, "SQL92")
    evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
    assert {evidence.filter_kind(OF) for _ in range(50)} == {FilterKind.SQL92}
    asked_for = [
        command for command in cluster.broker.asked if command.code == RequestCode.GET_CONSUMER_CONNECTION_LIST
    ]
    assert len(asked_for) == 1


@pytest.mark.parametrize("first", ["Orders", "Refunds"])
def test_of_one_group_each_topic_has_a_filter_of_its_own(
    first: str, cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    subscribes(cluster.broker, "TAG", Refunds="SQL92")
    cluster.name_server.routes["Refunds"] = cluster.name_server.routes["Orders"]
    evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
    topics = sorted(["Orders", "Refunds"], key=lambda topic: topic != first)
    kinds = {topic: evidence.filter_kind(replace(OF, topic=topic)) for topic in topics}
    assert kinds == {"Orders": FilterKind.TAG, "Refunds": FilterKind.SQL92}


def test_a_topic_without_a_route_tells_nothing(instance: ClientInstance) -> None:
    other = Subscription(environment="test", topic="NOWHERE", group="billing")
    assert RemotingBrokerEvidence(instance, skew_margin_seconds=1).filter_kind(other) is FilterKind.UNKNOWN
