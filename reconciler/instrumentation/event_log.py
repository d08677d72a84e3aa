"""Events of the policy as log records: one canonical line a round, one line for everything else that happens.

What is told key by key, or shard by shard, is a line of counts at level DEBUG: the canonical line sums it up.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import RepairState
from reconciler.events import (
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


class EventLog:
    """A sink that writes events to the logger `reconciler.events`. Shared by threads; holds no state."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("reconciler.events")

    def emit(self, event: object) -> None:
        """Writes one event."""
        level = _level(event)
        if self._logger.isEnabledFor(level):
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
            self._logger.log(level, name, extra=_counted(event) if isinstance(event, _QUIET) else _flat(event))


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
