"""The state machine of a repair, and all answers about a repair that is under way.

| from | to | when |
|---|---|---|
| OPEN | SENDING | target and attempt are written and committed before a byte leaves |
| OPEN | SENT | a committed copy is there, made by another repair or by the broker |
| SENDING | SENT | answered "done", or a committed copy is found later |
| SENDING | OPEN | certainly not executed, or no copy although the index has passed the send by 5 s |
| SENT | DONE | every group that takes the message has its inbox row |
| SENT | OPEN | the next rung: no effect within two grace periods although the group is past the copy |
| any | FAILED | 16 attempts, no rung left, the commit is not proved any more, or an inbox has another content |

Within one state, rung, wait and answer may change. A repair leaves DONE or FAILED only by a person's act or a new
proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from reconciler.clock import Backoff
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import COPY_THERE, NOT_SENT, POSITIONS, UNREAD_VERDICT
from reconciler.contract.reasons import OTHER_EFFECT_OF
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvariantViolation
from reconciler.policy.evidence import Commit, StoredMessage
from reconciler.policy.inquiry.case_file import CaseFile, Question
from reconciler.policy.inquiry.delivery import other_content, outbox_unknown
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.ports.ledger import Candidate, Repair
from reconciler.policy.repairing.rungs import RUNGS, Act, RungTraits

ATTEMPTS_MAX = 16
#: If the index has passed the send by this time and a copy is still absent, the send made no copy.
SEND_MARGIN_MS = 5_000
#: During this time after the proof of its loss, an attempt is not counted if a look right before the send held it back.
#: Later such attempts count. So if a broker never answers the look, the repair fails, and a person hears of the
#: failure.
HELD_BACK_SECONDS_MAX = 6 * 3600.0
#: Pauses between two attempts.
BACK_OFF = Backoff(first_seconds=1.0, longest_seconds=300.0)
#: Longest pause between two looks at a repair that waits for its effect.
SENT_WAIT_SECONDS_MAX = 60.0

#: The time for which a repair that was not sent waits for the correction of an unreadable value.
DAMAGED_SECONDS_MAX = 900.0

_LEGAL = {
    RepairState.OPEN: {RepairState.OPEN, RepairState.SENDING, RepairState.SENT, RepairState.FAILED},
    RepairState.SENDING: {RepairState.SENDING, RepairState.SENT, RepairState.OPEN, RepairState.FAILED},
    RepairState.SENT: {RepairState.SENT, RepairState.DONE, RepairState.OPEN, RepairState.FAILED},
    RepairState.DONE: set[RepairState](),
    RepairState.FAILED: set[RepairState](),
}


def require_legal(before: RepairState, after: RepairState) -> None:
    """Raises InvariantViolation unless the table above allows the change."""
    if after not in _LEGAL[before]:
        raise InvariantViolation(f"a repair must not go from {before} to {after}")


def back_off_seconds(attempts: int) -> float:
    """Returns 1, 2, 4 ... seconds, up to the longest pause."""
    return BACK_OFF.pause_seconds(attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """The next step, and the state to write if nothing is sent."""

    act: Act
    state: RepairState
    rung: Rung
    reason: Fact
    wait_seconds: float = 0.0
    message: StoredMessage | None = None
    halves: tuple[StoredMessage, ...] = ()
    groups: tuple[str, ...] = ()
    rows: tuple[Repair, ...] = ()
    #: The proof of the send if no outbox has one: a row of the business. `halves` are the halves about which brokers
    #: may still ask, so that no producer may be connected that could answer.
    commit: Commit | None = None
    #: True if the next decision follows at once, while the claim is kept.
    goes_on: bool = False
    #: True if the counted attempt sent nothing.
    takes_back_attempt: bool = False

    @property
    def subject(self) -> StoredMessage:
        """The message of an act. Raises InvariantViolation for an act without a message."""
        if self.message is None:
            raise InvariantViolation(f"{self.act} has no message")
        return self.message

    def only_writes(self, **changes: Any) -> RepairStep:
        """Returns the step without its act: it only writes the state."""
        return replace(self, act=Act.WRITE, message=None, halves=(), groups=(), **changes)


@dataclass(frozen=True, kw_only=True)
class RepairCase(CaseFile):
    """One claimed repair with all answers about its key. The inboxes of its groups and the outbox are read after the
    claim."""

    repair: Repair
    #: Database time of the claim.
    now_ms: int
    #: The shortest time from a send until its effect is looked for.
    verify_after_seconds: float
    #: For how long this process has seen that the last send, or the proof of the loss, lies ahead of the ledger's
    #: clock. 0 if neither does.
    seen_seconds: float = 0.0
    #: Group -> the group's verdict in the ledger, read after the claim. A group without a verdict is left out.
    verdicts: Mapping[str, Candidate] = field(default_factory=dict)

    def not_before_ms(self, question: Question) -> int:
        """Returns the time of the proof of the loss. For committed copies, returns the time of the last send, which may
        have made a copy."""
        sent_at_ms = self.repair.sent_at_ms
        match question:
            case Question.OUTBOX:
                # The commit was seen before the repair was opened.
                return self.repair.created_at_ms + round(self.skew_margin_seconds * 1000)
            case Question.COMMITTED_COPIES if sent_at_ms is not None:
                return sent_at_ms + SEND_MARGIN_MS
            case _:
                return self.repair.created_at_ms

    def is_asked_of_now(self, question: Question) -> bool:
        """Returns True before a send. Messages that came while rows, half queues and producers were asked count,
        too."""
        return question in (Question.COPIES_AGAIN, Question.MESSAGES_OF_KEY)

    def before_a_send(self, repair: Repair) -> RepairCase:
        """Returns the file for a repair that is SENDING now. Brokers are asked again later, because the send may change
        their answers."""
        of_group = {
            group: replace(a, inbox=None if a.asks_effects else a.inbox, inbox_again=None, copies=None)
            for group, a in self.of_group.items()
        }
        return replace(
            self, repair=repair, copies=None, copies_again=None, halves=None, parked=None, business=None, siblings=None,
            of_key=None, producers=None, of_group=of_group,
        )  # fmt: skip

    @cached_property
    def missing(self) -> tuple[SubscriptionPlan, ...]:
        """The groups whose effect is awaited. Two kinds of groups are left out: groups that were given the message
        before they answer for messages, and groups that a person has dismissed.

        If no group is left, although no group has the effect and no broker a copy, all groups count: the loss was
        proved by a half that is gone now.
        """
        lacking = tuple(plan for plan in self._lacking if not (self._is_dismissed(plan) or self._is_settled(plan)))
        answering = tuple(plan for plan in lacking if not self.lies_before(plan))
        was_given = self.own_copies is not None and self.own_copies.is_found
        is_everybodys = not was_given and not any(self._has_effect(plan.group) for plan in self.plans)
        return lacking if is_everybodys and not answering else answering

    @property
    def reached(self) -> tuple[SubscriptionPlan, ...]:
        """The groups without a known effect that a send of the rung would reach."""
        return self.missing if self.rung.is_per_group else self._lacking

    @property
    def is_taken_by_nobody(self) -> bool:
        """True if no group takes the message by these settings and none has its effect. The process that proved the
        loss may have other settings."""
        return not self._lacking and not any(self._has_effect(plan.group) for plan in self.plans)

    @property
    def spared(self) -> tuple[str, ...]:
        """Groups without the effect that a person has dismissed. In these groups a copy for every group would have a
        second effect, because the person has made the effect by hand."""
        return tuple(sorted(plan.group for plan in self._lacking if self._is_dismissed(plan)))

    @property
    def unread_verdict(self) -> Fact | None:
        """Why nobody knows whether a person has dismissed a group that lacks the effect. None: this is known."""
        rows = [self.verdicts[plan.group] for plan in self._lacking if plan.group in self.verdicts]
        return next(
            (UNREAD_VERDICT(group=row.subscription.group, damage=row.damage) for row in rows if row.damage), None
        )

    def _is_settled(self, plan: SubscriptionPlan) -> bool:
        """Returns True if a verdict tells the end of the message in a group without an inbox: an effect query found the
        effect, or the group has passed a copy and nothing more can become known."""
        row, over = self.verdicts.get(plan.group), {Verdict.DELIVERED}
        over |= {Verdict.CONSUMED} if plan.asks_effects else set()
        return row is not None and row.state is CandidateState.SETTLED and row.verdict in over

    def saw_copy(self, groups: Sequence[str]) -> bool:
        """Returns True if the last look of this repair, or a verdict of one of the groups, saw a committed copy."""
        why, verdicts = self.repair.answer_fact, (self.verdicts.get(group) for group in groups)
        is_seen = why is not None and why.code in (POSITIONS, COPY_THERE)
        return is_seen or any(row is not None and row.saw_copy for row in verdicts)

    def was_lost_without_inbox(self, group: str) -> bool:
        """Returns True if the group may have applied the message without a row: it had no inbox when the loss was
        proved. The rows that an effect query reads are the business's own, so they do not begin with an inbox."""
        row = self.verdicts.get(group)
        return row is not None and row.was_lost_without_inbox and not self.of_group[group].asks_effects

    def _is_dismissed(self, plan: SubscriptionPlan) -> bool:
        row = self.verdicts.get(plan.group)
        return row is not None and (row.is_dismissed or row.took_effect_dismissed)

    def position_of(self, plan: SubscriptionPlan) -> Verdict | Question:
        """Returns the position as for every case file. A group that shows no effects and has passed the copies is
        UNKNOWN."""
        position = CaseFile.position_of(self, plan)
        is_past = position is Question.GROUP_COPIES
        return Verdict.UNKNOWN if is_past and not self.of_group[plan.group].shows_effects else position

    def group_positions(self) -> Mapping[str, Verdict] | Question:
        """Returns the position of each missing group relative to the committed copies. Until all positions are known,
        returns the next question."""
        positions: dict[str, Verdict] = {}
        for plan in self.missing:
            position = self.position_of(plan)
            if isinstance(position, Question):
                return position
            positions[plan.group] = position
        return positions

    def proof_of(self, message: StoredMessage) -> Commit:
        """Returns the commit that proves the send of a copy. Raises InvariantViolation if no commit proves it."""
        return self.commit or self.topic.evidence.commit_of_copy(message)

    @property
    def rung(self) -> RungTraits:
        """The traits of the repair's rung."""
        return RUNGS[self.repair.rung]

    @property
    def outbox_unknown(self) -> Fact | None:
        """Why the outbox has no answer about the commit. None: the outbox answered."""
        lookup = self.outbox
        return outbox_unknown(lookup) if lookup is not None and lookup.is_unknown else None

    @property
    def has_damaged_outbox(self) -> bool:
        """True if only an unreadable value keeps the outbox from answering."""
        return self.outbox is not None and self.outbox.damage is not None

    @property
    def unneeded(self) -> tuple[Repair, ...]:
        """Unfinished hand-overs of groups that no longer lack the message. Their handlers must not run.

        Groups without a [[subscriptions]] section are left out, because their inbox is never read.
        """
        served = {plan.group for plan in self.topic.subscriptions} - {plan.group for plan in self.missing}
        return tuple(row for row in self.hand_overs or () if row.scope in served and row.state not in FINISHED_REPAIRS)

    @property
    def effect_unknown(self) -> Fact | None:
        """Why it is unknown whether a group lacks the effect. None: a group surely lacks the effect, or shows no
        effects. Each effect query that was asked must have an answer, because no inbox skips a second copy."""
        of_plan = [(plan, self.of_group[plan.group].inbox) for plan in self.missing]
        unknown = [(plan, lookup.reason) for plan, lookup in of_plan if lookup is not None and lookup.is_unknown]
        by_query = [reason for plan, reason in unknown if plan.asks_effects]
        if by_query:
            return by_query[0]
        return unknown[0][1] if unknown and len(unknown) == len(of_plan) else None

    @property
    def applied_by_query(self) -> tuple[str, ...]:
        """Groups that take the message and have its effect, as their effect query or a verdict says."""
        known, tag = self.tag
        taking = [plan for plan in self.plans if plan.asks_effects and (not known or plan.accepts(tag))]
        return tuple(sorted(p.group for p in taking if self._has_effect(p.group) or self._is_settled(p)))

    @property
    def waits_for_a_send(self) -> bool:
        """True if an effect is missing and no send has happened whose result could be looked for."""
        return self.repair.state is RepairState.OPEN and bool(self.missing)

    @property
    def other_content(self) -> Fact | None:
        """Why the effect of a group is of another message. None: no such effect is known."""
        message, topic = self.message, self.topic.topic
        found = ((name, other_content(of.inbox, message, topic=topic)) for name, of in sorted(self.of_group.items()))
        return next((OTHER_EFFECT_OF(group=group, why=why) for group, why in found if why is not None), None)

    @property
    def waited_seconds(self) -> float:
        """Seconds since the last send, or since the proof of the loss. At least as long as this process has seen this
        time ahead of the ledger's clock."""
        return max((self.now_ms - waits_since_ms(self.repair)) / 1000, self.seen_seconds)

    @property
    def usual_wait_seconds(self) -> float:
        """Pause before the next look at a waiting repair."""
        return min(max(1.0, self.topic.grace_period_seconds / 2), 30.0)

    @property
    def patience_seconds(self) -> float:
        """How long an effect may take before the next rung is tried."""
        return 2 * self.topic.grace_period_seconds


