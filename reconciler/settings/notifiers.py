"""`[[notifiers]]`: who is told when something needs a person, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PlainValidator

from reconciler.contract.secret import SecretText
from reconciler.contract.tables import NoticeKind
from reconciler.settings.types import MASKED, ConsoleUrl, SecretValues, Section, no_duplicates, plain_secret


class NotifierKind(StrEnum):
    """What a notifier sends to."""

    WEBHOOK = "webhook"
    PING = "ping"


def _receiver_url(value: Any) -> SecretText:
    secret = plain_secret(value)
    try:
        parts = urlsplit(secret.reveal())
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not secret.reveal().isascii() or not secret.reveal().isprintable() or " " in secret.reveal():
        raise ValueError("expected an http:// or https:// URL, percent-encoded")
    return secret


#: The address of a receiver, which holds its token as a rule.
ReceiverUrl = Annotated[SecretText, PlainValidator(_receiver_url), *MASKED]


class NotifierSettings(Section):
    """One receiver of notices, or of a dead man's ping."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")] = Field(
        description="Name of the notifier, in logs, metrics and the ledger. Another name begins from nothing."
    )
    kind: NotifierKind = Field(description="What it sends to: webhook, or ping (a dead man's switch).")
    url: ReceiverUrl = Field(description="Address that is posted to.")
    secret: SecretValues | None = Field(
        default=None,
        description="webhook: signs each message (Standard Webhooks). Of a list each one signs, while a receiver "
        "changes over.",
    )
    language: Literal["en", "zh"] = Field(default="en", description="Language of the messages.")
    console_url: ConsoleUrl | None = Field(
        default=None, description="Address of the console, to which messages link; unset: they have no link."
    )
    notices: Annotated[list[NoticeKind], Field(min_length=1), BeforeValidator(no_duplicates)] | None = Field(
        default=None, description="What is told; unset: everything."
    )
    interval_minutes: Annotated[float, Field(ge=0, le=1_440)] = Field(
        default=15.0, description="Of one trouble, one topic and one group, the shortest time between two messages."
    )
    reminder_hours: Annotated[float, Field(gt=0, le=720)] = Field(
        default=4.0, description="A trouble that goes on is told again after this."
    )
    ping_interval_seconds: Annotated[float, Field(ge=10, le=86_400)] = Field(
        default=60.0, description="ping: time between two pings."
    )


def notifier_problems(notifiers: Sequence[NotifierSettings]) -> Iterator[str]:
    """Fields that do not fit together; each line names field, value and remedy."""
    names: set[str] = set()
    for number, one in enumerate(notifiers):
        where = f"notifiers[{number}]"
        if one.name in names:
            yield f"{where}.name = {one.name!r}: is the name of another notifier, too; give it one of its own"
        names.add(one.name)
        of_messages = {"secret", "language", "console_url", "notices", "interval_minutes", "reminder_hours"}
        foreign = of_messages if one.kind is NotifierKind.PING else {"ping_interval_seconds"}
        yield from (
            f"{where}.{name} is set and kind = {one.kind.value!r} has no use for it: remove it"
            for name in sorted(foreign & one.model_fields_set)
        )
