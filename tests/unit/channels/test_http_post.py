"""A receiver must neither hold a thread for ever, nor lead elsewhere, nor be named with its token."""

from __future__ import annotations

import threading
import time

import pytest

from reconciler.channels.http_post import ANSWER_BYTES_MAX, HttpPost
from reconciler.errors import ChannelAway, ChannelRefused
from tests.services.ports import free_port
from tests.unit.channels.networks import drip, serving
from tests.unit.channels.receiver import Reply, receiving


def post(*, step_seconds: float = 60.0, total_seconds: float = 120.0) -> HttpPost:
    return HttpPost(name="on-call", step_seconds=step_seconds, total_seconds=total_seconds)


def test_what_is_sent_arrives_as_it_is() -> None:
    with receiving(lambda _: Reply(status=200, body=b'{"errcode":0}')) as receiver:
        answer = post().send(f"{receiver.url}?token=a%20b", b"{}", {"Content-Type": "application/json"})
    assert (answer.status, answer.body) == (200, b'{"errcode":0}')
    assert receiver.received[0].target == "/hook?token=a%20b"
    assert receiver.received[0].body == b"{}"


@pytest.mark.parametrize(
    ("url", "port"), [("http://a.example/x", 80), ("https://a.example/x", 443), ("https://a.example:8443/x", 8443)]
)
def test_a_url_without_a_port_means_the_one_of_its_scheme(url: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def look_up(*asking: object, **_: object) -> list[object]:
        asked.append(asking)
        return []

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    with pytest.raises(ChannelAway):
        post().send(url, b"{}", {})
    assert asked == [("a.example", port)]


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


def test_a_receiver_that_drips_ends_with_the_total_time() -> None:
    with serving(drip) as port:
        began = time.monotonic()
        with pytest.raises(ChannelAway, match="no answer in time"):
            post(step_seconds=5.0, total_seconds=0.3).send(f"http://127.0.0.1:{port}/", b"{}", {})
    assert time.monotonic() - began < 60  # without the bound it would never end


@pytest.mark.parametrize("url", ["ftp://host/TOKEN", "https://", "http://[::1/TOKEN", "http://host:0/TOKEN", "TOKEN"])
def test_an_address_that_is_none_is_refused_without_its_token(url: str) -> None:
    with pytest.raises(ChannelRefused) as caught:
        post().send(url, b"{}", {})
    assert "TOKEN" not in str(caught.value)


def test_a_receiver_that_is_away_is_named_without_its_token() -> None:
    with pytest.raises(ChannelAway) as caught:
        post().send(f"http://127.0.0.1:{free_port()}/TOKEN", b"{}", {})
    assert str(caught.value) == "on-call: no answer: Connection refused"


@pytest.mark.parametrize(
    ("login", "sent"),
    [
        ("ops:pa%23s%40s", "Basic b3BzOnBhI3NAcw=="),  # printf '%s' 'ops:pa#s@s' | base64
        ("%C3%BCser:p%C3%A4ss", "Basic w7xzZXI6cMOkc3M="),  # of 'üser:päss' in UTF-8
        ("token", "Basic dG9rZW46"),
    ],
)
def test_a_login_in_the_url_reaches_the_receiver(login: str, sent: str) -> None:
    with receiving() as receiver:
        url = receiver.url.replace("http://", f"http://{login}@")
        post().send(url, b"{}", {})
        post().ping(url)
    assert [one.headers["authorization"] for one in receiver.received] == [sent, sent]
    assert [one.headers["host"] for one in receiver.received] == [receiver.url.split("/")[2]] * 2


def test_without_a_login_none_is_sent() -> None:
    with receiving() as receiver:
        post().send(receiver.url, b"{}", {})
    assert "authorization" not in receiver.received[0].headers
