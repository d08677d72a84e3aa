"""Actions by hand, kept in the ledger: the operator, the command and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An action that is about to begin. None: all topics, all groups, no single message."""

    by: str
    #: hold, resume, repair, dismiss, rebuild, job (one is asked for), cancel, body (one is opened), acknowledge, group
    #: rename, query accept or query withdraw.
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
    #: What later commands decide by: that of its end, else of its beginning. None: they do not, or a newer release's.
    fact: Fact | None = None


class OperatorActions(Protocol):
    """The book of what is done by hand. Raises DatabaseAway: what cannot be written down is not done."""

    def begin(self, environment: str, intent: Intent, *, fact: Fact | None = None) -> str:
        """Writes the row before the act and returns its id. After a crash in the act the row has no end. Raises
        ConfigurationError for a fact where the ledger is an older release's."""
        ...

    def end(self, action_id: str, result: str, *, fact: Fact | None = None) -> None:
        """Adds the result. A fact takes the place of that of the beginning."""
        ...
