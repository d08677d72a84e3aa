"""Queries and panels of the dashboard, as Grafana's JSON has them.

Names and labels come from the catalogue of metrics, thresholds and severities from deploy/prometheus/rules.yml: a panel
turns red (page) or orange (ticket) where its alert begins. What is not known is shown as such, never as 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkback_consumers.metrics import METRICS as CONSUMER_METRICS
from checkback_producers.metrics import MEANINGS as PRODUCER_MEANINGS
from reconciler.instrumentation.metrics.catalogue import METRICS, Metric

RULES = (Path(__file__).parents[1] / "prometheus/rules.yml").read_text(encoding="utf-8")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: Label -> its matcher. What plug-ins show has the jobs and instances of the services.
OF_PROCESS = ('job=~"$job"', 'instance=~"$instance"')
MATCHERS = {"topic": 'topic=~"$topic"', "consumer_group": 'consumer_group=~"$group"'}
MEANINGS = (
    {metric.name: metric.meaning for metric in METRICS}
    | CONSUMER_METRICS
    | {f"reconciler_producer_{name}_total": meaning for name, meaning in PRODUCER_MEANINGS.items()}
)
GRID_COLUMNS = 24
PLACE = "{{topic}}/{{consumer_group}}"
UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Alert:
    """What a rule compares with, and how urgent it is."""

    name: str
    comparison: str
    number: float
    severity: str

    @property
    def colour(self) -> str:
        """Red wakes a person, orange waits for a working day."""
        return {"page": "red", "ticket": "orange"}[self.severity]

    def steps(self) -> list[dict[str, Any]]:
        """Grafana's steps begin at their value: `> 0` of whole numbers is from 1 on."""
        if self.comparison == "==":
            return [{"color": self.colour, "value": None}, {"color": "green", "value": self.number + 1}]
        return [{"color": "green", "value": None}, {"color": self.colour, "value": self.number or 1}]


def _alerts() -> Iterator[Alert]:
    for block in RULES.split("- alert: ")[1:]:
        compared = re.search(r" (>|==) ([\d.]+)", block)
        severity = re.search(r"severity: (\w+)", block)
        if compared is None or severity is None:
            raise SystemExit(f"deploy/prometheus/rules.yml: no comparison or severity in {block}")
        number = float(compared[2])
        yield Alert(block.split("\n", 1)[0], compared[1], int(number) if number.is_integer() else number, severity[1])


ALERTS = {alert.name: alert for alert in _alerts()}


# ----------------------------------------------------------------- queries


def of(metric: Metric, *matchers: str, suffix: str = "") -> str:
    """The metric's series that the variables choose."""
    chosen = [*OF_PROCESS, *(MATCHERS[label] for label in metric.labels if label in MATCHERS), *matchers]
    return f"{metric.name}{suffix}{{{','.join(chosen)}}}"


def newest(metric: Metric, *matchers: str) -> str:
    """What is read from the ledger is the same in every process: the greatest, and no sum."""
    return f"max by ({', '.join(metric.labels)}) ({of(metric, *matchers)})"


def age(metric: Metric) -> str:
    """Seconds since a time; a metric without labels has one age."""
    labels = f" by ({', '.join(metric.labels)})" if metric.labels else ""
    return f"time() - max{labels} ({of(metric)})"


def _grouping(labels: Sequence[str]) -> str:
    """Prometheus' own `job` hides ours, which it keeps under another name (honor_labels is off)."""
    return ", ".join("exported_job" if label == "job" else label for label in labels)


def rate(metric: Metric, *by: str) -> str:
    """A second, summed over processes."""
    return f"sum by ({_grouping(by)}) (rate({of(metric)}[$__rate_interval]))"


def increase(metric: Metric, *by: str, within: str = "$__rate_interval") -> str:
    """How many within a time, summed over processes."""
    return f"sum by ({_grouping(by)}) (increase({of(metric)}[{within}]))"


def quantiles(metric: Metric, *by: str, within: str = "$__rate_interval") -> tuple[Query, ...]:
    """The middle and the slow end of a histogram."""
    place = "".join(f"{{{{{label}}}}} " for label in by)
    grouped = ", ".join(("le", *by))
    return tuple(
        Query(
            f"histogram_quantile({share}, sum by ({grouped}) (rate({of(metric, suffix='_bucket')}[{within}])))",
            f"{place}{name}",
        )
        for share, name in ((0.5, "half within"), (0.95, "95 % within"), (0.99, "99 % within"))
    )


@dataclass(frozen=True, slots=True)
class Query:
    """One query and what its series are called."""

    expr: str
    legend: str = PLACE


