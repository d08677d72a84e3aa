"""What reconcilers and sweepers logged while a loss was on its way: rounds that found the gate shut, turns left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

#: Event -> the fields that are told of it.
_TOLD = {
    "turn_skipped": ("job", "error"),
    "turn_failed": ("job",),
    "sweep_finished": ("announced", "problems"),
    "round_finished": ("consumer_group", "gate", "gate_detail", "became_due", "verified", "shards_run", "problems"),
    "outage_opened": ("reason", "detail"),
}
_GATE_OPEN = ("open", "not asked")


def noted(folder: Path, *, since_ms: int, until_ms: int) -> list[str]:
    """Lines of all reconcilers and sweepers by their own clocks, in order of time; calm rounds are left out."""
    found: list[tuple[int, str]] = []
    for log in sorted((*folder.glob("run-*.log"), *folder.glob("sweep-*.log"))):
        for at_ms, record in _records(log):
            if since_ms <= at_ms <= until_ms and not _is_calm(record):
                fields = ", ".join(f"{name} {record[name]}" for name in _TOLD[record["event"]] if record.get(name))
                found.append((at_ms, f"  {(at_ms - since_ms) / 1000:8.2f} s  {log.stem}: {record['event']}, {fields}"))
    return [line for _, line in sorted(found)]


def _is_calm(record: dict[str, Any]) -> bool:
    if record["event"] == "round_finished":
        return record.get("gate") in _GATE_OPEN and not record.get("verified") and not record.get("problems")
    return record["event"] == "sweep_finished" and not record.get("announced") and not record.get("problems")


def _records(log: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with log.open(errors="replace") as lines:
        for line in lines:
            if not line.startswith("{"):
                continue
            try:
                record = json.loads(line)
            except ValueError:  # cut off by a kill -9
                continue
            if record.get("event") in _TOLD:
                yield round(datetime.fromisoformat(record["timestamp"]).timestamp() * 1000), record
