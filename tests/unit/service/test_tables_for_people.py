"""What people look for comes first and what they copy is in one piece, on a screen of 80 columns and in a pipe."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.cli import report_commands, setup_commands
from reconciler.cli.app import run
from reconciler.cli.output import print_table, with_business_ids
from reconciler.cli.report_commands import ListingName
from reconciler.clock import ManualClock
from reconciler.commands.diagnosis import Diagnosis, as_told
from reconciler.commands.explain import Explanation
from reconciler.commands.list import OTHER_TOPIC, LedgerListing, list_rows
from reconciler.commands.listings import LISTINGS
from reconciler.commands.renaming.group_on_brokers import GroupQueue
from reconciler.commands.renaming.group_rename import RenamedInbox, RenameReport
from reconciler.commands.status.report import StatusReport, SubscriptionStatus
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import RepairState, Rung
from reconciler.evidence.watermark import CONSUMED
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.ports.ledger import RepairChange
from reconciler.telling.account import Account
from reconciler.telling.life_events import HALF_STORED, LifeEvent
from reconciler.telling.life_story import LifeStory
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.testing.memory import MemoryLedger
from tests.unit.web.reports import fact_of, facts_of

KEYS = ["C00002023B4E6944B7BD75A9469BC272", "C00002023B4E6944B7BD75A9469BC273"]
TIME, MILLISECONDS = "2026-11-23T20:27:22.394Z", 1_795_465_642_394
COLUMNS = ["unique key", "at", "result"]
LONG = "the broker answered that it does not know of any such transaction " * 3
ROW = [KEYS[0], TIME, LONG]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _columns_of_the_person_who_runs_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def printed(capsys: Captured) -> list[str]:
    told = capsys.readouterr()
    assert told.err == ""
    return [line.rstrip() for line in told.out.splitlines()]


def test_a_key_and_a_time_stand_in_one_piece_beside_a_long_sentence(capsys: Captured) -> None:
    print_table("Rows", COLUMNS, [ROW])
    row = next(line for line in printed(capsys) if KEYS[0] in line)
    assert row.startswith("│")
    assert TIME in row


@pytest.mark.parametrize("width", [1, 40, 60, 80, 100])
def test_nothing_is_cut_off_where_a_line_has_no_room(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_table("Rows", [*COLUMNS, "more"], [[*ROW, ROW[2]]], first=["at", "result"])
    lines = printed(capsys)
    assert all(len(line) <= max(width, 50) for line in lines)
    assert "".join(lines).count(KEYS[0]) == 1
    assert lines[1].startswith(TIME) or width < len(TIME)
    words = " ".join(lines).split()
    assert [word for word in words if word in LONG.split()].count("transaction") == 6


def test_a_table_that_fits_stays_a_table_and_one_that_does_not_has_a_line_a_value(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [[key, TIME, "sent", ""] for key in KEYS]
    columns = ["unique key", "at", "result", "answer of the broker"]
    print_table("Rows", columns, rows)
    assert sum(line.startswith("│") for line in printed(capsys)) == len(rows)
    monkeypatch.setenv("COLUMNS", "80")
    print_table("Rows", columns, rows, first=["result", "unique key"])
    at = f"  at                    {TIME}"
    assert printed(capsys) == ["Rows", f"sent  {KEYS[0]}", at, f"sent  {KEYS[1]}", at]


def test_wide_letters_do_not_run_over_the_edge(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_table("Rows", ["unique key", "reason"], [[KEYS[0], "支付 " * 60]])
    lines = printed(capsys)
    assert sum(line.count("支付") for line in lines) == 60
    assert all(len(line) + sum(letter in "支付" for letter in line) <= 60 for line in lines)


def test_a_listing_without_rows_says_so(capsys: Captured) -> None:
    print_table("Repairs", COLUMNS, [])
    assert printed(capsys) == ["Repairs: none"]


def test_a_table_of_keys_has_the_business_ids_that_outboxes_tell() -> None:
    columns, rows = ("topic", "unique key", "outcome"), [("ORDERS", "K1", "sent"), ("ORDERS", "K2", "held")]
    named = with_business_ids(columns, rows, {"K2": "order-7"})
    assert named == (
        ("topic", "unique key", "business id", "outcome"),
        [("ORDERS", "K1", None, "sent"), ("ORDERS", "K2", "order-7", "held")],
    )
    assert with_business_ids(columns, rows, {}) == (columns, rows)


def test_a_rename_tells_of_each_database_and_queue_what_is_there_and_what_becomes_of_it() -> None:
    queue = GroupQueue(topic="ORDERS", broker="a", queue_id=1, offset=7, offset_before=3, waiting=2)
    inboxes = (
        RenamedInbox(database="a.db", rows=5, missing=4),
        RenamedInbox(database="b.db", rows=9, missing=9, copied=9),
    )
    report = RenameReport(old="billing", new="invoices", topics=("ORDERS",), inboxes=inboxes, queues=(queue,))
    assert report.rows() == [
        ("inbox rows", "a.db", "5 of billing, 4 missing", "4 to be copied"),
        ("inbox rows", "b.db", "9 of billing, 9 missing", "9 copied"),
        ("offset", "ORDERS queue 1 on a", 3, 7),
    ]
    assert {len(row) for row in report.rows()} == {len(report.columns)}


def value(name: str) -> object:
    """Of a column of some listing or report."""
    if name.endswith("_ms"):
        return MILLISECONDS
    words = {"unique_key": KEYS[0], "topic": "ORDERS", "group": "billing-service", "scope": "*", "state": "QUARANTINED"}
    return words.get(name, LONG if name in {"answer", "detail", "result", "left_out"} else "LOST_CONFIRM")


@pytest.mark.parametrize("width", ["80", "160"])
@pytest.mark.parametrize("what", ListingName)
def test_a_listing_begins_with_what_a_person_looks_for_and_names_nothing_twice(
    what: ListingName, width: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = LISTINGS[what.value].names
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(report_commands, "read_settings", lambda _config: None)
    rows = [tuple(map(value, columns))] * 2
    listed = LedgerListing(columns=columns, rows=rows, notes=[OTHER_TOPIC(topic="SHOES")])
    monkeypatch.setattr("reconciler.commands.list.list_rows", lambda *_args, **_options: listed)
    monkeypatch.setattr("reconciler.commands.asking.business_ids.business_ids_of", lambda *_: {KEYS[0]: "order-7"})
    assert run(["list", what.value, "--limit", "1"]) == 0
    note, more, _title, *lines = printed(capsys)
    assert note == "note: no [[subscriptions]] section has the topic 'SHOES'"
    assert more == "only the first 1: there are more, see --limit"
    first = LISTINGS[what.value].looked_for
    row = next(line for line in lines if str(value(first[0])) in line or TIME in line)
    assert re.split(r" {2,}| │ ", row.strip("│ "))[: len(first)] == [
        TIME if name.endswith("_ms") else str(value(name)).strip() for name in first
    ]
    whole = "\n".join(lines)
    assert whole.count(KEYS[0]) == whole.count("order-7") == columns.count("unique_key")
    assert whole.count(TIME) == sum(name.endswith("_ms") for name in columns)
    headings = [heading.strip() for heading in lines[1].split("┃")[1:-1]]
    assert len(set(headings)) == len(headings)


def test_a_hundred_repairs_of_long_ago_do_not_hide_one_that_failed() -> None:
    ledger = MemoryLedger(ManualClock())
    for number, state in enumerate((RepairState.FAILED, RepairState.DONE, RepairState.DONE)):
        ledger.repairs.open("test", "ORDERS", f"{number:032X}", rung=Rung.END)
        row = ledger.repairs.of_keys("test", "ORDERS", [f"{number:032X}"])[f"{number:032X}"][0]
        claimed = ledger.repairs.claim(row, token="t", lease_seconds=9)
        assert claimed is not None
        ledger.repairs.change(claimed, RepairChange(state=state, rung=Rung.END), token="t")
    connections: Any = SimpleNamespace(ledger=ledger, settings=SimpleNamespace(environment="test", subscriptions=()))
    found = list_rows(connections, "repairs", only=LedgerFilter(), limit=2)
    assert [row["state"] for row in found.named()] == ["FAILED", "DONE"]


def test_failed_checks_come_before_those_that_are_well(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        Diagnosis(check=as_told(f"check {level}"), level=level, found=as_told("so"), remedy=as_told("do"))
        for level in ("ok", "note", "fail", "ok")
    ]
    monkeypatch.setattr(setup_commands, "read_settings", lambda _config: None)
    monkeypatch.setattr("reconciler.commands.doctor.checks.examine", lambda _settings: found)
    assert run(["doctor"]) == 1
    levels = [cells[1].strip() for line in printed(capsys) if len(cells := line.split("│")) > 2]
    assert levels == ["fail", "note", "ok", "ok"]


def test_what_needs_somebody_stands_on_standard_output_before_any_table(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Subscription(environment="test", topic="ORDERS", group="billing")
    watermark = Watermark(state=WatermarkState.KNOWN, at_ms=MILLISECONDS, detail=CONSUMED())
    now = SubscriptionStatus(
        subscription=of, pending=3, oldest_pending_ms=None, watermark=watermark, last_round_ms=MILLISECONDS,
        accounted=Account(subscription=of, until_ms=MILLISECONDS, cause=fact_of("nothing")), weaker=(),
    )  # fmt: skip
    report = StatusReport(
        subscriptions=(now,), verdicts=(), repairs=(), holds=(), outages=(), away=facts_of("redis: gone"),
        late=facts_of("a"), undecided=facts_of("b"), doubled=facts_of("c"), damaged=facts_of("d"),
        unproved=facts_of("e"), rejected=facts_of("f"),
    )  # fmt: skip
    remarks = ["away: redis: gone", "late: a", "undecided: b", "doubled: c", "damaged: d", "unproved: e", "rejected: f"]
    monkeypatch.setattr(report_commands, "read_settings", lambda _config: None)
    monkeypatch.setattr("reconciler.commands.status.reading.read_status", lambda *_args, **_options: report)
    assert run(["status"]) == 3
    _summary, *lines = printed(capsys)
    assert lines[: len(remarks)] == remarks
    assert "Subscriptions" in lines
    (headings,) = (line for line in lines if "watermark" in line)
    assert "last look" in headings, "a look at shards at rest is no round"
    assert len(set(headings.split("┃")[1:-1])) == len(headings.split("┃")[1:-1])
    assert run(["status", "--output", "json"]) == 3
    told = capsys.readouterr()
    assert json.loads(told.out)["away"] == ["redis: gone"]
    assert told.err.splitlines() == remarks


def test_a_key_that_nobody_knows_has_no_life_and_no_outlook(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    story = LifeStory(unique_key=KEYS[0], events=(), silent=facts_of("inbox: slow"), away=(), outlook=())
    monkeypatch.setattr(report_commands, "read_settings", lambda _config: None)
    monkeypatch.setattr(
        "reconciler.commands.explain.life_stories", lambda *_args, **_options: Explanation(stories=(story,))
    )
    assert run(["explain", KEYS[0]]) == 2
    assert printed(capsys) == ["no answer: inbox: slow", f"no witness that answered knows {KEYS[0]}"]


def test_what_becomes_of_a_message_stands_before_its_life(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    event = LifeEvent(at_ms=MILLISECONDS, witness="broker", what=HALF_STORED(), evidence={"queue": 1})
    story = LifeStory(
        unique_key=KEYS[0],
        events=(event,),
        silent=facts_of("inbox: slow"),
        away=facts_of("redis: gone"),
        outlook=facts_of("ORDERS: done"),
    )
    monkeypatch.setattr(report_commands, "read_settings", lambda _config: None)
    told = Explanation(stories=(story, story), notes=facts_of("two messages"))
    monkeypatch.setattr("reconciler.commands.explain.life_stories", lambda *_args, **_options: told)
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["explain", KEYS[0]]) == 3
    life = [f"Life of {KEYS[0]}", f"{TIME}  broker  half message stored", "  evidence  queue 1"]
    remarks = ["away: redis: gone", "no answer: inbox: slow"]
    assert printed(capsys) == ["note: two messages", "ORDERS: done", *remarks, "", *life, "", "ORDERS: done", "", *life]
