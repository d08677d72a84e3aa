"""What a webhook sends, byte by byte: receivers verify the bytes, and read members by their names."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence

import pytest

from reconciler.channels.http_post import HttpPost
from reconciler.channels.webhook import WebhookChannel, encode_notice, example_lines
from reconciler.contract.secret import SecretText
from reconciler.contract.secret_sources import KeptSecret
from reconciler.contract.tables import NoticeKind
from reconciler.errors import ChannelRefused
from reconciler.telling.ports.notices import Notice
from tests.unit.channels.receiver import receiving

AT_MS = 1_764_000_000_500
#: The example of https://www.standardwebhooks.com, and another one.
SECRET = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(bytes(range(32))).decode()
LOSS = Notice(
    notice_id="01KB0000000000000000000000",
    environment="production",
    kind=NoticeKind.LOSS_PROVED,
    topic="ORDERS",
    group="billing & co",
    is_over=False,
    count=3,
    since_ms=1_763_999_990_000,
    until_ms=None,
    detail="7F00\u202e\x1b[2J",
    written_at_ms=1_763_999_999_001,
)
BODY = (
    b'{"version":1,"type":"reconciler.loss_proved","timestamp":"2025-11-24T15:59:59.001Z","data":{'
    b'"notice_id":"01KB0000000000000000000000","environment":"production","kind":"LOSS_PROVED","topic":"ORDERS",'
    b'"consumer_group":"billing & co","is_over":false,"is_test":false,"count":3,"since_ms":1763999990000,'
    b'"until_ms":null,"detail":"7F00\\u202e\\u001b[2J","business_id":null,"written_at_ms":1763999999001,'
    b'"console_url":"https://console.example/r/losses?topic=ORDERS&group=billing%20%26%20co"}}'
)


def channel(url: str, secrets: Sequence[str | SecretText], *, console_url: str | None = None) -> WebhookChannel:
    hidden = [SecretText(secret) if isinstance(secret, str) else secret for secret in secrets]
    return WebhookChannel(
        name="on-call", url=SecretText(url), secrets=hidden, console_url=console_url, post=HttpPost(name="on-call")
    )


def test_the_body_is_what_the_reference_says() -> None:
    assert encode_notice(LOSS, console_url="https://console.example/r/") == BODY
    assert json.loads(encode_notice(LOSS, console_url=None))["data"]["console_url"] is None


@pytest.mark.parametrize(
    "secrets",
    [
        pytest.param([SECRET, OTHER], id="two-secrets"),
        pytest.param(
            [SecretText(SECRET, KeptSecret(f"{SECRET}\n{OTHER}".strip, name="secret", keep_seconds=60.0))],
            id="two-lines-of-a-file",
        ),
    ],
)
def test_each_secret_signs_so_that_a_receiver_can_change_over(secrets: Sequence[str | SecretText]) -> None:
    with receiving() as receiver:
        channel(receiver.url, secrets, console_url="https://console.example/r").send(LOSS, at_ms=AT_MS)
    (got,) = receiver.received
    assert got.body == BODY
    assert (got.headers["webhook-id"], got.headers["webhook-timestamp"]) == (LOSS.notice_id, "1764000000")
    assert got.headers["content-type"] == "application/json"
    signed = b"01KB0000000000000000000000.1764000000." + BODY
    expected = [
        "v1," + base64.b64encode(hmac.new(base64.b64decode(key), signed, hashlib.sha256).digest()).decode()
        for key in (SECRET, OTHER.removeprefix("whsec_"))
    ]
    assert got.headers["webhook-signature"] == " ".join(expected)


def test_without_a_secret_nothing_pretends_to_be_signed() -> None:
    with receiving() as receiver:
        channel(receiver.url, []).send(LOSS, at_ms=AT_MS)
    assert "webhook-signature" not in receiver.received[0].headers


@pytest.mark.parametrize("secret", ["short", "c2hvcnQ=", "not base64 at all, but long enough", "é" * 40])
def test_a_secret_that_signs_nothing_is_refused_and_not_shown(secret: str) -> None:
    with receiving() as receiver, pytest.raises(ChannelRefused, match="openssl rand") as caught:
        channel(receiver.url, [secret]).send(LOSS, at_ms=AT_MS)
    assert secret not in str(caught.value)
    assert receiver.received == []


def test_the_example_of_the_reference_verifies_as_the_specification_says() -> None:
    headers = dict(line.split(": ", 1) for line in example_lines()[:3])
    body = example_lines()[-1]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
    expected = base64.b64encode(hmac.new(base64.b64decode(SECRET), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
