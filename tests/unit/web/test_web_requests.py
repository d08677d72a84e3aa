"""Requests over HTTP, to a server whose dependencies are all away: what is told, and to whom."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from reconciler.clock import SystemClock
from reconciler.commands.metrics import StatusReading
from reconciler.commands.status.report import StatusReport
from reconciler.errors import (
    BrokerBusy,
    ConfigurationError,
    InvalidValue,
    InvariantViolation,
    MalformedInput,
    ReconcilerError,
    UsageError,
)
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.settings.file import load_settings
from reconciler.web.problems import PROBLEM_JSON, refusal_of
from reconciler.web.roles import WebRole
from reconciler.web.route import Surface
from reconciler.web.routes import ROUTES
from reconciler.web.server import serving_web
from reconciler.web.services import WebServices
from reconciler.wiring.connections import Connections
from tests.services.ports import free_port
from tests.unit.web.reports import facts_of, report_of

ROOT = Path(__file__).parents[3]
#: Markup, a cursor that moves, text turned round, and half of a surrogate pair.
HOSTILE = "<script>alert(1)</script> & \"'\x1b[2J\u202egnp.exe \ud800"


def status_of(line: str) -> StatusReport:
    return report_of(away=facts_of(line))


class Server:
    """Asked by its address."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(
        self, path: str, *, method: str = "GET", host: str = "", headers: dict[str, str] | None = None, body: str = ""
    ) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                method, path, body or None, headers={"Host": host or f"127.0.0.1:{self.port}", **(headers or {})}
            )
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, told, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(params=["", "/reconciler"], ids=["at the root", "below a prefix"])
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(prefix: str, tmp_path: Path) -> Iterator[Server]:
    variables = {"RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/none.db", "RECONCILER_WEB__URL_PREFIX": prefix}
    settings = load_settings(ROOT / "config" / "reconciler.toml", variables)
    with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()) as (_, port):
        yield Server(port)


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebServices, "newest_status", lambda _services: status_of(HOSTILE))


def test_the_console_shows_the_status_that_its_process_has_read(tmp_path: Path) -> None:
    """Brokers and databases are asked once, whoever looks: a console, a scrape, a notice."""
    read: list[StatusReport] = []

    def reads() -> StatusReport:
        read.append(status_of(HOSTILE))
        return read[-1]

    settings = load_settings(ROOT / "config" / "reconciler.toml", {"RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/n"})
    shared: StatusReading = LatestReading(reads, clock=SystemClock(), interval_seconds=60.0)
    with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock(), status=shared) as (_, port):
        for _ in range(2):
            code, _, text = Server(port).get("/api/v1/status")
            assert (code, json.loads(text)["away"]) == (200, [HOSTILE])
    assert shared.get() is read[0]
    assert len(read) == 1


