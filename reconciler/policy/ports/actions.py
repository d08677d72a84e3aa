"""What people do by hand, kept in the ledger: who, what, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What somebody is about to do. None: to all topics, all groups, no single message."""

    by: str
    #: hold, resume, repair, dismiss or rebuild.
    command: str
    topic: str | None = None
    group: str | None = None
    unique_key: str | None = None
    #: The reason or options that were given.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """A row of reconciler_operator_action."""

    action_id: str
    intent: Intent
    started_at_ms: int
    #: None: under way, or the process died in it.
    ended_at_ms: int | None = None
    #: What was done, or the error.
    result: str | None = None


class OperatorActions(Protocol):
    """The book of what is done by hand. Raises DatabaseAway: what cannot be written down is not done."""

    def begin(self, environment: str, intent: Intent) -> str:
        """Writes the row before the act and returns its id. After a crash in the act the row has no end."""
        ...

    def end(self, action_id: str, result: str) -> None:
        """Adds what came of it."""
        ...
