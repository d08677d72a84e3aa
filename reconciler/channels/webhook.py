"""A notice as JSON to any receiver, signed as https://www.standardwebhooks.com says (specification 1.0).

    webhook-id         the notice's id: all tries of one notice have the same id
    webhook-timestamp  seconds since 1970 of this try
    webhook-signature  v1,<base64 of HMAC-SHA256 of "id.timestamp.body">, one for each secret, with spaces between them

A secret is the base64 text of 24 to 64 random bytes, with or without whsec_ before it. The body, version 1:

| member | value |
|---|---|
| `version` | 1; new members may come without a new version |
| `type` | `reconciler.` and the kind in lower case, as `reconciler.loss_proved` |
| `timestamp` | RFC 3339 UTC of `written_at_ms` |
| `data.notice_id` | as `webhook-id` |
| `data.environment` | `environment` of the settings |
| `data.kind` | LOSS_PROVED, QUARANTINED, REPAIR_FAILED, BREAKER_OPEN, OUTAGE, AUDIT_VIOLATION, ROUNDS_STALE, ACCOUNTED_UNTIL_STALE, LEDGER_AWAY, BROKER_AWAY or DATABASE_AWAY |
| `data.topic`, `data.consumer_group` | text; null: the notice concerns no single topic or group |
| `data.is_over` | true: the trouble has ended |
| `data.is_test` | true: `reconciler notify` sent it, nothing has happened |
| `data.count` | losses since the last message, quarantined keys, failed repairs, audited days, outages, brokers or databases that are away; 0: nothing is counted |
| `data.since_ms` | beginning of the trouble, milliseconds since 1970 UTC |
| `data.until_ms` | end of the trouble; for ACCOUNTED_UNTIL_STALE the accounted-until time; null: none |
| `data.detail` | one line with texts from outside: do not trust it; may be empty |
| `data.business_id` | business id of the unique key in `detail`, from its outbox; null: there is none, or no outbox answered |
| `data.written_at_ms` | when the notice was written |
| `data.console_url` | page of the console about the trouble, or null |
"""  # noqa: E501 - one row of a table is one line

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Sequence

from reconciler.channels.http_post import HttpPost
from reconciler.channels.links import console_link
from reconciler.clock import utc_text
from reconciler.contract.secret import SecretText
from reconciler.contract.secret_sources import signature_secrets
from reconciler.contract.tables import NoticeKind
from reconciler.errors import ChannelRefused
from reconciler.telling.ports.notices import Notice
from reconciler.words import said

VERSION = 1
SECRET_PREFIX = "whsec_"  # noqa: S105 - what stands before one
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64


class WebhookChannel:
    """Sends notices by POST (ports.NoticeChannel). Used by one thread at a time."""

    refusals: Sequence[str] = ()

    def __init__(
        self, *, name: str, url: SecretText, secrets: Sequence[SecretText], console_url: str | None, post: HttpPost
    ) -> None:
        """`secrets`: secrets that each make a signature. Empty: messages have no signature."""
        self._name = name
        self._url = url
        self._secrets = secrets
        self._console_url = console_url
        self._post = post

    def send(self, notice: Notice, *, at_ms: int) -> None:
        """Sends one POST. Raises ChannelAway and ChannelRefused."""
        body = encode_notice(notice, console_url=self._console_url)
        keys = [self._key_of(text) for secret in self._secrets for text in signature_secrets(secret)]
        headers = {"Content-Type": "application/json"}
        self._post.send(self._url.reveal(), body, headers | _signed(notice.notice_id, body, keys, at_ms))

    def _key_of(self, text: str) -> bytes:
        try:
            return signing_key(text)
        except ValueError as error:
            raise ChannelRefused(f"{self._name}: its secret {error}") from None


def signing_key(text: str) -> bytes:
    """Decodes a secret. Raises ValueError, whose text has a remedy and no part of the secret."""
    try:
        key = b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        bounds = f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
        raise ValueError(f"is no base64 text of {bounds}; make one with `openssl rand -base64 32`")
    return key


def _signed(notice_id: str, body: bytes, keys: Sequence[bytes], at_ms: int) -> dict[str, str]:
    """Makes the headers of the specification."""
    headers = {"webhook-id": notice_id, "webhook-timestamp": str(at_ms // 1000)}
    if keys:
        signed = f"{notice_id}.{at_ms // 1000}.".encode() + body
        headers["webhook-signature"] = " ".join(_signature(key, signed) for key in keys)
    return headers


def _signature(key: bytes, signed: bytes) -> str:
    return f"v1,{b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def encode_notice(notice: Notice, *, console_url: str | None) -> bytes:
    """Encodes the body in ASCII. Invisible characters are escaped."""
    document = {
        "version": VERSION,
        "type": f"reconciler.{notice.kind.value.lower()}",
        "timestamp": utc_text(notice.written_at_ms, timespec="milliseconds"),
        "data": {
            "notice_id": notice.notice_id,
            "environment": notice.environment,
            "kind": notice.kind.value,
            "topic": notice.topic,
            "consumer_group": notice.group,
            "is_over": notice.is_over,
            "is_test": notice.is_test,
            "count": notice.count,
            "since_ms": notice.since_ms,
            "until_ms": notice.until_ms,
            "detail": notice.detail or ("" if notice.cause is None else said(notice.cause)),
            "business_id": notice.business_id or None,
            "written_at_ms": notice.written_at_ms,
            "console_url": None if console_url is None else console_link(console_url, notice),
        },
    }
    return json.dumps(document, separators=(",", ":")).encode()


def example_lines() -> list[str]:
    """Makes headers and body of one message, for the reference and for receivers' own tests."""
    at_ms = 1_764_000_000_000
    notice = Notice(
        notice_id="01KATN3N00EXAMPLEEXAMPLE00",
        environment="production",
        kind=NoticeKind.LOSS_PROVED,
        topic="ORDERS",
        group="billing",
        is_over=False,
        count=3,
        since_ms=at_ms - 8_000,
        until_ms=None,
        detail="7F00000100002A9F0000000000000090",
        written_at_ms=at_ms - 1_000,
    )
    body = encode_notice(notice, console_url="https://reconciler.example")
    headers = _signed(notice.notice_id, body, [signing_key("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")], at_ms)
    return [*(f"{name}: {value}" for name, value in headers.items()), "", body.decode()]
