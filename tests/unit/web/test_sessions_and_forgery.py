"""Logins, sessions, and requests that another site makes a browser send."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import ManualClock
from reconciler.web.access import sessions
from reconciler.web.access.sessions import IDLE_SECONDS_MAX, SESSION_SECONDS_MAX, Sessions
from reconciler.web.access.throttle import COUNTED_MAX, OF_A_USER, OF_AN_ADDRESS, OF_ONE_PLACE, LoginThrottle
from reconciler.web.access.users import WebUser
from reconciler.web.access.users_file import LOOK_SECONDS, change_users
from reconciler.web.roles import WebRole
from reconciler.web.route import Surface, WebRoute
from tests.unit.web.web_world import (
    ACT,
    PASSWORD,
    READ,
    WebWorld,
    cookie_in,
    device_in,
    route_of,
    with_three_users,
    with_user,
)

FORGED = [
    {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8378"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:8379"},
    {"origin": "null"},
    {"origin": "https://127.0.0.1:8378"},
    {},
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[WebWorld]:
    world = WebWorld(tmp_path, users_file=str(with_three_users(tmp_path)))
    with world.connections:
        yield world


def test_the_cookie_is_kept_from_scripts_other_sites_and_other_paths(tmp_path: Path) -> None:
    file = str(with_three_users(tmp_path))
    plain = WebWorld(tmp_path, users_file=file).log_in("viewer").cookies[-1]
    assert plain.startswith("reconciler-production=")
    assert plain.endswith("; Path=/; HttpOnly; SameSite=Lax")
    by_proxy = {"users_file": file, "behind_proxy": "true", "proxy_addresses": '["127.0.0.1"]'}
    proxied = WebWorld(tmp_path, **by_proxy).log_in("viewer").cookies[-1]
    assert proxied.startswith("__Host-reconciler-production=")
    assert proxied.endswith("; Path=/; HttpOnly; SameSite=Lax; Secure")
    below = WebWorld(tmp_path, **by_proxy, url_prefix="/a")
    told = below.log_in("viewer")
    assert told.cookies[1].startswith("__Secure-reconciler-production=")
    assert told.cookies[1].endswith("; Path=/a; HttpOnly; SameSite=Lax; Secure")
    assert told.headers["Location"] == "/a/"
    assert told.cookies[0].startswith("__Secure-reconciler-production-device=")
    assert told.cookies[0].endswith("; Path=/a; HttpOnly; SameSite=Lax; Secure; Max-Age=15552000")


def test_a_session_that_somebody_planted_is_not_the_one_of_the_login(world: WebWorld) -> None:
    planted = world.cookie_of("viewer")
    of_admin = cookie_in(world.log_in("admin", cookie=planted))
    assert of_admin != planted
    assert world.visitor(cookie=of_admin) == ("admin", WebRole.ADMIN)
    assert world.visitor(cookie=planted) == ("", WebRole.ANYBODY)
    made_up = cookie_in(world.ask(route_of("login", "POST"), form={"name": "viewer", "password": PASSWORD}, cookie="x"))
    assert made_up != "x"


def test_a_session_ends_with_its_logout(world: WebWorld) -> None:
    cookie = world.cookie_of("operator")
    answer = world.ask(route_of("logout", "POST"), cookie=cookie, form={"csrf_token": world.csrf_token(cookie)})
    assert (answer.status, answer.headers["Location"]) == (HTTPStatus.SEE_OTHER, "/login")
    assert "Max-Age=0" in answer.cookies[0]
    assert world.visitor(cookie=cookie) == ("", WebRole.ANYBODY)


def test_a_session_ends_when_it_is_idle_and_when_it_is_old(world: WebWorld) -> None:
    cookie = world.cookie_of("viewer")
    world.clock.advance(IDLE_SECONDS_MAX - 1)
    assert world.visitor(cookie=cookie)[0] == "viewer"
    world.clock.advance(IDLE_SECONDS_MAX)
    assert world.visitor(cookie=cookie)[0] == ""
    cookie = world.cookie_of("viewer")
    for _ in range(int(SESSION_SECONDS_MAX / IDLE_SECONDS_MAX * 2) - 1):
        world.clock.advance(IDLE_SECONDS_MAX / 2)
        assert world.visitor(cookie=cookie)[0] == "viewer"
    world.clock.advance(IDLE_SECONDS_MAX / 2)
    assert world.visitor(cookie=cookie)[0] == ""


@pytest.mark.parametrize("change", ["removed", "password", "role", "unreadable", "gone"])
def test_who_was_taken_out_or_changed_is_out_at_once(change: str, world: WebWorld) -> None:
    cookie = world.cookie_of("operator")
    other = world.cookie_of("viewer")
    file = world.users_file
    match change:
        case "removed":
            change_users(file, lambda users: users.without_user("operator"))
        case "password":
            with_user(file, "operator", WebRole.OPERATOR, password="another long password")
        case "role":
            with_user(file, "operator", WebRole.ADMIN)
        case "unreadable":
            file.write_bytes(file.read_bytes()[:-10])
        case _:
            file.unlink()
    world.clock.advance(LOOK_SECONDS)
    answer = world.ask(READ, cookie=cookie)
    if change in {"unreadable", "gone"}:
        assert answer.status is HTTPStatus.SERVICE_UNAVAILABLE
        assert world.log_in("viewer").status is HTTPStatus.SERVICE_UNAVAILABLE
        with_three_users(file.parent) if change == "gone" else file.write_bytes(b'{"schema_version": 1}')
        world.clock.advance(LOOK_SECONDS)
        answer = world.ask(READ, cookie=cookie)
        assert answer.status in {HTTPStatus.OK, HTTPStatus.UNAUTHORIZED}
    else:
        assert answer.status is HTTPStatus.UNAUTHORIZED
        assert world.ask(READ, cookie=other).status is HTTPStatus.OK


def test_sessions_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    kept = Sessions(clock=ManualClock())
    user = WebUser(name="a", role=WebRole.VIEWER, password_hash="")
    ids = [kept.begin(user) for _ in range(3)]
    assert kept.user_of(ids[0]) is user
    ids.append(kept.begin(user))
    assert [one for one in ids if kept.user_of(one) is None] == [ids[1]]


@pytest.mark.parametrize("headers", FORGED, ids=str)
@pytest.mark.parametrize("route", [ACT, route_of("login", "POST"), route_of("logout", "POST")], ids=lambda r: r.name)
def test_a_page_of_another_site_does_nothing_in_the_name_of_the_visitor(
    headers: dict[str, str], route: WebRoute, world: WebWorld
) -> None:
    cookie = world.cookie_of("admin")
    form = {"csrf_token": world.csrf_token(cookie)}
    answer = world.ask(route, cookie=cookie, form=form, headers=headers, is_own_page=False)
    assert answer.status is HTTPStatus.FORBIDDEN
    assert world.visitor(cookie=cookie)[0] == "admin"


def test_origin_is_enough_for_a_browser_without_fetch_metadata(world: WebWorld) -> None:
    cookie = world.cookie_of("operator")
    headers = {"origin": "http://127.0.0.1:8378"}
    form = {"csrf_token": world.csrf_token(cookie)}
    assert world.ask(ACT, cookie=cookie, form=form, headers=headers, is_own_page=False).status is HTTPStatus.OK


def test_a_button_needs_the_token_of_this_session(world: WebWorld) -> None:
    cookie, other = world.cookie_of("operator"), world.cookie_of("operator")
    own = world.csrf_token(cookie)
    assert own not in {"", world.csrf_token(other)}
    assert world.ask(ACT, cookie=cookie, form={"csrf_token": own}).status is HTTPStatus.OK
    assert world.ask(ACT, cookie=cookie, headers={"x-csrf-token": own}).status is HTTPStatus.OK
    for form in ({}, {"csrf_token": ""}, {"csrf_token": world.csrf_token(other)}, {"csrf_token": "é"}):
        answer = world.ask(ACT, cookie=cookie, form=form)
        assert (answer.status, kind_of(answer.body)) == (HTTPStatus.FORBIDDEN, "stale-page")
    document = world.ask(ACT, cookie=cookie, headers={"content-type": "application/json"})
    assert kind_of(document.body) == "stale-page"


def test_nothing_is_changed_where_only_looking_is_allowed(tmp_path: Path) -> None:
    world = WebWorld(tmp_path, users_file=str(with_three_users(tmp_path)), read_only="true")
    cookie = world.cookie_of("admin")
    form = {"csrf_token": world.csrf_token(cookie)}
    assert kind_of(world.ask(ACT, cookie=cookie, form=form).body) == "read-only"
    assert world.ask(READ, cookie=cookie).status is HTTPStatus.OK
    assert world.ask(route_of("logout", "POST"), cookie=cookie, form=form).status is HTTPStatus.SEE_OTHER


def test_what_was_pressed_after_the_session_had_ended_is_taken_for_done(world: WebWorld) -> None:
    pressed = replace(ACT, path="/repairs", surface=Surface.PAGE)
    location = world.ask(pressed, form={"reason": "the customer waits"}).headers["Location"]
    assert location == "/login?undone=1"
    told = world.ask(route_of("login"), query={"undone": "1"}).body.decode()
    assert "Nothing was done: you were not signed in any more." in told
    assert "Nothing was done" not in world.ask(route_of("login")).body.decode()


def test_a_login_leads_back_to_the_page_that_was_asked_for(world: WebWorld) -> None:
    page = replace(READ, path="/repairs", surface=Surface.PAGE)
    location = world.ask(page, query={"topic": "ORDERS & more"}).headers["Location"]
    assert location == "/login?next=%2Frepairs%3Ftopic%3DORDERS%2B%2526%2Bmore"
    assert world.log_in("viewer", next_path="/repairs?topic=ORDERS+%26+more").headers["Location"] == (
        "/repairs?topic=ORDERS+%26+more"
    )


def test_a_live_part_of_a_page_shows_no_form_when_the_session_ends(world: WebWorld) -> None:
    part = replace(READ, surface=Surface.PAGE)
    answer = world.ask(part, headers={"hx-request": "true"})
    assert (answer.status, answer.headers) == (HTTPStatus.UNAUTHORIZED, {"HX-Refresh": "true"})


@pytest.mark.parametrize(
    "elsewhere",
    [
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/a\r\nSet-Cookie: a=b",
        "/a b",
        "evil",
        "/" + "a" * 2_001,
    ],
)
def test_a_login_does_not_lead_to_another_site(elsewhere: str, world: WebWorld) -> None:
    assert world.log_in("viewer", next_path=elsewhere).headers["Location"] == "/"
    shown = world.ask(route_of("login"), query={"next": elsewhere})
    assert b'name="next" value="/"' in shown.body


def test_no_answer_tells_whether_a_name_exists(world: WebWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def note(_hasher: object, against: str, _password: bytes) -> bool:
        compared.append(against)
        return False

    monkeypatch.setattr("argon2.PasswordHasher.verify", note)
    known, unknown = world.log_in("viewer", "wrong"), world.log_in("nobody", "wrong")
    assert (known.status, known.body) == (unknown.status, unknown.body)
    costs = ["$".join(against.split("$")[:4]) for against in compared]
    assert costs == ["$argon2id$v=19$m=8,t=1,p=1"] * 2


def test_guesses_from_one_address_lock_out_nobody_at_another(world: WebWorld) -> None:
    for _ in range(200):  # an hour and more of guesses, each as soon as it is let in
        refused = world.log_in("admin", "a guess", peer="10.0.0.66")
        assert world.log_in("admin", peer="10.0.0.1").status is HTTPStatus.SEE_OTHER
        if refused.status is HTTPStatus.TOO_MANY_REQUESTS:
            assert 0 < float(refused.headers["Retry-After"]) <= OF_ONE_PLACE.pause_seconds
            world.clock.advance(float(refused.headers["Retry-After"]))
    assert refused.status is HTTPStatus.TOO_MANY_REQUESTS


def test_guesses_from_everywhere_slow_down_devices_that_are_not_known(world: WebWorld) -> None:
    known = device_in(world.log_in("admin"))
    for number in range(OF_A_USER.failures):
        assert world.log_in("admin", "a guess", peer=f"10.0.{number}.1").status is HTTPStatus.FORBIDDEN
    refused = world.log_in("admin", peer="10.1.0.1")
    assert (refused.status, refused.headers["Retry-After"]) == (HTTPStatus.TOO_MANY_REQUESTS, "15")
    assert world.log_in("viewer", peer="10.1.0.1", device=known).status is HTTPStatus.SEE_OTHER, "another user's"
    assert world.log_in("admin", peer="10.1.0.1", device=f"{known}0").status is HTTPStatus.TOO_MANY_REQUESTS
    assert world.log_in("admin", peer="10.1.0.1", device=known).status is HTTPStatus.SEE_OTHER
    with_user(world.users_file, "admin", WebRole.ADMIN)
    world.clock.advance(LOOK_SECONDS)
    assert world.log_in("admin", peer="10.1.0.1", device=known).status is HTTPStatus.TOO_MANY_REQUESTS, "a new password"
    world.clock.advance(OF_A_USER.pause_seconds)
    assert world.log_in("admin", peer="10.1.0.1").status is HTTPStatus.SEE_OTHER


def test_a_device_that_was_stolen_guesses_no_faster_than_another(world: WebWorld) -> None:
    stolen = device_in(world.log_in("admin"))
    for number in range(OF_ONE_PLACE.failures):
        assert world.log_in("admin", "a guess", device=stolen, peer=f"10.0.0.{number}").status is HTTPStatus.FORBIDDEN
    assert world.log_in("admin", device=stolen, peer="10.0.0.99").status is HTTPStatus.TOO_MANY_REQUESTS
    assert world.log_in("admin", peer="10.0.0.99").status is HTTPStatus.SEE_OTHER


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [("10.1.0.1", "10.1.0.2", False), ("2001:db8:1:2::3", "2001:db8:1:2:ffff::4", True)],
)
def test_guesses_at_many_users_are_slowed_down_by_their_address(
    first: str, second: str, is_one: bool, world: WebWorld
) -> None:
    for number in range(OF_AN_ADDRESS.failures):
        assert world.log_in(f"user{number}", "a guess", peer=first).status is HTTPStatus.FORBIDDEN
    assert world.log_in("viewer", peer=first).status is HTTPStatus.TOO_MANY_REQUESTS
    expected = HTTPStatus.TOO_MANY_REQUESTS if is_one else HTTPStatus.SEE_OTHER
    assert world.log_in("viewer", peer=second).status is expected


def test_guesses_behind_a_proxy_are_those_of_its_clients(tmp_path: Path) -> None:
    proxied = {"behind_proxy": "true", "proxy_addresses": '["10.0.0.7"]'}
    world = WebWorld(tmp_path, users_file=str(with_three_users(tmp_path)), **proxied)
    of: dict[int, Any] = {
        hop: {"peer": "10.0.0.7", "headers": {"x-forwarded-for": f"made up, 192.0.2.{hop}"}} for hop in (1, 2)
    }
    for _ in range(OF_ONE_PLACE.failures):
        assert world.log_in("admin", "a guess", **of[1]).status is HTTPStatus.FORBIDDEN
    assert world.log_in("admin", **of[1]).status is HTTPStatus.TOO_MANY_REQUESTS
    assert world.log_in("admin", **of[2]).status is HTTPStatus.SEE_OTHER


def test_a_login_waits_for_no_other_one_and_a_known_device_has_its_own_turn(
    world: WebWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = device_in(world.log_in("admin"))
    found: list[HTTPStatus] = []

    def compare(*_: object) -> bool:
        """While one is compared the next one comes."""
        if len(found) < 1:
            found.append(HTTPStatus.CONTINUE)
            world.log_in("viewer")
        elif len(found) < 2:
            found.append(world.log_in("operator").status)
            found.append(world.log_in("admin", device=known).status)
        return True

    monkeypatch.setattr("argon2.PasswordHasher.verify", compare)
    assert world.log_in("viewer").status is HTTPStatus.SEE_OTHER
    assert found[1:] == [HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SEE_OTHER]


def test_guesses_by_many_do_not_fill_the_memory_and_lock_nobody_out_for_long() -> None:
    clock = ManualClock()
    throttle = LoginThrottle(clock=clock)
    for number in range(COUNTED_MAX + 10):
        assert throttle.attempt({f"user {number}": OF_ONE_PLACE}) == 0
    assert len(throttle._forgotten_at) == COUNTED_MAX
    one, waits = {"user a": OF_ONE_PLACE}, []
    for _ in range(OF_ONE_PLACE.failures + 10):
        while (wait := throttle.attempt(one)) > 0:
            waits.append(wait)
            clock.advance(wait)
    assert max(waits) == OF_ONE_PLACE.pause_seconds
    throttle.take_back(one)
    assert throttle.attempt(one) == 0
    assert throttle.attempt(one) > 0, "one login does not wipe out what a guesser did before it"
    guesses, address = 0, {"an address": OF_ONE_PLACE}
    while guesses < 100 and throttle.attempt(address) == 0:
        guesses += 1
        if throttle.attempt(address) == 0:  # a login of the guesser's own after each guess
            throttle.take_back(address)
    assert guesses == OF_ONE_PLACE.failures


def test_what_happens_at_the_door_is_in_the_log_and_no_secret_is(
    world: WebWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cookie = world.cookie_of("operator")
    world.log_in("operator", "a wrong password")
    world.log_in("a password typed as a name", "x")
    world.ask(ACT, cookie=cookie, form={"csrf_token": "stale"})
    world.ask(route_of("logout", "POST"), cookie=cookie, form={"csrf_token": world.csrf_token(cookie)})
    events = [record.message for record in caplog.records]
    assert events == ["web_login", "web_login_refused", "web_login_refused", "web_refused", "web_logout"]
    text = (
        json.dumps([vars(record) for record in caplog.records], default=repr) + repr(vars(world)) + repr(world.services)
    )
    for secret in (PASSWORD, "a wrong password", "a password typed as a name", cookie, "argon2id$v"):
        assert secret not in text


def kind_of(body: bytes) -> str:
    return str(json.loads(body)["type"]).rpartition(":")[2]


def test_a_button_on_an_old_page_is_told_from_a_role_that_is_too_low(world: WebWorld) -> None:
    act = replace(ACT, surface=Surface.PAGE)
    stale = world.ask(act, cookie=world.cookie_of("operator"))
    low = world.ask(act, cookie=world.cookie_of("viewer"))
    assert (stale.status, low.status) == (HTTPStatus.FORBIDDEN, HTTPStatus.FORBIDDEN)
    assert b"This page is out of date" in stale.body
    assert b"needs the role operator" in low.body
