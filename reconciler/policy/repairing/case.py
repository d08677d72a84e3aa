"""The state machine of a repair, and what is known about one that is worked on.

| from | to | when |
|---|---|---|
| OPEN | SENDING | target and attempt are written and committed before a byte leaves |
| OPEN | SENT | somebody else delivered it: a committed copy is there |
| SENDING | SENT | answered "done", or a committed copy is found later |
| SENDING | OPEN | certainly not executed, or no copy although the index has passed the send by 5 s |
| SENT | DONE | every group that takes the message has its inbox row |
| SENT | OPEN | the next rung: no effect within two grace periods although the group is past the copy |
| any | FAILED | 16 attempts, no rung left, the commit is not proved any more, or an inbox has another content |

Within a state the rung, the wait and the answer may change. A repair never leaves DONE or FAILED by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.tables import HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvariantViolation
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow, StoredMessage
from reconciler.policy.judging.delivery import other_content, row_of, stand_in_row
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports import Repair

ATTEMPTS_MAX = 16
#: A copy that is still absent when the index has passed the send by this was not made by it.
SEND_MARGIN_MS = 5_000
#: Longest wait between two attempts.
BACK_OFF_SECONDS_MAX = 300.0
#: Longest pause between two looks at a repair whose effect is waited for.
SENT_WAIT_SECONDS_MAX = 60.0

#: How long a repair that was not sent waits for a value that nobody can read.
DAMAGED_SECONDS_MAX = 900.0

_LEGAL = {
    RepairState.OPEN: {RepairState.OPEN, RepairState.SENDING, RepairState.SENT, RepairState.FAILED},
    RepairState.SENDING: {RepairState.SENDING, RepairState.SENT, RepairState.OPEN, RepairState.FAILED},
    RepairState.SENT: {RepairState.SENT, RepairState.DONE, RepairState.OPEN, RepairState.FAILED},
    RepairState.DONE: set[RepairState](),
    RepairState.FAILED: set[RepairState](),
}


def require_legal(before: RepairState, after: RepairState) -> None:
    """Raises InvariantViolation unless the table above allows it."""
    if after not in _LEGAL[before]:
        raise InvariantViolation(f"a repair must not go from {before} to {after}")


def next_rung(order: Sequence[Rung], rung: Rung) -> Rung | None:
    """The rung after this one; None at the end of the ladder. One that was taken out of the settings: the first."""
    later = order[order.index(rung) + 1 :] if rung in order else order
    return later[0] if later else None


def first_rung(order: Sequence[Rung], verdict: Verdict) -> Rung:
    """Where a loss starts: without an open half there is nothing to END."""
    usable = [rung for rung in order if verdict is Verdict.LOST_CONFIRM or rung is not Rung.END]
    return usable[0] if usable else order[0]


def back_off_seconds(attempts: int) -> float:
    """1, 2, 4 ... seconds, bounded."""
    return min(2.0 ** min(attempts, 16), BACK_OFF_SECONDS_MAX)


class Ask(StrEnum):
    """What to ask next."""

    COPIES = "committed copies"
    GROUP_POSITIONS = "group_positions"
    HALVES = "half copies"
    PARKED = "parked copies"
    ROWS = "hand-over rows"


class Act(StrEnum):
    """What a decision asks the procedure to do."""

    #: Write the state, nothing else.
    WRITE = "write"
    #: Write SENDING, then END COMMIT on the half `message`.
    END = "end"
    #: Write SENDING, then republish `message`.
    REPUBLISH = "republish"
    #: Write SENDING, then hand `message` over to `groups`.
    HAND_OVER = "hand-over"
    #: END ROLLBACK on each of `halves`, then write.
    CLOSE = "close"
    #: End the hand-over `rows`, then write.
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """What to do, and the state that follows if it is only written."""

    act: Act
    state: RepairState
    rung: Rung
    reason: str
    wait_seconds: float = 0.0
    message: StoredMessage | None = None
    halves: tuple[StoredMessage, ...] = ()
    groups: tuple[str, ...] = ()
    rows: tuple[Repair, ...] = ()
    #: True: decide again at once, the claim is kept.
    goes_on: bool = False

    @property
    def subject(self) -> StoredMessage:
        """The message of an act that has one; raises InvariantViolation for others."""
        if self.message is None:
            raise InvariantViolation(f"{self.act} has no message")
        return self.message

    def only_writes(self, **changes: Any) -> RepairStep:
        """The same without an act."""
        return replace(self, act=Act.WRITE, message=None, halves=(), groups=(), **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One claimed repair with all answers so far; None means not asked yet.

    Copies, halves and parked copies are those of the outbox row's message: others count for nothing.
    """

    repair: Repair
    topic: TopicPlan
    #: Database time when it was claimed.
    now_ms: int
    has_outbox: bool
    #: After a send the effect is looked for no earlier.
    verify_after_seconds: float
    #: Group -> its inbox, for groups that have one configured, and the outbox: both read after the claim.
    inboxes: Mapping[str, Lookup[InboxRow]]
    outbox: Lookup[OutboxRow]
    copies: Lookup[StoredMessage] | None = None
    #: Group without an inbox row -> where it stands with the copies; asked after the copies.
    group_positions: Mapping[str, Verdict] | None = None
    halves: Lookup[StoredMessage] | None = None
    parked: Lookup[StoredMessage] | None = None
    #: Hand-over rows of the key.
    rows: Sequence[Repair] | None = None

    @property
    def tag(self) -> tuple[bool, str | None]:
        """(known, tag) from the outbox; where there is none, from any copy."""
        row = row_of(self.outbox)
        if row is not None or self.has_outbox:
            return row is not None, row.tag if row is not None else None
        for lookup in (self.copies, self.halves, self.parked):
            if lookup is not None and lookup.is_found:
                return True, lookup.records[-1].tag
        return False, None

    @property
    def missing(self) -> tuple[SubscriptionPlan, ...]:
        """Groups that take the message and whose inbox has no row, as far as anybody knows."""
        known, tag = self.tag
        wanting = [p for p in self.topic.subscriptions if not known or p.accepts(tag)]
        return tuple(p for p in wanting if not self._has_effect(p.group))

    @property
    def unneeded(self) -> tuple[Repair, ...]:
        """Hand-over rows that are not finished, of groups that lack no effect any more. A group that is not configured
        may lack it: nobody looks into its inbox."""
        served = {plan.group for plan in self.topic.subscriptions} - {plan.group for plan in self.missing}
        return tuple(row for row in self.rows or () if row.scope in served and row.state not in FINISHED_REPAIRS)

    @property
    def effect_unknown(self) -> str | None:
        """Why no group is known to lack the effect; None: one is known to, or has no inbox that could tell."""
        lookups = [self.inboxes.get(plan.group) for plan in self.missing]
        unknown = [lookup.reason for lookup in lookups if lookup is not None and lookup.is_unknown]
        return unknown[0] if unknown and len(unknown) == len(lookups) else None

    @property
    def damage(self) -> str | None:
        """What a witness has and nobody can read, where nothing but that keeps an answer from being known."""
        lookups = (*self.inboxes.values(), self.outbox, self.copies, self.halves, self.parked)
        return next((lookup.damage for lookup in lookups if lookup is not None and lookup.damage is not None), None)

    def _has_effect(self, group: str) -> bool:
        lookup = self.inboxes.get(group)
        return lookup is not None and lookup.is_found

    @property
    def waits_for_a_send(self) -> bool:
        """Nothing was sent that could be looked for, and an effect is missing."""
        return self.repair.state is RepairState.OPEN and bool(self.missing)

    @property
    def other_content(self) -> str | None:
        """Of the first group whose inbox has another content under this key, why; None: no inbox is known to."""
        row = row_of(self.outbox)
        found = ((group, other_content(lookup, row)) for group, lookup in sorted(self.inboxes.items()))
        return next((f"the inbox of {group} has another content: {why}" for group, why in found if why), None)

    @property
    def waited_seconds(self) -> float:
        """Time since the last send, or since the loss was proved."""
        since_ms = self.repair.sent_at_ms if self.repair.sent_at_ms is not None else self.repair.created_at_ms
        return (self.now_ms - since_ms) / 1000

    @property
    def patience_seconds(self) -> float:
        """How long an effect may take before the next rung."""
        return 2 * self.topic.grace_period_seconds


