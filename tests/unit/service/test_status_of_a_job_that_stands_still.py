"""H55: the job is not running, and "0 lost" is all that anybody sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.bootstrap.reporting import StatusReport, late_rounds
from reconciler.contract.subscription import Subscription
from reconciler.settings_file import load_settings

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
