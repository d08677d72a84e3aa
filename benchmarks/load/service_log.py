"""What `reconciler run` told in its JSON log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def lines(log: Path) -> Iterator[dict[str, Any]]:
    """Every line that is a JSON object."""
    with log.open(errors="replace") as text:
        for line in text:
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """All rounds of one run."""

    run: int
    #: Turns that APScheduler or a dependency skipped: reason -> number of lines.
    skipped: dict[str, int]
    announced: int
    pending_most: int
    #: Keys that became due, keys verified, and QUERY_MESSAGE by the service's own count, probes included.
    became_due: int
    verified: int
    broker_look_ups: int
    gates: dict[str, int]
    #: Everything at level WARNING or above, by event.
    loud: dict[str, int]


def rounds(log: Path) -> Rounds:
    """Sums up a log."""
    run = announced = most = due = verified = look_ups = 0
    skipped: Counter[str] = Counter()
    gates: Counter[str] = Counter()
    loud: Counter[str] = Counter()
    for line in lines(log):
        event = str(line.get("event"))
        if event == "turn_skipped":
            skipped[f"{line.get('job')}: {line.get('error')}"] += 1
        elif event == "round_finished":
            idle = line.get("idle_rounds", 0)  # before this one, with nothing to do
            run += 1 + idle
            announced += line["announced"]
            most = max(most, line["pending_after"])
            due += line["became_due"]
            verified += line["verified"]
            look_ups += line["broker_look_ups"]
            gates["not asked"] += idle
            gates[line["gate"]] += 1
        if line.get("level") in {"warning", "error", "critical"}:
            loud[event[:80]] += 1
    return Rounds(
        run=run,
        skipped=dict(skipped),
        announced=announced,
        pending_most=most,
        became_due=due,
        verified=verified,
        broker_look_ups=look_ups,
        gates=dict(gates),
        loud=dict(loud),
    )


def document(path: Path) -> dict[str, Any]:
    """A JSON object that a worker wrote."""
    read: dict[str, Any] = json.loads(path.read_text())
    return read