def expected_row(case: Case, half: StoredMessage) -> OutboxRow:
    """What a half that is ended must agree with: the outbox row, without an outbox itself."""
    return row_of(case.outbox) or stand_in_row(half)


def stay(case: Case, reason: str, wait_seconds: float) -> RepairStep:
    """The decision to leave a repair as it is for a while."""
    return RepairStep(
        act=Act.WRITE, state=case.repair.state, rung=case.repair.rung, reason=reason, wait_seconds=wait_seconds
    )


def not_sent(case: Case) -> RepairStep:
    """What is to be written when the time for a send that was announced to the ledger has run out."""
    before = RepairState.OPEN if case.repair.state is RepairState.SENDING else case.repair.state
    return replace(stay(case, "not sent: the claim could have run out", 1.0), state=before)


def target_of(decision: RepairStep) -> Mapping[str, object]:
    """What a send aims at, written before it."""
    message = decision.subject
    return {
        "broker": message.broker,
        "topic": message.topic,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "groups": list(decision.groups),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOutcome:
    """What became of one repair in one pass."""

    unique_key: str
    rung: Rung
    state: RepairState
    attempts: int
    reason: str
    #: "sent", "done", "failed", "waits", "held" (a brake), "taken" (another owner has it), "planned" (dry run).
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """One pass over a topic's repairs."""

    outcomes: tuple[RepairOutcome, ...] = ()
    holds: tuple[HoldKind, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Outcome -> number."""
        return dict(sorted(Counter(outcome.outcome for outcome in self.outcomes).items()))


def word_of(repair: Repair) -> str:
    """What became of a repair, in a word."""
    match repair.state:
        case RepairState.DONE:
            return "done"
        case RepairState.FAILED:
            return "failed"
        case RepairState.SENT:
            return "sent"
        case _:
            return "waits"


def outcome_of(repair: Repair, reason: str, outcome: str) -> RepairOutcome:
    """What a report says of a row."""
    return RepairOutcome(
        unique_key=repair.unique_key,
        rung=repair.rung,
        state=repair.state,
        attempts=repair.attempts,
        reason=reason,
        outcome=outcome,
    )
