"""A proxy between: it gets its login, keeps the deadline, and is named when it refuses, without its password."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.channels.http_post import HttpPost
from reconciler.errors import ChannelAway, ChannelRefused
from tests.services.certificates import Authority
from tests.unit.channels.networks import TunnelProxy, drip, flood, serving
from tests.unit.channels.receiver import Reply, receiving


@pytest.fixture
def use_proxy(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """HTTPS_PROXY and HTTP_PROXY are this from now on."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    def use(value: str) -> None:
        monkeypatch.setenv("http_proxy", value)
        monkeypatch.setenv("https_proxy", value)

    return use


def post(*, total_seconds: float = 10.0) -> HttpPost:
    return HttpPost(name="on-call", total_seconds=total_seconds)


def test_a_proxy_of_the_environment_is_asked_for_the_whole_address(use_proxy: Callable[[str], None]) -> None:
    with receiving() as proxy:
        use_proxy(proxy.url.replace("http://", "http://user:pass%21@").removesuffix("/hook"))
        post().send("http://someone:else@alerts.example:81/hook?a=b", b"{}", {})
    (got,) = proxy.received
    assert (got.target, got.headers["host"]) == ("http://alerts.example:81/hook?a=b", "alerts.example:81")
    assert got.headers["proxy-authorization"] == "Basic dXNlcjpwYXNzIQ=="
    assert got.headers["authorization"] == "Basic c29tZW9uZTplbHNl"


def test_a_proxy_sees_nothing_of_what_is_sent_over_tls(
    use_proxy: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    proxy = TunnelProxy()
    certificate = authority.issue("server", hosts=("alerts.example",))
    with (
        receiving(lambda _: Reply(status=200, body=b"ok"), certificate=certificate) as receiver,
        serving(proxy) as port,
    ):
        use_proxy(f"http://user:pass%21@127.0.0.1:{port}")
        url = receiver.url.replace("127.0.0.1", "someone:else@alerts.example")
        assert post().send(url, b"{}", {}).body == b"ok"
    assert (receiver.received[0].target, receiver.received[0].body) == ("/hook", b"{}")
    assert "proxy-authorization" not in receiver.received[0].headers
    authority_of_request = url.partition("@")[2].removesuffix("/hook")
    lines = proxy.request.decode().split("\r\n")
    assert lines[0] == f"CONNECT {authority_of_request} HTTP/1.1"
    assert {f"Host: {authority_of_request}", "Proxy-Authorization: Basic dXNlcjpwYXNzIQ=="} <= set(lines)
    assert not [line for line in lines if line.startswith("Authorization")]


@pytest.mark.parametrize(
    "value",
    ["http://svc:pa#ss@proxy:3128", "http://svc:12#pass@proxy", "http://svc:pa/ss@proxy:3128", "svc:pa?ss@proxy:3128"],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_malformed_proxy_is_named_without_a_part_of_its_password(
    use_proxy: Callable[[str], None], value: str, scheme: str
) -> None:
    use_proxy(value)
    with pytest.raises(ChannelRefused, match=f"{scheme.upper()}_PROXY is malformed.*percent-encoded") as caught:
        post().send(f"{scheme}://alerts.example/", b"{}", {})
    assert not [part for part in ("svc", "pa#", "pa'", "ss@") if part in str(caught.value)]


@pytest.mark.parametrize("value", ["https://svc:pass@127.0.0.1:{port}", "socks5://svc:pass@127.0.0.1:{port}"])
def test_no_password_is_sent_in_clear_to_a_proxy_that_wants_tls(use_proxy: Callable[[str], None], value: str) -> None:
    with receiving() as proxy:
        use_proxy(value.format(port=proxy.url.removesuffix("/hook").rpartition(":")[2]))
        with pytest.raises(ChannelRefused, match="HTTPS_PROXY does not begin with http://") as caught:
            post().send("https://alerts.example/", b"{}", {})
    assert proxy.received == []
    assert "svc" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "correct user and password in HTTPS_PROXY"),
        (403, "let the proxy of HTTPS_PROXY pass"),
        (407, "correct user and password in HTTPS_PROXY"),
        (404, "is HTTPS_PROXY the address of an HTTP proxy"),
    ],
)
def test_a_proxy_that_refuses_says_what_to_mend(use_proxy: Callable[[str], None], status: int, remedy: str) -> None:
    with receiving(lambda _: Reply(status=status)) as proxy:
        use_proxy(proxy.url.removesuffix("/hook"))
        with pytest.raises(ChannelRefused, match=remedy) as caught:
            post().send("https://token.hooks.example/", b"{}", {})
    assert f"the proxy of HTTPS_PROXY answers {status}" in str(caught.value)
    assert "token" not in str(caught.value)


def test_a_proxy_that_does_not_reach_the_receiver_is_asked_again(use_proxy: Callable[[str], None]) -> None:
    with receiving(lambda _: Reply(status=502)) as proxy:
        use_proxy(proxy.url.removesuffix("/hook"))
        with pytest.raises(ChannelAway, match="the proxy of HTTPS_PROXY answers 502"):
            post().send("https://alerts.example/", b"{}", {})


def test_a_login_that_a_proxy_wants_is_not_looked_for_at_the_receiver(use_proxy: Callable[[str], None]) -> None:
    with receiving(lambda _: Reply(status=407)) as proxy:
        use_proxy(proxy.url.removesuffix("/hook"))
        with pytest.raises(ChannelRefused, match="correct user and password in HTTP_PROXY"):
            post().send("http://alerts.example/", b"{}", {})


def test_a_proxy_that_drips_ends_with_the_total_time(use_proxy: Callable[[str], None]) -> None:
    with serving(drip) as port:
        use_proxy(f"http://127.0.0.1:{port}")
        began = time.monotonic()
        with pytest.raises(ChannelAway, match="no answer in time"):
            post(total_seconds=0.3).send("https://alerts.example/", b"{}", {})
    assert time.monotonic() - began < 60  # without the bound it would never end


def test_headers_of_a_proxy_without_end_are_not_read_to_their_end(use_proxy: Callable[[str], None]) -> None:
    with serving(flood) as port:
        use_proxy(f"http://127.0.0.1:{port}")
        with pytest.raises(ChannelAway, match="no answer: "):
            post().send("https://alerts.example/", b"{}", {})