@pytest.mark.usefixtures("status")
def test_hostile_text_is_shown_and_not_obeyed(server: Server, prefix: str) -> None:
    code, told, page = server.get(f"{prefix}/")
    assert (code, told["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for seen in ("\\u{001B}", "\\u{202E}", "\\u{D800}"):
        assert seen in page
    code, told, text = server.get(f"{prefix}/api/v1/status")
    assert (code, told["content-type"]) == (200, "application/json")
    assert not set(text) & {"\x1b", "\u202e"}
    document = json.loads(text)
    assert document["away"] == [HOSTILE]
    assert document["exit_code"] == 3


@pytest.mark.usefixtures("status")
def test_every_answer_forbids_scripts_frames_guesses_and_copies(server: Server, prefix: str) -> None:
    for path in ("/", "/api/v1/status", "/nothing", "/api/v1/nothing"):
        _, told, page = server.get(prefix + path)
        policy = told["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (told["x-content-type-options"], told["referrer-policy"]) == ("nosniff", "same-origin")
        assert told["cache-control"] == "no-store"
        assert not {"server", "strict-transport-security"} & told.keys()
        assert " style=" not in page
        own = f'<script defer src="{prefix}/static/'
        assert page.count("<script") == page.count(own) or told["content-type"].endswith("json")


@pytest.mark.usefixtures("status")
@pytest.mark.parametrize("host", ["reconciler.example:8378", "127.0.0.1.example", "10.0.0.1", "a b", "[::2]"])
def test_a_page_of_another_site_whose_name_leads_here_sees_nothing(server: Server, prefix: str, host: str) -> None:
    for route in (one for one in ROUTES if not one.is_health):
        code, _, text = server.get(prefix + route.path, method=route.method, host=host)
        assert code == 421
        assert "alert" not in text


@pytest.mark.usefixtures("status")
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8378", "127.0.0.1", "127.0.0.1:1", "[::1]:8378"])
def test_names_of_this_machine_are_served(server: Server, prefix: str, host: str) -> None:
    assert server.get(f"{prefix}/api/v1/status", host=host)[0] == 200


def test_a_ledger_without_tables_is_told_in_the_form_of_the_surface(server: Server, prefix: str) -> None:
    told_without_it = ("/messages", "/health", "/audits", "/docs", "/names")
    answered_anyway = {"openapi", "doctor", "explain", "metrics", "list audits", "show audit"}
    for route in (one for one in ROUTES if one.method == "GET" and one.role is WebRole.VIEWER):
        if route.name in answered_anyway or route.path.startswith(told_without_it):
            continue  # tells who is away, and what the others know
        code, told, text = server.get(prefix + route.path, headers={"X-Request-ID": "a-1.b_2"})
        assert (code, told["retry-after"]) == (503, "10")
        assert told["x-request-id"] == "a-1.b_2"
        if route.surface is Surface.PAGE:
            assert "A part that is needed does not answer" in text
            assert "a-1.b_2" in text
        else:
            assert told["content-type"] == PROBLEM_JSON
            problem = json.loads(text)
            assert (problem["status"], problem["request_id"]) == (503, "a-1.b_2")
            assert problem["type"].endswith(":dependency-away")


@pytest.mark.parametrize("given", ["", "a b", "<b>", "x" * 65, "\xe9"])
def test_a_request_id_that_is_not_plain_is_not_repeated(server: Server, prefix: str, given: str) -> None:
    _, told, _ = server.get(f"{prefix}/nothing", headers={"X-Request-ID": given})
    assert told["x-request-id"] != given
    assert len(told["x-request-id"]) == 16


@pytest.mark.parametrize("path", ["/livez", "/login", "/api/v1/status", "/nothing"])
@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?" + "&".join(f"a{n}" for n in range(501)), {}, 414),
        ("?a=" + "x" * 16_384, {}, 414),
        ("", {f"x-{n}": "1" for n in range(99)}, 431),
        ("", {"Cookie": '"' + "\\" * 8_192}, 431),
    ],
    ids=["names", "text", "headers", "cookies"],
)
def test_a_request_without_bounds_is_refused_before_anything_of_it_is_read(
    server: Server, prefix: str, path: str, query: str, headers: dict[str, str], status: int
) -> None:
    found, told, _ = server.get(prefix + path + query, headers=headers)
    assert found == (404 if path == "/nothing" else status)
    assert "content-security-policy" in told
    at_the_bound = "?" + "&".join(f"a{n}" for n in range(500))
    assert server.get(prefix + "/livez" + at_the_bound)[0] == 200


def test_a_stranger_has_no_long_body_read(server: Server, prefix: str) -> None:
    for path, bytes_max in {"/login": 32 << 10, "/repairs": 1 << 20}.items():
        for size in (bytes_max, bytes_max + 1):
            is_refused = server.get(prefix + path, method="POST", body="a" * size)[0] == 413
            assert is_refused is (size > bytes_max), path


@pytest.mark.parametrize("path", ["/livez", "/login", "/repairs", "/nothing"])
@pytest.mark.parametrize("padding", [0, 200], ids=["few headers", "too many"])
def test_what_a_proxy_may_take_for_a_body_is_never_a_request(
    server: Server, prefix: str, path: str, padding: int
) -> None:
    method = b"GET" if path == "/livez" else b"POST"
    host = b"Host: localhost\r\n"
    inner = b"GET " + prefix.encode() + b"/livez HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n"
    body = b"0\r\n\r\n" + inner
    outer = method + b" " + (prefix + path).encode() + b" HTTP/1.1\r\n" + host + b"Content-Length: %d\r\n" % len(body)
    outer += b"".join(b"x-%d: 1\r\n" % n for n in range(padding)) + b"Transfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(outer + body)
        answered = b""
        with suppress(ConnectionResetError):  # it closes with bytes unread
            while piece := connection.recv(65_536):
                answered += piece
    assert answered.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in answered.lower()


def test_what_is_not_there_is_told_in_the_form_of_the_surface(server: Server, prefix: str) -> None:
    code, told, text = server.get(f"{prefix}/api/v1/nothing")
    assert (code, told["content-type"]) == (404, PROBLEM_JSON)
    assert json.loads(text)["type"] == "about:blank"
    code, told, _ = server.get(f"{prefix}/<b>nothing")
    assert (code, told["content-type"]) == (404, "text/html; charset=utf-8")
    assert server.get(f"{prefix}/api/v1/status", method="POST")[0] == 405
    assert server.get("/elsewhere/api/v1/status")[0] == 404


def test_a_slash_too_many_leads_nowhere_else_and_to_nobody_who_is_not_served(server: Server, prefix: str) -> None:
    for path, leads_to in {
        "/losses/?topic=a%26b": "/losses?topic=a%26b",
        "/losses//": "/losses",
        "/api/v1/status/": "/api/v1/status",
        "//evil.example/": "",
        "//evil.example//losses/": "",
        "/audits/2026-11-20/": "",
        **({"": "/"} if prefix else {}),
    }.items():
        code, told, _ = server.get(prefix + path)
        assert (code, told.get("location", "")) == ((303, prefix + leads_to) if leads_to else (404, ""))
        assert "content-security-policy" in told
        assert server.get(prefix + path, method="POST")[0] == 404
        code, told, _ = server.get(prefix + path, host="evil.example")
        assert (code, told.get("location")) == (421, None)
        assert "content-security-policy" in told


def test_a_method_that_is_not_taken_is_answered_by_those_that_are(server: Server, prefix: str) -> None:
    for path, allowed in {
        "/api/v1/status": "GET, HEAD",
        "/api/v1/repairs": "GET, HEAD, POST",
        "/messages/key/body": "GET, HEAD, POST",
        "/dismissals": "POST",
    }.items():
        for method in ("DELETE", "OPTIONS"):
            code, told, _ = server.get(prefix + path, method=method)
            assert (code, told["allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/nothing"])
def test_a_page_of_another_site_learns_by_dns_what_is_not_there(server: Server, prefix: str, path: str) -> None:
    assert server.get(f"{prefix}{path}", host="evil.example:80")[0] == 421
    assert server.get(f"{prefix}/api/v1/status", method="POST", host="evil.example:80")[0] == 421
    assert server.get(f"{prefix}/login", method="POST", host="evil.example:80")[0] == 421


def test_a_business_id_that_ends_as_the_path_of_an_act_cannot_be_asked_for(
    server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def life_stories(_connections: Connections, name: str) -> NoReturn:
        asked.append(name)
        raise UsageError("asked")

    monkeypatch.setattr("reconciler.web.api.messages.life_stories", life_stories)
    monkeypatch.setattr("reconciler.web.console.messages.life_stories", life_stories)
    for name in ("order-4711/body", "body", "a/b/body"):
        for surface in ("/api/v1", ""):
            assert server.get(f"{prefix}{surface}/messages/{name}")[0] == 409
            assert asked.pop() == name
    assert server.get(f"{prefix}/api/v1/messages/order-4711/body", method="POST")[0] == 403, "it is an act"


@pytest.mark.usefixtures("status")
def test_a_bug_is_told_by_its_number_and_not_by_its_text(
    server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(WebServices, "newest_status", lambda _services: 1 / 0)
    code, told, text = server.get(f"{prefix}/api/v1/status")
    assert code == 500
    assert "division" not in text
    assert told["x-request-id"] in text
    assert any(getattr(record, "request_id", "") == told["x-request-id"] for record in caplog.records)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidValue("topic", "ODERS", "correct it"), 422, "invalid-value"),
        (MalformedInput("no key"), 422, "refused"),
        (BrokerBusy("later"), 503, "dependency-away"),
        (UsageError("not now"), 409, "not-now"),
        (ConfigurationError("no tables"), 500, "configuration"),
        (InvariantViolation("a bug"), 500, "bug"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ReconcilerError) else None,
)
def test_an_error_is_answered_by_what_the_caller_does_next(error: ReconcilerError, status: int, kind: str) -> None:
    refusal = refusal_of(error)
    assert (refusal.status, refusal.kind) == (status, kind)


@pytest.mark.parametrize("listen", ["0.0.0.0:8378", "10.0.0.1:8378", "reconciler.example:8378", "[::]:8378"])
def test_pages_are_not_served_to_other_machines(listen: str, tmp_path: Path) -> None:
    settings = load_settings(ROOT / "config" / "reconciler.toml", {})
    with pytest.raises(ConfigurationError, match="everybody who reaches this address could look"):
        serving_web(settings, listen, clock=SystemClock()).__enter__()


def test_an_address_in_use_is_told_before_anything_begins(server: Server) -> None:
    settings = load_settings(ROOT / "config" / "reconciler.toml", {})
    with pytest.raises(ConfigurationError, match="RECONCILER_WEB__LISTEN"):
        serving_web(settings, f"127.0.0.1:{server.port}", clock=SystemClock()).__enter__()
