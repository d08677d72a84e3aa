"""Handlers for SEND_MESSAGE (10, 310), SEND_BATCH_MESSAGE (320) and CONSUMER_SEND_MSG_BACK (36)."""

from __future__ import annotations

import random
import re
import struct
import uuid
from collections.abc import Mapping

from reconciler.embedded.channel import Channel
from reconciler.embedded.layout import (
    BORN_HOST_V6,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    BrokerMessage,
)
from reconciler.embedded.reply import BadField, Reply, integer, text
from reconciler.embedded.services import BrokerServices
from reconciler.embedded.state import READ, WRITE
from reconciler.embedded.store import SCHEDULE_TOPIC
from reconciler.rocketmq.wire.codes import (
    AUTO_CREATE_TOPIC,
    DEAD_LETTER_TOPIC_PREFIX,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_TOPIC_PREFIX,
    RequestCode,
    ResponseCode,
)
from reconciler.rocketmq.wire.frame import Command

# Field names of the first version -> letters of SendMessageRequestHeaderV2.
_V2 = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
}
_V1 = {name: name for name in _V2}
_LEGAL_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_SYSTEM_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}
)
_FIRST_RETRY_LEVEL = 3
_NULL_POINTER_SINCE = 121  # V3_4_9: brokers follow maxReconsumeTimes of a send-back


class _Header:
    """The fields of one send, in either version of the header."""

    __slots__ = ("_fields", "_names")

    def __init__(self, request: Command) -> None:
        self._fields: Mapping[str, str] = request.fields
        self._names = _V1 if request.code == RequestCode.SEND_MESSAGE else _V2

    def text(self, name: str, default: str = "") -> str:
        return self._fields.get(self._names[name]) or default

    def integer(self, name: str, default: int | None = None, *, limit: int = 2**31) -> int:
        value = self._fields.get(self._names[name])
        if value is None:
            if default is None:
                raise BadField(f"the custom field <{self._names[name]}> is null")
            return default
        try:
            number = int(value)
        except ValueError:
            number = limit
        if not -limit <= number < limit:
            raise BadField(f'java.lang.NumberFormatException: For input string: "{value}"')
        return number

    @property
    def is_batch(self) -> bool:
        return self._fields.get(self._names["batch"]) == "true"


def send(broker: BrokerServices, channel: Channel, request: Command) -> Reply:
    """Stores one message or a batch (SendMessageProcessor)."""
    header = _Header(request)
    refusal = _refusal(broker, header, request)
    if refusal is not None:
        return refusal
    topic = broker.state.topic_for_send(
        header.text("topic"), header.text("defaultTopic"), header.integer("defaultTopicQueueNums", 4)
    )
    if topic is None:
        remark = f"topic[{header.text('topic')}] not exist, apply first please!{broker.family.help_text}"
        return Reply(ResponseCode.TOPIC_NOT_EXIST, remark)
    queue_id = header.integer("queueId")
    if queue_id >= max(topic.write_queues, topic.read_queues):
        remark = f"request queueId[{queue_id}] is illegal, {topic.name} Producer: {channel.peer}"
        return Reply(broker.family.bad_queue_code, remark)
    if queue_id < 0:
        queue_id = random.randrange(max(1, topic.write_queues))
    if request.code == RequestCode.SEND_BATCH_MESSAGE or header.is_batch:
        return _store_batch(broker, channel, header, request.body, queue_id)
    message = _message(channel, header, queue_id, request.body, header.text("properties"), header.integer("flag", 0))
    return _store(broker, message, header)


