"""A message as a listener gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX
from reconciler.rocketmq.wire.record import MessageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One message, uncompressed, under the topic it was sent to."""

    #: The business topic, also for a retry that came through %RETRY%<group> (property RETRY_TOPIC).
    topic: str
    #: Topic of the queue it was pulled from.
    stored_topic: str
    #: Property UNIQ_KEY; empty where the producer sent none (foreign clients).
    unique_key: str
    #: Address and commit-log offset, as brokers spell it: names the record, not the message.
    offset_message_id: str
    #: As stored, maybe compressed, in a check-back whose body cannot be read here (CheckRequest.body_error).
    body: bytes
    #: Property TAGS.
    tags: str | None
    #: Property KEYS, separated by spaces.
    keys: str | None
    properties: Mapping[str, str]
    #: How often it came back; 0 the first time.
    reconsume_times: int
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    #: Commit-log offset of the half it was made from; 0 for ordinary messages.
    prepared_transaction_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    #: The user's flag.
    flag: int
    #: Its size in memory with the body uncompressed, which flow control counts.
    size_bytes: int


def received(record: MessageRecord) -> ReceivedMessage:
    """The message in a stored record. Raises ProtocolViolation (damaged body) or MissingDependency (its compression).

    A retry is shown under the topic it was sent to first (property RETRY_TOPIC, MixAll.RETRY_GROUP_TOPIC_PREFIX).
    """
    return with_body(record, record.plain_body())


def with_body(record: MessageRecord, body: bytes) -> ReceivedMessage:
    """The message in a stored record, with this body."""
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
