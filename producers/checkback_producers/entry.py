"""Makes the message that is sent, and its outbox row, from the caller's message."""

from __future__ import annotations

import json
from dataclasses import replace

from ulid import ULID

from checkback_producers.ports import CheckedHalf, OutboxEntry, SentHalf
from reconciler.contract.content_digest import content_digest
from reconciler.contract.properties import BUSINESS_ID, OUTBOX_MARK, user_properties
from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.message import Message

#: Width of the outbox's text columns.
NAME_CHARACTERS_MAX = 160


def prepare_message(message: Message, *, business_id: str | None, unique_key: str, outbox_mark: str | None) -> Message:
    """Returns the message as it is sent. The unique key and the property BUSINESS_ID are added. BUSINESS_ID is the
    given id, or a ULID. With an outbox, the property RECONCILER_OUTBOX is added, too, with the value `outbox_mark`.

    If the caller's message already has a mark, its properties were copied from another message. The mark is replaced.
    Raises InvalidValue before anything is sent, if the broker or the outbox could not store the message.
    """
    if message.delay_level is not None:
        raise InvalidValue("delay_level", message.delay_level, "a transactional message cannot be delayed")
    if business_id and not isinstance(business_id, str):
        raise InvalidValue(
            "business_id",
            business_id,
            f"a str of at most {NAME_CHARACTERS_MAX} characters, not {type(business_id).__name__}: write str(...)",
        )
    named = message.properties.get(BUSINESS_ID)
    if business_id is not None and named not in (None, business_id):
        raise InvalidValue("business_id", business_id, f"the message has another property {BUSINESS_ID}: {named!r}")
    identifier = business_id or named or str(ULID())
    if identifier != identifier.strip():
        raise InvalidValue("business_id", identifier, "no spaces around it: MySQL compares without them")
    properties = {**message.properties, BUSINESS_ID: identifier}
    properties.pop(OUTBOX_MARK, None)
    if outbox_mark is not None:
        properties[OUTBOX_MARK] = outbox_mark
    prepared = replace(message, unique_key=message.unique_key or unique_key, properties=properties)
    for field, text in (("business_id", identifier), ("tags", prepared.tags), ("topic", prepared.topic)):
        if text is not None and len(text) > NAME_CHARACTERS_MAX:
            raise InvalidValue(field, text[:40] + "...", f"at most {NAME_CHARACTERS_MAX} characters")
    for field, text in (("business_id", identifier), ("tags", prepared.tags), ("keys", " ".join(prepared.keys))):
        if text and "\0" in text:
            raise InvalidValue(field, text[:40], "no NUL characters: databases cannot keep them")
    return prepared


def entry_of(message: Message, half: SentHalf, *, producer_group: str, keep_body: bool) -> OutboxEntry:
    """Returns the outbox row of a message whose half was sent."""
    keys = " ".join(message.keys) or None
    return OutboxEntry(
        unique_key=half.unique_key,
        topic=message.topic,
        producer_group=producer_group,
        tag=message.tags,
        message_keys=keys,
        business_id=message.properties[BUSINESS_ID],
        half_broker=half.broker,
        half_commit_log_offset=half.commit_log_offset,
        half_queue_offset=half.queue_offset,
        properties=json.dumps(user_properties(message.properties), ensure_ascii=True) if keep_body else None,
        body=message.body if keep_body else None,
        content_digest=content_digest(
            topic=message.topic, tags=message.tags, keys=keys, properties=message.properties, body=message.body
        ),
    )


def checked_half_of(message: Message, half: SentHalf, *, producer_group: str, now_ms: int) -> CheckedHalf:
    """Returns the local transaction as the outbox is asked about it. A broker's check-back asks with the same kind of
    value."""
    return CheckedHalf(
        unique_key=half.unique_key,
        topic=message.topic,
        producer_group=producer_group,
        tag=message.tags,
        born_timestamp_ms=now_ms,
        check_times=0,
        outbox_mark=message.properties.get(OUTBOX_MARK),
    )
