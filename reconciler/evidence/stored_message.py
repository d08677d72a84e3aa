"""Turns a stored record into the policy's value."""

from __future__ import annotations

from reconciler.policy.evidence import StoredMessage, TransactionState
from reconciler.rocketmq.wire.codes import (
    DEAD_LETTER_TOPIC_PREFIX,
    DISCARD_TOPIC,
    HALF_TOPICS,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from reconciler.rocketmq.wire.properties import whole_number
from reconciler.rocketmq.wire.record import MessageRecord

#: Topics whose records contain the business topic in a property.
_SYSTEM_TOPICS = HALF_TOPICS | {DISCARD_TOPIC}
_DELAY_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})


def stored_message(record: MessageRecord) -> StoredMessage:
    """Returns the message in a record. Raises ProtocolViolation for a damaged body, and MissingDependency if the
    package for its compression is missing."""
    properties = dict(record.properties)
    check_times = properties.get("TRANSACTION_CHECK_TIMES", "")
    return StoredMessage(
        unique_key=properties.get("UNIQ_KEY", ""),
        topic=record.topic,
        real_topic=real_topic(record),
        broker=record.broker_name,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.physical_offset,
        born_timestamp_ms=record.born_timestamp_ms,
        store_timestamp_ms=record.store_timestamp_ms,
        transaction_state=TransactionState[record.transaction_type.name],
        prepared_transaction_offset=record.prepared_transaction_offset,
        producer_group=properties.get("PGROUP", ""),
        check_times=whole_number(check_times),
        reconsume_times=record.reconsume_times,
        properties=properties,
        body=record.plain_body(),
        flag=record.flag,
        offset_message_id=record.offset_message_id,
    )


def real_topic(record: MessageRecord) -> str:
    """Returns the topic that consumers see: REAL_TOPIC of a half or a given-up half, RETRY_TOPIC of a message that was
    sent back."""
    topic = record.topic
    if topic in _SYSTEM_TOPICS:
        return record.properties.get("REAL_TOPIC", topic)
    if topic in _DELAY_TOPICS or topic.startswith((RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX)):
        return record.properties.get("RETRY_TOPIC") or record.properties.get("REAL_TOPIC", topic)
    return topic
