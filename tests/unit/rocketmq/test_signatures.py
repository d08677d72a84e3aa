"""Signatures of requests: computed here by hmac itself, by the rules of RocketMQ's AclUtils.combineRequestContent."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from reconciler.contract.secret import SecretText
from reconciler.contract.secret_sources import KeptSecret
from reconciler.embedded.access_control import BrokerUser
from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import AccessRefused, InvalidValue
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.acl import AclCredentials, RequestSigner, SignatureVerifier
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command

SECRET = "marked-secret-4711"
TOKEN = "marked-token-4712"


def by_the_book(command: Command, secret: str) -> str:
    fields = {name: value for name, value in command.fields.items() if name != "Signature"}
    content = "".join(fields[name] for name in sorted(fields)).encode() + command.body
    return base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()


@pytest.mark.parametrize(
    "request_of_ours",
    [
        Command(code=34, body=b'{"clientID":"a"}'),
        Command(code=105, fields={"topic": "T"}),
        Command(
            code=310, fields={"b": "T", "a": "G", "i": "KEYS\x01k\x02", "_z": "1", "Z": "2"}, body=b"\x00\xff" * 300
        ),
        Command(code=15, fields={"topic": "Größe", "commitOffset": "3"}, flag=2),
        Command(code=12, fields={"topic": "T", "Signature": "of an earlier try"}),
    ],
    ids=["no fields", "one field", "binary body and every kind of first letter", "one-way", "signed before"],
)
@pytest.mark.parametrize("secret", ["s", SECRET, "x" * 64, "y" * 65, "Schlüssel"])
def test_a_broker_computes_the_same_signature(request_of_ours: Command, secret: str) -> None:
    signer = RequestSigner(AclCredentials(access_key="ann", secret_key=secret, security_token=TOKEN))
    for _ in range(2):  # the second time its order is known
        signed = signer.sign(request_of_ours)
        assert signed.fields["AccessKey"] == "ann"
        assert signed.fields["SecurityToken"] == TOKEN
        assert signed.fields["Signature"] == by_the_book(signed, secret)
        assert SignatureVerifier(secret).accepts(signed, signed.fields)
    assert signed.body == request_of_ours.body
    assert (signed.code, signed.flag) == (request_of_ours.code, request_of_ours.flag)
    assert "AccessKey" not in request_of_ours.fields


@pytest.mark.parametrize("changed", [{"topic": "U"}, {"extra": "1"}, {"AccessKey": "bob"}, {"Signature": "Ä"}])
def test_a_request_that_was_changed_under_way_is_not_accepted(changed: dict[str, str]) -> None:
    signed = RequestSigner(AclCredentials(access_key="ann", secret_key=SECRET)).sign(
        Command(code=17, fields={"topic": "T"})
    )
    assert not SignatureVerifier(SECRET).accepts(signed, {**signed.fields, **changed})
    assert not SignatureVerifier("another").accepts(signed, signed.fields)
    assert SignatureVerifier(SECRET).accepts(signed, signed.fields)


def test_a_key_that_changes_under_way_signs_the_next_request() -> None:
    current = ["old"]
    signer = RequestSigner(AclCredentials(access_key="ann", secret_key=lambda: current[0]))
    request = Command(code=34)
    before = signer.sign(request)
    current[0] = "new"
    after = signer.sign(request)
    assert before.fields["Signature"] == by_the_book(before, "old")
    assert after.fields["Signature"] == by_the_book(after, "new")


def test_refused_key_is_read_again_for_the_next_request_and_a_storm_of_refusals_asks_once_a_second() -> None:
    text, now, asked = "old-secret", 0.0, 0

    def read() -> str:
        nonlocal asked
        asked += 1
        return text

    source = KeptSecret(read, name="secret_key", keep_seconds=60, monotonic=lambda: now)
    credentials = AclCredentials(access_key="ann", secret_key=SecretText(text, source))
    user = BrokerUser(access_key="ann", secret_key="new-secret")
    with EmbeddedBroker(users=[user]) as broker, RemotingClient(acl=credentials) as client:

        def request() -> int:
            return client.request(broker.address, Command(code=RequestCode.GET_BROKER_CONFIG)).code

        now = 5.0
        for _ in range(20):
            with pytest.raises(AccessRefused, match="did not accept the signature"):
                request()
        assert asked == 2
        text, now = "new-secret", 7.0
        assert request() == 0
        assert asked == 3


def test_orders_of_fields_that_a_peer_thinks_up_are_not_kept_for_ever() -> None:
    signer = RequestSigner(AclCredentials(access_key="ann", secret_key=SECRET))
    for number in range(1_000):
        signer.sign(Command(code=10, fields={f"field{number}": "1"}))
    assert len(signer._orders) <= 256


def test_no_text_about_credentials_has_a_secret_in_it() -> None:
    credentials = AclCredentials(access_key="ann", secret_key=SECRET, security_token=TOKEN)
    for text in (repr(credentials), str(credentials), f"{RequestSigner(credentials)!r}"):
        assert SECRET not in text
        assert TOKEN not in text
    with pytest.raises(InvalidValue) as caught:
        AclCredentials(access_key="", secret_key=SECRET)
    assert SECRET not in str(caught.value)
