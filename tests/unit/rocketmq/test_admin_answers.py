from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from reconciler.errors import BrokerRefused, InvalidValue, ProtocolViolation
from reconciler.rocketmq.client.admin import Admin, GroupFilter
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.codes import RequestCode
from tests.unit.rocketmq.scripted import ScriptedCluster

QUEUE = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=2)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        yield made


def _answers(cluster: ScriptedCluster, code: RequestCode, body: bytes) -> Admin:
    cluster.broker.on(code, lambda request: cluster.broker.success(request, body=body))
    return Admin(cluster.client)


def test_a_topic_gets_exactly_the_queues_that_were_asked_for(cluster: ScriptedCluster) -> None:
    admin = _answers(cluster, RequestCode.UPDATE_AND_CREATE_TOPIC, b"")
    admin.create_topic(cluster.broker.address, "Orders", queues=5, attributes="+message.type=TRANSACTION")
    fields = cluster.broker.asked[-1].fields
    assert (fields["readQueueNums"], fields["writeQueueNums"], fields["perm"]) == ("5", "5", "6")
    assert fields["attributes"] == "+message.type=TRANSACTION"
    with pytest.raises(InvalidValue):
        admin.create_topic(cluster.broker.address, "no good", queues=1)


def test_a_refusal_names_the_request(cluster: ScriptedCluster) -> None:
    with pytest.raises(BrokerRefused, match="UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"):
        Admin(cluster.client).create_group(cluster.broker.address, "CG")


def test_configuration_and_runtime_information_become_mappings(cluster: ScriptedCluster) -> None:
    config = b"#Sat\nbrokerName=b1\ntransactionTimeOut = 6000\nnonsense\n"
    admin = _answers(cluster, RequestCode.GET_BROKER_CONFIG, config)
    assert admin.broker_config(cluster.broker.address) == {"brokerName": "b1", "transactionTimeOut": "6000"}
    admin = _answers(cluster, RequestCode.GET_BROKER_RUNTIME_INFO, b'{"table":{"dispatchBehindBytes":"0",1:2}}')
    assert admin.runtime_info(cluster.broker.address) == {"dispatchBehindBytes": "0", "1": "2"}
    admin = _answers(cluster, RequestCode.GET_BROKER_RUNTIME_INFO, b"[]")
    with pytest.raises(ProtocolViolation):
        admin.runtime_info(cluster.broker.address)


def test_nobody_connected_is_an_empty_list_and_no_error(cluster: ScriptedCluster) -> None:
    broker, admin = cluster.broker, Admin(cluster.client)
    broker.on(RequestCode.GET_PRODUCER_CONNECTION_LIST, lambda request: broker.refuse(request, 1, "not exist"))
    broker.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda request: broker.refuse(request, 206, "not online"))
    assert admin.producer_connections(broker.address, "PG") == []
    assert admin.consumer_connections(broker.address, "CG") == []
    broker.on(RequestCode.GET_PRODUCER_CONNECTION_LIST, lambda request: broker.refuse(request, 16, "no permission"))
    with pytest.raises(BrokerRefused):
        admin.producer_connections(broker.address, "PG")


def test_an_error_of_a_broker_is_no_answer_that_nobody_is_connected(cluster: ScriptedCluster) -> None:
    """Brokers up to 5.2 refuse by ACL with code 1, whose remark is an exception."""
    broker, admin = cluster.broker, Admin(cluster.client)
    for code in (RequestCode.GET_PRODUCER_CONNECTION_LIST, RequestCode.GET_CONSUMER_CONNECTION_LIST):
        broker.on(code, lambda request: broker.refuse(request, 1, "org.apache.rocketmq.acl.common.AclException"))
    for ask in (admin.producer_connections, admin.consumer_connections, admin.group_members):
        with pytest.raises(BrokerRefused):
            ask(broker.address, "G")
    with pytest.raises(BrokerRefused):
        admin.group_filter(broker.address, "G", "T")


