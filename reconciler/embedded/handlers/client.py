"""Handlers for heartbeats, group membership and queue locks (ClientManageProcessor). The codes are 34, 35, 38, 41, 42,
46, 203, 204 and 345."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reconciler.embedded.channel import Channel
from reconciler.embedded.consumers import Member, SubscriptionData, subscription_from_heartbeat
from reconciler.embedded.reply import BadField, Reply, text, unsupported
from reconciler.embedded.services import BrokerServices
from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.tolerant_json import parse_object


def body_of(request: Command) -> Mapping[Any, Any]:
    """Parses the JSON object in a request's body. Raises BadField if the body is no JSON object."""
    try:
        return parse_object(request.body)
    except ProtocolViolation as error:
        raise BadField(str(error)) from error


def json_body(value: object) -> bytes:
    """Encodes a body in the form that fastjson writes."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def heartbeat(broker: BrokerServices, channel: Channel, request: Command) -> Reply:
    """Registers the client's groups. Makes missing consumer groups and their retry topics."""
    body = body_of(request)
    client_id = str(body.get("clientID", ""))
    for producer in _objects(body.get("producerDataSet")):
        group = str(producer.get("groupName", ""))
        if broker.faults.is_dead(group):
            continue
        broker.clients.register_producer(group, channel, _member(client_id, request))
    for consumer in _objects(body.get("consumerDataSet")):
        name = str(consumer.get("groupName", ""))
        group_config = broker.state.group(name)
        if group_config is not None and group_config.retry_queues > 0:
            broker.state.ensure_topic(RETRY_TOPIC_PREFIX + name, queues=group_config.retry_queues)
        broker.clients.register_consumer(
            name,
            channel,
            _member(client_id, request),
            data=consumer,
            subscriptions=None if body.get("withoutSub") is True else _subscriptions(consumer),
        )
    if broker.family.heartbeat_flags:
        return Reply(fields={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})
    return Reply()


def _subscriptions(consumer: Mapping[str, Any]) -> list[SubscriptionData]:
    return [subscription_from_heartbeat(entry) for entry in _objects(consumer.get("subscriptionDataSet"))]


def _member(client_id: str, request: Command) -> Member:
    return Member(client_id, request.language, request.version, 0.0)


def unregister(broker: BrokerServices, channel: Channel, request: Command) -> Reply:
    """Answers UNREGISTER_CLIENT."""
    broker.clients.unregister(
        channel,
        producer_group=request.fields.get("producerGroup"),
        consumer_group=request.fields.get("consumerGroup"),
    )
    return Reply()


def consumer_list(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_CONSUMER_LIST_BY_GROUP."""
    name = text(request, "consumerGroup")
    group = broker.clients.consumers.get(name)
    if group is None or not group.members:
        return Reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
    return Reply(body=json_body({"consumerIdList": group.client_ids()}))


def check_client_config(_broker: BrokerServices, _channel: Channel, _request: Command) -> Reply:
    """Answers CHECK_CLIENT_CONFIG, which Java clients ask before they subscribe by SQL92. TAG needs no check."""
    return Reply()


# -- locks -------------------------------------------------------------------------------------------
def _queues(body: Mapping[Any, Any]) -> list[tuple[str, str, int]]:
    queues = []
    for queue in _objects(body.get("mqSet")):
        queue_id = queue.get("queueId", 0)
        if not isinstance(queue_id, int):
            raise BadField("queueId is no number")
        queues.append((str(queue.get("topic", "")), str(queue.get("brokerName", "")), queue_id))
    return queues


def lock_queues(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers LOCK_BATCH_MQ with the queues that the client now holds."""
    body = body_of(request)
    group, client_id = str(body.get("consumerGroup", "")), str(body.get("clientId", ""))
    held = [queue for queue in _queues(body) if broker.locks.lock(group, client_id, queue)]
    answer = [{"topic": topic, "brokerName": name, "queueId": queue_id} for topic, name, queue_id in held]
    return Reply(body=json_body({"lockOKMQSet": answer}))


def unlock_queues(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers UNLOCK_BATCH_MQ."""
    body = body_of(request)
    for queue in _queues(body):
        broker.locks.unlock(str(body.get("consumerGroup", "")), str(body.get("clientId", "")), queue)
    return Reply()


# -- connected clients -------------------------------------------------------------------------------
def _connections(members: Mapping[Any, Member]) -> list[dict[str, object]]:
    return [
        {
            "clientAddr": channel.peer,
            "clientId": member.client_id,
            "language": member.language,
            "version": member.version,
        }
        for channel, member in members.items()
    ]


def producer_connections(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_PRODUCER_CONNECTION_LIST, which shows whether check-back can work at all."""
    name = text(request, "producerGroup")
    members = broker.clients.producers.get(name)
    if not members:
        return Reply(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    return Reply(body=json_body({"connectionSet": _connections(members)}))


def consumer_connections(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_CONSUMER_CONNECTION_LIST."""
    name = text(request, "consumerGroup")
    group = broker.clients.consumers.get(name)
    if group is None or not group.members:
        return Reply(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    body = {
        "connectionSet": _connections(group.members),
        "consumeFromWhere": group.consume_from,
        "consumeType": group.consume_type,
        "messageModel": group.message_model,
        "subscriptionTable": {topic: dict(subscription.raw) for topic, subscription in group.subscriptions.items()},
    }
    return Reply(body=json_body(body))


def subscription_of_group(broker: BrokerServices, _channel: Channel, request: Command) -> Reply | None:
    """Answers QUERY_SUBSCRIPTION_BY_CONSUMER of 5.0 and newer with the subscriptions of members. On this broker,
    requests without heartbeats add no subscription."""
    if not broker.family.has_pop:
        return unsupported(request, broker.family)
    name, topic = text(request, "group"), text(request, "topic", "")
    group = broker.clients.consumers.get(name)
    subscription = group.subscriptions.get(topic) if group is not None else None
    body: dict[str, object] = {"group": name, "topic": topic}
    if subscription is not None:
        body["subscriptionData"] = dict(subscription.raw)
    return Reply(body=json_body(body))
