"""H55: the job is not running, and "0 lost" is all that anybody sees."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.bootstrap.connections import Connections
from reconciler.bootstrap.outbox_backlog import unannounced
from reconciler.bootstrap.reporting import StatusReport
from reconciler.bootstrap.standstill import (
    history_behind,
    late_rounds,
    open_outage,
    shards_without_rounds,
    unrepaired,
)
from reconciler.clock import ManualClock
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.memory import MemoryLedger
from reconciler.ports import Outage, RoundCounts, RoundDone, StoredRound, Verification
from reconciler.settings_file import load_settings
from reconciler.sql.engines import database_now_ms, open_engine
from reconciler.sql.tables import outbox, outbox_metadata

ROOT = Path(__file__).parents[3]
SUBSCRIPTION = Subscription(environment="production", topic="ORDERS", group="billing")


def status(
    age_seconds: float | None, within_seconds: float | None = None, *, interval_seconds: float = 5.0
) -> StatusReport:
    settings = load_settings(ROOT / "config" / "reconciler.toml", {})
    rounds = settings.rounds.model_copy(update={"interval_seconds": interval_seconds})
    settings = settings.model_copy(update={"rounds": rounds})
    late = late_rounds(settings, SUBSCRIPTION, age_seconds, within_seconds=within_seconds)
    return StatusReport(subscriptions=(), verdicts=(), repairs=(), holds=(), outages=(), away=(), late=tuple(late))


def test_a_job_that_is_not_running_does_not_show_0_lost_with_exit_code_0() -> None:
    report = status(3_600.0)
    assert report.exit_code == 3
    (line,) = report.late
    assert "is 3600 s old" in line
    assert report.as_dict()["late"] == [line]


@pytest.mark.parametrize(("age_seconds", "code"), [(0.0, 0), (310.0, 0), (310.1, 3)])
def test_five_minutes_and_the_clocks_difference_are_no_standstill(age_seconds: float, code: int) -> None:
    assert status(age_seconds).exit_code == code


def test_rare_rounds_are_late_after_sixty_of_them() -> None:
    assert status(1_200.0, interval_seconds=20).exit_code == 0
    assert status(1_211.0, interval_seconds=20).exit_code == 3


def test_a_monitor_sets_its_own_time_and_then_a_job_that_never_ran_counts_too() -> None:
    assert status(100.0, 60.0).exit_code == 3
    assert status(100.0, 7_200.0).exit_code == 0
    assert status(None).exit_code == 0, "a new deployment"
    assert status(None, 60.0).exit_code == 3


def outage(**changes: object) -> Outage:
    calm = {
        "environment": "production", "started_at_ms": 1_700_000_000_000, "reason": "AWAY", "scan_position": None,
        "scanned": 0, "closed_at_ms": None,
    }  # fmt: skip
    return Outage(**{**calm, **changes})  # type: ignore[arg-type]  # fields by name


def test_an_open_outage_is_no_calm_although_the_last_round_is_young() -> None:
    (line,) = open_outage(outage())
    assert "since 2023-11-14T22:13:20+00:00 (AWAY)" in line
    assert "rounds wait for Redis" in line
    assert "are scanned" in open_outage(outage(scan_position={"complete": True}))[0]
    assert open_outage(outage(closed_at_ms=1_700_000_001_000)) == []
    assert open_outage(None) == []


def stored(number: int, generation: int, *, at_ms: int = 1, is_void: bool = False) -> StoredRound:
    shard = Shard(subscription=SUBSCRIPTION, number=number)
    counts = RoundCounts(
        announced=0, matched=0, pending_before=0, pending_added=0, pending_matched=0, pending_after=0
    )  # fmt: skip
    done = RoundDone(shard=shard, epoch="e", generation=generation, at_ms=at_ms, offsets={}, counts=counts)
    return StoredRound(done=done, is_void=is_void, stored_at_ms=1)


def test_a_shard_that_no_process_runs_does_not_hide_behind_the_others() -> None:
    (line,) = shards_without_rounds(SUBSCRIPTION, [stored(0, 2), stored(2, 1)], shards=4)
    assert line.startswith("shards 1, 3 of ")
    assert shards_without_rounds(SUBSCRIPTION, [stored(0, 2), stored(1, 1)], shards=2) == []
    assert shards_without_rounds(SUBSCRIPTION, [stored(0, 1)], shards=2) == [], "the first turn is under way"
    assert shards_without_rounds(SUBSCRIPTION, [], shards=2) == [], "a new deployment"


@pytest.mark.parametrize(
    ("captured_ms", "told"),
    [
        ({0: 700_000, 1: 100_000}, True),
        ({0: 99_999, 1: 700_000}, True),
        ({0: 100_000, 1: 700_000}, False),
        ({1: 700_000}, False),
        ({}, False),
    ],
)
def test_a_history_that_cannot_be_written_does_not_wait_for_the_auditor(
    captured_ms: dict[int, int], *, told: bool
) -> None:
    settings = load_settings(ROOT / "config" / "reconciler.toml", {"RECONCILER_HISTORY__PATH": "/history"})
    assert settings.history.seal_seconds == 300
    rounds = [stored(0, 5, at_ms=700_000), stored(1, 5, at_ms=700_001), stored(1, 6, at_ms=9_000_000, is_void=True)]
    late = history_behind(settings, SUBSCRIPTION, rounds, captured_ms, within_seconds=None)
    ends = f"the history of {SUBSCRIPTION} ends 600 s before its last round"
    assert [line.partition(":")[0] for line in late] == [ends] * told
    assert history_behind(settings, SUBSCRIPTION, rounds, {0: 350_000}, within_seconds=50.0) == []
    assert history_behind(settings, SUBSCRIPTION, rounds, {0: 349_999}, within_seconds=50.0) != []


def test_a_loss_that_was_proved_and_never_got_a_repair_is_told() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    key, shard = "A" * 32, Shard(subscription=SUBSCRIPTION, number=0)
    loss = Verification(
        unique_key=key, verdict=Verdict.LOST_CONFIRM, evidence={}, first_seen_ms=clock.now_ms(),
        state=CandidateState.OPEN, wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(shard, [loss])

    def told(within_seconds: float | None = None) -> list[str]:
        settings = load_settings(ROOT / "config" / "reconciler.toml", {})
        return unrepaired(
            settings, SUBSCRIPTION, candidates=ledger.candidates, repairs=ledger.repairs, now_ms=clock.now_ms(),
            within_seconds=within_seconds,
        )  # fmt: skip

    clock.advance(200)
    assert told() == [], "the turn may be under way"
    assert len(told(100.0)) == 1, "a monitor's own time"
    clock.advance(200)
    (line,) = told()
    assert line.startswith("1 losses of")
    assert key in line
    ledger.repairs.open(SUBSCRIPTION.environment, SUBSCRIPTION.topic, key, rung=Rung.END)
    assert told() == []


def test_a_dead_sweeper_does_not_leave_committed_keys_unheard_of_with_exit_code_0(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    environ = {"RECONCILER_PRODUCERS": f'[{{"group": "shop", "topics": ["ORDERS"], "outbox_url": "{url}"}}]'}
    settings = load_settings(ROOT / "config" / "reconciler.toml", environ)
    engine = open_engine(url)

    def told() -> list[str]:
        with Connections(settings) as connections:
            return unannounced(connections, within_seconds=300.0)

    def insert(key: str, group: str, state: str, age_seconds: int) -> None:
        with engine.begin() as connection:
            created = database_now_ms(connection) - age_seconds * 1000
            row = {
                "unique_key": key,
                "topic": "ORDERS",
                "producer_group": group,
                "state": state,
                "created_at_ms": created,
            }
            connection.execute(sa.insert(outbox).values(**row))

    assert told() == [], "tables that are missing are told by doctor"
    outbox_metadata.create_all(engine)
    insert("A" * 32, "shop", "NEW", 305)
    insert("B" * 32, "shop", "ANNOUNCED", 9_000)
    insert("C" * 32, "other", "NEW", 9_000)
    assert told() == [], "the sweeper has ten seconds, and then the monitor five minutes"
    insert("D" * 32, "shop", "NEW", 400)
    (line,) = told()
    assert line.startswith("the outbox of shop has had a key for 4")
    engine.dispose()
