"""Writes events of the policy as log records: one canonical line per round, and one line per other event.

One line per hour sums up idle rounds. At level DEBUG, each idle round also has a line of its own. An event about single
keys or shards is a line of counts at level DEBUG, because the canonical line sums it up.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from logging import DEBUG, INFO, WARNING
from typing import Any

from reconciler.clock import Clock, SystemClock
from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import RepairState
from reconciler.policy.events import (
    BreakerClosed,
    BreakerOpened,
    Event,
    KeysLeft,
    KeysNotTaken,
    OutageClosed,
    OutageOpened,
    OutageScanned,
    RepairStepped,
    RoundFinished,
    RoundsVoided,
    ShardRoundRan,
    ShardsAtRest,
    ShardStopped,
    VerdictsWritten,
)
from reconciler.policy.ports.rounds import RoundCounts

#: Event -> its word in the log, and its level. WARNING: a person must see it. DEBUG: the round's line sums it up.
WORDS: Mapping[type[Event], tuple[str, int]] = {
    RoundFinished: ("round_finished", INFO),
    RepairStepped: ("repair_stepped", INFO),
    BreakerOpened: ("breaker_opened", WARNING),
    BreakerClosed: ("breaker_closed", INFO),
    ShardStopped: ("shard_stopped", WARNING),
    RoundsVoided: ("rounds_voided", WARNING),
    OutageOpened: ("outage_opened", WARNING),
    OutageScanned: ("outage_scanned", INFO),
    OutageClosed: ("outage_closed", INFO),
    ShardRoundRan: ("shard_round_ran", DEBUG),
    ShardsAtRest: ("shards_at_rest", DEBUG),
    VerdictsWritten: ("verdicts_written", DEBUG),
    KeysLeft: ("keys_left", DEBUG),
    KeysNotTaken: ("keys_not_taken", DEBUG),
}
#: Interval at which a subscription without traffic is logged, with the number of its rounds.
IDLE_SECONDS = 3_600.0


class EventLog:
    """Sink that logs events to `reconciler.events`. Threads share it. One thread logs all rounds of a subscription."""

    def __init__(self, english: Callable[[Fact], str], clock: Clock | None = None) -> None:
        self._english = english
        self._logger = logging.getLogger("reconciler.events")
        self._clock = clock or SystemClock()
        #: Subscription -> time of its last round that was logged above level DEBUG (monotonic seconds), and number of
        #: idle rounds since.
        self._logged: dict[Subscription, tuple[float, int]] = {}

    def emit(self, event: Event) -> None:
        """Writes one event."""
        word, level = WORDS[type(event)]
        level = max(level, WARNING) if _is_loud(event) else level
        more: dict[str, Any] = {}
        if isinstance(event, RoundFinished):
            idle_rounds = self._idle_rounds(event)
            level = level if idle_rounds is not None else DEBUG
            more = {"idle_rounds": idle_rounds} if idle_rounds else {}
        if self._logger.isEnabledFor(level):
            self._logger.log(level, word, extra=self._told(event) | more)

    def _idle_rounds(self, event: RoundFinished) -> int | None:
        """Returns the number of idle rounds since the last round that was logged above DEBUG. None: this round is idle
        and is only counted."""
        now = self._clock.monotonic_seconds()
        logged_at, idle_rounds = self._logged.get(event.subscription, (-IDLE_SECONDS + now, 0))
        if _is_idle(event) and now - logged_at < IDLE_SECONDS:
            self._logged[event.subscription] = (logged_at, idle_rounds + 1)
            return None
        self._logged[event.subscription] = (now, 0)
        return idle_rounds

    def _told(self, event: Event) -> dict[str, Any]:
        """Makes the log fields of an event. Numbers of keys stand in place of the keys."""
        if isinstance(event, ShardRoundRan):
            done = event.done
            return _place(done.shard) | {"generation": done.generation, "at_ms": done.at_ms} | self._flat(done.counts)
        if isinstance(event, ShardsAtRest):
            return {"shards": len(event.looks)}
        if isinstance(event, KeysNotTaken):
            return _place(event.shard) | {"keys": len(event.unique_keys)}
        if not isinstance(event, VerdictsWritten | KeysLeft):
            return self._flat(event)
        rows = event.entries if isinstance(event, VerdictsWritten) else event.keys
        verdicts = dict(sorted(Counter(row.verdict.value for row in rows).items()))
        return _place(event.shard) | {"keys": len(rows), "verdicts": verdicts}

    def _flat(self, event: Event | RoundCounts) -> dict[str, Any]:
        """Makes flat fields. A fact becomes two fields: its sentence and its code."""
        flat: dict[str, Any] = {}
        for field in fields(event):
            match getattr(event, field.name):
                case Subscription() as of:
                    flat |= {"topic": of.topic, "consumer_group": of.group}
                case Shard() as shard:
                    flat |= _place(shard)
                case StrEnum() as word:
                    flat[field.name] = word.value
                case Fact() as fact:
                    flat |= {field.name: self._english(fact), f"{field.name}_code": fact.code.name}
                case (Fact(), *_) as facts:
                    flat[field.name] = [self._english(fact) for fact in facts]
                    flat[f"{field.name}_codes"] = [fact.code.name for fact in facts]
                case value:
                    flat[field.name] = value
        return flat


def _is_loud(event: Event) -> bool:
    """True if a person must see the event because of its content, whatever its kind."""
    if isinstance(event, RepairStepped):
        return event.after is RepairState.FAILED
    if isinstance(event, RoundFinished):
        return bool(event.problems) or event.clock_behind_seconds > 0 or event.clocks_apart_seconds != 0
    if isinstance(event, OutageScanned):
        return bool(event.left_out)
    return False


def _is_idle(event: RoundFinished) -> bool:
    """True if no key came, waits, was verified or was repaired, and nothing is wrong."""
    numbers = (event.announced, event.matched, event.pending_after, event.became_due, event.verified, event.settled)
    return not any((*numbers, event.not_taken, event.repairs, _is_loud(event)))


def _place(shard: Shard) -> dict[str, Any]:
    return {"topic": shard.subscription.topic, "consumer_group": shard.subscription.group, "shard": shard.number}
