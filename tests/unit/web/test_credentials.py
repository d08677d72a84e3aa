"""Bearer tokens of programs, and proxies that say who asks."""

from __future__ import annotations

import http.client
import json
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.settings.file import load_settings
from reconciler.web.access.addresses import TrustedProxies
from reconciler.web.exchange import WebRequest
from reconciler.web.roles import WebRole
from reconciler.web.server import serving_web
from tests.services.ports import free_port
from tests.unit.web.web_world import ACT, HOST, READ, ROOT, WebWorld, route_of, with_three_users, with_token

DAY_MS = 86_400_000
PROXY = "10.0.0.7"
PROXIED = {
    "behind_proxy": "true",
    "proxy_addresses": f'["{PROXY}", "10.9.0.0/16"]',
    "proxy_user_header": "X-Remote-User",
    "host_names": '["reconciler.example"]',
    "listen": "0.0.0.0:8378",
}


def kind_of(body: bytes) -> str:
    return str(json.loads(body)["type"]).rpartition(":")[2]


def test_a_program_needs_a_token_that_is_known_and_not_too_old(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, users_file=str(with_three_users(tmp_path)))
    end_ms = world.clock.now_ms() + DAY_MS
    token = with_token(world.users_file, "nightly", WebRole.OPERATOR, expires_at_ms=end_ms)
    world.clock.advance(1)
    bearer = {"authorization": f"Bearer {token}"}
    assert world.visitor(headers=bearer) == ("nightly", WebRole.OPERATOR)
    for wrong in (token[:-1], token.lower(), "", "nightly"):
        answer = world.ask(READ, headers={"authorization": f"Bearer {wrong}"})
        assert answer.status is HTTPStatus.UNAUTHORIZED
        assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    world.clock.advance((end_ms - world.clock.now_ms()) / 1000)
    assert b"has expired" in world.ask(READ, headers=bearer).body
    assert token not in world.users_file.read_text()


def test_a_program_needs_no_page_and_lends_its_token_to_no_browser(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, users_file=str(with_three_users(tmp_path)))
    token = with_token(world.users_file, "nightly", WebRole.OPERATOR, expires_at_ms=world.clock.now_ms() + DAY_MS)
    world.clock.advance(1)
    bearer = {"authorization": f"bearer {token}"}
    assert world.ask(ACT, headers=bearer, is_own_page=False).status is HTTPStatus.OK
    both = world.ask(ACT, headers=bearer, cookie=world.cookie_of("viewer"))
    assert (both.status, kind_of(both.body)) == (HTTPStatus.BAD_REQUEST, "two-credentials")


def test_a_proxy_is_believed_by_its_address_only(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, **PROXIED)
    named = {"host": "reconciler.example", "x-remote-user": "alice@example.org"}
    assert world.visitor(headers=named, peer=PROXY) == ("alice@example.org", WebRole.VIEWER)
    assert world.visitor(headers=named, peer="::ffff:10.9.1.1") == ("alice@example.org", WebRole.VIEWER)
    for peer in ("10.0.0.8", "127.0.0.1", "::1", ""):
        passed_by = world.ask(READ, headers=named, peer=peer)
        assert (passed_by.status, kind_of(passed_by.body)) == (HTTPStatus.FORBIDDEN, "past-the-proxy")
    unnamed = world.ask(READ, headers={"host": "reconciler.example", "x-remote-user": ""}, peer=PROXY)
    assert (unnamed.status, kind_of(unnamed.body)) == (HTTPStatus.FORBIDDEN, "role-needed")
    assert world.ask(route_of("login"), headers=named, peer=PROXY).status is HTTPStatus.NOT_FOUND


def test_whom_a_proxy_names_is_not_the_token_of_that_name(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, **PROXIED, users_file=str(with_three_users(tmp_path)))
    token = with_token(world.users_file, "alice", WebRole.OPERATOR, expires_at_ms=world.clock.now_ms() + DAY_MS)
    world.clock.advance(1)
    own = {"host": "reconciler.example"}
    assert world.visitor(headers=own | {"authorization": f"Bearer {token}"}, peer=PROXY)[0] == "alice"
    assert world.visitor(headers=own | {"x-remote-user": "alice"}, peer=PROXY)[0] == "proxy:alice"


def test_who_reaches_this_machine_does_not_name_themselves(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, **(PROXIED | {"listen": "127.0.0.1:8378", "behind_proxy": "false"}))
    assert world.visitor(headers={"x-remote-user": "alice"}, peer="127.0.0.1") == ("", WebRole.ANYBODY)


