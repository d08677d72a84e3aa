"""The dashboard: every query answers, names what exists, turns red where the alert does, and lies on Grafana's grid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

from checkback_consumers.metrics import METRICS as CONSUMER_METRICS
from checkback_producers.metrics import MEANINGS as PRODUCER_MEANINGS
from deploy.grafana import dashboard
from reconciler.contract.tables import RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.catalogue import METRICS, MetricKind
from reconciler.instrumentation.metrics.events import OUTAGE_REASONS
from reconciler.policy.evidence import Presence
from tests.unit.metrics.test_alerts import ALERTS, ROOT, TEXT, promtool

FILE = ROOT / "deploy/grafana/reconciler.json"
BOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
#: What Grafana puts in the place of its variables, each chosen as All.
VALUES = {
    "$__rate_interval": "5m",
    "$job": ".*",
    "$instance": ".*",
    "$topic": ".*",
    "$group": ".*",
}
#: Label names of each metric as Prometheus stores it: it adds these two, and calls a metric's own job exported_job.
OF_TARGET = ("job", "instance")
LABELS: dict[str, tuple[str, ...]] = (
    {m.name: tuple("exported_job" if label == "job" else label for label in m.labels) for m in METRICS}
    | dict.fromkeys(CONSUMER_METRICS, ("consumer_group",))
    | {"reconciler_handled_messages_total": ("consumer_group", "outcome")}
    | {f"reconciler_producer_{name}_total": ("producer_group",) for name in PRODUCER_MEANINGS}
    | {"ALERTS": ("alertname", "alertstate", "severity", "topic", "consumer_group")}
)
#: What labels can be, where a query asks for one value: taken from the code, not from the dashboard.
WORDS: dict[tuple[str, str], tuple[str, ...]] = {
    (c.LOSSES.name, "verdict"): tuple(verdict.value.lower() for verdict in Verdict),
    (c.REPAIR_ROWS.name, "state"): tuple(state.value.lower() for state in RepairState),
    (c.OUTAGES.name, "reason"): OUTAGE_REASONS,
    (c.LOOK_UPS.name, "outcome"): tuple(presence.value.lower() for presence in Presence),
    (c.DEPENDENCY_UP.name, "dependency"): ("ledger", "redis", "rocketmq"),
    ("ALERTS", "alertname"): tuple(ALERTS),
    ("ALERTS", "alertstate"): ("pending", "firing"),
    ("ALERTS", "severity"): ("page", "ticket"),
}


def every_panel() -> Iterator[dict[str, Any]]:
    for panel in BOARD["panels"]:
        yield panel
        yield from panel.get("panels", ())


PANELS = [panel for panel in every_panel() if panel["type"] != "row"]
QUERIES = [
    *((f"{panel['title']}: {target['refId']}", target["expr"]) for panel in PANELS for target in panel["targets"]),
    *((one["name"], one["expr"]) for one in BOARD["annotations"]["list"]),
]


def substituted(query: str) -> str:
    for name, value in VALUES.items():
        query = query.replace(name, value)
    assert "$" not in query, "a variable that the dashboard does not have"
    return query


def series() -> list[dict[str, str]]:
    """Two hours of everything that can be scraped, of two processes."""
    found = []
    kinds = {metric.name: metric.kind for metric in METRICS}
    for name, labels in LABELS.items():
        rises = name.endswith("_total") or kinds.get(name) is MetricKind.HISTOGRAM
        values = "0+30x120" if rises else "1x120"
        choices = [[(label, word) for word in WORDS.get((name, label), ("x",))] for label in labels]
        targets = [[("job", "reconciler")], [("instance", "one"), ("instance", "two")]]
        buckets = [[("le", "1"), ("le", "+Inf")]] if kinds.get(name) is MetricKind.HISTOGRAM else []
        for chosen in product(*choices, *targets, *buckets):
            text = ",".join(f'{label}="{word}"' for label, word in chosen)
            found.append({"series": f"{name}{'_bucket' if buckets else ''}{{{text}}}", "values": values})
    return found


def family(name: str) -> str:
    return name if name in LABELS else re.sub(r"_(bucket|sum|count)$", "", name)


def selectors(query: str) -> list[tuple[str, dict[str, str]]]:
    """Metric and matchers of each selector of a query."""
    found = re.findall(r"\b(reconciler_\w+|ALERTS)\b(?:\{([^}]*)\})?", query)
    return [(family(name), dict(re.findall(r'(\w+)=~?"([^"]*)"', text))) for name, text in found]


def test_the_file_is_what_the_code_says() -> None:
    assert FILE.read_text(encoding="utf-8") == dashboard.text(), "run: make docs"


def test_every_query_is_understood_and_answers_where_everything_is_scraped(tmp_path: Path) -> None:
    records = [f"query:{index}" for index in range(len(QUERIES))]
    rules = [
        {"record": record, "expr": substituted(query)} for record, (_, query) in zip(records, QUERIES, strict=True)
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    asked = [
        {"expr": f"count({record}) > bool 0", "eval_time": "2h", "exp_samples": [{"labels": "{}", "value": 1}]}
        for record in records
    ]
    test = {"interval": "1m", "input_series": series(), "promql_expr_test": asked}
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}))
    assert promtool("check", "rules", str(tmp_path / "rules.yml")) == ""
    assert promtool("test", "rules", str(file)) == ""


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_names_metrics_and_labels_that_exist(where: str, query: str) -> None:
    assert where
    used = selectors(query)
    assert used
    for name, matchers in used:
        assert name in LABELS
        assert set(matchers) <= {*LABELS[name], *OF_TARGET}
        for label, text in matchers.items():
            if not text.startswith("$"):
                assert set(text.split("|")) <= set(WORDS[name, label])
    known = set(chain.from_iterable(LABELS[name] for name, _ in used)) | {*OF_TARGET, "le"}
    grouped = chain.from_iterable(group.split(",") for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query))
    assert {label.strip() for label in grouped} - {""} <= known


def test_legends_and_columns_show_labels_that_the_query_keeps() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) if panel["type"] != "table" else set()
            kept = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", target["expr"]))))
            assert shown <= kept, panel["title"]


def test_no_number_of_the_catalogue_is_missing() -> None:
    shown = {name for _, query in QUERIES for name, _ in selectors(query)}
    assert shown == set(LABELS)


def test_a_variable_reads_a_metric_that_is_there_before_its_first_event() -> None:
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance", "topic", "group", "runbooks"]
    for name in ("job", "instance", "topic", "group"):
        metric, matchers, label = re.findall(
            r"label_values\((\w+)(?:\{(.*)\})?, (\w+)\)", variables[name]["definition"]
        )[0]
        assert metric in (c.BUILD_INFO.name, c.LOSSES.name)
        assert {label, *re.findall(r"(\w+)=", matchers)} <= {*LABELS[metric], *OF_TARGET}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"])))
    assert used == {*variables, "__rate_interval", "__value"}


def numbers(alert: str) -> tuple[str, float, str]:
    """Comparison, number and severity of the rule."""
    rule = TEXT.split(f"- alert: {alert}\n", 1)[1].split("- alert:")[0]
    (comparison, number), severity = re.findall(r" (>|==) ([\d.]+)", rule)[0], re.findall(r"severity: (\w+)", rule)[0]
    return comparison, float(number), severity


def linked(links: list[dict[str, Any]]) -> str | None:
    return next(
        (link["title"].removeprefix("Runbook: ") for link in links if link["title"].startswith("Runbook: ")), None
    )


def coloured() -> Iterator[tuple[str, dict[str, Any]]]:
    """Alert and thresholds of panels and of columns that link its runbook."""
    for panel in PANELS:
        alert = linked(panel["links"])
        if alert is not None:
            yield alert, panel["fieldConfig"]["defaults"]["thresholds"]
        for override in panel["fieldConfig"]["overrides"]:
            properties = {one["id"]: one["value"] for one in override["properties"]}
            alert = linked(properties.get("links", []))
            if alert is not None:
                yield alert, properties["thresholds"]


@pytest.mark.parametrize(("alert", "thresholds"), list(coloured()))
def test_a_panel_turns_red_where_its_alert_begins(alert: str, thresholds: dict[str, Any]) -> None:
    comparison, number, severity = numbers(alert)
    colour = {"page": "red", "ticket": "orange"}[severity]
    low, high = thresholds["steps"]
    assert low["value"] is None
    if comparison == "==":
        assert (low["color"], high["value"], number) == (colour, 1, 0)
    else:
        assert (low["color"], high["color"]) == ("green", colour)
        assert high["value"] == (number or 1), "more than 0 of whole numbers is 1"


def test_each_alert_has_a_panel_and_each_link_a_runbook() -> None:
    assert {alert for alert, _ in coloured()} == set(ALERTS)
    for url in re.findall(r'"url": "([^"]+)"', FILE.read_text(encoding="utf-8")):
        page = re.fullmatch(r"\$\{runbooks:raw\}(/(\w+|\$\{__value\.raw\})\.md)?", url)
        assert page is not None
        assert page[2] in (None, "${__value.raw}", *ALERTS)


def test_an_engineer_reads_a_title_a_unit_and_a_description_everywhere() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    for panel in PANELS:
        assert re.match(r"[A-Z].{3,}", panel["title"])
        assert len(panel["description"]) > 20
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["noValue"] in ("not known", "none")
        in_seconds = ["_seconds" in one["expr"] and not one["expr"].startswith("count") for one in panel["targets"]]
        if panel["type"] != "table":
            assert (defaults["unit"] == "s") == all(in_seconds), panel["title"]


def test_grafana_can_lay_it_out() -> None:
    assert BOARD["schemaVersion"] == dashboard.SCHEMA_VERSION
    assert "id" not in BOARD, "Grafana gives it one; uid makes a second import an update"
    ids = [panel["id"] for panel in every_panel()]
    assert len(set(ids)) == len(ids)
    taken: dict[tuple[int, int], str] = {}
    for panel in every_panel():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert min(place["w"], place["h"]) > 0
        for cell in product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])):
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]
        refs = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(refs)) == len(refs)
    for panel in BOARD["panels"]:
        assert bool(panel.get("panels")) == (panel["type"] == "row" and panel["collapsed"])


def test_a_figure_is_asked_for_now_and_never_an_older_one() -> None:
    for panel in PANELS:
        is_now = panel["type"] in ("stat", "table")
        assert all(target["instant"] is is_now and target["range"] is not is_now for target in panel["targets"])
