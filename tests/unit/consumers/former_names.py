"""Messages of a Go client as they are delivered, and what a plug-in up to 0.2.0 notes of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from checkback_consumers.inbox import InboxEntry
from checkback_consumers.message import business_id
from reconciler.contract.content_digest import digest_of_message
from tests.unit.contract.keys import GO

#: Offset message ids.
FIRST, SECOND = "7F00000100002A9F0000000000000090", "7F00000100002A9F0000000000000120"


def delivered(
    key: str = GO,
    offset_message_id: str = FIRST,
    *,
    body: bytes = b"paid",
    origin: str | None = None,
    order: str | None = None,
) -> Any:
    """A message as the remoting consumer brings it; `origin`: it comes again, from the retry topic; `order`: its
    business id."""
    properties = {"UNIQ_KEY": key, "TAGS": "paid"}
    properties |= {} if origin is None else {"ORIGIN_MESSAGE_ID": origin}
    properties |= {} if order is None else {"BUSINESS_ID": order}
    return SimpleNamespace(
        topic="ORDERS",
        unique_key=key,
        body=body,
        tags="paid",
        keys=None,
        reconsume_times=0,
        properties=properties,
        offset_message_id=offset_message_id,
    )


def as_noted_by_an_older_plug_in(message: Any) -> InboxEntry:
    """What 0.2.0 writes (checkback_consumers.message.dedupe_identity at 56d7d70a): it takes no such key for one."""
    name = message.properties.get("ORIGIN_MESSAGE_ID") or message.offset_message_id
    digest = digest_of_message(
        topic=message.topic, unique_key=name, properties=message.properties, body=message.body
    )  # fmt: skip
    return InboxEntry(
        group="billing", unique_key=name, topic=message.topic, content_digest=digest, dedupe_key=business_id(message)
    )
