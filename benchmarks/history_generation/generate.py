"""All files of a plan, prefix by prefix, on several processes; the same plan gives the same bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.history_generation.accidents import plant
from benchmarks.history_generation.files import Folder, Written
from benchmarks.history_generation.plan import CLASSES, IN_TIME, PREFIXES, TAKEN_TAGS, Int64s, Plan, RoundTimes
from benchmarks.history_generation.rows import PrefixTables
from benchmarks.history_generation.service_rows import write_ledger_rounds, write_manifest, write_service_streams
from benchmarks.history_generation.stories import Stories
from reconciler.contract.evidence_layout import EVIDENCE_VERSION
from reconciler.contract.manifest import HistoryFile

#: (topic, group, class code): keys; the class of ordinary keys is left out.
Keys = dict[tuple[int, int, int], list[str]]


@dataclass(slots=True)
class _Prefix:
    files: list[Written]
    history: list[HistoryFile]
    counts: dict[str, NDArray[np.int32]]
    snapshot_rows: Int64s
    #: (topic, group, class code): how many.
    classes: Counter[tuple[int, int, int]]
    keys: Keys


def _make_prefix(plan: Plan, root: Path, prefix: int) -> _Prefix:
    stories = Stories(plan, prefix)
    plant(stories)
    rows = PrefixTables(plan, RoundTimes(plan), stories).make()
    folder = Folder(plan, root)
    for name, table in rows.tables.items():
        if name.startswith("history/"):
            folder.stream(name.removeprefix("history/"), prefix, table)
        else:
            folder.evidence(name, prefix, table)
    classes: Counter[tuple[int, int, int]] = Counter()
    keys: Keys = {}
    for topic in range(plan.topics):
        for group in range(plan.groups):
            code = np.where(stories.topic == topic, stories.expected[:, group], -1)
            for number in range(len(CLASSES)):
                at = np.flatnonzero(code == number)
                if len(at):
                    classes[topic, group, number] = len(at)
                    if number != IN_TIME:
                        keys[topic, group, number] = stories.keys.texts(at)
    assert rows.snapshot_rows is not None
    return _Prefix(folder.files, folder.history, rows.counts, rows.snapshot_rows, classes, keys)


def generate(plan: Plan, root: Path, *, workers: int = 1) -> dict[str, Any]:
    """Writes evidence, history, planted.json and expected.json below `root`, which must be empty or not there.

    Returns what is in expected.json: the class counts of every subscription, and the keys of all classes but
    EFFECT_IN_TIME. Raises FileExistsError, and ValueError for a plan with more accidents than rows.
    """
    if sum(plan.accidents.values()) > plan.rows:
        raise ValueError(f"{sum(plan.accidents.values())} accidents do not fit into rows = {plan.rows}")
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise FileExistsError(f"{root} is not empty")
    files: list[Written] = []
    history: list[HistoryFile] = []
    counts: dict[str, NDArray[np.int32]] = {}
    snapshot_rows: Int64s | int = 0
    classes: Counter[tuple[int, int, int]] = Counter()
    keys: Keys = {}
    for made in _prefixes(plan, root, workers):
        files += made.files
        history += made.history
        for name, counted in made.counts.items():
            counts[name] = counts[name] + counted if name in counts else counted
        snapshot_rows = snapshot_rows + made.snapshot_rows
        classes.update(made.classes)
        for place, texts in made.keys.items():
            keys.setdefault(place, []).extend(texts)
    folder = Folder(plan, root)
    assert not isinstance(snapshot_rows, int)
    write_service_streams(folder, plan, RoundTimes(plan), counts, snapshot_rows)
    write_ledger_rounds(folder, plan, RoundTimes(plan), counts)
    write_manifest(root, plan, history + folder.history)
    _write_json(root / "evidence.json", _evidence(plan, files + folder.files))
    expected = _expected(plan, classes, keys)
    _write_json(root / "expected.json", expected)
    _write_json(root / "planted.json", _planted(keys))
    return expected


def _prefixes(plan: Plan, root: Path, workers: int) -> Iterable[_Prefix]:
    if workers <= 1:
        yield from (_make_prefix(plan, root, prefix) for prefix in range(PREFIXES))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_make_prefix, [plan] * PREFIXES, [root] * PREFIXES, range(PREFIXES))


def _evidence(plan: Plan, files: list[Written]) -> dict[str, Any]:
    return {
        "version": EVIDENCE_VERSION,
        "environment": plan.environment,
        "window": {"start_ms": plan.start_ms, "end_ms": plan.end_ms},
        "collected_at_ms": plan.collected_at_ms,
        "skew_bound_ms": plan.skew_bound_ms,
        "shards": plan.shards,
        "subscriptions": [
            {
                "topic": plan.topic(topic),
                "group": plan.group(group),
                "tags": None if group % 2 else list(TAKEN_TAGS),
                "producer_groups": [plan.producer_group(topic, number) for number in (0, 1)],
                "grace_period_seconds": float(plan.grace_seconds),
                "late_after_seconds": float(plan.late_after_seconds),
                "inbox": True,
                "effects": True,
            }
            for topic, group in plan.subscriptions
        ],
        "outboxes": [plan.producer_group(topic, number) for topic in range(plan.topics) for number in (0, 1)],
        "ledger": True,
        "history": "history",
        "lacking_columns": [],
        "files": {file.path: {"rows": file.rows, "sha256": file.sha256} for file in files},
    }


def _expected(plan: Plan, classes: Counter[tuple[int, int, int]], keys: Keys) -> dict[str, Any]:
    return {
        "subscriptions": [
            {
                "topic": plan.topic(topic),
                "group": plan.group(group),
                "classes": {name: classes[topic, group, code] for code, name in enumerate(CLASSES)},
                "keys": {
                    name: sorted(keys[topic, group, code])
                    for code, name in enumerate(CLASSES)
                    if (topic, group, code) in keys
                },
            }
            for topic, group in plan.subscriptions
        ]
    }


def _planted(keys: Keys) -> dict[str, list[str]]:
    planted: dict[str, set[str]] = {}
    for (_, _, code), texts in keys.items():
        planted.setdefault(CLASSES[code], set()).update(texts)
    return {name: sorted(texts) for name, texts in planted.items()}


def _write_json(path: Path, value: object) -> None:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