@pytest.mark.parametrize("name", ["alice, mallory", "a b", "<b>", "x" * 101, "é"])
def test_a_header_that_came_twice_or_is_no_name_names_nobody(name: str, tmp_path: Path) -> None:
    world = WebWorld(tmp_path, **PROXIED)
    answer = world.ask(READ, headers={"host": "reconciler.example", "x-remote-user": name}, peer=PROXY)
    assert (answer.status, kind_of(answer.body)) == (HTTPStatus.BAD_REQUEST, "no-name")


def test_of_two_headers_on_the_wire_none_counts_alone(tmp_path: Path) -> None:
    variables = {
        "RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/none.db",
        "RECONCILER_WEB__PROXY_ADDRESSES": '["127.0.0.1"]',
        "RECONCILER_WEB__PROXY_USER_HEADER": "X-Remote-User",
    }
    settings = load_settings(ROOT / "config" / "reconciler.toml", variables)
    with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()) as (host, port):
        for names, expected in ((["alice"], 503), (["mallory", "alice"], 400), ([], 403)):
            connection = http.client.HTTPConnection(host, port, timeout=30)
            connection.putrequest("GET", "/api/v1/status")
            for name in names:
                connection.putheader("X-Remote-User", name)
            connection.endheaders()
            assert connection.getresponse().status == expected
            connection.close()


def test_a_role_of_the_proxy_is_one_of_three_or_none(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, **(PROXIED | {"proxy_role_header": "X-Remote-Role", "proxy_role": "admin"}))
    named = {"host": "reconciler.example", "x-remote-user": "alice"}
    for told, role in {"operator": WebRole.OPERATOR, "root": WebRole.ANYBODY, "admin, viewer": WebRole.ANYBODY}.items():
        assert world.visitor(headers=named | {"x-remote-role": told}, peer=PROXY) == ("alice", role)
    assert world.visitor(headers=named, peer=PROXY) == ("alice", WebRole.ANYBODY)
    same = WebWorld(tmp_path, **(PROXIED | {"proxy_role": "admin"}))
    assert same.visitor(headers=named | {"x-remote-role": "viewer"}, peer=PROXY) == ("alice", WebRole.ADMIN)


def test_another_site_does_not_act_by_what_the_proxy_adds(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, **(PROXIED | {"proxy_role": "operator"}))
    named = {"host": "reconciler.example", "x-remote-user": "alice"}
    assert kind_of(world.ask(ACT, headers=named, peer=PROXY).body) == "stale-page"
    token = world.csrf_token(headers=named, peer=PROXY)
    form = {"csrf_token": token}
    assert world.ask(ACT, headers=named, peer=PROXY, form=form).status is HTTPStatus.OK
    assert world.ask(ACT, headers=named, peer=PROXY, form=form, is_own_page=False).status is HTTPStatus.FORBIDDEN
    secure = named | {"origin": "https://reconciler.example"}
    assert world.ask(ACT, headers=secure, peer=PROXY, form=form, is_own_page=False).status is HTTPStatus.OK
    other = named | {"x-remote-user": "bob"}
    assert kind_of(world.ask(ACT, headers=other, peer=PROXY, form=form).body) == "stale-page"


def test_a_probe_is_answered_past_the_proxy_and_by_any_name(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, **PROXIED)
    health = replace(READ, role=WebRole.ANYBODY)
    assert world.ask(health, headers={"host": "10.1.2.3:8378"}, peer="10.1.2.4").status is HTTPStatus.OK


@pytest.mark.parametrize(
    ("peer", "hops", "client"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.9", "192.0.2.1"),
        (PROXY, "198.51.100.9", "198.51.100.9"),
        (PROXY, "made up, 203.0.113.5, 198.51.100.9, 10.9.0.1", "198.51.100.9"),
        (PROXY, "203.0.113.5, unknown", PROXY),
        (PROXY, "", PROXY),
        ("2001:db8:1:2:3::4", "", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "", "192.0.2.1"),
    ],
)
def test_guesses_are_counted_by_the_address_that_a_proxy_saw(peer: str, hops: str, client: str) -> None:
    proxies = TrustedProxies([PROXY, "10.9.0.0/16"])
    headers = {"host": HOST} | ({"x-forwarded-for": hops} if hops else {})
    assert proxies.client_of(WebRequest(method="GET", path="/", headers=headers, request_id="", peer=peer)) == client
