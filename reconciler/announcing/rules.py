"""Decides which announcements are admitted. The decision is pure, and its bytes may be hostile.

A message is admitted or refused as a whole. Producers send keys of one kind in one message, and parts of messages would
make the quarantine hard to read. An announced key is compared and stored, but never decoded into an address.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from reconciler.contract.announcement import (
    BODY_BYTES_MAX,
    VERSION,
    SignatureSecret,
    decode_announcement,
    decode_bare_key,
    is_signed,
)
from reconciler.contract.queue_proof import QueueRecord
from reconciler.contract.unique_key import is_unique_key
from reconciler.errors import InvalidValue, MalformedInput
from reconciler.policy.ports.announcing import AnnouncementQueue, RefusedAnnouncement


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledAnnouncement:
    """The parts of a message of the unique-key topic that the rules need."""

    record: QueueRecord
    #: The business topic, as the sender's tag gives it. A half has the text here that `half_tag` makes of shard and
    #: topic.
    tag: str | None
    #: The unique key of a half. Announcements leave this field empty.
    body: bytes
    #: Property RECONCILER_SIGNATURE.
    signature: str | None = None
    #: The tag of a half's message. Announcements leave this field empty.
    message_tag: str | None = None
    #: The reason why the body could not be decompressed. The body then has the stored bytes. None: the body could be
    #: read.
    unreadable: str | None = None

    @property
    def queue_offset(self) -> int:
        """Its place in the queue."""
        return self.record.queue_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedKeys:
    """The admitted keys of one message."""

    unique_keys: tuple[str, ...] = ()
    #: Keys among `unique_keys` whose announced tag the group does not take. An announced tag proves nothing: a round
    #: compares it with the outbox (reconciler/policy/judging/tag_filter.py).
    apart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """The admitted keys and the refusals of several messages together."""

    unique_keys: Sequence[str]
    apart: Sequence[str]
    refused: Sequence[RefusedAnnouncement]

    @classmethod
    def of(cls, messages: Iterable[AdmittedKeys | RefusedAnnouncement]) -> Self:
        """Puts the answers about the messages together."""
        screened = list(messages)
        admitted = [one for one in screened if isinstance(one, AdmittedKeys)]
        return cls(
            unique_keys=[key for one in admitted for key in one.unique_keys],
            apart=[key for one in admitted for key in one.apart],
            refused=[one for one in screened if isinstance(one, RefusedAnnouncement)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementRules:
    """The announcements that a subscription accepts."""

    environment: str
    #: The only topic that is accepted. The broker filters by the hash of this topic, which is the tag. The rules
    #: compare the text.
    topic: str
    #: True: announcements have version 0, and the body is one bare key.
    bare_keys: bool = False
    #: Secret of the signatures. If it is set, announcements without a valid HMAC are refused.
    signature_secret: SignatureSecret | None = field(default=None, repr=False)
    #: The tags that the group takes. None: no key is set apart, because the group takes every tag, or because no outbox
    #: could prove the tag of a key.
    tags: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.signature_secret == b"":
            raise InvalidValue("signature_secret", "(empty)", 'set a secret, or None: any sender can sign with ""')

    def screen(self, queue: AnnouncementQueue, message: PulledAnnouncement) -> AdmittedKeys | RefusedAnnouncement:
        """Returns the announced keys, or the refusal. Returns no keys if the message is of another topic whose tag has
        the same hash."""
        if message.tag != self.topic:
            return AdmittedKeys()  # brokers compare only the hashes of tags
        try:
            return self._admit(message)
        except _Refused as refused:
            return RefusedAnnouncement(
                queue=queue,
                queue_offset=message.queue_offset,
                reason=refused.reason,
                detail=str(refused),
                body=message.body[:BODY_BYTES_MAX],
            )

    def tag_in(self, _queue: AnnouncementQueue) -> str:
        """Returns the tag of the messages that are taken. The tag is the same in every queue."""
        return self.topic

    def _admit(self, message: PulledAnnouncement) -> AdmittedKeys:
        body = message.body
        if len(body) > BODY_BYTES_MAX:
            raise _Refused("SIZE", f"{len(body)} bytes: at most {BODY_BYTES_MAX} are accepted")
        if message.unreadable is not None:
            raise _Refused("MALFORMED", message.unreadable)
        if self.signature_secret is not None and not is_signed(body, message.signature, self.signature_secret):
            what = "no signature" if message.signature is None else "a signature that does not belong to the body"
            raise _Refused("SIGNATURE", f"the message has {what}")
        if self.bare_keys:
            try:
                return AdmittedKeys(unique_keys=(decode_bare_key(body),))
            except MalformedInput as error:
                raise _Refused("SHAPE", str(error)) from error
        try:
            announcement = decode_announcement(body)
        except MalformedInput as error:
            raise _Refused(_reason(body), str(error)) from error
        if announcement.environment != self.environment:
            raise _Refused("ENVIRONMENT", f"announced for {announcement.environment!r}, this is {self.environment!r}")
        if announcement.topic != self.topic:
            raise _Refused("TOPIC", f"announces {announcement.topic!r} under the tag {self.topic!r}")
        return AdmittedKeys(
            unique_keys=tuple(key.unique_key for key in announcement.keys),
            apart=tuple(k.unique_key for k in announcement.keys if self.tags is not None and k.tag not in self.tags),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfRules:
    """The halves that a subscription takes as announcements. They prove no commit.

    A half carries the tag of its message, so halves that the group does not take are left out at once.
    """

    topic: str
    #: The tags that the group takes. None: the group takes every tag.
    tags: frozenset[str] | None = None

    def tag_in(self, queue: AnnouncementQueue) -> str:
        """Returns the tag of messages that are taken for the shard of the queue."""
        return half_tag(self.topic, queue.queue_id)

    def screen(self, queue: AnnouncementQueue, message: PulledAnnouncement) -> AdmittedKeys | RefusedAnnouncement:
        """Returns the key of the half, or a refusal if the half has no key. Returns no keys if the half is of another
        topic or shard, or has a tag that the group does not take."""
        if message.tag != self.tag_in(queue) or (self.tags is not None and message.message_tag not in self.tags):
            return AdmittedKeys()
        try:
            return AdmittedKeys(unique_keys=(decode_bare_key(message.body),))
        except MalformedInput as error:
            return RefusedAnnouncement(
                queue=queue,
                queue_offset=message.queue_offset,
                reason="SHAPE",
                detail=f"a half without a key that could be followed: {error}",
                body=message.body[:BODY_BYTES_MAX],
            )


def half_tag(topic: str, shard: int) -> str:
    """Returns the tag under which the halves of a shard and topic are handed out. No two of these tags are alike."""
    return f"{shard} {topic}"


class _Refused(MalformedInput):
    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


def _reason(body: bytes) -> str:
    """Returns a more precise reason than MALFORMED for a message that is refused anyway. The counters show this
    reason."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return "MALFORMED"
    if not isinstance(document, dict):
        return "MALFORMED"
    version = document.get("v")
    if type(version) is not int or version != VERSION:
        return "VERSION"
    keys = document.get("keys")
    is_shape = isinstance(keys, list) and any(isinstance(k, dict) and not is_unique_key(k.get("key")) for k in keys)
    return "SHAPE" if is_shape else "MALFORMED"
