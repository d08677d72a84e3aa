"""What a person saw of one key, and the closing of it that rests on what was seen."""

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
    """What a person sees of one key, as one word: the same while nothing has happened that an act must know.

    A look that changes nothing, a verdict that is still open, and a repair of which nothing was sent yet change it not.
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
    """Scope and state of repairs that somebody works on, or may begin to."""
    return frozenset((row.scope, row.state) for row in repairs if row.state not in FINISHED_REPAIRS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInLedger:
    """What the ledger holds of one key: rows of its groups, and its repairs of every scope."""

    candidates: Sequence[Candidate] = ()
    repairs: Sequence[Repair] = ()

    @property
    def seen(self) -> str:
        """What a person sees of the key, as one word (seen_of)."""
        return seen_of(self.candidates, self.repairs)

    def as_dict(self) -> dict[str, object]:
        """What a person is told of a key that has changed: states, verdicts and repairs by group or scope."""
        return {
            "verdicts": {
                row.subscription.group: {"state": str(row.state), "verdict": str(row.verdict)}
                for row in self.candidates
            },
            "repairs": {row.scope: {"state": str(row.state), "attempts": row.attempts} for row in self.repairs},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAsRead(KeyInLedger):
    """The rows of one key in one topic, as an act read them that rests on them."""

    environment: str
    topic: str
    unique_key: str

    def still_holds(self, candidates: Sequence[Candidate], repairs: Sequence[Repair]) -> bool:
        """Whether these rows, read under a lock, are what was read before."""
        return (seen_of(candidates, repairs), unfinished(repairs)) == (self.seen, unfinished(self.repairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing(KeyAsRead):
    """Groups of one key that a person closes, and the rows that this rests on."""

    #: The verdict that is written for each group that is closed, with the row that it takes the place of.
    verdicts: Mapping[Subscription, VerdictEntry] = field(default_factory=dict)
    #: Scopes whose repair is DONE afterwards. One without a row gets it: nobody opens a repair of that scope later.
    scopes: frozenset[str] = frozenset()
    #: Of the repairs that are closed.
    answer: Fact


class Closings(Protocol):
    """Acts of a person that end the work on a key, or give it to a replay worker. Raises DatabaseAway."""

    def close(self, closing: Closing) -> bool:
        """One transaction: verdicts and repairs, all or nothing.

        False, and nothing is written: a row is another one than was read, a repair that would be closed is claimed, or
        one has been opened since.
        """
        ...

    def take_back(self, closing: Closing) -> bool:
        """One transaction: groups that a person has dismissed wait for a person again with these verdicts, and of the
        scopes, repairs that the dismissal has ended are FAILED again; those that it has made are gone. Nothing is sent.

        False, and nothing is written: a row is another one than was read, or one of the groups is not dismissed.
        """
        ...

    def claimed(self, closing: Closing) -> Repair | None:
        """A repair that would be closed and is claimed now; None: there is none.

        No claim is taken away here, also not one that a clock set back has put out of reach: an act looks once, and
        cannot tell a dead owner from a slow one.
        """
        ...

    def hand_over(
        self, read: KeyAsRead, message: StoredMessage, *, group: str, content_digest: bytes | None = None
    ) -> bool:
        """One transaction: the row of HandOvers.insert for one group.

        False, and nothing is written: a row is another one than was read. One that is DONE stays DONE.
        """
        ...

    def cancel(self, read: KeyAsRead, *, group: str) -> bool:
        """One transaction: the group's hand-over that no worker has is gone, as if it had never been.

        False, and nothing is written: a row is another one than was read, a worker has it, or it has ended.
        """
        ...

    def last_taken_ms(self, environment: str, topic: str, *, group: str) -> int | None:
        """When a replay worker of the group last took a row of the topic, as far as its row is kept. None: never."""
        ...
