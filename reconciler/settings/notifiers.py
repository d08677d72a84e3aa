"""`[[notifiers]]`: the receivers of notices, which say that something needs a person, and the way to each receiver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from reconciler.contract.secret import SecretText
from reconciler.contract.tables import NoticeKind
from reconciler.contract.urls import read_mail_url
from reconciler.settings.types import MASKED, LinkUrl, SecretValues, Section, no_duplicates, plain_secret


class NotifierKind(StrEnum):
    """The kind of receiver to which a notifier sends."""

    WEBHOOK = "webhook"
    DINGTALK = "dingtalk"
    FEISHU = "feishu"
    WECOM = "wecom"
    SLACK = "slack"
    EMAIL = "email"
    PING = "ping"


_TOLD = [kind for kind in NotifierKind if kind is not NotifierKind.PING]
_MAIL_SCHEMES = ("smtp://", "smtps://")


def _receiver_url(value: Any) -> SecretText:
    secret = plain_secret(value)
    if secret.reveal().startswith(_MAIL_SCHEMES):
        read_mail_url(secret)
        return secret
    try:
        parts = urlsplit(secret.reveal())
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        is_url = False
    if not is_url or not secret.reveal().isascii() or not secret.reveal().isprintable() or " " in secret.reveal():
        raise ValueError("expected an http:// or https:// URL, percent-encoded; of an email smtp:// or smtps://")
    return secret


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is no zone that this machine knows; expected one like Asia/Shanghai") from None
    return value


#: One address without a display name, as in RFC 5321, 4.1.2, but without quoted names.
MailAddress = Annotated[
    str,
    Field(max_length=254, pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?$"),
]
ZoneName = Annotated[str, Field(max_length=64), AfterValidator(_zone)]
#: The address of a receiver, which usually contains its token.
ReceiverUrl = Annotated[SecretText, PlainValidator(_receiver_url), *MASKED]


class NotifierSettings(Section):
    """One receiver of notices, or of the dead man's ping."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")] = Field(
        description="Name of the notifier, in logs, metrics and the ledger. Another name begins from nothing."
    )
    kind: NotifierKind = Field(
        description=f"What it sends to: {', '.join(_TOLD)}, or {NotifierKind.PING} (a dead man's switch)."
    )
    url: ReceiverUrl = Field(
        description="Address that is posted to; email: smtp://user:password@host:587 (STARTTLS) or smtps://."
    )
    secret: SecretValues | None = Field(
        default=None,
        description="webhook: signs each message (Standard Webhooks). If it is a list, all of them sign, while a "
        "receiver changes over. dingtalk, feishu: the secret of the robot's signature, the first one of a list.",
    )
    sender: MailAddress | None = Field(default=None, description="email: the address that it comes from.")
    recipients: (
        Annotated[list[MailAddress], Field(min_length=1, max_length=50), BeforeValidator(no_duplicates)] | None
    ) = Field(default=None, description="email: the addresses that it goes to.")
    language: Literal["en", "zh"] = Field(default="en", description="Language of the messages; a webhook has none.")
    zone: ZoneName = Field(default="UTC", description="Zone in which messages tell times; a webhook has none.")
    console_url: LinkUrl | None = Field(
        default=None,
        description="Address of the console, to which messages of this notifier link; unset: that of web.public_url.",
    )
    notices: Annotated[list[NoticeKind], Field(min_length=1), BeforeValidator(no_duplicates)] | None = Field(
        default=None, description="What is told; unset: everything."
    )
    business_ids: bool = Field(
        default=True,
        description="false: messages of this notifier have no business ids, which may be order numbers of people.",
    )
    interval_minutes: Annotated[float, Field(ge=0, le=1_440)] = Field(
        default=15.0,
        description="Shortest time between two messages about one kind of trouble, one topic and one group.",
    )
    reminder_hours: Annotated[float, Field(gt=0, le=720)] = Field(
        default=4.0, description="A trouble that goes on is told again after this."
    )
    patience_minutes: Annotated[float, Field(ge=0, le=1_440)] = Field(
        default=5.0,
        description="LOSS_PROVED, OUTAGE, BROKER_AWAY and DATABASE_AWAY are told once they have lasted for so long, or "
        "have come three times within an hour. 0: at once.",
    )
    ping_interval_seconds: Annotated[float, Field(ge=10, le=86_400)] = Field(
        default=60.0, description="ping: time between two pings."
    )


_OF_MESSAGES = frozenset(
    {"console_url", "notices", "business_ids", "interval_minutes", "reminder_hours", "patience_minutes"}
)
_OF_TEXTS = _OF_MESSAGES | {"language", "zone"}
#: Fields that only some kinds of receivers have.
_OWN_FIELDS: Mapping[NotifierKind, frozenset[str]] = {
    NotifierKind.WEBHOOK: _OF_MESSAGES | {"secret"},
    NotifierKind.DINGTALK: _OF_TEXTS | {"secret"},
    NotifierKind.FEISHU: _OF_TEXTS | {"secret"},
    NotifierKind.WECOM: _OF_TEXTS,
    NotifierKind.SLACK: _OF_TEXTS,
    NotifierKind.EMAIL: _OF_TEXTS | {"sender", "recipients"},
    NotifierKind.PING: frozenset({"ping_interval_seconds"}),
}


def notifier_problems(notifiers: Sequence[NotifierSettings]) -> Iterator[str]:
    """Yields one line for each field that contradicts another field. The line contains field, value and remedy."""
    names: set[str] = set()
    for number, one in enumerate(notifiers):
        where = f"notifiers[{number}]"
        if one.name in names:
            yield f"{where}.name = {one.name!r}: is the name of another notifier, too; give it one of its own"
        names.add(one.name)
        foreign = frozenset().union(*_OWN_FIELDS.values()) - _OWN_FIELDS[one.kind]
        yield from (
            f"{where}.{name} is set and kind = {one.kind.value!r} has no use for it: remove it"
            for name in sorted(foreign & one.model_fields_set)
        )
        is_mail = one.kind is NotifierKind.EMAIL
        if one.url.reveal().startswith(_MAIL_SCHEMES) is not is_mail:
            schemes = "smtp:// or smtps://" if is_mail else "http:// or https://"
            yield f"{where}.url: kind = {one.kind.value!r} wants an address that begins with {schemes}"
        if is_mail:
            yield from (
                f"{where}.{name} is not set: an email has to have one"
                for name in ("sender", "recipients")
                if getattr(one, name) is None
            )
