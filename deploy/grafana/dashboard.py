"""The dashboard: rows of panels on Grafana's grid. `make docs` writes deploy/grafana/reconciler.json from it."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from deploy.grafana.panels import DATASOURCE, GRID_COLUMNS
from deploy.grafana.rows import FIRING, ROWS
from reconciler.instrumentation.metrics import catalogue as c

#: Grafana 10 and later; newer releases migrate it as they load it.
SCHEMA_VERSION = 39


def panels() -> list[dict[str, Any]]:
    """Rows and their panels, from left to right; those of a shut row are inside it."""
    numbers = count(1)
    documents: list[dict[str, Any]] = []
    top = 0
    for title, inside, is_shut in ROWS:
        row: dict[str, Any] = {
            "id": next(numbers),
            "type": "row",
            "title": title,
            "collapsed": is_shut,
            "gridPos": {"x": 0, "y": top, "w": GRID_COLUMNS, "h": 1},
            "panels": [],
        }
        top += 1
        left = line_height = 0
        placed = []
        for panel in inside:
            if left + panel.width > GRID_COLUMNS:
                top, left, line_height = top + line_height, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            placed.append(panel.document(next(numbers), place))
            left, line_height = left + panel.width, max(line_height, panel.height)
        top += line_height
        documents.append(row)
        (row["panels"] if is_shut else documents).extend(placed)
    return documents


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    """A choice of one label's values."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def document() -> dict[str, Any]:
    """The whole dashboard."""
    losses = c.LOSSES.name
    return {
        "uid": "checkback-reconciler",
        "title": "Check-back reconciler",
        "description": "Whether money is missing, since when, and why. Written by deploy/grafana/dashboard.py.",
        "tags": ["reconciler", "rocketmq"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [
            {"type": "link", "title": "Runbooks", "url": "${runbooks:raw}", "targetBlank": True, "icon": "doc"},
        ],
        "annotations": {
            "list": [
                {
                    "name": "Alerts that wake a person",
                    "datasource": DATASOURCE,
                    "enable": True,
                    "iconColor": "red",
                    "expr": FIRING.replace("}", ',severity="page"}'),
                    "titleFormat": "{{alertname}}",
                    "textFormat": "{{topic}} {{consumer_group}}",
                    "step": "60s",
                }
            ]
        },
        "templating": {
            "list": [
                {
                    "type": "datasource",
                    "name": "datasource",
                    "label": "Prometheus",
                    "query": "prometheus",
                    "current": {},
                    "options": [],
                    "refresh": 1,
                },
                variable("job", "Environment (job)", f"label_values({c.BUILD_INFO.name}, job)"),
                variable("instance", "Process", f'label_values({c.BUILD_INFO.name}{{job=~"$job"}}, instance)'),
                variable("topic", "Topic", f'label_values({losses}{{job=~"$job"}}, topic)'),
                variable(
                    "group", "Consumer group", f'label_values({losses}{{job=~"$job",topic=~"$topic"}}, consumer_group)'
                ),
                {
                    "type": "textbox",
                    "name": "runbooks",
                    "label": "Runbooks are at",
                    "query": "docs/runbooks",
                    "current": {"text": "docs/runbooks", "value": "docs/runbooks"},
                    "options": [{"text": "docs/runbooks", "value": "docs/runbooks", "selected": True}],
                },
            ]
        },
        "panels": panels(),
    }


def text() -> str:
    """The file's text."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"
