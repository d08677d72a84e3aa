"""Handlers for PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), with long polling (PullMessageProcessor)."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.embedded.channel import Channel
from reconciler.embedded.consumers import SubscriptionData, parse_subscription
from reconciler.embedded.handlers.client import json_body
from reconciler.embedded.layout import BrokerMessage
from reconciler.embedded.long_polling import HeldPull
from reconciler.embedded.queues import ConsumeQueue
from reconciler.embedded.reply import Reply, integer, text
from reconciler.embedded.services import BrokerServices
from reconciler.embedded.state import READ
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command

# PullSysFlag
COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4
# Limits of one pull from memory (MessageStoreConfig).
MOST_BYTES = 256 * 1024
MOST_MESSAGES = 32
_MOST_SCANNED = 16_000 // 20  # maxFilterMessageSize in ConsumeQueue units


@dataclass(frozen=True, slots=True)
class _Read:
    """The result of reading for a pull, with store status, next offset and records (GetMessageResult)."""

    status: str
    next_offset: int
    records: list[bytes]


def pull(broker: BrokerServices, channel: Channel, request: Command) -> Reply | None:
    """Answers one pull. Returns None if it waits for a message."""
    return _pull(broker, channel, request, may_suspend=True)


def _pull(broker: BrokerServices, channel: Channel, request: Command, *, may_suspend: bool) -> Reply | None:
    group_name, topic_name = text(request, "consumerGroup"), text(request, "topic")
    queue_id, offset = integer(request, "queueId"), integer(request, "queueOffset")
    flags = integer(request, "sysFlag")
    refusal = _refusal(broker, group_name, topic_name, queue_id)
    if refusal is not None:
        return refusal
    subscription = _subscription(broker, request, group_name, topic_name, flags)
    if isinstance(subscription, Reply):
        return subscription
    queue = broker.store.queues.queue(topic_name, queue_id)
    read = _read(broker, queue, offset, integer(request, "maxMsgNums"), subscription)
    if flags & COMMIT_OFFSET and may_suspend:
        broker.state.commit_offset(group_name, topic_name, queue_id, integer(request, "commitOffset"))
    code = _code(read.status, offset)
    if code == ResponseCode.PULL_NOT_FOUND and may_suspend and flags & SUSPEND:
        held = HeldPull(
            channel=channel,
            topic=topic_name,
            queue_id=queue_id,
            offset=read.next_offset if read.status == "NO_MESSAGE_IN_QUEUE" else offset,
            deadline_seconds=broker.clock.monotonic_seconds() + integer(request, "suspendTimeoutMillis") / 1000,
            subscription=subscription,
            answer=lambda: channel.reply(request, _pull(broker, channel, request, may_suspend=False)),
        )
        if broker.polling.hold(held):
            return None
    if code == ResponseCode.PULL_OFFSET_MOVED and broker.family.reports_moved_offsets:
        _report_moved(broker, request, read.next_offset)
    return _reply(broker, queue, read, code)


def _refusal(broker: BrokerServices, group_name: str, topic_name: str, queue_id: int) -> Reply | None:
    if not broker.settings.permission & READ:
        return Reply(ResponseCode.NO_PERMISSION, f"the broker[{broker.address}] pulling message is forbidden")
    group = broker.state.group(group_name)
    if group is None:
        remark = f"subscription group [{group_name}] does not exist, {broker.family.help_text}"
        return Reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not group.consume_enabled:
        return Reply(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
    topic = broker.state.topics.get(topic_name)
    if topic is None:
        remark = f"topic[{topic_name}] not exist, apply first please! {broker.family.help_text}"
        return Reply(ResponseCode.TOPIC_NOT_EXIST, remark)
    if not topic.permission & READ:
        return Reply(ResponseCode.NO_PERMISSION, f"the topic[{topic_name}] pulling message is forbidden")
    if not 0 <= queue_id < topic.read_queues:
        remark = f"queueId[{queue_id}] is illegal, topic:[{topic_name}] topicConfig.readQueueNums:[{topic.read_queues}]"
        return Reply(broker.family.bad_queue_code, remark)
    return None


def _subscription(
    broker: BrokerServices, request: Command, group_name: str, topic_name: str, flags: int
) -> SubscriptionData | Reply:
    if flags & SUBSCRIPTION:
        found = parse_subscription(
            topic_name, request.fields.get("subscription"), request.fields.get("expressionType"), 0
        )
    else:
        group = broker.clients.consumers.get(group_name)
        if group is None:
            return Reply(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        known = group.subscriptions.get(topic_name)
        if known is None:
            return Reply(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if known.version < integer(request, "subVersion"):
            return Reply(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        found = known
    if found.kind != "TAG":  # enablePropertyFilter is false by default
        remark = f"The broker does not support consumer to filter message by {found.kind}"
        return Reply(ResponseCode.SYSTEM_ERROR, remark)
    return found


def _read(
    broker: BrokerServices, queue: ConsumeQueue, offset: int, maximum: int, subscription: SubscriptionData
) -> _Read:
    """Reads the matching messages of one pull (DefaultMessageStore.getMessage)."""
    smallest, largest = queue.min_offset, queue.max_offset
    if largest == 0:
        return _Read("NO_MESSAGE_IN_QUEUE", 0, [])
    if offset < smallest:
        return _Read("OFFSET_TOO_SMALL", smallest, [])
    if offset == largest:
        return _Read("OFFSET_OVERFLOW_ONE", offset, [])
    if offset > largest:
        starts_over = broker.family.overflow_starts_over and smallest == 0
        return _Read("OFFSET_OVERFLOW_BADLY", 0 if starts_over else largest, [])
    records: list[bytes] = []
    size = 0
    scan_end = min(largest, offset + max(_MOST_SCANNED, maximum))
    while offset < scan_end and len(records) < min(maximum, MOST_MESSAGES):
        entry = queue.entry(offset)
        record = broker.store.record_at(entry[0]) if entry is not None else None
        if entry is not None and record is not None and subscription.matches(entry[2]):
            if records and size + entry[1] > MOST_BYTES:
                break
            records.append(record)
            size += entry[1]
        offset += 1
    return _Read("FOUND" if records else "NO_MATCHED_MESSAGE", offset, records)


def _code(status: str, requested_offset: int) -> ResponseCode:
    match status:
        case "FOUND":
            return ResponseCode.SUCCESS
        case "NO_MATCHED_MESSAGE":
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        case "OFFSET_OVERFLOW_ONE":
            return ResponseCode.PULL_NOT_FOUND
        case "NO_MESSAGE_IN_QUEUE":
            return ResponseCode.PULL_OFFSET_MOVED if requested_offset else ResponseCode.PULL_NOT_FOUND
        case _:
            return ResponseCode.PULL_OFFSET_MOVED


def _report_moved(broker: BrokerServices, request: Command, next_offset: int) -> None:
    """Stores a message that reports a jump of offsets, as brokers up to 4.9 do (generateOffsetMovedEvent)."""
    group = text(request, "consumerGroup")
    queue = {
        "brokerName": broker.settings.broker_name,
        "queueId": integer(request, "queueId"),
        "topic": text(request, "topic"),
    }
    event = {
        "consumerGroup": group,
        "messageQueue": queue,
        "offsetNew": next_offset,
        "offsetRequest": integer(request, "queueOffset"),
    }
    message = BrokerMessage(
        topic="OFFSET_MOVED_EVENT",
        queue_id=0,
        body=json_body(event),
        born_timestamp_ms=broker.clock.now_ms(),
        born_host=broker.store.store_host,
    )
    waits = {"WAIT": "true"} if broker.family.has_half_topic else {}
    trimmed = broker.family.trims_properties
    message.put_properties(trimmed=trimmed, TAGS=group, DELAY="0", KEYS=group, **waits)
    broker.store.append(message)


def _reply(broker: BrokerServices, queue: ConsumeQueue, read: _Read, code: int) -> Reply:
    fields = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(read.next_offset),
        "maxOffset": str(queue.max_offset),
        "minOffset": str(queue.min_offset),
    }
    if broker.family.pull_flags:
        fields |= {"groupSysFlag": "0", "topicSysFlag": "0"}
    return Reply(code, read.status, fields, b"".join(read.records))