def _refusal(broker: BrokerServices, header: _Header, request: Command) -> Reply | None:
    """Returns the refusal that msgCheck or checkMessage gives before anything is stored."""
    topic, family = header.text("topic"), broker.family
    if not family.half_topic_is_writable:
        if not _LEGAL_TOPIC.fullmatch(topic):
            remark = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
            return Reply(family.bad_queue_code, remark if topic else "The specified topic is blank.")
        if topic in _SYSTEM_TOPICS:
            return Reply(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    elif topic == AUTO_CREATE_TOPIC or not topic:
        return Reply(ResponseCode.SYSTEM_ERROR, f"the topic[{topic}] is conflict with system reserved words.")
    group = header.text("producerGroup")
    if broker.faults.is_dead(group):
        return Reply(ResponseCode.NO_PERMISSION, f"a fault knob has killed the producer group {group}")
    if broker.faults.disk_is_full() or broker.store.is_unwritable:
        return Reply(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now. It may be caused by one of the following reasons: the broker's disk is "
            "full, messages are put to the slave, message store has been shut down, etc.",
        )
    limit = broker.settings.max_message_bytes or broker.family.max_message_bytes
    properties = header.text("properties")
    if (
        len(request.body) > limit
        or len(topic.encode()) > MAX_TOPIC_BYTES
        or len(properties.encode()) > MAX_PROPERTIES_BYTES
    ):
        return Reply(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {limit}B, msg properties length limit 32KB.",
        )
    return None


def _message(
    channel: Channel, header: _Header, queue_id: int, body: bytes, properties: str, flag: int
) -> BrokerMessage:
    return BrokerMessage(
        topic=header.text("topic"),
        queue_id=queue_id,
        body=body,
        born_timestamp_ms=header.integer("bornTimestamp", 0, limit=2**63),
        born_host=channel.born_host,
        properties_text=properties,
        flag=flag,
        sys_flag=header.integer("sysFlag", 0) | (BORN_HOST_V6 if len(channel.born_host) > 8 else 0),
        reconsume_times=header.integer("reconsumeTimes", 0),
    )


def _store(broker: BrokerServices, message: BrokerMessage, header: _Header) -> Reply:
    _redirect_retry(broker, message, header)
    _stamp(broker, message)
    properties = message.properties
    real_queue_id = message.queue_id
    is_transactional = properties.get("TRAN_MSG") == "true"
    if broker.family.has_half_topic:  # 4.6.1: the retry of a transactional message is an ordinary message
        is_transactional &= not (message.reconsume_times > 0 and properties.get("DELAY", "0") != "0")
    if is_transactional and broker.settings.reject_transaction_message:
        remark = f"the broker[{broker.address}] sending transaction message is forbidden"
        return Reply(ResponseCode.NO_PERMISSION, remark)
    if not broker.family.has_half_topic:
        is_transactional = message.sys_flag & TRANSACTION_MASK == TRANSACTION_PREPARED
    if is_transactional:
        broker.transactions.to_half(message)
    broker.store.append(message)
    fields = {
        "msgId": broker.store.message_id(message),
        "queueId": str(real_queue_id),
        "queueOffset": str(message.queue_offset),
    }
    _add_reply_fields(broker, fields, properties.get("UNIQ_KEY"))
    return Reply(broker.faults.flush_code(), None, fields)


def _add_reply_fields(broker: BrokerServices, fields: dict[str, str], unique_key: str | None) -> None:
    if broker.family.replies_trace:
        fields["TRACE_ON"] = "true" if broker.settings.trace_on else "false"
        fields["MSG_REGION"] = broker.settings.region
    if broker.family.replies_transaction_id and unique_key:
        fields["transactionId"] = unique_key


def _stamp(broker: BrokerServices, message: BrokerMessage) -> None:
    """Adds the properties that brokers add. From 4.6 on, this is CLUSTER. From 5.0 on, MSG_REGION, TRACE_ON and a
    missing UNIQ_KEY are added, too."""
    family, settings, properties = broker.family, broker.settings, message.properties
    if not family.stores_cluster:
        return
    added = {"CLUSTER": settings.cluster_name}
    if family.stores_trace:
        added |= {"MSG_REGION": settings.region, "TRACE_ON": "true" if settings.trace_on else "false"}
        if not properties.get("UNIQ_KEY"):
            added["UNIQ_KEY"] = uuid.uuid4().hex.upper()
    message.put_properties(trimmed=family.trims_properties, **added)


def _redirect_retry(broker: BrokerServices, message: BrokerMessage, header: _Header) -> None:
    """Moves a message to the dead-letter queue if a consumer has sent it back too often (handleRetryAndDLQ)."""
    if not message.topic.startswith(RETRY_TOPIC_PREFIX):
        return
    group = message.topic[len(RETRY_TOPIC_PREFIX) :]
    config = broker.state.group(group)
    maximum = header.integer("maxReconsumeTimes", config.retry_max_times if config is not None else 16)
    if message.reconsume_times >= maximum:
        message.topic, message.queue_id = _dead_letter_topic(broker, group), 0
        message.delay_level = 0


def _dead_letter_topic(broker: BrokerServices, group: str) -> str:
    permission = READ | WRITE if broker.family.dead_letters_readable else WRITE
    return broker.state.ensure_topic(DEAD_LETTER_TOPIC_PREFIX + group, permission=permission).name


# -- batches -----------------------------------------------------------------------------------------
_BATCH_HEAD = struct.Struct(">iiiii")  # total size, magic, CRC, flag, body length


def _store_batch(broker: BrokerServices, channel: Channel, header: _Header, body: bytes, queue_id: int) -> Reply:
    """Stores several messages of one topic and queue from one body (MessageDecoder.encodeMessages)."""
    if header.text("topic").startswith(RETRY_TOPIC_PREFIX):
        return Reply(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group ")
    messages = [_message(channel, header, queue_id, part, properties, flag) for part, properties, flag in _split(body)]
    if not messages:
        return Reply(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
    for message in messages:
        message.delay_level = 0
        _stamp(broker, message)
        broker.store.append(message)
    fields = {
        "msgId": ",".join(broker.store.message_id(message) for message in messages),
        "queueId": str(queue_id),
        "queueOffset": str(messages[0].queue_offset),
    }
    _add_reply_fields(broker, fields, None)
    return Reply(broker.faults.flush_code(), None, fields)


def _split(body: bytes) -> list[tuple[bytes, str, int]]:
    parts, position = [], 0
    try:
        while position < len(body):
            size, _magic, _crc, flag, length = _BATCH_HEAD.unpack_from(body, position)
            start = position + _BATCH_HEAD.size
            (properties_length,) = struct.unpack_from(">H", body, start + length)
            properties_start = start + length + 2
            properties_end = properties_start + properties_length
            fits = properties_end == position + size <= len(body)
            if length < 0 or not fits or properties_length > MAX_PROPERTIES_BYTES:
                raise BadField("the batch body is malformed")
            properties = body[properties_start:properties_end].decode()
            parts.append((body[start : start + length], properties, flag))
            position = properties_end
    except (struct.error, UnicodeDecodeError) as error:
        raise BadField("the batch body is malformed") from error
    return parts


# -- send-back ---------------------------------------------------------------------------------------
def send_back(broker: BrokerServices, _channel: Channel, request: Command) -> Reply:
    """Stores a message that a consumer could not handle. It goes into %RETRY% with a delay, or into %DLQ% after too
    many tries."""
    group_name = text(request, "group")
    group = broker.state.group(group_name)
    if group is None:
        remark = f"subscription group not exist, {group_name} {broker.family.help_text}"
        return Reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if group.retry_queues <= 0:
        return Reply()
    offset = integer(request, "offset")
    message = broker.store.message_at(offset)
    if message is None:
        return Reply(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
    maximum = group.retry_max_times
    if request.version >= _NULL_POINTER_SINCE:
        if "maxReconsumeTimes" not in request.fields and broker.family.requires_max_reconsume_times:
            return Reply(ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException, null")
        maximum = integer(request, "maxReconsumeTimes", maximum)
        maximum = group.retry_max_times if maximum < 0 else maximum
    _store_retry(broker, message, group_name, integer(request, "delayLevel", 0), maximum)
    return Reply()


def _store_retry(broker: BrokerServices, message: BrokerMessage, group: str, level: int, maximum: int) -> None:
    properties = message.properties
    changes: dict[str, str | None] = {
        "RETRY_TOPIC": properties.get("RETRY_TOPIC") or message.topic,
        "ORIGIN_MESSAGE_ID": properties.get("ORIGIN_MESSAGE_ID") or broker.store.message_id(message),
        "WAIT": "false",
    }
    retry = message.copied()
    if message.reconsume_times >= maximum or level < 0:
        if broker.family.stores_trace:  # 5.x names the origin of a dead letter
            changes |= {
                "DLQ_ORIGIN_TOPIC": changes["RETRY_TOPIC"],
                "DLQ_ORIGIN_MESSAGE_ID": broker.store.message_id(message),
            }
        retry.topic, retry.queue_id = _dead_letter_topic(broker, group), 0
        retry.delay_level = 0
    else:
        topic = broker.state.ensure_topic(RETRY_TOPIC_PREFIX + group)
        retry.topic, retry.queue_id = topic.name, random.randrange(max(1, topic.write_queues))
        retry.delay_level = level or _FIRST_RETRY_LEVEL + message.reconsume_times
        changes["DELAY"] = str(retry.delay_level)
    retry.reconsume_times = min(message.reconsume_times + 1, 2**31 - 1)
    retry.put_properties(trimmed=broker.family.trims_properties, **changes)
    broker.store.append(retry)
