"""Handlers for topics, groups, settings and statistics (AdminBrokerProcessor). The codes are 17, 21, 25, 26, 28,
200-202, 207, 208, 215, 300 and 343.

The codes 401 and 402 are for request modes (QueryAssignmentProcessor, AdminBrokerProcessor; 5.0 and newer). This broker
does not serve POP itself.
"""

from __future__ import annotations

import json
from typing import Any

from reconciler.embedded.channel import Channel
from reconciler.embedded.handlers.client import body_of, json_body
from reconciler.embedded.reply import BadField, Reply, boolean, integer, text, unsupported
from reconciler.embedded.services import BrokerServices
from reconciler.embedded.state import GroupConfig, TopicConfig
from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX, SCHEDULE_TOPIC, ResponseCode
from reconciler.rocketmq.wire.frame import Command

_MOST_QUEUES = 65_536
FAULT_PREFIX = "fault."


# -- topics and groups -------------------------------------------------------------------------------
def create_topic(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers UPDATE_AND_CREATE_TOPIC."""
    name = text(request, "topic")
    read, write = integer(request, "readQueueNums"), integer(request, "writeQueueNums")
    if not name or not (0 <= read <= _MOST_QUEUES and 0 <= write <= _MOST_QUEUES):
        return Reply(ResponseCode.SYSTEM_ERROR, f"topic[{name}] with {read}/{write} queues is illegal")
    attributes = {}
    for entry in request.fields.get("attributes", "").split(","):
        key, separator, value = entry.partition("=")
        if separator:
            attributes[key.lstrip("+")] = value
    broker.state.put_topic(
        TopicConfig(
            name=name,
            read_queues=read,
            write_queues=write,
            permission=integer(request, "perm"),
            flag=integer(request, "topicSysFlag", 0),
            order=boolean(request, "order"),
            attributes=attributes,
        )
    )
    return Reply()


def delete_topic(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers DELETE_TOPIC_IN_BROKER."""
    name = text(request, "topic")
    broker.state.delete_topic(name)
    broker.store.queues.drop_topic(name)
    return Reply()


def topic_json(topic: TopicConfig) -> dict[str, Any]:
    """Makes the JSON object that brokers write for a topic (TopicConfig)."""
    return {
        "attributes": topic.attributes,
        "order": topic.order,
        "perm": topic.permission,
        "readQueueNums": topic.read_queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic.name,
        "topicSysFlag": topic.flag,
        "writeQueueNums": topic.write_queues,
    }


def topics_json(broker: BrokerServices) -> dict[str, Any]:
    """Makes the JSON object that brokers write for all topics (TopicConfigSerializeWrapper)."""
    return {
        "dataVersion": {"counter": broker.state.topics_version, "timestamp": broker.started_ms},
        "topicConfigTable": {name: topic_json(topic) for name, topic in broker.state.topics.items()},
    }


def all_topics(broker: BrokerServices, _channel: Channel, _request: Command) -> Reply:
    """Answers GET_ALL_TOPIC_CONFIG."""
    return Reply(body=json_body(topics_json(broker)))


def create_group(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    body = body_of(request)
    name = body.get("groupName")
    if not isinstance(name, str) or not name:
        raise BadField("groupName is missing")
    retry_queues, maximum = body.get("retryQueueNums", 1), body.get("retryMaxTimes", 16)
    if not isinstance(retry_queues, int) or not isinstance(maximum, int):
        raise BadField("retryQueueNums and retryMaxTimes must be numbers")
    broker.state.put_group(
        GroupConfig(
            name=name,
            consume_enabled=bool(body.get("consumeEnable", True)),
            broadcast_enabled=bool(body.get("consumeBroadcastEnable", True)),
            retry_queues=retry_queues,
            retry_max_times=maximum,
            raw={str(key): value for key, value in body.items()},
        )
    )
    return Reply()


def _group_json(group: GroupConfig) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "brokerId": 0,
        "consumeFromMinEnable": True,
        "notifyConsumerIdsChangedEnable": True,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    return {
        **defaults,
        **group.raw,
        "consumeBroadcastEnable": group.broadcast_enabled,
        "consumeEnable": group.consume_enabled,
        "groupName": group.name,
        "retryMaxTimes": group.retry_max_times,
        "retryQueueNums": group.retry_queues,
    }


def all_groups(broker: BrokerServices, _channel: Channel, _request: Command) -> Reply:
    """Answers GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
    table = {name: _group_json(group) for name, group in broker.state.groups.items()}
    version = {"counter": len(table), "timestamp": broker.started_ms}
    return Reply(body=json_body({"dataVersion": version, "subscriptionGroupTable": table}))


def groups_of_topic(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers QUERY_TOPIC_CONSUME_BY_WHO. The answer names groups with an offset in the topic
    (ConsumerOffsetManager.whichGroupByTopic). It also names groups with a connected member that subscribes to the
    topic, even broadcasting groups (ConsumerManager.queryTopicConsumeByWho)."""
    topic = text(request, "topic")
    connected = (name for name, group in broker.clients.consumers.items() if topic in group.subscriptions)
    return Reply(body=json_body({"groupList": sorted({*broker.state.groups_of_topic(topic), *connected})}))


def topics_of_group(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers QUERY_TOPICS_BY_CONSUMER with the topics that have an offset of the group
    (ConsumerOffsetManager.whichTopicByConsumer)."""
    return Reply(body=json_body({"topicList": broker.state.topics_of_group(text(request, "group"))}))


def set_request_mode(broker: BrokerServices, _channel: Channel, request: Command) -> Reply | None:
    """Answers SET_MESSAGE_REQUEST_MODE."""
    if not broker.family.has_pop:
        return unsupported(request, broker.family)
    body = body_of(request)
    topic, group = body.get("topic"), body.get("consumerGroup")
    if not isinstance(topic, str) or not isinstance(group, str):
        raise BadField("topic or consumerGroup is missing")
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return Reply(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
    broker.state.put_request_mode(topic, group, {str(key): value for key, value in body.items()})
    return Reply()


def request_modes(broker: BrokerServices, _channel: Channel, request: Command) -> Reply | None:
    """Answers GET_ALL_MESSAGE_REQUEST_MODE."""
    if not broker.family.has_pop:
        return unsupported(request, broker.family)
    return Reply(body=json_body({"messageRequestModeMap": broker.state.request_modes}))


def delete_group(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers DELETE_SUBSCRIPTIONGROUP."""
    broker.state.delete_group(text(request, "groupName"))
    return Reply()


# -- settings ----------------------------------------------------------------------------------------
def get_config(broker: BrokerServices, _channel: Channel, _request: Command) -> Reply:
    """Answers GET_BROKER_CONFIG with a java.util.Properties text."""
    properties = broker.settings.as_properties() | {
        "listenPort": str(broker.port),
        "brokerIP1": broker.host,
        "embeddedFamily": broker.family.name,
    }
    body = "".join(f"{name}={value}\n" for name, value in properties.items())
    return Reply(fields={"version": json.dumps({"counter": 0, "timestamp": broker.started_ms})}, body=body.encode())


def update_config(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers UPDATE_BROKER_CONFIG. A line ``fault.<knob>=<value>`` sets a fault knob of this broker."""
    for line in request.body.decode(errors="replace").splitlines():
        name, separator, value = line.partition("=")
        name = name.strip()
        if not separator or name.startswith("#"):
            continue
        try:
            if name.startswith(FAULT_PREFIX):
                broker.faults.apply(name.removeprefix(FAULT_PREFIX), value.strip())
            else:
                broker.settings.update(name, value)
        except InvalidValue as error:
            return Reply(ResponseCode.SYSTEM_ERROR, str(error))
    return Reply()


def runtime_info(broker: BrokerServices, _channel: Channel, _request: Command) -> Reply:
    """Answers GET_BROKER_RUNTIME_INFO."""
    store = broker.store
    table = {
        "bootTimestamp": broker.started_ms,
        "brokerVersion": broker.family.version,
        "brokerVersionDesc": "V" + broker.family.release.replace(".", "_"),
        "commitLogMaxOffset": store.next_offset,
        "commitLogMinOffset": store.first_offset,
        "msgPutTotalTodayNow": store.stored_total,
        "pageCacheLockTimeMills": 0,
        "pullThreadPoolQueueSize": 0,
        "sendThreadPoolQueueSize": 0,
        "heldPulls": broker.polling.count,
        "checkRounds": broker.checks.rounds,
    }
    for queue_id, offset in broker.state.delay_offsets.items():  # ScheduleMessageService.buildRunningStats
        queue = store.queues.find(SCHEDULE_TOPIC, queue_id)
        table[f"scheduleMessageOffset_{queue_id + 1}"] = f"{offset},{offset if queue is None else queue.max_offset}"
    return Reply(body=json_body({"table": {name: str(value) for name, value in table.items()}}))


# -- statistics: objects are map keys, as fastjson writes them ----------------------------------------
def _offset_table(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    entries = (f"{json_body(queue).decode()}:{json_body(values).decode()}" for queue, values in rows)
    return "{" + ",".join(entries) + "}"


def topic_stats(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_TOPIC_STATS_INFO."""
    name = text(request, "topic")
    topic = broker.state.topics.get(name)
    if topic is None:
        return Reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    rows = []
    for queue_id in range(topic.write_queues):
        queue = broker.store.queues.queue(name, queue_id)
        last = queue.entry(queue.max_offset - 1)
        key = {"brokerName": broker.settings.broker_name, "queueId": queue_id, "topic": name}
        rows.append(
            (
                key,
                {
                    "lastUpdateTimestamp": broker.store.store_time(last[0]) if last is not None else 0,
                    "maxOffset": queue.max_offset,
                    "minOffset": queue.min_offset,
                },
            )
        )
    return Reply(body=f'{{"offsetTable":{_offset_table(rows)}}}'.encode())


def consume_stats(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_CONSUME_STATS of a group for one topic. Without a topic, answers for all topics with offsets or
    subscriptions of the group."""
    group = text(request, "consumerGroup")
    wanted = request.fields.get("topic")
    online = broker.clients.consumers.get(group)
    topics = {topic for name, topic in broker.state.offsets if name == group}
    if online is not None:
        topics |= set(online.subscriptions)
    rows = []
    for name in sorted({wanted} if wanted else topics):
        topic = broker.state.topics.get(name)
        if topic is None or (name.startswith(RETRY_TOPIC_PREFIX) and name != RETRY_TOPIC_PREFIX + group):
            continue
        rows += [_consume_row(broker, group, name, queue_id) for queue_id in range(topic.read_queues)]
    return Reply(body=f'{{"consumeTps":0.0,"offsetTable":{_offset_table(rows)}}}'.encode())


def _consume_row(
    broker: BrokerServices, group: str, topic: str, queue_id: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    queue = broker.store.queues.queue(topic, queue_id)
    offset = broker.state.offset_of(group, topic, queue_id)
    last = queue.entry(offset - 1) if offset else None
    values = {
        "brokerOffset": queue.max_offset,
        "consumerOffset": offset or 0,
        "lastTimestamp": broker.store.store_time(last[0]) if last is not None else 0,
        "pullOffset": offset or 0,
    }
    return {"brokerName": broker.settings.broker_name, "queueId": queue_id, "topic": topic}, values
