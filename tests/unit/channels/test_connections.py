"""A connection keeps the deadline of its delivery, whatever the network does before the first byte of an answer."""

from __future__ import annotations

import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest

from reconciler.channels.connections import open_connection
from reconciler.channels.deadline import Deadline
from reconciler.channels.http_post import HttpPost
from reconciler.clock import SystemClock
from reconciler.errors import ChannelAway, ChannelRefused
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.unit.channels.networks import resolve_as, say_nothing, serving, swallowing
from tests.unit.channels.receiver import receiving


def post(*, step_seconds: float = 60.0, total_seconds: float = 120.0) -> HttpPost:
    return HttpPost(name="on-call", step_seconds=step_seconds, total_seconds=total_seconds)


def test_an_address_that_a_firewall_drops_leaves_time_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver, swallowing() as hole:
        resolve_as(monkeypatch, [hole, int(receiver.url.removesuffix("/hook").rpartition(":")[2])])

        def arrives() -> bool:
            with suppress(ChannelAway):  # on a busy machine three seconds may be over before it is tried
                post(total_seconds=3.0).send("http://two-addresses.example/hook", b"{}", {})
            return bool(receiver.received)

        eventually(arrives, within_seconds=60)


def test_many_dropped_addresses_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with swallowing() as hole:
        resolve_as(monkeypatch, [hole] * 200)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            open_connection("many.example", 1, Deadline(SystemClock(), 0.4, step_seconds=0.4))
    assert time.monotonic() - began < 40  # two hundred times 0.4 s are eighty


def test_a_server_that_never_ends_its_handshake_is_not_waited_for() -> None:
    with serving(say_nothing) as port:
        began = time.monotonic()
        with pytest.raises(ChannelAway, match="no answer in time"):
            post(step_seconds=20.0, total_seconds=0.3).send(f"https://127.0.0.1:{port}/", b"{}", {})
    assert time.monotonic() - began < 19  # one step has 20 s


@pytest.mark.parametrize(
    ("hosts", "days", "problem"),
    [(("other.example",), 30, "valid for another address"), (("127.0.0.1",), -1, "expired")],
)
def test_a_certificate_that_is_not_trusted_does_not_tell_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...], days: int, problem: str
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with (
        receiving(certificate=authority.issue("server", hosts=hosts, days=days)) as receiver,
        pytest.raises(ChannelRefused, match=problem) as caught,
    ):
        post().send(receiver.url, b"{}", {})
    assert "127.0.0.1" not in str(caught.value)


def test_what_python_3_13_misses_in_a_certificate_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strict() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(authority.file)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # as create_default_context() of 3.13 does
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    authority = Authority(tmp_path, "with", key_identifiers=True)
    with receiving(certificate=authority.issue("server")) as receiver:
        post().send(receiver.url, b"{}", {})
        assert len(receiver.received) == 1
    authority = Authority(tmp_path, "without", key_identifiers=False)
    with (
        receiving(certificate=authority.issue("server")) as receiver,
        pytest.raises(
            ChannelRefused, match=r"lacks the extension Authority Key Identifier, which Python 3\.13"
        ) as caught,
    ):
        post().send(receiver.url, b"{}", {})
    assert "127.0.0.1" not in str(caught.value)
    assert "verify code" not in str(caught.value)


def test_a_certificate_of_another_host_does_not_tell_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with receiving(certificate=authority.issue("server")) as receiver:
        resolve_as(monkeypatch, [int(receiver.url.removesuffix("/hook").rpartition(":")[2])])
        with pytest.raises(ChannelRefused, match="valid for another name") as caught:
            post().send("https://token.hooks.example/", b"{}", {})
    assert "token" not in str(caught.value)


def test_a_certificate_of_an_unknown_authority_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path / "known").file))
    with (
        receiving(certificate=Authority(tmp_path / "stranger", "stranger").issue("server")) as receiver,
        pytest.raises(ChannelRefused, match="its authority is unknown; give its authority in SSL_CERT_FILE"),
    ):
        post().send(receiver.url, b"{}", {})
