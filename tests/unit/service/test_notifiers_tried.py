"""`reconciler notify` and `doctor`: a notifier that cannot work is found before it is needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.commands.notices import late_accounts, pinging, proves_calm
from reconciler.commands.notify import check_notifiers, send_tests
from reconciler.errors import InvalidValue
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.mail_server import MailServer
from tests.unit.channels.receiver import Receiver, Reply, receiving
from tests.unit.service.notice_world import NoticeWorld, listener, section, settings_with, webhook
from tests.unit.web.reports import NOW_MS, ORDERS, REPORTS, report_of, status_of


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NoticeWorld]:
    made = NoticeWorld(tmp_path)
    yield made
    made.engine.dispose()


def test_a_test_message_says_that_it_is_one_and_pings_are_left_alone(tmp_path: Path) -> None:
    with receiving() as good, receiving(lambda _: Reply(status=404)) as bad, receiving() as switch:
        settings = settings_with(
            tmp_path, section("good", good.url), section("bad", bad.url), section("dead", switch.url, kind="ping")
        )
        results = send_tests(settings, clock=SystemClock())
        assert [(one.name, one.outcome, one.exit_code) for one in results] == [
            ("good", "sent", 0),
            ("bad", "refused", 1),
        ]
        assert json.loads(good.received[0].body)["data"]["is_test"] is True
        assert switch.received == []
        (one,) = send_tests(settings, clock=SystemClock(), name="dead")
        assert (one.outcome, switch.received[0].method) == ("sent", "GET")
        with pytest.raises(InvalidValue, match="known: good, bad, dead"):
            send_tests(settings, clock=SystemClock(), name="other")


def test_a_test_mail_tells_whom_it_did_not_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with MailServer(authority.issue("server")) as server:
        server.answers["rcpt left@a.example"] = "550 no such user"
        people = 'sender = "s@a.example"', 'recipients = ["left@a.example", "here@a.example"]'
        settings = settings_with(tmp_path, section("mail", f"smtp://127.0.0.1:{server.port}", *people, kind="email"))
        (one,) = send_tests(settings, clock=SystemClock())
    assert (one.outcome, one.exit_code) == ("refused", 1)
    assert one.why == (
        "left@a.example: 550 no such user; correct recipients of notifier mail; the others have the message"
    )
    assert [mail.recipients for mail in server.mails] == [("here@a.example",)]


def test_doctor_names_a_secret_that_cannot_sign_and_does_not_send(world: NoticeWorld, tmp_path: Path) -> None:
    with receiving() as receiver:
        settings = settings_with(tmp_path, section("on-call", receiver.url, 'secret = "SHORT"'))
        with Connections(settings) as connections:
            (found,) = (one.as_row() for one in check_notifiers(connections))
        assert receiver.received == []
    assert (found.check, found.level) == ("notifier on-call", "fail")
    assert "openssl rand" in found.found
    assert "SHORT" not in str(found)


@pytest.mark.parametrize(
    ("public_url", "told"),
    [
        (None, ["ok", "note"]),
        ("https://console.example", ["ok", "note"]),
        ("https://elsewhere.example", ["ok"]),
    ],
)
def test_doctor_names_the_one_setting_that_a_notifiers_own_address_repeats(
    world: NoticeWorld, tmp_path: Path, public_url: str | None, told: list[str]
) -> None:
    own = section("on-call", "https://chat.example/T", 'console_url = "https://console.example"')
    settings = settings_with(tmp_path, own)
    web = settings.web.model_copy(update={"public_url": public_url})
    with Connections(settings.model_copy(update={"web": web})) as connections:
        found = [one.as_row() for one in check_notifiers(connections)]
    assert [one.level for one in found] == told
    assert ("web.public_url" in str(found)) is (told[-1] == "note")


def test_doctor_shows_why_messages_wait(world: NoticeWorld, tmp_path: Path) -> None:
    with receiving(lambda _: Reply(status=403)) as receiver:
        settings = settings_with(tmp_path, section("on-call", receiver.url))
        service = world.service(listener(webhook(receiver.url)))
        with Connections(settings) as connections:
            world.turn(service)
            assert [one.level for one in check_notifiers(connections)] == ["ok"]
            world.clock.advance(1)
            world.lose(1)
            world.turn(service)
            world.turn(service, seconds=5)
            (found,) = (one.as_row() for one in check_notifiers(connections))
    assert (found.level, found.found) == (
        "fail",
        "webhook: 1 message(s) wait: on-call: answers 403; correct its secret or token, or let this host in",
    )


def test_silence_is_the_alarm_nothing_is_pinged_that_is_not_proved(tmp_path: Path) -> None:
    asked = iter([False, False, True])
    with pinged_switch(tmp_path, lambda: next(asked, True)) as switch:
        eventually(lambda: switch.received, within_seconds=30)
        assert next(asked, None) is None
    assert switch.received[0].body == b""


def test_a_bug_in_one_turn_ends_no_ping_of_later_ones(tmp_path: Path) -> None:
    asked = iter([False])

    def is_calm() -> bool:
        if next(asked, None) is False:
            raise KeyError("a bug")
        return True

    with pinged_switch(tmp_path, is_calm) as switch:
        eventually(lambda: switch.received, within_seconds=30)


@contextmanager
def pinged_switch(folder: Path, is_calm: Callable[[], bool]) -> Iterator[Receiver]:
    """A dead man's switch that is pinged every ten milliseconds; no turn is under way when the block is over."""
    with receiving() as switch:
        settings = settings_with(folder, section("dead", switch.url, "ping_interval_seconds = 10", kind="ping"))
        with pinging(settings.notifiers, is_calm, clock=_QuickClock()):
            yield switch
        eventually(lambda: "ping of dead" not in {one.name for one in threading.enumerate()}, within_seconds=30)


def test_only_a_report_that_proves_calm_pings() -> None:
    calm = {name for name, report in REPORTS.items() if proves_calm(report)}
    assert {"calm", "losses on their way back", "held", "a person is needed"} <= calm
    assert not proves_calm(None)
    shipping = replace(ORDERS, group="shipping")
    assert proves_calm(report_of(status_of(), status_of(shipping)))
    unknown = replace(status_of(shipping).accounted, until_ms=None)
    assert not proves_calm(report_of(status_of(), status_of(shipping, accounted=unknown)))
    assert not any(name.startswith(("late", "nothing yet", "a loss without")) for name in calm)


def test_each_subscription_whose_time_stands_still_is_told_with_that_time() -> None:
    (late,) = late_accounts(report_of(status_of(late=("nobody reads it", "no sweep"))), now_ms=NOW_MS)
    assert (late.topic, late.group, late.until_ms) == ("ORDERS", "billing", NOW_MS - 1_000)
    assert late.detail == "nobody reads it"
    assert late.cause is not None
    assert said(late.cause) == late.detail
    assert not late_accounts(report_of(), now_ms=NOW_MS)


class _QuickClock(SystemClock):
    """Ten seconds are ten milliseconds."""

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        return super().wait(event, timeout_seconds / 1000)
