"""Handlers for look-ups and offsets. They answer QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33), QUERY_CONSUME_QUEUE
(321), and the codes 14, 15 and 29-32."""

from __future__ import annotations

import json

from reconciler.embedded.channel import Channel
from reconciler.embedded.consumers import parse_subscription
from reconciler.embedded.index import MAX_RESULTS
from reconciler.embedded.queues import ConsumeQueue
from reconciler.embedded.reply import Reply, boolean, integer, text
from reconciler.embedded.services import BrokerServices
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_UNIQUE_KEY_RESULTS = 32  # MessageStoreConfig.defaultQueryMaxNum
_LONG_MAX = 2**63 - 1
_MOST_ENTRIES = 10_000  # most entries of a consume queue in one answer


def query_message(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers QUERY_MESSAGE (QueryMessageProcessor.queryMessage)."""
    maximum = integer(request, "maxNum", MAX_RESULTS)
    if boolean(request, _UNIQUE_KEY_QUERY):
        maximum = _UNIQUE_KEY_RESULTS
    found, records = broker.store.find(
        text(request, "topic"),
        text(request, "key"),
        maximum=maximum,
        begin_ms=integer(request, "beginTimestamp", 0),
        end_ms=integer(request, "endTimestamp", _LONG_MAX),
    )
    fields = {
        "indexLastUpdatePhyoffset": str(found.last_physical_offset),
        "indexLastUpdateTimestamp": str(found.last_timestamp_ms),
    }
    if not records:
        remark = "can not find message, maybe time range not correct"
        return Reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
    return Reply(ResponseCode.SUCCESS, None, fields, b"".join(records))


def view_message(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Returns the record at a log offset, whatever its topic, even a half (QueryMessageProcessor.viewMessageById)."""
    offset = integer(request, "offset")
    record = broker.store.record_at(offset)
    if record is None:
        return Reply(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    return Reply(body=record)


# -- consumer offsets --------------------------------------------------------------------------------
def query_consumer_offset(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Returns a group's offset. For a short queue, it returns 0 in place of code 22, like
    ConsumerManageProcessor.queryConsumerOffset."""
    group, topic, queue_id = text(request, "consumerGroup"), text(request, "topic"), integer(request, "queueId")
    offset = broker.state.offset_of(group, topic, queue_id)
    if offset is None:
        refuses_zero = request.fields.get("setZeroIfNotFound") == "false" and broker.family.checks_offset_topics
        if refuses_zero or _queue(broker, request).min_offset > 0:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            return Reply(ResponseCode.QUERY_NOT_FOUND, remark)
        offset = 0
    return Reply(fields={"offset": str(offset)})


def update_consumer_offset(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Stores a group's offset (ConsumerManageProcessor.updateConsumerOffset). Family 5.x refuses unknown topics and
    groups."""
    group, topic, queue_id = text(request, "consumerGroup"), text(request, "topic"), integer(request, "queueId")
    if broker.family.checks_offset_groups and group not in broker.state.groups:
        return Reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
    if broker.family.checks_offset_topics and topic not in broker.state.topics:
        return Reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
    broker.state.commit_offset(group, topic, queue_id, integer(request, "commitOffset"))
    return Reply()


# -- queue offsets -----------------------------------------------------------------------------------
def _queue(broker: BrokerServices, request: Command) -> ConsumeQueue:
    """Returns the queue that the request names. For a queue that was never used, returns an empty queue, which is not
    kept."""
    found = broker.store.queues.find(text(request, "topic"), integer(request, "queueId"))
    return found if found is not None else ConsumeQueue()


def max_offset(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_MAX_OFFSET."""
    queue = _queue(broker, request)
    return Reply(fields={"offset": str(queue.max_offset)})


def min_offset(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_MIN_OFFSET."""
    queue = _queue(broker, request)
    return Reply(fields={"offset": str(queue.min_offset)})


def offset_by_time(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers SEARCH_OFFSET_BY_TIMESTAMP. Up to 4.9, the answer is the nearest message. In 5.x, it is the first message
    at or after the time.

    With boundaryType UPPER, 5.x answers with the last message at or before the time.
    """
    queue = _queue(broker, request)
    timestamp_ms = integer(request, "timestamp")
    modern = broker.family.checks_offset_topics
    if modern and request.fields.get("boundaryType", "").upper() == "UPPER":
        after = queue.offset_by_time(timestamp_ms + 1, broker.store.store_time, nearest=False)
        offset = max(queue.min_offset, after - 1)
    else:
        offset = queue.offset_by_time(timestamp_ms, broker.store.store_time, nearest=not modern)
    return Reply(fields={"offset": str(offset)})


def earliest_store_time(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers GET_EARLIEST_MSG_STORETIME. The answer is -1 for an empty queue."""
    queue = _queue(broker, request)
    entry = queue.entry(queue.min_offset)
    timestamp = broker.store.store_time(entry[0]) if entry is not None else -1
    return Reply(fields={"timestamp": str(timestamp)})


def query_consume_queue(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Answers QUERY_CONSUME_QUEUE with raw entries (AdminBrokerProcessor). The topic may be one that nobody can
    pull."""
    topic, queue_id = text(request, "topic"), integer(request, "queueId")
    queue = broker.store.queues.find(topic, queue_id)
    if queue is None:
        return Reply(ResponseCode.SYSTEM_ERROR, f"{queue_id} not exist in {topic}")
    if not broker.family.lists_queue_entries:
        return Reply(body=b'{"maxQueueIndex":0,"minQueueIndex":0}')
    body: dict[str, object] = {"maxQueueIndex": queue.max_offset, "minQueueIndex": queue.min_offset}
    group = request.fields.get("consumerGroup")
    subscription = None
    if group:
        known = broker.clients.consumers.get(group)
        subscription = known.subscriptions.get(topic) if known is not None else None
    subscription = subscription or parse_subscription(topic, "*", "TAG", 0)
    entries = []
    start = integer(request, "index")
    count = min(integer(request, "count"), _MOST_ENTRIES)
    for offset in range(max(start, queue.min_offset), min(start + count, queue.max_offset)):
        entry = queue.entry(offset)
        if entry is not None:
            entries.append(
                {
                    "physicOffset": entry[0],
                    "physicSize": entry[1],
                    "tagsCode": entry[2],
                    "eval": subscription.matches(entry[2]),
                }
            )
    body["queueData"] = entries
    return Reply(body=json.dumps(body, separators=(",", ":")).encode())
