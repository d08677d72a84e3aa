"""A message for a listener."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX
from reconciler.rocketmq.wire.record import MessageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One message, uncompressed, under the topic to which it was sent."""

    #: The business topic, also for a retry from %RETRY%<group> (property RETRY_TOPIC).
    topic: str
    #: Topic of the queue from which it was pulled.
    stored_topic: str
    #: Property UNIQ_KEY; empty if the producer sent none (foreign clients).
    unique_key: str
    #: Address and commit-log offset, as brokers spell them. It names the record, not the message.
    offset_message_id: str
    #: As stored, maybe compressed, in a check-back whose body is unreadable here (CheckRequest.body_error).
    body: bytes
    #: Property TAGS.
    tags: str | None
    #: Property KEYS, separated by spaces.
    keys: str | None
    properties: Mapping[str, str]
    #: How often it came back; 0 at the first delivery.
    reconsume_times: int
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    #: Commit-log offset of its half; 0 for ordinary messages.
    prepared_transaction_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    #: The service's own number.
    flag: int
    #: Size in memory with the uncompressed body, for flow control.
    size_bytes: int


def received(record: MessageRecord) -> ReceivedMessage:
    """Makes the message of a stored record. Raises ProtocolViolation (damaged body) or MissingDependency (its
    compression).

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
