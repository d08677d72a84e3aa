"""What people do by hand is written down before it is done; what cannot be written down is not done."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from datetime import datetime

import pytest
import sqlalchemy as sa

from reconciler.cli import act_commands
from reconciler.cli.act_commands import _next_ms
from reconciler.cli.app import run
from reconciler.cli.options import seconds_of
from reconciler.clock import SystemClock
from reconciler.commands.acts.hold import HELD_DAYS_MAX, lift_ended, lift_hold, place_hold
from reconciler.commands.acts.operator_actions import operator, recorded
from reconciler.contract.tables import HoldKind
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.settings.schema import Settings
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import operator_action
from reconciler.telling.ports.actions import OperatorAction
from reconciler.wiring.connections import Connections

TOPIC = "ORDERS"


def actions(connections: Connections) -> list[OperatorAction]:
    environment = connections.settings.environment
    return list(connections.ledger.reports.actions(environment, limit=99).rows)


def drop_table(connections: Connections) -> None:
    engine = open_engine(connections.settings.ledger.url.reveal())
    operator_action.drop(engine)
    engine.dispose()


def test_a_resume_leaves_who_when_and_what_it_lifted(settings: Settings, connections: Connections) -> None:
    assert place_hold(connections, TOPIC, reason="drill", by="anna")
    assert lift_hold(connections, TOPIC, breaker=False, by="anna").lifted == (HoldKind.HOLD,)
    lift_hold(connections, TOPIC, breaker=True, by="anna")
    found = [(a.intent.command, a.intent.topic, a.intent.detail, a.result) for a in actions(connections)]
    assert found == [
        ("resume", TOPIC, "--breaker", "was not on hold"),
        ("resume", TOPIC, "", "lifted HOLD"),
        ("hold", TOPIC, "drill", "held"),
    ]
    assert {a.intent.by for a in actions(connections)} == {"anna"}
    assert all(a.started_at_ms <= (a.ended_at_ms or 0) for a in actions(connections))


def test_who_closes_the_breaker_lifts_a_colleagues_hold_unasked(
    settings: Settings, connections: Connections, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    holds = connections.ledger.holds
    holds.place(settings.environment, TOPIC, HoldKind.BREAKER, by="run", reason="many")
    place_hold(connections, TOPIC, reason="migration", by="bob")
    monkeypatch.setattr(act_commands, "read_settings", lambda _config: settings)
    assert run(["resume", TOPIC, "--breaker"]) == 0
    told = capsys.readouterr().out
    assert f"repairs of {TOPIC} are still stopped: a hold of bob since " in told
    assert "(migration), lift it without --breaker" in told
    assert list(holds.active(settings.environment)[TOPIC]) == [HoldKind.HOLD]


class Shifted(SystemClock):
    """The host's clock, wrong by that much."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now_ms(self) -> int:
        return super().now_ms() + round(self.seconds * 1000)


@pytest.mark.parametrize(("ledger_ahead", "host_ahead", "is_lifted"), [(0, 99, False), (99, 0, False), (99, 99, True)])
def test_a_hold_is_lifted_on_record_once_its_end_has_passed_by_the_ledgers_clock_and_by_the_hosts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    ledger_ahead: int, host_ahead: int, is_lifted: bool,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    with Connections(settings) as before:
        assert place_hold(before, TOPIC, reason="drill", by="anna", for_seconds=60)
        assert before.ledger.holds.place(settings.environment, "REFUNDS", HoldKind.HOLD, by="anna", reason="no end")
        now_ms = before.ledger_now_ms()
    until_ms = now_ms + 60_000
    with Connections(settings, clock=Shifted(host_ahead)) as connections:
        monkeypatch.setattr(connections, "ledger_now_ms", lambda: now_ms + ledger_ahead * 1000)
        for _ in range(2):
            lift_ended(connections, by="run@host")
        left = {held.topic: held.until_ms for held in connections.ledger.reports.holds(settings.environment)}
        told = [(a.intent.by, a.intent.command, a.result) for a in actions(connections) if a.intent.by == "run@host"]
    assert left.pop("REFUNDS") is None
    assert all(abs((end or 0) - until_ms) < 60_000 for end in left.values())
    assert (list(left), told) == (([], [("run@host", "resume", "lifted HOLD")]) if is_lifted else ([TOPIC], []))
    assert ("hold_ended" in caplog.text) == is_lifted


@pytest.mark.parametrize("seconds", [-1, 0, (HELD_DAYS_MAX + 1) * 86_400])
def test_an_end_that_has_passed_or_is_too_far_away_holds_nothing(connections: Connections, seconds: int) -> None:
    with pytest.raises(InvalidValue, match="a time ahead"):
        place_hold(connections, TOPIC, reason="drill", by="anna", for_seconds=seconds)
    assert connections.ledger.holds.active(connections.settings.environment) == {}


def test_a_time_of_day_is_the_next_one_and_a_time_is_as_it_is_written() -> None:
    now_ms = 1_795_132_800_000 + 6 * 3_600_000  # 06:00 UTC
    for text, ahead_ms in (("06:01", 60_000), ("06:00", 86_400_000), ("05:59", 86_340_000)):
        assert _next_ms(datetime.fromisoformat(f"1900-01-01T{text}"), now_ms=now_ms) == now_ms + ahead_ms
    assert _next_ms(datetime.fromisoformat("2026-11-20T06:00:09"), now_ms=0) == now_ms + 9_000
    assert [seconds_of("--for", text) for text in ("90m", " 2h ", "1d")] == [5_400, 7_200, 86_400]
    for wrong in ("2", "0h", "1w", "-1h", "1.5h", ""):
        with pytest.raises(InvalidValue, match="30m, 2h or 1d"):
            seconds_of("--for", wrong)


def test_what_cannot_be_written_down_is_not_done(settings: Settings, connections: Connections) -> None:
    drop_table(connections)
    with pytest.raises(ConfigurationError, match="reconciler db upgrade"):
        place_hold(connections, TOPIC, reason="drill", by="anna")
    assert connections.ledger.holds.active(settings.environment) == {}


def test_an_act_that_fails_is_written_down_with_its_error(connections: Connections) -> None:
    for error in (InvalidValue("KEYS", "A0", "nobody has it"), KeyboardInterrupt()):
        with pytest.raises(type(error)), recorded(connections, "repair", by="anna", topic=TOPIC):
            raise error
    interrupted, failed = (action.result for action in actions(connections))
    assert interrupted == "ended by KeyboardInterrupt"
    assert failed is not None
    assert failed.startswith("ended by InvalidValue: ")
    assert "nobody has it" in failed


def test_an_act_that_was_done_is_told_though_its_end_cannot_be_written_down(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    url = connections.settings.ledger.url.reveal()
    sa.event.listen(connections.engine(url), "connect", lambda raw, _record: raw.execute("PRAGMA busy_timeout = 50"))
    with (
        caplog.at_level(logging.WARNING),
        closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other,
        recorded(connections, "rebuild", by="anna") as outcome,
    ):
        outcome.result = "4 inbox rows put back"
        other.execute("BEGIN IMMEDIATE")
    assert "what came of rebuild could not be written down" in caplog.text
    (action,) = actions(connections)
    assert (action.result, action.ended_at_ms) == (None, None)


def test_who_became_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert operator() == "operator root"
    monkeypatch.setenv("SUDO_USER", "anna")
    assert operator() == "operator anna as root"
