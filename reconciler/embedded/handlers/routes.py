"""Handlers for requests to the name server (DefaultRequestProcessor, ClientRequestProcessor). The codes are 100-106,
206, 216, 219 and 224."""

from __future__ import annotations

from typing import Any

from reconciler.embedded.channel import Channel
from reconciler.embedded.handlers.client import body_of, json_body
from reconciler.embedded.reply import BadField, Reply, boolean, integer, text
from reconciler.embedded.routes import RegisteredBroker
from reconciler.embedded.services import BrokerServices
from reconciler.embedded.state import TopicConfig
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command

_ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


def route(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_ROUTEINFO_BY_TOPIC in the JSON dialect of the name server's release."""
    topic = text(request, "topic")
    standard = broker.routes.speaks_standard_json(request.version, accepts=boolean(request, "acceptStandardJsonOnly"))
    body = broker.routes.route(topic, standard=standard, order=broker.state.kv.get(_ORDER_NAMESPACE, {}).get(topic))
    if body is None:
        remark = f"No topic route info in name server for the topic: {topic}{broker.family.help_text}"
        return Reply(ResponseCode.TOPIC_NOT_EXIST, remark)
    return Reply(body=body)


def cluster_info(broker: BrokerServices, _channel: Channel, _request: Command) -> Reply:
    """Answers GET_BROKER_CLUSTER_INFO."""
    return Reply(body=broker.routes.cluster_info())


def all_topics(broker: BrokerServices, _channel: Channel, _request: Command) -> Reply:
    """Answers GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
    return Reply(body=json_body({"topicList": broker.routes.topic_names()}))


def topics_of_cluster(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_TOPICS_BY_CLUSTER (224)."""
    cluster = text(request, "cluster")
    names = {
        topic
        for registered in broker.routes.brokers.values()
        if registered.cluster == cluster
        for topic in registered.topics
    }
    return Reply(body=json_body({"topicList": sorted(names)}))


# -- brokers -----------------------------------------------------------------------------------------
def register_broker(broker: BrokerServices, channel: Channel, request: Command) -> Reply:
    """Answers REGISTER_BROKER of another process. The registration ends with the connection."""
    if boolean(request, "compressed"):
        raise BadField("a compressed registration is not understood; set compressedRegister=false")
    name, broker_id = text(request, "brokerName"), integer(request, "brokerId")
    broker.routes.register(
        RegisteredBroker(
            name=name,
            cluster=text(request, "clusterName"),
            topics=_topics_of(body_of(request) if request.body else {}),
            owner=channel,
        ),
        broker_id=broker_id,
        address=text(request, "brokerAddr"),
    )
    return Reply(body=json_body({"table": broker.state.kv.get(_ORDER_NAMESPACE, {})}))


def _topics_of(body: Any) -> dict[str, TopicConfig]:
    wrapper = body.get("topicConfigSerializeWrapper", {})
    table = wrapper.get("topicConfigTable", {}) if isinstance(wrapper, dict) else {}
    topics = {}
    for name, config in (table if isinstance(table, dict) else {}).items():
        if isinstance(name, str) and isinstance(config, dict):
            topics[name] = TopicConfig(
                name=name,
                read_queues=int(config.get("readQueueNums", 16)),
                write_queues=int(config.get("writeQueueNums", 16)),
                permission=int(config.get("perm", 6)),
                flag=int(config.get("topicSysFlag", 0)),
            )
    return topics


def unregister_broker(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers UNREGISTER_BROKER."""
    broker.routes.unregister(text(request, "brokerName"), integer(request, "brokerId"))
    return Reply()


def delete_topic(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers DELETE_TOPIC_IN_NAMESRV."""
    name = text(request, "topic")
    for registered in broker.routes.brokers.values():
        if registered.owner is not None:
            registered.topics = {key: topic for key, topic in registered.topics.items() if key != name}
    return Reply()


# -- key-value configuration -------------------------------------------------------------------------
def put_kv(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers PUT_KV_CONFIG."""
    broker.state.put_kv(text(request, "namespace"), text(request, "key"), text(request, "value"))
    return Reply()


def get_kv(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_KV_CONFIG."""
    namespace, key = text(request, "namespace"), text(request, "key")
    value = broker.state.kv.get(namespace, {}).get(key)
    if value is None:
        return Reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
    return Reply(fields={"value": value})


def delete_kv(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers DELETE_KV_CONFIG."""
    broker.state.put_kv(text(request, "namespace"), text(request, "key"), None)
    return Reply()


def list_kv(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_KVLIST_BY_NAMESPACE (219)."""
    namespace = text(request, "namespace")
    entries = broker.state.kv.get(namespace)
    if entries is None:
        return Reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
    return Reply(body=json_body({"table": entries}))
