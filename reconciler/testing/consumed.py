"""Makes messages as a consumer receives them, without a broker. Tests that call a handler directly use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkback_consumers.message import ConsumedMessage, HandedOverMessage
from reconciler.clock import SystemClock
from reconciler.contract.properties import BUSINESS_ID
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator


def consumed_message(
    topic: str,
    body: bytes,
    *,
    unique_key: str | None = None,
    business_id: str | None = None,
    tags: str | None = None,
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    reconsume_times: int = 0,
) -> ConsumedMessage:
    """Makes a message with which a test can call a handler. Without `unique_key`, the message gets a new key."""
    named = {BUSINESS_ID: business_id, "TAGS": tags, "KEYS": " ".join(keys) or None}
    return HandedOverMessage(
        topic=topic,
        unique_key=unique_key or UniqueKeyGenerator(SystemClock()).next_key(),
        body=body,
        properties={**(properties or {}), **{name: text for name, text in named.items() if text is not None}},
        reconsume_times=reconsume_times,
    )
