"""Events in the log: each is told with its fields, and what a person must see is a warning."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from typing import Any, get_args

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import TOO_MANY
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.instrumentation.event_log import EventLog
from reconciler.policy import events
from reconciler.policy.events import Event
from reconciler.policy.evidence import as_foreign
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.policy.ports.rounds import RoundCounts, RoundDone
from reconciler.words import said

SUBSCRIPTION = Subscription(environment="prod", topic="ORDERS", group="billing")
OTHER = Subscription(environment="prod", topic="ORDERS", group="shipping")
SHARD = Shard(subscription=SUBSCRIPTION, number=3)
KEY = "7F00000100002A9F0000000000000090"


def round_finished(*problems: str) -> events.RoundFinished:
    return events.RoundFinished(
        subscription=SUBSCRIPTION,
        at_ms=1,
        shards_run=15,
        shards_skipped=1,
        announced=9,
        matched=8,
        pending_after=1,
        oldest_pending_seconds=2.5,
        gate="open",
        gate_detail=None,
        watermark_ms=7,
        became_due=1,
        verified=1,
        settled=0,
        broker_look_ups=2,
        verdicts={"LOST_CONFIRM": 1},
        repairs={},
        holds=(),
        weaker=False,
        problems=tuple(map(as_foreign, problems)),
    )


def repair_stepped(after: RepairState) -> events.RepairStepped:
    return events.RepairStepped(
        environment="prod",
        topic="ORDERS",
        scope="*",
        unique_key=KEY,
        rung=Rung.END,
        before=RepairState.SENT,
        after=after,
        attempts=1,
        answer="",
        answer_code="repair.ends",
    )


CALM: list[Event] = [
    round_finished(),
    repair_stepped(RepairState.DONE),
    events.BreakerClosed(environment="prod", topic="ORDERS"),
    events.OutageScanned(
        environment="prod",
        started_at_ms=1,
        since_ms=1,
        until_ms={"ORDERS/b": 9},
        scanned=7,
        by_subscription={"ORDERS/b": 7},
    ),
    events.OutageClosed(environment="prod", started_at_ms=1, reason="AWAY", scanned=7),
]
LOUD: list[Event] = [
    round_finished("ORDERS/billing#3: time-out"),
    replace(round_finished(), clock_behind_seconds=3600.0),
    repair_stepped(RepairState.FAILED),
    events.BreakerOpened(environment="prod", topic="ORDERS", cause="too-many", reason=TOO_MANY(losses=12, ceiling=10)),
    events.ShardStopped(shard=SHARD, cause="wrong-type", reason="half is no set"),
    events.RoundsVoided(shard=SHARD, rounds=2),
    events.OutageOpened(environment="prod", reason="AWAY", detail=as_foreign("refused")),
    events.OutageScanned(
        environment="prod", started_at_ms=1, since_ms=1, until_ms={}, scanned=0, left_out={"ORDERS/b": "no such table"}
    ),
]
COUNTS = RoundCounts(announced=9, matched=8, pending_before=4, pending_added=1, pending_matched=2, pending_after=3)
WRITTEN = [
    VerdictEntry(
        unique_key=KEY, verdict=verdict, evidence={}, first_seen_ms=1, state=CandidateState.OPEN, wait_seconds=1.0
    )
    for verdict in (Verdict.LAGGING, Verdict.RETRYING, Verdict.LAGGING)
]
LEFT = [events.LeftKey(unique_key=KEY, state=CandidateState.SETTLED, verdict=Verdict.CONSUMED)] * 5
QUIET: list[tuple[Event, dict[str, object]]] = [
    (
        events.ShardRoundRan(
            done=RoundDone(shard=SHARD, epoch="prod:a", generation=6, at_ms=5, offsets={}, counts=COUNTS)
        ),
        {"generation": 6, "at_ms": 5, "announced": 9, "pending_after": 3},
    ),
    (
        events.ShardsAtRest(
            looks=[(RoundDone(shard=SHARD, epoch="prod:a", generation=6, at_ms=5, offsets={}, counts=COUNTS), 9)] * 3
        ),
        {"shards": 3},
    ),
    (
        events.VerdictsWritten(shard=SHARD, entries=WRITTEN),
        {"keys": 3, "verdicts": {"LAGGING": 2, "RETRYING": 1}},
    ),
    (events.KeysLeft(shard=SHARD, keys=LEFT), {"keys": 5, "verdicts": {"CONSUMED": 5}}),
    (events.KeysNotTaken(shard=SHARD, unique_keys=[KEY] * 4), {"keys": 4}),
]


def told(caplog: pytest.LogCaptureFixture, event: Event) -> logging.LogRecord:
    with caplog.at_level(logging.DEBUG, "reconciler.events"):
        EventLog(said).emit(event)
    (record,) = caplog.records
    return record


def test_no_event_is_missing_here() -> None:
    assert {type(event) for event in [*CALM, *LOUD, *(event for event, _ in QUIET)]} == set(get_args(Event))


@pytest.mark.parametrize("event", [*CALM, *LOUD], ids=lambda event: type(event).__name__)
def test_every_event_is_told_with_its_fields(caplog: pytest.LogCaptureFixture, event: Event) -> None:
    line = told(caplog, event)
    assert line.getMessage().replace("_", "") == type(event).__name__.lower()
    record = vars(line)
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Subscription | Shard):
            assert (record["topic"], record["consumer_group"]) == ("ORDERS", "billing")
            assert record.get("shard") == (3 if isinstance(value, Shard) else None)
        elif isinstance(value, Fact):
            assert (record[field.name], record[f"{field.name}_code"]) == (said(value), value.code.name)
        elif field.name == "problems" and value:
            told_of = (record["problems"], record["problems_codes"])
            assert told_of == ([said(one) for one in value], [one.code.name for one in value])
        else:
            assert record[field.name] == value


@pytest.mark.parametrize(("event", "expected"), QUIET, ids=lambda value: type(value).__name__)
def test_thousands_of_keys_are_a_line_of_counts_that_nobody_sees_by_default(
    caplog: pytest.LogCaptureFixture, event: Event, expected: dict[str, object]
) -> None:
    record = told(caplog, event)
    values = vars(record)
    assert record.levelno == logging.DEBUG
    assert {name: values[name] for name in expected} == expected
    if not isinstance(event, events.ShardsAtRest):
        assert (values["topic"], values["consumer_group"], values["shard"]) == ("ORDERS", "billing", 3)
    assert KEY not in repr(values)
    caplog.clear()
    with caplog.at_level(logging.INFO, "reconciler.events"):
        EventLog(said).emit(event)
    assert caplog.records == []


@pytest.mark.parametrize("event", CALM, ids=lambda event: type(event).__name__)
def test_an_ordinary_event_wakes_nobody(caplog: pytest.LogCaptureFixture, event: Event) -> None:
    assert told(caplog, event).levelno == logging.INFO


@pytest.mark.parametrize("event", LOUD, ids=lambda event: type(event).__name__)
def test_what_a_person_must_see_is_a_warning(caplog: pytest.LogCaptureFixture, event: Event) -> None:
    assert told(caplog, event).levelno == logging.WARNING


IDLE = replace(
    round_finished(), announced=0, matched=0, pending_after=0, became_due=0, verified=0, verdicts={}, gate="not asked"
)


def test_a_subscription_without_traffic_is_a_line_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = EventLog(said, clock)
    with caplog.at_level(logging.INFO, "reconciler.events"):
        for _ in range(24 * 720):
            log.emit(IDLE)
            clock.advance(5.0)
    assert [vars(record).get("idle_rounds", 0) for record in caplog.records] == [0, *[719] * 23]


@pytest.mark.parametrize(
    "change",
    [
        {"announced": 1},
        {"matched": 1},
        {"pending_after": 1},
        {"became_due": 1},
        {"verified": 1},
        {"settled": 1},
        {"not_taken": 1},
        {"repairs": {"sent": 1}},
        {"problems": (as_foreign("time-out"),)},
        {"clock_behind_seconds": 1.0},
        {"clocks_apart_seconds": -20.0},
    ],
    ids=str,
)
def test_a_round_in_which_anything_happened_is_told_at_once(
    caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    log = EventLog(said, ManualClock())
    with caplog.at_level(logging.INFO, "reconciler.events"):
        for event in (IDLE, IDLE, replace(IDLE, **change), IDLE, replace(IDLE, subscription=OTHER)):
            log.emit(event)
    told = [(vars(record)["consumer_group"], vars(record).get("idle_rounds", 0)) for record in caplog.records]
    assert told == [("billing", 0), ("billing", 1), ("shipping", 0)]


def test_a_state_is_told_by_its_plain_name(caplog: pytest.LogCaptureFixture) -> None:
    state: Any = vars(told(caplog, repair_stepped(RepairState.DONE)))["after"]
    assert type(state) is str
    assert state == "DONE"