def test_groups_topics_and_members_are_listed(cluster: ScriptedCluster) -> None:
    address = cluster.broker.address
    body = b'{"subscriptionGroupTable":{"B":{},"A":{}}}'
    assert _answers(cluster, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, body).groups(address) == ["A", "B"]
    body = b'{"topicConfigTable":{"T":{"readQueueNums":3},"U":{}}}'
    assert _answers(cluster, RequestCode.GET_ALL_TOPIC_CONFIG, body).topics(address) == {"T": 3, "U": 0}
    body = b'{"connectionSet":[{"clientId":"c","clientAddr":"a","language":"JAVA","version":1}, 5]}'
    (member,) = _answers(cluster, RequestCode.GET_CONSUMER_CONNECTION_LIST, body).consumer_connections(address, "CG")
    assert (member.client_id, member.client_address, member.language, member.version) == ("c", "a", "JAVA", 1)


def test_the_filter_of_a_group_is_what_its_members_told(cluster: ScriptedCluster) -> None:
    address = cluster.broker.address
    table = {
        "TAGGED": {"subString": "a || b", "expressionType": "TAG"},
        "OLD": {"subString": "a"},
        "ALL": {"subString": "", "expressionType": None},
        "SQL": {"subString": "colour = 'red'", "expressionType": "SQL92"},
        "BROKEN": 5,
    }
    body = json.dumps({"connectionSet": [], "subscriptionTable": table}).encode()
    admin = _answers(cluster, RequestCode.GET_CONSUMER_CONNECTION_LIST, body)
    assert admin.group_filter(address, "CG", "TAGGED") == GroupFilter(kind="TAG", expression="a || b")
    assert admin.group_filter(address, "CG", "OLD") == GroupFilter(kind="TAG", expression="a")
    assert admin.group_filter(address, "CG", "ALL") == GroupFilter(kind="TAG", expression="*")
    assert admin.group_filter(address, "CG", "SQL") == GroupFilter(kind="SQL92", expression="colour = 'red'")
    assert admin.group_filter(address, "CG", "BROKEN") is None
    assert admin.group_filter(address, "CG", "ANOTHER") is None
    assert _answers(cluster, RequestCode.GET_CONSUMER_CONNECTION_LIST, b"{}").group_filter(address, "CG", "T") is None


def test_a_group_without_an_offset_is_told_from_offset_zero(cluster: ScriptedCluster) -> None:
    broker, offsets = cluster.broker, Offsets(cluster.client)
    broker.on(RequestCode.QUERY_CONSUMER_OFFSET, lambda request: broker.refuse(request, 22))
    assert offsets.of_group(broker.address, QUEUE, "CG") is None
    broker.on(RequestCode.QUERY_CONSUMER_OFFSET, lambda request: broker.success(request, {"offset": "0"}))
    assert offsets.of_group(broker.address, QUEUE, "CG") == 0
    broker.on(RequestCode.QUERY_CONSUMER_OFFSET, lambda request: broker.success(request, {"offset": "-1"}))
    assert offsets.of_group(broker.address, QUEUE, "CG") is None
    for fields in ({"offset": "x"}, {}):
        broker.on(RequestCode.GET_MAX_OFFSET, lambda request, fields=fields: broker.success(request, fields))  # type: ignore[misc]  # the default binds the loop's value
        with pytest.raises(ProtocolViolation):
            offsets.maximum(broker.address, QUEUE)


def test_an_offset_is_stored_two_way_or_one_way(cluster: ScriptedCluster) -> None:
    broker, offsets = cluster.broker, Offsets(cluster.client)
    with pytest.raises(BrokerRefused):
        offsets.store(broker.address, QUEUE, "CG", 7)
    broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, broker.success)
    offsets.store(broker.address, QUEUE, "CG", 7)
    assert broker.asked[-1].fields == {"topic": "Orders", "queueId": "2", "consumerGroup": "CG", "commitOffset": "7"}
    offsets.store(broker.address, QUEUE, "CG", 8, is_oneway=True)
    broker.on(RequestCode.GET_MIN_OFFSET, lambda request: broker.success(request, {"offset": "3"}))
    assert offsets.minimum(broker.address, QUEUE) == 3
    one_way = next(request for request in broker.asked if request.fields.get("commitOffset") == "8")
    assert one_way.is_oneway
