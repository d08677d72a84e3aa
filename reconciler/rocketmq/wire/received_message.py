"""Messages that listeners of consumers get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX
from reconciler.rocketmq.wire.record import MessageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One message with its uncompressed body. The topic is the one to which the producer sent the message."""

    #: The business topic. For a retry from %RETRY%<group>, the property RETRY_TOPIC names it.
    topic: str
    #: Topic of the queue from which the message was pulled.
    stored_topic: str
    #: The unique key (property UNIQ_KEY). Empty if a foreign client sent no key.
    unique_key: str
    #: Address and commit-log offset of the record, as brokers spell them. This id names the record, not the message.
    offset_message_id: str
    #: The uncompressed body. In a check-back whose body is unreadable here (CheckRequest.body_error), it is the stored
    #: body.
    body: bytes
    #: The tag of the message (property TAGS).
    tags: str | None
    #: The keys of the message, separated by spaces (property KEYS).
    keys: str | None
    properties: Mapping[str, str]
    #: Number of times that the message came back, which is 0 at the first delivery.
    reconsume_times: int
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    #: Commit-log offset of the message's half, or 0 for ordinary messages.
    prepared_transaction_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    #: A number for the service's own use.
    flag: int
    #: Size in memory with the uncompressed body. Flow control counts this size.
    size_bytes: int


def received(record: MessageRecord) -> ReceivedMessage:
    """Makes the message of a stored record. Raises ProtocolViolation if the body is damaged. Raises MissingDependency
    if its compression needs a package that is not installed.

    A retry gets its first topic (property RETRY_TOPIC, MixAll.RETRY_GROUP_TOPIC_PREFIX).
    """
    return with_body(record, record.plain_body())


def with_body(record: MessageRecord, body: bytes) -> ReceivedMessage:
    """Makes the message of a stored record with this body."""
    properties = record.properties
    topic = record.topic
    if topic.startswith(RETRY_TOPIC_PREFIX):
        topic = properties.get("RETRY_TOPIC", topic)
    return ReceivedMessage(
        topic=topic,
        stored_topic=record.topic,
        unique_key=record.unique_key,
        offset_message_id=record.offset_message_id,
        body=body,
        tags=properties.get("TAGS"),
        keys=properties.get("KEYS"),
        properties=properties,
        reconsume_times=record.reconsume_times,
        broker_name=record.broker_name,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.physical_offset,
        prepared_transaction_offset=record.prepared_transaction_offset,
        born_timestamp_ms=record.born_timestamp_ms,
        store_timestamp_ms=record.store_timestamp_ms,
        flag=record.flag,
        size_bytes=record.size_bytes - len(record.body) + len(body),
    )
