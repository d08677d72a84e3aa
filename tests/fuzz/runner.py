"""Runs seeded inputs through the targets: no crash, no hang, bounded memory. A number makes its input again."""

from __future__ import annotations

import faulthandler
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType

from tests.fuzz.mutation import damaged
from tests.fuzz.targets import TARGETS, Target

#: Longest processor time for one input; its usual time is under a millisecond.
DEADLINE_SECONDS = 5.0
#: Code that never gives the interpreter back is ended by the watchdog thread, with a traceback.
HARD_DEADLINE_SECONDS = 120.0
#: How much the process may grow after the first WARM_UP inputs of a target.
GROWTH_BYTES_MAX = 64 * 1024 * 1024
WARM_UP = 300
CHECK_EVERY = 250


class Hang(BaseException):
    """One input took longer than its deadline."""


class MemoryGrew(Exception):
    """The process grew over its bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An input that does what none may do."""

    target: str
    seed: int
    number: int
    data: bytes
    what: str


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run saw."""

    executions: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    growth_bytes: dict[str, int] = field(default_factory=dict)
    slowest_seconds: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def input_of(target: Target, seed: int, number: int) -> bytes:
    """The input with a number: the same on every machine, for ever (of one corpus)."""
    chance = Random(f"{seed}:{target.name}:{number}")
    seeds = target.seeds()
    data = chance.choice(seeds) if seeds else b""
    way = chance.random()
    if way < 0.6:
        data = target.mutate(data, chance)
    if way > 0.4:
        data = damaged(data, chance, seeds)
    return data


def run(executions: int, seed: int, *, findings_max: int = 20, dies_hanging: bool = False) -> Outcome:
    """So many inputs over all targets by their weights; goes on after a finding.

    `dies_hanging`: a watchdog thread ends the process where not even a signal gets through.
    """
    outcome = Outcome()
    total = sum(target.weight for target in TARGETS)
    with watched():
        for target in TARGETS:
            _run_target(target, max(1, executions * target.weight // total), seed, outcome, dies_hanging=dies_hanging)
            if len(outcome.findings) >= findings_max:
                break
    return outcome


def _run_target(target: Target, count: int, seed: int, outcome: Outcome, *, dies_hanging: bool) -> None:
    baseline = 0
    for number in range(count):
        if number == min(WARM_UP, count - 1):
            baseline = _peak_bytes()
        if dies_hanging and number % CHECK_EVERY == 0:
            faulthandler.dump_traceback_later(HARD_DEADLINE_SECONDS, exit=True)
        if target.refresh is not None and number % target.fresh_every == 0:
            target.refresh()
        data = input_of(target, seed, number)
        started = time.perf_counter()
        what = execute(target, data, outcome)
        seconds = time.perf_counter() - started
        outcome.executions[target.name] += 1
        outcome.slowest_seconds[target.name] = max(outcome.slowest_seconds.get(target.name, 0.0), seconds)
        if what is None and number % CHECK_EVERY == 0 and baseline:
            grown = _peak_bytes() - baseline
            outcome.growth_bytes[target.name] = grown
            if grown > GROWTH_BYTES_MAX:
                what = f"MemoryGrew: {grown} bytes over the warm process by input {number}"
                baseline = _peak_bytes()
        if what is not None:
            outcome.findings.append(Finding(target=target.name, seed=seed, number=number, data=data, what=what))
    outcome.growth_bytes[target.name] = max(0, _peak_bytes() - baseline)


def execute(target: Target, data: bytes, outcome: Outcome | None = None) -> str | None:
    """Runs one input under its deadline; returns what is wrong, or None."""
    signal.setitimer(signal.ITIMER_PROF, DEADLINE_SECONDS)
    try:
        if target.run(data) and outcome is not None:
            outcome.taken[target.name] += 1
    except (Exception, Hang):
        return traceback.format_exc(limit=-4)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


@contextmanager
def watched() -> Iterator[None]:
    """Deadlines for every input; main thread only."""
    before = signal.signal(signal.SIGPROF, _too_long)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        faulthandler.cancel_dump_traceback_later()


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise Hang


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
