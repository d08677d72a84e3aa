"""An inbox in Redis, for services whose effects are not in a SQL database. This inbox is weaker than the SQL inbox.

The weaknesses come with Redis and cannot be cured here. Effect and mark are in two systems, so a crash between them
repeats the effect. A Redis that loses its memory forgets which keys were applied. Marks cannot be scanned in their
order in time, so nothing is put back into the commit sets after an outage. The reconciler cannot ask this inbox, so it
takes every effect for UNKNOWN. Use this inbox only for idempotent effects.

A mark is a hash {state, digest, key, topic} under the Redis key contract.keyspace.inbox_key. The mark expires after
`keep_seconds`, which must be longer than the age of the oldest possible repair.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Any

from checkback_consumers.effect import Effect
from checkback_consumers.inbox import InboxAnswer, InboxEntry, require_topic
from reconciler.contract.keyspace import inbox_key
from reconciler.contract.tables import FORMER_NAMES_TOPIC
from reconciler.errors import Collision, RedisAway, TransientError
from reconciler.shards.access import RedisClient, translated_errors
from reconciler.shards.script import RedisScript

logger = logging.getLogger(__name__)

KEEP_SECONDS_DEFAULT = 30 * 24 * 3600.0

_BEGIN = RedisScript("checkback_consumers", "inbox_begin.lua")
_DONE = RedisScript("checkback_consumers", "inbox_done.lua")
_ABANDON = RedisScript("checkback_consumers", "inbox_abandon.lua")


class RedisInbox:
    """Marks a key with a lease before the effect, and as done after the effect. The module says why this inbox is
    weaker than the SQL inbox. Threads may share the inbox, as they share its client."""

    is_weaker = True

    def __init__(
        self,
        #: A client of redis-py, which the caller closes.
        client: RedisClient,
        *,
        #: Environment of the reconciler's settings.
        environment: str,
        #: Seconds for which a mark is kept. A message that is delivered later has its effect again.
        keep_seconds: float = KEEP_SECONDS_DEFAULT,
        #: Length of the lease. The lease must be longer than the longest handler. Otherwise, two handlers may run at
        #: once. After a crash, the key stays taken for this long.
        lease_seconds: float = 300.0,
    ) -> None:
        self._client = client
        self._environment = environment
        self._keep_ms = int(keep_seconds * 1000)
        self._lease_ms = int(lease_seconds * 1000)
        logger.warning(
            "inbox_is_weaker: an inbox in Redis is WEAKER than in the effect's database. A crash between effect and "
            "mark repeats the effect, lost memory forgets it, and the reconciler cannot verify effects"
        )

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        """Marks the key, runs the effect with None as its connection, and marks the key as done.

        Raises RedisAway before the effect if Redis is away. Raises TransientError while another process holds the key.
        Raises Collision if the key has another content or topic. Raises InvalidValue if a message of another topic has
        the business id. If RedisAway comes after the effect, the effect will be repeated.
        """
        token = f"by:{secrets.token_hex(8)}"
        entered = self._begin(entry, token)
        if entered is not InboxAnswer.NEW:
            return entered
        former = _of_former_name(entry)
        try:
            if former is not None and (begun := self._begin_former(former, token)) is not InboxAnswer.NEW:
                if begun is not None:
                    self._finish(entry)
                    return InboxAnswer.DUPLICATE
                former = None
            effect(None)
        except BaseException:
            with suppress(RedisAway), translated_errors():  # if this fails, the lease ends the mark
                for one in (entry, former):
                    if one is not None:
                        _ABANDON.run(self._client, [self._key(one)], [token])
            raise
        if former is not None:  # comes first: after a crash in between, both releases see one of the marks
            self._finish(former)
        self._finish(entry)
        return InboxAnswer.NEW

    def _key(self, entry: InboxEntry) -> str:
        return inbox_key(self._environment, entry.group, unique_key=entry.unique_key, business_id=entry.dedupe_key)

    def _begin(self, entry: InboxEntry, token: str) -> InboxAnswer:
        digest, key = entry.content_digest or b"", entry.unique_key
        with translated_errors():
            answer = _BEGIN.run(self._client, [self._key(entry)], [token, self._lease_ms, digest, key, entry.topic])
        state = _text(answer[0])
        if state == "busy":
            raise TransientError(f"{entry.unique_key} is being handled by another process")
        if state != "done":
            return InboxAnswer.NEW
        digest, key, topic = answer[1:]
        return self._duplicate(entry, stored_digest=bytes(digest), stored_key=_text(key), topic=_text(topic))

    def _begin_former(self, former: InboxEntry, token: str) -> InboxAnswer | None:
        """Marks the key under its former name. Returns an answer other than NEW if a release up to 0.2.0 has marked the
        effect under that name. Returns None if the mark is of another message, from before the broker's store was
        replaced. Such a mark stays."""
        try:
            return self._begin(former, token)
        except Collision:
            return None

    def _finish(self, entry: InboxEntry) -> None:
        digest = entry.content_digest or b""
        with translated_errors():
            _DONE.run(self._client, [self._key(entry)], [digest, entry.unique_key, entry.topic, self._keep_ms])

    def _duplicate(self, entry: InboxEntry, *, stored_digest: bytes, stored_key: str, topic: str) -> InboxAnswer:
        if stored_key != entry.unique_key:
            require_topic(entry, topic)
            return InboxAnswer.DUPLICATE_BUSINESS
        if stored_digest and entry.content_digest and stored_digest != entry.content_digest:
            raise Collision(f"unique key {entry.unique_key} of group {entry.group} was applied with another content")
        # A release up to 0.2.0 stores the message's own topic. So if exactly one of the two topics is the topic of
        # former names, the other mark is of such a release.
        if topic != entry.topic and _is_of_former_name(topic) == _is_of_former_name(entry.topic):
            raise Collision(
                f"unique key {entry.unique_key} of group {entry.group} was applied from topic {topic}, "
                f"it arrived from {entry.topic}"
            )
        return InboxAnswer.DUPLICATE


def _of_former_name(entry: InboxEntry) -> InboxEntry | None:
    """Returns the entry as a release up to 0.2.0 has it, but with a topic that names the message. Returns None if the
    name is the same, or if the message has a business id, because a business id has only one mark."""
    if entry.former_key is None or entry.dedupe_key is not None:
        return None
    topic = f"{FORMER_NAMES_TOPIC} {entry.unique_key}"
    return replace(entry, unique_key=entry.former_key, topic=topic, content_digest=entry.former_digest, former_key=None)


def _is_of_former_name(topic: str) -> bool:
    return topic.startswith(FORMER_NAMES_TOPIC)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
