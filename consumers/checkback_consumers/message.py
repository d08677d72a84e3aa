"""The fields of a message on which a handler can rely, whichever client delivered the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.contract.content_digest import digest_of_message
from reconciler.contract.properties import BUSINESS_ID, KEYS, TAGS
from reconciler.contract.unique_key import is_digits, is_unique_key
from reconciler.errors import MalformedInput
from reconciler.policy.evidence import StoredMessage

#: MessageConst.PROPERTY_ORIGIN_MESSAGE_ID: the offset message id of the first delivery. Retry copies keep this
#: property.
_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"


class ConsumedMessage(Protocol):
    """A delivered message: reconciler.rocketmq.ReceivedMessage, a hand-over, or a native client's copy."""

    @property
    def topic(self) -> str:
        """The business topic. A retry has the same topic."""
        ...

    @property
    def unique_key(self) -> str | None:
        """Property UNIQ_KEY."""
        ...

    @property
    def body(self) -> bytes:
        """Uncompressed."""
        ...

    @property
    def tags(self) -> str | None:
        """Property TAGS."""
        ...

    @property
    def keys(self) -> str | None:
        """Property KEYS, separated by spaces."""
        ...

    @property
    def properties(self) -> Mapping[str, str] | None:
        """All properties, or None if the client cannot list properties. With None, the content is not checked."""
        ...

    @property
    def reconsume_times(self) -> int:
        """How often the message was sent back. The first delivery has 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOverMessage:
    """A message that a replay worker delivers. The fields of the message come from a hand-over row instead of a
    queue."""

    topic: str
    unique_key: str
    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    reconsume_times: int = 0
    flag: int = 0
    born_timestamp_ms: int = 0
    store_timestamp_ms: int = 0

    @property
    def tags(self) -> str | None:
        """Property TAGS."""
        return self.properties.get(TAGS) or None

    @property
    def keys(self) -> str | None:
        """Property KEYS."""
        return self.properties.get(KEYS) or None

    @classmethod
    def of(cls, stored: StoredMessage) -> HandedOverMessage:
        """Returns the message under its real topic."""
        return cls(
            topic=stored.real_topic,
            unique_key=stored.unique_key,
            body=stored.body,
            properties=stored.properties,
            flag=stored.flag,
            born_timestamp_ms=stored.born_timestamp_ms,
            store_timestamp_ms=stored.store_timestamp_ms,
        )


def dedupe_identity(message: ConsumedMessage) -> str:
    """Returns the unique key. If a foreign client sent the message without a unique key, returns the offset message id,
    which Java calls msgId.

    Raises MalformedInput if the message has neither id, because the next delivery of such a message could not be
    recognised.
    """
    unique_key = message.unique_key
    if unique_key is not None and is_unique_key(unique_key):
        return unique_key
    offset_message_id = _offset_message_id(message)
    if offset_message_id is None:
        raise MalformedInput(f"message of topic {message.topic} has no usable unique key: {message.unique_key!r:.80}")
    return offset_message_id


def former_identity(message: ConsumedMessage) -> str | None:
    """Returns the name under which releases up to 0.2.0 record the message's effect. Returns None if these releases use
    dedupe_identity, too, or have no name for the message.

    Releases up to 0.2.0 know only keys of 32 to 64 upper-case hexadecimal digits, and the number of digits must be
    even.
    """
    unique_key = message.unique_key
    is_known_now = unique_key is not None and is_unique_key(unique_key) and not is_digits(unique_key)
    return _offset_message_id(message) if is_known_now else None


def _offset_message_id(message: ConsumedMessage) -> str | None:
    """Returns the offset message id of the first delivery, or None if the client does not know this id."""
    candidates = [(message.properties or {}).get(_ORIGIN_MESSAGE_ID), getattr(message, "offset_message_id", None)]
    return next((candidate for candidate in candidates if candidate and is_digits(candidate)), None)


def digest_of(message: ConsumedMessage, unique_key: str) -> bytes | None:
    """Returns the digest of the content, or None if the client cannot list properties."""
    if message.properties is None:
        return None
    return digest_of_message(
        topic=message.topic, unique_key=unique_key, properties=message.properties, body=message.body
    )


def business_id(message: ConsumedMessage) -> str | None:
    """Returns the property BUSINESS_ID, which producers set from `business_id=`. This function is the usual
    `dedupe_by`."""
    if message.properties is None:  # a client that cannot list properties may still know the business id
        return getattr(message, "business_id", None)
    return message.properties.get(BUSINESS_ID) or None
