"""A receiver must neither hold a thread for ever, nor lead elsewhere, nor be named with its token."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from reconciler.channels.http_post import ANSWER_BYTES_MAX, HttpPost
from reconciler.errors import ChannelAway, ChannelRefused
from tests.unit.channels.receiver import Reply, receiving


def post(*, step_seconds: float = 5.0, total_seconds: float = 10.0) -> HttpPost:
    return HttpPost(name="on-call", step_seconds=step_seconds, total_seconds=total_seconds)


def test_what_is_sent_arrives_as_it_is() -> None:
    with receiving(lambda _: Reply(status=200, body=b'{"errcode":0}')) as receiver:
        answer = post().send(f"{receiver.url}?token=a%20b", b"{}", {"Content-Type": "application/json"})
    assert (answer.status, answer.body) == (200, b'{"errcode":0}')
    assert receiver.received[0].target == "/hook?token=a%20b"
    assert receiver.received[0].body == b"{}"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_a_receiver_that_fails_is_asked_again_when_it_says(status: int) -> None:
    reply = Reply(status=status, headers={"Retry-After": "120"})
    with receiving(lambda _: reply) as receiver, pytest.raises(ChannelAway, match=str(status)) as caught:
        post().send(receiver.url, b"{}", {})
    assert caught.value.retry_after_seconds == 120


def test_a_date_to_come_back_at_is_read_by_the_receivers_own_clock() -> None:
    headers = {"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT"}
    with receiving(lambda _: Reply(status=503, headers=headers)) as receiver, pytest.raises(ChannelAway) as caught:
        post().send(receiver.url, b"{}", {})
    assert caught.value.retry_after_seconds == 0  # long past, by the date that the server sends with every answer


@pytest.mark.parametrize(("status", "remedy"), [(401, "token"), (404, "url"), (422, "log")])
def test_a_refusal_says_what_to_mend(status: int, remedy: str) -> None:
    with receiving(lambda _: Reply(status=status)) as receiver, pytest.raises(ChannelRefused, match=remedy):
        post().send(receiver.url, b"{}", {})


def test_a_redirect_is_not_followed() -> None:
    with receiving() as elsewhere:
        reply = Reply(status=307, headers={"Location": elsewhere.url})
        with receiving(lambda _: reply) as receiver, pytest.raises(ChannelRefused, match="redirect"):
            post().send(receiver.url, b"{}", {})
        assert elsewhere.received == []


def test_an_endless_answer_is_cut() -> None:
    with receiving(lambda _: Reply(status=200, body=b"x" * (ANSWER_BYTES_MAX + 5))) as receiver:
        assert len(post().send(receiver.url, b"{}", {}).body) == ANSWER_BYTES_MAX


def test_a_receiver_that_hangs_ends_with_the_time_of_one_step() -> None:
    release = threading.Event()
    with receiving(lambda _: Reply(hangs=release)) as receiver:
        try:
            with pytest.raises(ChannelAway, match="no answer in time"):
                post(step_seconds=0.2).send(receiver.url, b"{}", {})
        finally:
            release.set()


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that sends one byte of a header again and again, and never ends it."""
    stop = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not stop.wait(0.02):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        stop.set()
        thread.join()


def test_a_receiver_that_drips_ends_with_the_total_time(dripping: str) -> None:
    began = time.monotonic()
    with pytest.raises(ChannelAway, match="no answer in time"):
        post(step_seconds=5.0, total_seconds=0.3).send(dripping, b"{}", {})
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("url", ["ftp://host/TOKEN", "https://", "http://[::1/TOKEN", "http://host:0/TOKEN", "TOKEN"])
def test_an_address_that_is_none_is_refused_without_its_token(url: str) -> None:
    with pytest.raises(ChannelRefused) as caught:
        post().send(url, b"{}", {})
    assert "TOKEN" not in str(caught.value)


def test_a_receiver_that_is_away_is_named_without_its_token() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ChannelAway) as caught:
        post().send(f"http://127.0.0.1:{port}/TOKEN", b"{}", {})
    assert str(caught.value) == "on-call: no answer: Connection refused"


def test_a_proxy_of_the_environment_is_asked_for_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://user:pass%21@").removesuffix("/hook"))
        monkeypatch.delenv("no_proxy", raising=False)
        post().send("http://alerts.example:81/hook?a=b", b"{}", {})
    assert proxy.received[0].target == "http://alerts.example:81/hook?a=b"
    assert proxy.received[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNzIQ=="
