"""Figures and goals of a run: printed, kept, and the exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank of ascending values; 0 for none."""
    if not ordered:
        return 0.0
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One thing that must hold, with what was seen."""

    name: str
    wanted: str
    seen: object
    is_reached: bool


def at_most(name: str, seen: float, limit: float) -> Goal:
    """A ceiling."""
    return Goal(name=name, wanted=f"<= {limit:g}", seen=seen, is_reached=seen <= limit)


def at_least(name: str, seen: float, limit: float) -> Goal:
    """A floor."""
    return Goal(name=name, wanted=f">= {limit:g}", seen=seen, is_reached=seen >= limit)


def equal(name: str, seen: object, wanted: object) -> Goal:
    """An exact value."""
    return Goal(name=name, wanted=f"= {wanted}", seen=seen, is_reached=seen == wanted)


def report(benchmark: str, figures: dict[str, Any], goals: Sequence[Goal], out: Path | None) -> int:
    """Prints one JSON document, keeps it if told to, names missed goals; 0 only if every goal is reached."""
    document = {
        "benchmark": benchmark,
        "machine": {"cores": os.cpu_count(), "load_average": [round(one, 1) for one in os.getloadavg()]},
        **figures,
        "goals": [asdict(goal) for goal in goals],
    }
    text = json.dumps(document, indent=2) + "\n"
    sys.stdout.write(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
    missed = [goal for goal in goals if not goal.is_reached]
    for goal in missed:
        sys.stderr.write(f"MISSED {goal.name}: {goal.seen}, wanted {goal.wanted}\n")
    return 1 if missed else 0
