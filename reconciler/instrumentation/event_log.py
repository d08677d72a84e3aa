"""Events of the policy as log records: one canonical line a round, one line for everything else that happens."""

from __future__ import annotations

import logging
import re
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from reconciler.contract.subscription import Shard, Subscription

#: Events that a person must see.
_LOUD = frozenset({"breaker_opened", "shard_stopped", "rounds_voided", "outage_opened", "repair_failed", "memory_lost"})


class EventLog:
    """A sink that writes events to the logger `reconciler.events`. Shared by threads; holds no state."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("reconciler.events")

    def emit(self, event: object) -> None:
        """Writes one event."""
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
        values = _flat(event)
        level = logging.WARNING if name in _LOUD or values.get("problems") else logging.INFO
        self._logger.log(level, name, extra=values)


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
            # LogRecord owns some names; a field must not collide with them.
            flat[f"event_{field.name}" if field.name in {"name", "message", "args"} else field.name] = value
    return flat
