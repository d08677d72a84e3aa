"""Events of the policy as log records: one canonical line a round, one line for everything else that happens.

Rounds with nothing to do are summed up in one line an hour; at level DEBUG each has its line. Events about single keys
or shards are a line of counts at level DEBUG: the canonical line sums them up.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from reconciler.clock import Clock, SystemClock
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import RepairState
from reconciler.policy.events import (
    BreakerOpened,
    KeysLeft,
    KeysNotTaken,
    OutageOpened,
    OutageScanned,
    RepairStepped,
    RoundFinished,
    RoundsVoided,
    ShardRoundRan,
    ShardStopped,
    VerdictsWritten,
)

#: Events that a person must see.
_LOUD = (BreakerOpened, ShardStopped, RoundsVoided, OutageOpened)
#: Events that the canonical line of the round sums up.
_QUIET = (ShardRoundRan, VerdictsWritten, KeysLeft, KeysNotTaken)
#: LogRecord owns these names; a field of an event must not collide with them.
_TAKEN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime"}


#: How often a subscription without traffic is logged: that its rounds run, and how many ran.
IDLE_SECONDS = 3_600.0


class EventLog:
    """A sink that writes events to the logger `reconciler.events`. Shared by threads: each subscription has one."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._logger = logging.getLogger("reconciler.events")
        self._clock = clock or SystemClock()
        #: When a round was last logged above level DEBUG (monotonic seconds), and idle rounds since.
        self._logged: dict[Subscription, tuple[float, int]] = {}

    def emit(self, event: object) -> None:
        """Writes one event."""
        level = _level(event)
        more: dict[str, Any] = {}
        if isinstance(event, RoundFinished):
            idle_rounds = self._idle_rounds(event)
            level = level if idle_rounds is not None else logging.DEBUG
            more = {"idle_rounds": idle_rounds} if idle_rounds else {}
        if self._logger.isEnabledFor(level):
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
            fields_of = _counted(event) if isinstance(event, _QUIET) else _flat(event)
            self._logger.log(level, name, extra=fields_of | more)

    def _idle_rounds(self, event: RoundFinished) -> int | None:
        """Idle rounds since the last one logged above DEBUG. None: this round is idle, too, and only counted."""
        now = self._clock.monotonic_seconds()
        logged_at, idle_rounds = self._logged.get(event.subscription, (-IDLE_SECONDS + now, 0))
        if _is_idle(event) and now - logged_at < IDLE_SECONDS:
            self._logged[event.subscription] = (logged_at, idle_rounds + 1)
            return None
        self._logged[event.subscription] = (now, 0)
        return idle_rounds


def _level(event: object) -> int:
    if isinstance(event, _QUIET):
        return logging.DEBUG
    return logging.WARNING if _is_loud(event) else logging.INFO


def _is_loud(event: object) -> bool:
    if isinstance(event, RepairStepped):
        return event.after is RepairState.FAILED
    if isinstance(event, RoundFinished):
        return bool(event.problems) or event.clock_behind_seconds > 0 or event.clocks_apart_seconds != 0
    if isinstance(event, OutageScanned):
        return bool(event.left_out)
    return isinstance(event, _LOUD)


def _is_idle(event: RoundFinished) -> bool:
    """Nothing came, waits, was looked at or repaired, and nothing is wrong."""
    numbers = (event.announced, event.matched, event.pending_after, event.became_due, event.verified, event.settled)
    return not any((*numbers, event.not_taken, event.repairs, _is_loud(event)))


def _counted(event: ShardRoundRan | VerdictsWritten | KeysLeft | KeysNotTaken) -> dict[str, Any]:
    """Numbers instead of keys."""
    if isinstance(event, ShardRoundRan):
        done = event.done
        return _place(done.shard) | {"generation": done.generation, "at_ms": done.at_ms} | _flat(done.counts)
    if isinstance(event, KeysNotTaken):
        return _place(event.shard) | {"keys": len(event.unique_keys)}
    rows = event.verifications if isinstance(event, VerdictsWritten) else event.keys
    verdicts = dict(sorted(Counter(row.verdict.value for row in rows).items()))
    return _place(event.shard) | {"keys": len(rows), "verdicts": verdicts}


def _place(shard: Shard) -> dict[str, Any]:
    return {"topic": shard.subscription.topic, "consumer_group": shard.subscription.group, "shard": shard.number}


def _flat(event: object) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    if not is_dataclass(event):
        return flat
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Subscription):
            flat |= {"topic": value.topic, "consumer_group": value.group}
        elif isinstance(value, Shard):
            flat |= _place(value)
        elif isinstance(value, StrEnum):
            flat[field.name] = value.value
        else:
            flat[f"event_{field.name}" if field.name in _TAKEN else field.name] = value
    return flat
