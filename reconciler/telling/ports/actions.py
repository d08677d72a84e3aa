"""Acts by hand, stored in the ledger: the operator, the command and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An act that is about to begin. None: all topics, all groups, no single message."""

    by: str
    #: hold, resume, repair, dismiss, rebuild, job (one is asked for), cancel, body (one is opened), acknowledge, group
    #: rename, query accept or query withdraw.
    command: str
    topic: str | None = None
    group: str | None = None
    unique_key: str | None = None
    #: The given reason or options.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """A row of reconciler_operator_action."""

    action_id: str
    intent: Intent
    started_at_ms: int
    #: None: it is under way, or its process died.
    ended_at_ms: int | None = None
    #: What was done, or the error.
    result: str | None = None
    #: The fact that later commands need: that of its end, or else of its beginning. None: they need none, or a newer
    #: release wrote it.
    fact: Fact | None = None


class OperatorActions(Protocol):
    """The record of acts by hand. Raises DatabaseAway: an act that cannot be recorded is not done."""

    def begin(self, environment: str, intent: Intent, *, fact: Fact | None = None) -> str:
        """Writes the row before the act and returns its id. If the process crashes during the act, the row has no end.
        Raises ConfigurationError for a fact if the ledger is of an older release."""
        ...

    def end(self, action_id: str, result: str, *, fact: Fact | None = None) -> None:
        """Adds the result. A fact replaces that of the beginning."""
        ...
