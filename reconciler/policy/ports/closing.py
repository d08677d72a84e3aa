"""The state of one key that a person saw, and the closing of that key. A closing is valid only for that state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.contract.facts import Fact
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.ledger import SEEN_DIGITS, Candidate, Repair, VerdictEntry


def seen_of(candidates: Iterable[Candidate], repairs: Iterable[Repair]) -> str:
    """Returns one word for the state of a key that a person sees. The word stays the same until something happens that
    matters for an act.

    Three things do not change the word: a look without a new result, a verdict that is still open, and a repair that
    has sent nothing yet.
    """
    verdicts = sorted(
        (row.subscription.topic, row.subscription.group, str(row.state), "" if _is_open(row) else str(row.verdict))
        for row in candidates
    )
    sends = sorted(
        (row.topic, row.scope, str(row.state), row.attempts, row.sent_at_ms or 0, row.done_at_ms or 0)
        for row in repairs
        if row.state is not RepairState.OPEN or row.attempts
    )
    text = json.dumps([verdicts, sends])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:SEEN_DIGITS]


def _is_open(row: Candidate) -> bool:
    return row.state is CandidateState.OPEN


def unfinished(repairs: Iterable[Repair]) -> frozenset[tuple[str, RepairState]]:
    """Returns scope and state of the repairs that are under way, or that may begin."""
    return frozenset((row.scope, row.state) for row in repairs if row.state not in FINISHED_REPAIRS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInLedger:
    """The ledger's rows of one key: those of its groups, and its repairs of every scope."""

    candidates: Sequence[Candidate] = ()
    repairs: Sequence[Repair] = ()

    @property
    def seen(self) -> str:
        """One word for the state that a person sees (seen_of)."""
        return seen_of(self.candidates, self.repairs)

    def as_dict(self) -> dict[str, object]:
        """Returns the states, verdicts and repairs by group or scope, for a person whose key has changed."""
        return {
            "verdicts": {
                row.subscription.group: {"state": str(row.state), "verdict": str(row.verdict)}
                for row in self.candidates
            },
            "repairs": {row.scope: {"state": str(row.state), "attempts": row.attempts} for row in self.repairs},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAsRead(KeyInLedger):
    """The rows of one key in one topic, as an act read them. The act is valid only for these rows."""

    environment: str
    topic: str
    unique_key: str

    def still_holds(self, candidates: Sequence[Candidate], repairs: Sequence[Repair]) -> bool:
        """Returns True if these rows, which were read under a lock, equal the rows that the act read."""
        return (seen_of(candidates, repairs), unfinished(repairs)) == (self.seen, unfinished(self.repairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing(KeyAsRead):
    """The groups of a key that a person closes, with the rows that were read for this."""

    #: For each group that is closed: the verdict to write, together with the row that it replaces.
    verdicts: Mapping[Subscription, VerdictEntry] = field(default_factory=dict)
    #: Scopes whose repair becomes DONE. A scope without a repair gets a DONE repair, so that no repair of that scope is
    #: opened later.
    scopes: frozenset[str] = frozenset()
    #: The answer that the closed repairs get.
    answer: Fact


class Closings(Protocol):
    """Acts of a person that end the work on a key, or that hand it over to a replay worker. Raises DatabaseAway."""

    def close(self, closing: Closing) -> bool:
        """Writes verdicts and repairs in one transaction.

        False: nothing was written. A row has changed since it was read, a repair to close is claimed, or a repair was
        opened since.
        """
        ...

    def take_back(self, closing: Closing) -> bool:
        """Takes a dismissal back, in one transaction. The dismissed groups wait for a person again, with these
        verdicts. In these scopes, repairs that the dismissal ended are FAILED again, and repairs that it made are
        deleted. Nothing is sent.

        False: nothing was written. A row has changed since it was read, or one of the groups is not dismissed.
        """
        ...

    def claimed(self, closing: Closing) -> Repair | None:
        """Returns a claimed repair that would be closed. None: no such repair exists.

        This never ends a claim, not even a claim whose end a clock set back has put far ahead. An act looks once, and
        cannot distinguish a dead owner from a slow one.
        """
        ...

    def hand_over(
        self, read: KeyAsRead, message: StoredMessage, *, group: str, content_digest: bytes | None = None
    ) -> bool:
        """Inserts the hand-over of one group like HandOvers.insert, in one transaction.

        False: nothing was written, because a row has changed since it was read. A DONE row stays DONE.
        """
        ...

    def cancel(self, read: KeyAsRead, *, group: str) -> bool:
        """Deletes the group's hand-over in one transaction, if no worker has it.

        False: nothing was written. A row has changed since it was read, a worker has the hand-over, or it has ended.
        """
        ...

    def last_taken_ms(self, environment: str, topic: str, *, group: str) -> int | None:
        """Returns when a replay worker of the group last took a row of the topic, if that row still exists. None: no
        such row exists."""
        ...