def waits_since_ms(repair: Repair) -> int:
    """Returns when the last send happened, by the ledger's clock. Without a send, returns when the loss was proved."""
    return repair.created_at_ms if repair.sent_at_ms is None else repair.sent_at_ms


def stay(case: RepairCase, reason: Fact, wait_seconds: float) -> RepairStep:
    """Returns the decision that leaves a repair unchanged for a while."""
    return RepairStep(
        act=Act.WRITE, state=case.repair.state, rung=case.repair.rung, reason=reason, wait_seconds=wait_seconds
    )


def not_sent(case: RepairCase) -> RepairStep:
    """Returns the step to write if the claim's time ends before a send that the ledger shows as SENDING."""
    before = RepairState.OPEN if case.repair.state is RepairState.SENDING else case.repair.state
    return replace(stay(case, NOT_SENT(), 1.0), state=before)


def target_of(decision: RepairStep) -> Mapping[str, object]:
    """Returns the target of a send, which is written before the send."""
    message = decision.subject
    return {
        "broker": message.broker,
        "topic": message.topic,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "groups": list(decision.groups),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverByHand:
    """The message that a person hands over to the replay worker of one group, or why nothing can be handed over."""

    why: Fact
    message: StoredMessage | None = None
    content_digest: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOutcome:
    """The result of one repair in one pass."""

    unique_key: str
    rung: Rung
    state: RepairState
    attempts: int
    reason: Fact
    #: "sent", "done", "failed", "waits", "held" (by a brake), "taken" (another owner has the repair) or "planned" (dry
    #: run).
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """One pass over a topic's repairs."""

    outcomes: tuple[RepairOutcome, ...] = ()
    holds: tuple[HoldKind, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Outcome -> number of repairs."""
        return dict(sorted(Counter(outcome.outcome for outcome in self.outcomes).items()))


def word_of(repair: Repair) -> str:
    """Returns one word for the state of a repair."""
    match repair.state:
        case RepairState.DONE:
            return "done"
        case RepairState.FAILED:
            return "failed"
        case RepairState.SENT:
            return "sent"
        case _:
            return "waits"


def outcome_of(repair: Repair, reason: Fact, outcome: str) -> RepairOutcome:
    """Returns a row's entry for the report."""
    return RepairOutcome(
        unique_key=repair.unique_key,
        rung=repair.rung,
        state=repair.state,
        attempts=repair.attempts,
        reason=reason,
        outcome=outcome,
    )
