"""Acts by hand in the ledger. The row of an act names the person, the command and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An act that is about to begin. A topic, group or key of None means all topics, all groups, or no single
    message."""

    by: str
    #: One of: hold, resume, repair, dismiss, rebuild, job (a person asks for a job), cancel, body (a person opens a
    #: body), acknowledge, group rename, query accept, query withdraw.
    command: str
    topic: str | None = None
    group: str | None = None
    unique_key: str | None = None
    #: The reason or the options that the person gave.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """A row of reconciler_operator_action."""

    action_id: str
    intent: Intent
    started_at_ms: int
    #: The end of the act. None: the act is under way, or its process died.
    ended_at_ms: int | None = None
    #: The result of the act, or its error.
    result: str | None = None
    #: The fact by which later commands decide: that of the act's end, or else that of its beginning. None: no command
    #: needs a fact of this act, or a newer release wrote an unknown fact.
    fact: Fact | None = None


class OperatorActions(Protocol):
    """The record of acts by hand. Methods raise DatabaseAway, because an act that cannot be recorded is not done."""

    def begin(self, environment: str, intent: Intent, *, fact: Fact | None = None) -> str:
        """Writes the row before the act, and returns the id of the row.

        If the process crashes during the act, the row has no end. Raises ConfigurationError for a fact if the ledger is
        of an older release.
        """
        ...

    def end(self, action_id: str, result: str, *, fact: Fact | None = None) -> None:
        """Adds the result. `fact` replaces the fact of the beginning."""
        ...
