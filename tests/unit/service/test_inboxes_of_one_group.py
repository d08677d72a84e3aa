"""What status and doctor tell where a group has several inboxes: a double effect, or one database under two names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.commands.doctor.inboxes import check_inbox_lists
from reconciler.commands.status.double_effects import double_effects
from reconciler.commands.status.report import StatusReport
from reconciler.contract.reasons import DOUBLE_EFFECT
from reconciler.contract.stored_facts import with_texts
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import ConfigurationError
from reconciler.policy.evidence import InboxRow, Lookup, Presence
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql.tables import inbox
from reconciler.telling.life_story import TWO_EFFECTS, life_story_of
from reconciler.telling.ports.reports import LedgerLife
from reconciler.testing.memory import MemoryLedger
from reconciler.wiring.connections import Connections
from reconciler.wiring.replay_worker import _only_inbox
from reconciler.wiring.rounds import topic_plans
from reconciler.words import said
from tests.unit.consumers.messages import inbox_engine, new_key
from tests.unit.web.reports import status_of

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"
SUBSCRIPTION = Subscription(environment="production", topic="ORDERS", group="billing")


def settings_with(*urls: str) -> Settings:
    section = {"topic": "ORDERS", "group": "billing", "inbox_url": list(urls)}
    return load_settings(EXAMPLE, {"RECONCILER_SUBSCRIPTIONS": json.dumps([section])})


def inbox_at(path: Path, rows: Mapping[str, int]) -> str:
    url = f"sqlite:///{path}"
    with inbox_engine(url) as engine, engine.begin() as connection:
        for key, applied_at_ms in rows.items():
            row = {"consumer_group": "billing", "unique_key": key, "topic": "ORDERS", "source": "consumer"}
            connection.execute(sa.insert(inbox).values(**row, applied_at_ms=applied_at_ms))
    return url


def test_a_list_that_names_a_database_twice_or_none_is_refused() -> None:
    for urls in ((), ("sqlite:////a", "sqlite:////a")):
        with pytest.raises(ConfigurationError, match=r"subscriptions\[0\]\.inbox_url = a list"):
            settings_with(*urls)


def test_a_consumed_key_is_looked_at_again_only_where_there_are_several_inboxes() -> None:
    assert topic_plans(settings_with("sqlite:////a", "sqlite:////b"))[0].subscriptions[0].has_several_inboxes
    assert not topic_plans(settings_with("sqlite:////a"))[0].subscriptions[0].has_several_inboxes


def test_a_plain_handler_is_not_run_in_whichever_inbox_comes_first() -> None:
    one, two = settings_with("sqlite:////a"), settings_with("sqlite:////a", "sqlite:////b")
    with pytest.raises(ConfigurationError, match="several inboxes and the handler is a plain function"):
        _only_inbox(two, two.subscriptions[0])
    assert _only_inbox(one, one.subscriptions[0]) == "sqlite:////a"


def test_status_names_a_double_effect_and_needs_a_person_for_it() -> None:
    ledger = MemoryLedger(ManualClock())
    reasons = {new_key(): DOUBLE_EFFECT(applied=(1, 2)), new_key(): "the inbox row has another content"}
    for key, reason in reasons.items():
        entry = VerdictEntry(
            unique_key=key,
            verdict=Verdict.COLLISION,
            evidence=with_texts({"reason": reason}, said),
            first_seen_ms=1,
            state=CandidateState.QUARANTINED,
            wait_seconds=0.0,
        )
        ledger.candidates.record(Shard(subscription=SUBSCRIPTION, number=0), [entry])
    verdicts = tuple(ledger.reports.verdict_counts("production"))
    (line,) = double_effects(ledger.reports, verdicts, "production")
    assert said(line).startswith(
        f"ORDERS/billing: 1 keys took effect in two inboxes, for example {next(iter(reasons))}"
    )
    assert double_effects(ledger.reports, (), "production") == []
    report = StatusReport(
        subscriptions=(status_of(),), verdicts=verdicts, repairs=(), holds=(), outages=(), away=(), doubled=(line,)
    )
    assert report.exit_code == 1
    assert report.as_dict()["doubled"] == [said(line)]


def test_explain_does_not_call_a_double_effect_done() -> None:
    row = InboxRow(
        group="billing", unique_key=new_key(), topic="ORDERS", content_digest=None, source="consumer", applied_at_ms=1
    )
    story = life_story_of(
        row.unique_key,
        outbox=Lookup.unknown("outbox", "not asked"),
        copies={},
        inboxes={SUBSCRIPTION: Lookup(presence=Presence.FOUND, records=(row, row))},
        ledger=LedgerLife(candidates=(), repairs=(), rounds=()),
        away=(),
    )
    (outlook,) = story.outlook
    assert outlook.code is TWO_EFFECTS
    assert "double effect" in said(outlook)


def test_doctor_finds_effects_in_two_inboxes_and_says_what_it_cannot_prove(tmp_path: Path) -> None:
    both, keys = new_key(), [new_key() for _ in range(3)]
    first = inbox_at(tmp_path / "a.db", {keys[0]: 1, keys[1]: 2})
    sound = inbox_at(tmp_path / "b.db", {keys[2]: 1})
    doubled = inbox_at(tmp_path / "c.db", {keys[0]: 9, both: 2})
    with Connections(settings_with(first, sound)) as connections:
        (finding,) = (one.as_row() for one in check_inbox_lists(connections))
    assert (finding.level, finding.check) == ("note", "inboxes of ORDERS/billing")
    assert "none is in two. That the handler's" in finding.found
    with Connections(settings_with(first, sound, doubled)) as connections:
        (finding,) = (one.as_row() for one in check_inbox_lists(connections))
    assert finding.level == "fail"
    assert f"1 are in two, for example {keys[0]}: double effects" in finding.found
    with Connections(settings_with(first)) as connections:
        assert check_inbox_lists(connections) == []


def test_doctor_tells_one_database_under_two_names_from_a_double_effect(tmp_path: Path) -> None:
    url = inbox_at(tmp_path / "a.db", {new_key(): 1, new_key(): 2})
    with Connections(settings_with(url, url.replace("sqlite:", "sqlite+pysqlite:"))) as connections:
        (finding,) = (one.as_row() for one in check_inbox_lists(connections))
    assert finding.level == "fail"
    assert "2 are in two" in finding.found
    assert "two URLs lead to one database" in finding.found
