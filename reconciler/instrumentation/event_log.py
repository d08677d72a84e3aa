"""Events of the policy as log records: one canonical line a round, one line for everything else that happens."""

from __future__ import annotations

import logging
import re
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import RepairState
from reconciler.events import BreakerOpened, OutageOpened, RepairStepped, RoundFinished, RoundsVoided, ShardStopped

#: Events that a person must see.
_LOUD = (BreakerOpened, ShardStopped, RoundsVoided, OutageOpened)
#: LogRecord owns these names; a field of an event must not collide with them.
_TAKEN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime"}


class EventLog:
    """A sink that writes events to the logger `reconciler.events`. Shared by threads; holds no state."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("reconciler.events")

    def emit(self, event: object) -> None:
        """Writes one event."""
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
        values = _flat(event)
        self._logger.log(logging.WARNING if _is_loud(event) else logging.INFO, name, extra=values)


def _is_loud(event: object) -> bool:
    if isinstance(event, RepairStepped):
        return event.after is RepairState.FAILED
    return isinstance(event, _LOUD) or (isinstance(event, RoundFinished) and bool(event.problems))


def _flat(event: object) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    if not is_dataclass(event):
        return flat
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Subscription):
            flat |= {"topic": value.topic, "consumer_group": value.group}
        elif isinstance(value, Shard):
            flat |= {"topic": value.subscription.topic, "consumer_group": value.subscription.group}
            flat["shard"] = value.number
        elif isinstance(value, StrEnum):
            flat[field.name] = value.value
        else:
            flat[f"event_{field.name}" if field.name in _TAKEN else field.name] = value
    return flat
