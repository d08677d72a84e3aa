"""The factor reaches every duration of the rules; numbers of keys have their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.scaled_rules import FACTOR, scaled_expression, scaled_rules, seconds_of
from tests.alerts.world import RULES
from tests.services import prometheus
from tests.services.prometheus import PrometheusServer
from tests.services.requirements import require


@pytest.mark.parametrize(("query", "scaled"), [
    ("time() - max by (topic) (reconciler_x_timestamp_seconds) > 600",
     "time() - max by (topic) (reconciler_x_timestamp_seconds) > 10"),
    ("max(reconciler_x_age_seconds) >= 90", "max(reconciler_x_age_seconds) >= 1.5"),
    ("max(reconciler_x_ids) > 10000", "max(reconciler_x_ids) > 10000"),
    ("sum(rate(reconciler_x_total[10m])) / sum(rate(reconciler_y_total[1h30m])) > 0.5",
     "sum(rate(reconciler_x_total[10000ms])) / sum(rate(reconciler_y_total[90000ms])) > 0.5"),
    ("max(reconciler_x_ids) > 3600 and on (topic) max(reconciler_x_age_seconds) > 3600 or absent(reconciler_x_ids)",
     "max(reconciler_x_ids) > 3600 and on (topic) max(reconciler_x_age_seconds) > 60 or absent(reconciler_x_ids)"),
    ('sum(reconciler_x_total{verdict="5 or 6"}) > 0', 'sum(reconciler_x_total{verdict="5 or 6"}) > 0'),
])  # fmt: skip
def test_seconds_are_divided_and_numbers_of_keys_are_not(query: str, scaled: str) -> None:
    assert scaled_expression(query, 60) == scaled
    assert scaled_expression("max(reconciler_x_ids) > 10000", 60, keys_factor=10) == "max(reconciler_x_ids) > 1000"
    assert scaled_expression(scaled_expression(query, 60), 1 / 60) == scaled_expression(query, 1)


@pytest.mark.parametrize("query", [
    "max(reconciler_x_age_seconds) / 60 > 5",
    "reconciler_x_age_seconds > 5 * 60",
    "max_over_time(reconciler_x_ids[1h:1m]) > 0",
    "reconciler_x_ids offset 5m > 0",
    "reconciler_x_ids @ 1609746000 > 0",
])  # fmt: skip
def test_a_duration_that_would_be_left_as_it_is_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match="can be divided"):
        scaled_expression(query, 60)


def test_a_factor_of_one_changes_no_rule_and_the_factor_every_duration(tmp_path: Path) -> None:
    require(prometheus.missing())
    with PrometheusServer(tmp_path, rules=RULES) as server:
        groups = server.rules()
    (same,), (quick,) = (scaled_rules(groups, factor)["groups"] for factor in (1.0, FACTOR))
    for rule, kept, hurried in zip(groups[0]["rules"], same["rules"], quick["rules"], strict=True):
        assert kept["for"] == f"{rule['duration'] * 1000}ms"
        assert hurried["for"] == f"{round(rule['duration'] * 1000 / FACTOR)}ms"
        assert (kept["labels"], kept["annotations"]) == (rule["labels"], rule["annotations"])
        is_timed = "_seconds" in rule["query"] or "[" in rule["query"]
        assert (hurried["expr"] != kept["expr"]) == is_timed


@pytest.mark.parametrize(("told", "seconds"), [("8m 15s", 495.0), ("9.5s", 9.5), ("1h30m", 5_400.0), ("250ms", 0.25)])
def test_a_duration_is_read_as_prometheus_writes_it(told: str, seconds: float) -> None:
    assert seconds_of(told) == seconds
