"""Death at a named step. The product has no switch for it: its adapters' methods are wrapped in these processes only.

A step is `<class>.<method>:before` or `:after`. A process gets one sentence, `<step>:<n>:<seconds>`: kill -9 when it
comes to that step for the n-th time after it has lived for the seconds. Without them whoever comes to a step a hundred
times a second would never get to work.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SENTENCE = "CHAOS_SENTENCE"

#: Role -> classes whose public methods are steps.
CLASSES: dict[str, tuple[str, ...]] = {
    "producer": (
        "checkback_producers.outbox:SqlOutbox",
        "checkback_producers.remoting:RemotingHalves",
        "checkback_producers.remoting:RemotingAnnouncements",
    ),
    "consumer": ("checkback_consumers.effect:SqlInbox", "reconciler.shards.sets:RedisCommitSets"),
    "run": (
        "reconciler.shards.memory:RedisShardMemory",
        "reconciler.ledger.rounds:SqlRounds",
        "reconciler.ledger.candidates:SqlCandidates",
        "reconciler.ledger.repairs:SqlRepairs",
        "reconciler.ledger.outages:SqlOutages",
        "reconciler.ledger.announcement_ledger:SqlAnnouncementLedger",
        "reconciler.evidence.repairs:RemotingBrokerRepairs",
        "reconciler.evidence.brokers:RemotingBrokerEvidence",
        "reconciler.shards.sets:RedisHalfSets",
        "reconciler.shards.sets:RedisCommitSets",
    ),
    "sweep": ("checkback_producers.outbox:SqlOutbox", "checkback_producers.remoting:RemotingAnnouncements"),
}
#: Methods that only answer from memory or run before the work begins.
_NOT_A_STEP = {"start", "shutdown", "close", "next_unique_key", "has_check_back", "is_weaker"}


def _methods(role: str) -> Iterator[tuple[type, str, Callable[..., Any]]]:
    for path in CLASSES[role]:
        module, _, name = path.partition(":")
        cls = getattr(importlib.import_module(module), name)
        for method_name, method in inspect.getmembers(cls, inspect.isfunction):
            if not method_name.startswith("_") and method_name not in _NOT_A_STEP:
                yield cls, method_name, method


def steps_of(role: str) -> list[str]:
    """Every named step of a role."""
    return [f"{cls.__name__}.{name}:{when}" for cls, name, _ in _methods(role) for when in ("before", "after")]


class Sentence:
    """Counts one step and carries it out. Shared by the process's threads."""

    def __init__(self, text: str) -> None:
        self.step, times, seconds = text.rsplit(":", 2)
        self._left = int(times)
        self._spared_until = time.monotonic() + float(seconds)
        self._lock = threading.Lock()

    def passing(self, step: str) -> None:
        """kill -9, if this is it."""
        if step != self.step or time.monotonic() < self._spared_until:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def install(role: str) -> None:
    """Wraps the step that the process is sentenced to; without a sentence nothing is touched."""
    text = os.environ.get(SENTENCE, "")
    if not text:
        return
    sentence = Sentence(text)
    for cls, name, method in list(_methods(role)):
        step = f"{cls.__name__}.{name}"
        if sentence.step.startswith(f"{step}:"):
            setattr(cls, name, _wrapped(method, step, sentence))


def _wrapped(method: Callable[..., Any], step: str, sentence: Sentence) -> Callable[..., Any]:
    @functools.wraps(method)
    def passing(*arguments: Any, **named: Any) -> Any:
        sentence.passing(f"{step}:before")
        return heard(method(*arguments, **named))

    def heard(answer: Any) -> Any:
        """What is asked now and heard later is over when it was heard."""
        if callable(answer):
            return lambda: heard(answer())
        sentence.passing(f"{step}:after")
        return answer

    return passing
