"""What people do by hand is written down before it is done; what cannot be written down is not done."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.commands.hold import lift_hold, place_hold
from reconciler.commands.operator_actions import operator, recorded
from reconciler.contract.tables import HoldKind
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.policy.ports import OperatorAction
from reconciler.settings.schema import Settings
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import operator_action
from reconciler.wiring.connections import Connections

ROOT = Path(__file__).parents[3]
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
