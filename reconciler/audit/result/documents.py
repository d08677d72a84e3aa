"""JSON documents of OUT, as plain data made from a judgement.

The functions are pure: only the inputs decide content and order. The input is a JudgedWindow (values.py).
output/writing.py writes the documents, and statements hold the documents' digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from reconciler.audit.result.classes import NAMES, RULES
from reconciler.audit.result.not_judged import UnjudgedTotals
from reconciler.audit.result.times import time_text
from reconciler.audit.result.values import LATENCIES, EngineKind, Finding, JudgedSubscription, JudgedWindow

#: Value of "kind" in result.json. A folder with this value is an audit's output.
RESULT_KIND = "checkback-reconciler audit result"
OUTPUT_VERSION = 1
#: Version of the list. It grows when a rule begins to match other keys. The digest of the list changes with every word.
RULES_VERSION = 1


def canonical(document: object) -> bytes:
    """Writes canonical JSON: sorted keys, no spaces, UTF-8, one newline at the end. Raises ValueError for NaN."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")


def canonical_lines(items: Iterable[object]) -> bytes:
    """Writes a JSON list with one canonical element per line, so that people and `diff` can work line by line."""
    rows = [canonical(item).rstrip(b"\n") for item in items]
    return b"[\n" + b",\n".join(rows) + b"\n]\n" if rows else b"[]\n"


def rules_document() -> dict[str, Any]:
    """Describes the list of classes that was applied, by the list's version and a digest of all words."""
    words = [(rule.name, rule.rule, rule.violation, rule.listed) for rule in RULES]
    return {"version": RULES_VERSION, "sha256": hashlib.sha256(canonical(words)).hexdigest()}


def result_document(judged: JudgedWindow, zone: str, engine: EngineKind) -> dict[str, Any]:
    """Makes result.json: the whole result without findings, hours and percentiles."""
    no_answer = judged.no_answer
    return {
        "kind": RESULT_KIND,
        "version": OUTPUT_VERSION,
        "rules": rules_document(),
        "engine": engine,
        "environment": judged.environment,
        "window": {
            "start_ms": judged.window.start_ms,
            "end_ms": judged.window.end_ms,
            "start": time_text(judged.window.start_ms),
            "end": time_text(judged.window.end_ms),
            "zone": zone,
        },
        "collected_at_ms": judged.collected_at_ms,
        "skew_bound_ms": judged.skew_bound_ms,
        "verdict": judged.verdict,
        "no_answer": None if no_answer is None else asdict(no_answer),
        "violations": judged.violations,
        "classes": _every_class(judged.classes),
        "messages": dict(sorted(judged.messages.items())),
        "subscriptions": [_subscription(judged, one) for one in judged.subscriptions],
        "findings": {"listed": len(judged.findings), "omitted": dict(judged.findings_omitted)},
        "not_checked": [asdict(item) for item in judged.not_checked],
        "gaps": [asdict(gap) for gap in judged.gaps],
        "notes": list(judged.notes),
        "not_judged": not_judged_document(judged.not_judged),
        "rows": dict(judged.rows),
        "inputs": [asdict(file) for file in judged.inputs],
        # This field exists only where a platform's tables were copied.
        **({"input_versions": [asdict(one) for one in judged.input_versions]} if judged.input_versions else {}),
    }


def not_judged_document(not_judged: UnjudgedTotals) -> dict[str, Any]:
    """Describes rows of the window whose topics and groups are outside of the audit."""
    return {
        "rows": not_judged.rows,
        "listed": [asdict(one) for one in not_judged.listed],
        "omitted_rows": not_judged.omitted_rows,
        "sources_counted": not_judged.sources_counted,
    }


def _subscription(judged: JudgedWindow, one: JudgedSubscription) -> dict[str, Any]:
    asked = one.subscription
    mine = (asked.topic, asked.group)
    fields = asdict(asked)
    if not asked.of_halves:  # this field exists only where half messages announce
        del fields["of_halves"]
    return {
        **fields,
        "tags": None if asked.tags is None else list(asked.tags),
        "producer_groups": list(asked.producer_groups),
        "watermark_ms": one.watermark_ms,
        "as_of_ms": one.as_of_ms,
        "closed": one.closed,
        "keys": one.keys,
        "violations": sum(one.classes.get(rule.name, 0) for rule in RULES if rule.violation),
        "classes": _every_class(one.classes),
        "not_checked": [n.class_name for n in judged.not_checked if (n.topic, n.group) == mine],
    }


def _every_class(classes: Mapping[str, int]) -> dict[str, int]:
    return {name: classes.get(name, 0) for name in NAMES}


def finding_document(finding: Finding) -> dict[str, Any]:
    """Makes one element of findings.json."""
    return {
        "class": finding.class_name,
        "key": finding.key,
        "topic": finding.topic,
        "group": finding.group,
        "rule": finding.rule,
        "evidence": dict(finding.evidence),
    }


def sorted_findings(judged: JudgedWindow) -> list[Finding]:
    """Sorts findings by topic, group, key and class."""
    return sorted(judged.findings, key=lambda f: (f.topic, f.group, f.key, f.class_name))


def volume_rows(judged: JudgedWindow) -> list[dict[str, Any]]:
    """Makes volume.json: one row per subscription and UTC hour that has keys. The hours are sorted."""
    return [
        {
            "topic": one.subscription.topic,
            "group": one.subscription.group,
            "hour_start_ms": hour.hour_start_ms,
            "hour": time_text(hour.hour_start_ms),
            "keys": sum(hour.classes.values()),
            "classes": {name: count for name, count in hour.classes.items() if count},
        }
        for one in judged.subscriptions
        for hour in sorted(one.volume, key=lambda hour: hour.hour_start_ms)
    ]


def latency_rows(judged: JudgedWindow) -> list[dict[str, Any]]:
    """Makes latency.json: one row per subscription and latency that has a pair of times, in milliseconds."""
    return [
        {
            "topic": one.subscription.topic,
            "group": one.subscription.group,
            "latency": name,
            "meaning": meaning,
            **asdict(one.latencies[name]),
        }
        for one in judged.subscriptions
        for name, meaning in LATENCIES.items()
        if name in one.latencies
    ]
