"""What brokers show of a group's consume mode: signs of POP, a connected member, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.subscription import Subscription
from reconciler.evidence.broker_configs import BrokerConfigs
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.pop_groups import POPPED_SECONDS, PopGroups
from reconciler.policy.evidence import ConsumeMode
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import MQVersion, RequestCode, pop_retry_topics
from reconciler.rocketmq.wire.frame import Command
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster

OF = Subscription(environment="test", topic="Orders", group="billing")
V1, V2 = pop_retry_topics("Orders", "billing")


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster(versions=(MQVersion.V5_3_3, MQVersion.V5_3_3)) as made:
        for broker in made.brokers:
            shows(broker)
        yield made


@pytest.fixture
def instance(cluster: ScriptedCluster) -> Iterator[ClientInstance]:
    with ClientInstance(cluster.name_server.address, client=cluster.client) as made:
        yield made


#: A stock Java client that speaks remoting, of the brokers' own release.
STOCK = {"clientId": "10.0.0.1@4711#99", "version": int(MQVersion.V5_3_3)}


def shows(
    broker: ScriptedBroker, *, kind: str | None = "CONSUME_PASSIVELY",
    members: Sequence[Mapping[str, object]] = (STOCK,),
    topics: Sequence[str] = ("Orders",), modes: Sequence[tuple[str, str, str]] = (),
    subscribes: Sequence[str] = ("Orders", "%RETRY%billing"), config: str = "brokerName=broker",
) -> None:  # fmt: skip
    """A broker with members (kind None: without), offsets in topics, request modes by (topic, group, mode), and topics
    that the group subscribes to."""
    connected = json.dumps({"connectionSet": list(members), "consumeType": kind}).encode()
    table: dict[str, dict[str, dict[str, str]]] = {}
    for topic, group, mode in modes:
        table.setdefault(topic, {})[group] = {"mode": mode}
    broker.on(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        lambda request: broker.refuse(request, 206) if kind is None else broker.success(request, body=connected),
    )
    broker.on(RequestCode.GET_BROKER_CONFIG, lambda request: broker.success(request, body=config.encode()))

    def subscription(request: Command) -> Command:
        known = b',"subscriptionData":{}' if request.fields["topic"] in subscribes else b""
        return broker.success(request, body=b'{"group":"billing"' + known + b"}")

    broker.on(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, subscription)
    answers = {
        RequestCode.QUERY_TOPICS_BY_CONSUMER: {"topicList": list(topics)},
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: {"messageRequestModeMap": table},
    }
    for code, answer in answers.items():
        body = json.dumps(answer).encode()
        broker.on(code, lambda request, body=body: broker.success(request, body=body))  # type: ignore[misc]


def asked(instance: ClientInstance) -> ConsumeMode:
    return RemotingBrokerEvidence(instance, skew_margin_seconds=1).consume_mode(OF)


def test_a_group_with_members_and_no_sign_of_pop_pulls(instance: ClientInstance) -> None:
    assert asked(instance) is ConsumeMode.PULL


@pytest.mark.parametrize(
    "sign",
    [
        {"kind": "CONSUME_POP"},
        {"topics": ("Orders", V1)},
        {"topics": (V2,), "kind": None},
        {"modes": [("Orders", "billing", "POP")]},
        {"config": "defaultMessageRequestMode=POP"},
        {"subscribes": ("Orders", V1)},
        {"subscribes": (V2,), "kind": None, "config": "enableRetryTopicV2=true"},
    ],
    ids=[
        "a member",
        "retry topic",
        "retry topic V2",
        "request mode",
        "default mode",
        "it popped before",
        "it popped, V2, by a proxy",
    ],
)
def test_one_sign_on_one_broker_is_enough(
    cluster: ScriptedCluster, instance: ClientInstance, sign: dict[str, object]
) -> None:
    shows(cluster.brokers[1], **sign)  # type: ignore[arg-type]
    assert asked(instance) is ConsumeMode.POP


@pytest.mark.parametrize(
    ("modes", "default"),
    [
        ([("Orders", "billing", "PULL")], "POP"),
        ([("Orders", "shipping", "POP")], "PULL"),
        ([("Others", "billing", "POP")], "PULL"),
    ],
)
def test_modes_of_others_are_no_sign(
    cluster: ScriptedCluster, instance: ClientInstance, modes: list[tuple[str, str, str]], default: str
) -> None:
    config = f"defaultMessageRequestMode={default}"
    shows(cluster.brokers[0], modes=modes, topics=("Orders", "%RETRY%billing", "%RETRY%billing_Other"), config=config)
    assert asked(instance) is ConsumeMode.PULL


@pytest.mark.set_up(
    "a group on 5.x without a connected member (stopped, or connected to the remoting port of a proxy in cluster mode)"
)
def test_a_group_without_a_member_on_one_broker_may_pop_by_a_proxy(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    shows(cluster.brokers[1], kind=None)
    assert asked(instance) is ConsumeMode.UNKNOWN


@pytest.mark.parametrize(
    ("client_id", "version", "mode"),
    [
        ("10.0.0.1@4711#99", MQVersion.V5_3_3, ConsumeMode.PULL),
        ("[fe80::1%eth0]@4711#99@unit", MQVersion.V5_3_3, ConsumeMode.PULL),
        ("a-name-of-ones-own", MQVersion.V4_9_8, ConsumeMode.PULL),
        ("vm@15773@0@9cinj682", MQVersion.V5_3_3, ConsumeMode.UNKNOWN),
        ("10.0.0.1@15773@0@9cinj682", MQVersion.V5_3_3, ConsumeMode.UNKNOWN),
        ("vm@15773#1_99", MQVersion.V5_0_0, ConsumeMode.UNKNOWN),
    ],
    ids=["Java", "Java with a unit", "older than gRPC", "gRPC", "gRPC without a host name", "gRPC for C++"],
)
def test_a_grpc_consumer_of_a_proxy_in_the_broker_itself_is_no_member_that_pulls(
    cluster: ScriptedCluster, instance: ClientInstance, client_id: str, version: int, mode: ConsumeMode
) -> None:
    """It says CONSUME_ACTIVELY, as pull consumers do, and pops."""
    newest = {"clientId": client_id, "version": int(version)}
    shows(cluster.brokers[1], kind="CONSUME_ACTIVELY", members=(STOCK, newest))
    assert asked(instance) is mode


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    ],
)
def test_a_broker_that_refuses_one_question_shows_nothing(
    cluster: ScriptedCluster, instance: ClientInstance, code: RequestCode
) -> None:
    broker = cluster.brokers[1]
    broker.on(code, lambda request: broker.refuse(request, 16, "no permission"))
    assert asked(instance) is ConsumeMode.UNKNOWN


def test_a_sign_counts_although_another_question_is_refused(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    broker = cluster.brokers[1]
    shows(broker, topics=(V1,))
    broker.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda request: broker.refuse(request, 16, "no permission"))
    assert asked(instance) is ConsumeMode.POP


def test_brokers_before_5_0_are_asked_nothing() -> None:
    with ScriptedCluster(versions=(MQVersion.V4_9_8,)) as cluster:
        with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
            assert asked(instance) is ConsumeMode.PULL
        assert {command.code for command in cluster.broker.asked} <= {RequestCode.HEART_BEAT}


def test_a_topic_without_a_route_shows_nothing(instance: ClientInstance) -> None:
    nowhere = Subscription(environment="test", topic="NOWHERE", group="billing")
    assert RemotingBrokerEvidence(instance, skew_margin_seconds=1).consume_mode(nowhere) is ConsumeMode.UNKNOWN


def test_it_is_asked_once_for_many_keys(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
    assert {evidence.consume_mode(OF) for _ in range(50)} == {ConsumeMode.PULL}
    codes = [command.code for command in cluster.broker.asked]
    assert codes.count(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE) == 1


def with_clock(instance: ClientInstance, clock: ManualClock) -> PopGroups:
    admin = Admin(instance.client)
    return PopGroups(admin, instance.routes, instance.families, BrokerConfigs(admin, clock=clock), clock=clock)


def test_a_group_that_moved_to_members_that_pull_pops_while_what_it_was_handed_may_be_invisible(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    """Else the message would be called acknowledged without an effect, and one that was repaired be sent again."""
    clock = ManualClock()
    groups = with_clock(instance, clock)
    shows(cluster.brokers[1], subscribes=("Orders", V1))
    assert groups.signs(OF).consume_mode is ConsumeMode.POP
    shows(cluster.brokers[1])
    clock.advance(POPPED_SECONDS - 1)
    assert groups.signs(OF).consume_mode is ConsumeMode.POP
    clock.advance(6)
    assert groups.signs(OF).consume_mode is ConsumeMode.PULL


@pytest.mark.parametrize("other", [replace(OF, group="shipping"), replace(OF, topic="Refunds")], ids=str)
def test_a_sign_of_another_group_or_topic_is_not_remembered_for_this_one(
    cluster: ScriptedCluster, instance: ClientInstance, other: Subscription
) -> None:
    clock = ManualClock()
    groups = with_clock(instance, clock)
    cluster.name_server.routes["Refunds"] = cluster.name_server.routes["Orders"]
    shows(cluster.brokers[1], modes=[(other.topic, other.group, "POP")])
    assert groups.signs(other).consume_mode is ConsumeMode.POP
    assert groups.signs(OF).consume_mode is ConsumeMode.PULL
