"""The load programmes run for seconds each night, so that they cannot rot, and fail where a goal is missed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.figures import at_least, at_most, equal, percentile, report
from benchmarks.load.ids import correctness
from benchmarks.load.job import Job

ROOT = Path(__file__).parents[2]
QUICK = ("--interval", "1", "--skew", "1", "--grace", "3")
#: Goals that a busy machine may miss.
OF_TIME = ("processor", "a second", "round p95", "rounds skipped", "detection", "hour", "missed by the recorder")

JOB = Job(folder="/", name_servers="", redis_url="", ids=3_000, lose_every=1_000)
LOST = [JOB.key(number) for number in JOB.lost_numbers()]
ANNOUNCED = {"lost_at_ms": dict.fromkeys(LOST, 0), "failures": []}
CONSUMED = {"repaired": LOST}
PROVED = dict.fromkeys(LOST, (1, "DONE"))


def run(programme: str, *arguments: str, out: Path, within_seconds: float = 170) -> dict[str, Any]:
    """The figures of a run that reached every goal but those of time."""
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{programme}", *arguments, "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=within_seconds,
        check=False,
    )
    assert out.exists(), ran.stderr
    figures: dict[str, Any] = json.loads(out.read_text())
    goals = {goal["name"]: goal["is_reached"] for goal in figures["goals"]}
    assert ran.returncode == (0 if all(goals.values()) else 1)
    missed = [name for name, is_reached in goals.items() if not is_reached]
    assert [name for name in missed if not any(words in name for words in OF_TIME)] == [], ran.stderr
    return figures


@pytest.mark.nightly
@pytest.mark.redis
def test_subscriptions_at_rest_store_few_rounds(tmp_path: Path) -> None:
    figures = run(
        *("load.many", "--subscriptions", "1", "2", "--interval", "1", "--seconds", "15", "--settle", "1"),
        out=tmp_path / "many.json",
    )
    assert [one["subscriptions"] for one in figures["runs"]] == [1, 2]
    assert all(one["rows_a_minute_a_subscription"] > 0 for one in figures["runs"])


@pytest.mark.nightly
@pytest.mark.redis
@pytest.mark.timeout(700)
def test_subscriptions_that_queries_prove_have_their_rounds(tmp_path: Path) -> None:
    figures = run(
        *("load.many", "--subscriptions", "2", "--queries", "--bare", "--interval", "1", "--seconds", "10"),
        *("--settle", "1"),
        out=tmp_path / "many.json",
        within_seconds=600,
    )
    assert figures["runs"][0]["subscriptions_by_process"] == [2]


@pytest.mark.nightly
@pytest.mark.redis
def test_subscriptions_with_an_id_per_second_each_miss_none_and_leave_a_row_per_round(tmp_path: Path) -> None:
    figures = run(
        *("load.many", "--subscriptions", "2", "--rate", "1", "--bare", "--interval", "1", "--seconds", "10"),
        *("--settle", "1"),
        out=tmp_path / "many.json",
    )
    (one,) = figures["runs"]
    assert one["ids_a_second_a_subscription"] > 0
    assert one["rows_a_minute_a_subscription"] > 0


@pytest.mark.nightly
def test_the_overview_of_five_hundred_subscriptions_stays_within_its_limit(tmp_path: Path) -> None:
    figures = run("overview", "--repeat", "5", out=tmp_path / "overview.json")
    assert set(figures["processor_ms"]) == {"few calm", "many calm", "many, some troubled"}


@pytest.mark.nightly
@pytest.mark.redis
def test_processes_share_subscriptions_evenly_and_one_that_is_killed_is_replaced_within_two_leases(
    tmp_path: Path,
) -> None:
    """The run waits until each has as many, and ends with the death of one."""
    figures = run(
        *("load.many", "--subscriptions", "4", "--processes", "2", "--interval", "1", "--seconds", "5"),
        *("--settle", "1"),
        out=tmp_path / "shared.json",
    )
    assert figures["runs"][0]["subscriptions_by_process"] == [2, 2]
    assert figures["runs"][0]["taken_over_seconds"] > 0


@pytest.mark.nightly
@pytest.mark.redis
def test_every_planted_loss_of_the_ids_path_is_proved_and_repaired(tmp_path: Path) -> None:
    figures = run(
        *("load.ids", *QUICK, "--seconds", "4", "--rate", "500", "--lose-every", "250", "--check-interval", "1"),
        out=tmp_path / "ids.json",
    )
    assert figures["detection_seconds"]["planted"] == 8
    assert figures["redis_ping"]["pings"] > 0


@pytest.mark.nightly
@pytest.mark.redis
def test_what_a_dead_service_committed_is_repaired_once_after_the_breaker(tmp_path: Path) -> None:
    figures = run(
        *("load.losses", "--losses", "3000", "--broker", "embedded"), out=tmp_path / "losses.json", within_seconds=600
    )
    assert figures["breaker_opened"]


@pytest.mark.nightly
@pytest.mark.redis
def test_a_stopped_group_causes_no_repair(tmp_path: Path) -> None:
    figures = run(
        *("load.lag", *QUICK, "--ids", "6000", "--broker", "embedded", "--seconds", "6"),
        out=tmp_path / "lag.json",
    )
    assert figures["pending_most"] == 6_000 - 512
    assert figures["query_message_while_stopped"]["keys"] > 0, "the trickle never ran: nothing was tested"


@pytest.mark.sql("postgres")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("messages", "files_max", "mib_max", "over_judging_max"),
    [(100_000, 16, 448, 5), pytest.param(1_000_000, 64, 640, 7, marks=pytest.mark.nightly)],
)
def test_an_audit_of_a_real_database_counts_what_was_planted_as_duckdb_does(
    messages: int, files_max: int, mib_max: int, over_judging_max: float, tmp_path: Path
) -> None:
    """Bounds are wide, so that a relapse shows and a busy machine does not."""
    figures = run(
        *("audit_databases", "--rows", str(messages), "--turns", "1"),
        out=tmp_path / "audit.json",
        within_seconds=1700,
    )
    (audited,), (by_duckdb,) = figures["runs"]["audit"], figures["runs"]["duckdb"]
    assert min(audited["rows"], by_duckdb["rows"]) > 1.9 * messages
    assert audited["files"] <= files_max
    assert audited["collect_peak_mib"] <= mib_max
    assert figures["ratios"]["whole_over_judging_cpu"] <= over_judging_max


@pytest.mark.nightly
@pytest.mark.redis
@pytest.mark.sql("postgres")
def test_the_full_path_has_one_effect_a_message(tmp_path: Path) -> None:
    figures = run(
        *("load.sql", *QUICK, "--seconds", "2", "--producers", "1", "--consumers", "1", "--goal", "1"),
        out=tmp_path / "sql.json",
    )
    assert figures["effects"] > 0


@pytest.mark.nightly
@pytest.mark.redis
def test_browsers_that_look_are_all_answered(tmp_path: Path) -> None:
    figures = run(
        *("web", "--browsers", "10", "--seconds", "2", "--settle", "1", "--turns", "1", "--rate", "200"),
        out=tmp_path / "web.json",
    )
    nobody, ten = figures["phases"]
    assert nobody["rounds"] > 0
    assert ten["polls"][0]["answers"] >= 10


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"proved": dict(list(PROVED.items())[1:])}, "planted losses that were not proved"),
        ({"proved": PROVED | {JOB.key(7): (1, "DONE")}}, "losses that were not planted"),
        ({"proved": PROVED | {LOST[0]: (1, "SENT")}}, "repairs not DONE"),
        ({"consumed": {"repaired": LOST[1:]}}, "repaired and consumed once"),
        ({"consumed": {"repaired": [*LOST, LOST[0]]}}, "repaired and consumed once"),
        ({"announced": ANNOUNCED | {"failures": ["1 key"]}}, "failed announcements"),
        ({"counted": 2_999}, "ids counted by the rounds"),
    ],
)
def test_a_loss_that_is_not_found_fails_the_run(changes: dict[str, Any], missed: str) -> None:
    seen: dict[str, Any] = {"announced": ANNOUNCED, "consumed": CONSUMED, "proved": PROVED, "counted": 3_000}
    assert all(goal.is_reached for goal in correctness(JOB, **seen))
    assert [goal.name for goal in correctness(JOB, **(seen | changes)) if not goal.is_reached] == [missed]


def test_a_missed_goal_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "figures.json"
    assert report("x", {"seen": 1}, [at_least("a", 2, 2), at_most("b", 2, 2), equal("c", 0, 0)], out) == 0
    assert report("x", {"seen": 1}, [at_least("a", 1.9, 2)], out) == 1
    assert report("x", {"seen": 1}, [at_most("b", 2.1, 2)], out) == 1
    assert report("x", {"seen": 1}, [equal("c", 1, 0)], out) == 1
    assert json.loads(out.read_text())["seen"] == 1
    assert "MISSED c: 1, wanted = 0" in capsys.readouterr().err


def test_percentiles_are_of_the_nearest_rank() -> None:
    ordered = [float(number) for number in range(1, 201)]
    assert (percentile(ordered, 50), percentile(ordered, 99), percentile(ordered, 99.9)) == (100, 198, 200)
    assert (percentile([], 99), percentile([7.0], 1)) == (0, 7)