# ----------------------------------------------------------------- panels


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A tile. `of_alert`: whose number colours it, and whose runbook it links."""

    title: str
    says: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 7
    of_alert: str | None = None
    #: From this value on it is red, where no rule says so.
    red_at: float | None = None
    #: Shown where there is no value.
    none: str = UNKNOWN
    #: Word and colour of each value.
    words: dict[int, tuple[str, str]] = field(default_factory=dict)
    #: Fields of a table: name -> what Grafana shows of it.
    columns: Sequence[Column] = ()
    is_stacked: bool = False

    def document(self, number: int, place: dict[str, int]) -> dict[str, Any]:
        """The panel of the dashboard's JSON."""
        alert = ALERTS[self.of_alert] if self.of_alert else None
        names = dict.fromkeys(name for q in self.queries for name in re.findall(r"\breconciler_\w+", q.expr))
        meanings = [f"`{name}`: {MEANINGS[name]}" for name in dict.fromkeys(map(_family, names))]
        steps: list[dict[str, Any]] = (
            alert.steps() if alert else [{"color": "blue" if self.red_at is None else "green", "value": None}]
        )
        if self.red_at is not None:
            steps.append({"color": "red", "value": self.red_at})
        is_instant = self.kind in ("stat", "table")
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": "\n\n".join((self.says, *meanings)),
            "gridPos": place,
            "datasource": DATASOURCE,
            "links": [runbook_link(alert.name)] if alert else [],
            "targets": [
                {
                    "refId": chr(ord("A") + index),
                    "datasource": DATASOURCE,
                    "expr": query.expr,
                    "legendFormat": query.legend,
                    "instant": is_instant,
                    "range": not is_instant,
                    "format": "table" if self.kind == "table" else "time_series",
                }
                for index, query in enumerate(self.queries)
            ],
            "transformations": self._transformations(),
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit,
                    "noValue": self.none,
                    "mappings": self._mappings(),
                    "thresholds": {"mode": "absolute", "steps": steps},
                    "color": {"mode": "thresholds" if self.kind != "timeseries" else "palette-classic"},
                    "custom": self._custom(has_alert=alert is not None),
                },
                "overrides": [column.override() for column in self.columns],
            },
            "options": self._options(),
        }

    def _mappings(self) -> list[dict[str, Any]]:
        if not self.words:
            return []
        options = {
            str(value): {"index": value, "text": text, "color": colour} for value, (text, colour) in self.words.items()
        }
        return [{"type": "value", "options": options}]

    def _custom(self, *, has_alert: bool) -> dict[str, Any]:
        if self.kind == "timeseries":
            return {
                "drawStyle": "bars" if self.is_stacked else "line",
                "fillOpacity": 60 if self.is_stacked else 10,
                "lineWidth": 1,
                "spanNulls": False,
                "stacking": {"mode": "normal" if self.is_stacked else "none", "group": "A"},
                "thresholdsStyle": {"mode": "dashed" if has_alert else "off"},
            }
        if self.kind == "state-timeline":
            return {"fillOpacity": 70, "lineWidth": 0}
        return {"align": "auto", "filterable": True} if self.kind == "table" else {}

    def _options(self) -> dict[str, Any]:
        if self.kind == "stat":
            return {
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "background",
                "graphMode": "none",
                "textMode": "value_and_name" if self.queries[0].legend else "value",
                "justifyMode": "center",
                "orientation": "auto",
            }
        if self.kind == "table":
            return {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": []}}
        if self.kind == "state-timeline":
            return {
                "showValue": "never",
                "rowHeight": 0.8,
                "mergeValues": True,
                "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom"},
            }
        return {
            "legend": {
                "displayMode": "table",
                "placement": "bottom",
                "calcs": ["lastNotNull", "max"],
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }

    def _transformations(self) -> list[dict[str, Any]]:
        if self.kind != "table":
            return []
        order = {column.name: index for index, column in enumerate(self.columns)}
        keep = {"id": "filterFieldsByName", "options": {"include": {"names": [column.name for column in self.columns]}}}
        return [{"id": "merge", "options": {}}, keep, {"id": "organize", "options": {"indexByName": order}}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One field of a table: a label, or `Value #A` of the first query."""

    name: str
    title: str
    unit: str = "short"
    of_alert: str | None = None
    link: dict[str, Any] | None = None

    def override(self) -> dict[str, Any]:
        """Grafana's override of the field."""
        properties: list[dict[str, Any]] = [
            {"id": "displayName", "value": self.title},
            {"id": "unit", "value": self.unit},
        ]
        if self.of_alert:
            steps = ALERTS[self.of_alert].steps()
            properties += [
                {"id": "thresholds", "value": {"mode": "absolute", "steps": steps}},
                {"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}},
                {"id": "links", "value": [runbook_link(self.of_alert)]},
            ]
        if self.link:
            properties.append({"id": "links", "value": [self.link]})
        return {"matcher": {"id": "byName", "options": self.name}, "properties": properties}


def runbook_link(alert: str) -> dict[str, Any]:
    """To the page of the alert."""
    return {"title": f"Runbook: {alert}", "url": f"${{runbooks:raw}}/{alert}.md", "targetBlank": True}


def _family(name: str) -> str:
    return name if name in MEANINGS else re.sub(r"_(bucket|sum|count)$", "", name)


def stat(title: str, says: str, expr: str, *, legend: str = "", **more: Any) -> Panel:
    """One figure, or one a series."""
    return Panel(title=title, says=says, queries=[Query(expr, legend)], kind="stat", **{"width": 4, "height": 5} | more)


def graph(title: str, says: str, *queries: Query, **more: Any) -> Panel:
    """Lines over the time of the dashboard."""
    return Panel(title=title, says=says, queries=queries, **more)
