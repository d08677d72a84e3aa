"""Step 10: works on claimed repairs, one effect a call; what to do is decided in repair_ladder.py.

Every step may be the last: a claim that nobody releases runs out, a SENDING row tells the next owner that a send may
have happened, and the inbox makes a second copy harmless. Whoever finds that a row is no longer his stops at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.brakes import TokenBucket
from reconciler.clock import Clock
from reconciler.contract.tables import EVERY_GROUP, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.delivery import row_of, stand_in_row
from reconciler.events import EventSink, RepairStepped
from reconciler.evidence import EndOutcome, InboxRow, Lookup, OutboxRow, SendAnswer, StoredMessage
from reconciler.plan import TopicPlan
from reconciler.ports import (
    BrokerEvidence,
    BrokerRepairs,
    HandOvers,
    Holds,
    InboxEvidence,
    OutboxEvidence,
    Repair,
    RepairChange,
    Repairs,
)
from reconciler.repair_case import Act, Ask, Case, Decision, first_rung, require_legal
from reconciler.repair_ladder import after_answer, decide
from reconciler.repair_questions import RepairQuestions

#: Claimed together, so that inboxes and outboxes are read for all of them at once.
BATCH = 50
#: Decisions on one row in one pass; the longest way is SENT, climb, ask, send, written.
STEPS_MAX = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRules:
    """Brakes and times."""

    #: False: dry run. Verdicts are written and repairs opened, nothing is sent.
    enabled: bool = True
    rate_per_second: float = 200.0
    #: Repairs at once; the average stays rate_per_second.
    burst: float = 1_000.0
    claim_lease_seconds: float = 60.0
    #: A send is verified no earlier: 5.1+ may put a half back up to 3 s after its END.
    verify_after_seconds: float = 5.0
    #: A repair that a brake stopped is looked at again after this.
    held_wait_seconds: float = 5.0
    #: Rows worked on in one pass of a topic.
    repairs_max: int = 1_000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One pass over a topic: its brakes and its answers."""

    topic: TopicPlan
    holds: tuple[HoldKind, ...]
    held_by: str | None
    questions: RepairQuestions


class Repairer:
    """Works on the repairs of a topic. Confined to the thread of the rounds; several processes are harmless."""

    def __init__(
        self,
        *,
        brokers: BrokerEvidence,
        sends: BrokerRepairs,
        outbox: OutboxEvidence,
        inbox: InboxEvidence,
        repairs: Repairs,
        hand_overs: HandOvers,
        holds: Holds,
        rules: RepairRules,
        clock: Clock,
        owner: str,
        events: EventSink,
    ) -> None:
        self._brokers = brokers
        self._sends = sends
        self._outbox = outbox
        self._inbox = inbox
        self._repairs = repairs
        self._hand_overs = hand_overs
        self._holds = holds
        self._rules = rules
        self._clock = clock
        self._owner = owner
        self._events = events
        self._claims = 0
        self._buckets: dict[str, TokenBucket] = {}

    # ---- entry points

    def open(self, topic: TopicPlan, unique_key: str, verdict: Verdict) -> None:
        """Notes that a loss was proved; a repair that exists is left as it is."""
        rung = first_rung(topic.repair_order, verdict)
        self._repairs.open(topic.environment, topic.topic, unique_key, rung=rung)

    def run(self, topic: TopicPlan) -> RepairReport:
        """One pass: due repairs, longest due first, in batches. While a brake is on, effects are still looked for."""
        one_pass = self._pass(topic)
        rows = self._repairs.claimable(topic.environment, topic.topic, scope=EVERY_GROUP, limit=self._rules.repairs_max)
        outcomes: list[RepairOutcome] = []
        for start in range(0, len(rows), BATCH):
            outcomes += self._work_batch(one_pass, rows[start : start + BATCH])
        return RepairReport(outcomes=tuple(outcomes), holds=one_pass.holds)

    def repair_one(self, topic: TopicPlan, unique_key: str, *, dry_run: bool) -> RepairOutcome | None:
        """One key now, through the same brakes; None: it has no repair. A dry run tells the next step only."""
        rows = self._repairs.read(topic.environment, topic.topic, [unique_key]).get(unique_key, ())
        found = [row for row in rows if row.scope == EVERY_GROUP]
        if not found:
            return None
        one_pass = self._pass(topic)
        if found[0].state in (RepairState.DONE, RepairState.FAILED):
            return _outcome(found[0], found[0].answer or "finished", found[0].state.lower())
        if dry_run:
            case = self._cases(topic, [replace(found[0], lease_until_ms=None)])[0]
            decision = self._answered(one_pass, case)[1]
            return _outcome(found[0], decision.reason, "planned")
        outcomes = self._work_batch(one_pass, found)
        return outcomes[0] if outcomes else None

    def _pass(self, topic: TopicPlan) -> _Pass:
        holds = tuple(self._holds.active(topic.environment).get(topic.topic, ()))
        held_by = str(holds[0]) if holds else None
        return _Pass(
            topic=topic,
            holds=holds,
            held_by=held_by if self._rules.enabled else "dry run",
            questions=RepairQuestions(topic, brokers=self._brokers, inbox=self._inbox, repairs=self._repairs),
        )

    # ---- one batch

    def _work_batch(self, one_pass: _Pass, rows: Sequence[Repair]) -> list[RepairOutcome]:
        claimed: list[tuple[Repair, str]] = []
        outcomes: list[RepairOutcome] = []
        brake = one_pass.held_by or self._rate_limit(one_pass.topic)
        if brake is not None:
            # Nothing can be sent: what only waits for a send is neither claimed nor asked about at brokers.
            idle = {c.repair.unique_key for c in self._cases(one_pass.topic, rows) if c.waits_for_a_send}
            outcomes = [_outcome(row, f"held: {brake}", "held") for row in rows if row.unique_key in idle]
            rows = [row for row in rows if row.unique_key not in idle]
        for row in rows:
            self._claims += 1
            token = f"{self._owner}/{self._claims}"
            mine = self._repairs.claim(row, token=token, lease_seconds=self._rules.claim_lease_seconds)
            if mine is None:
                outcomes.append(_outcome(row, "another owner has it, or it is not due", "taken"))
            else:
                claimed.append((mine, token))
        cases = self._cases(one_pass.topic, [repair for repair, _ in claimed])
        for case, (_, token) in zip(cases, claimed, strict=True):
            outcomes.append(self._work(one_pass, case, token))
        return outcomes

    def _cases(self, topic: TopicPlan, repairs: Sequence[Repair]) -> list[Case]:
        """Inboxes of every group and the outbox, read after the claims."""
        if not repairs:
            return []
        keys = [repair.unique_key for repair in repairs]
        inboxes: Mapping[str, Mapping[str, Lookup[InboxRow]]] = {
            plan.group: self._inbox.read(plan.subscription, keys) for plan in topic.subscriptions
        }
        outbox: Mapping[str, Lookup[OutboxRow]] = self._outbox.read(topic.topic, keys)
        has_outbox = self._outbox.is_configured(topic.topic)
        return [
            Case(
                repair=repair,
                topic=topic,
                now_ms=self._now_ms(repair),
                has_outbox=has_outbox,
                verify_after_seconds=self._rules.verify_after_seconds,
                inboxes={
                    group: read[repair.unique_key] for group, read in inboxes.items() if repair.unique_key in read
                },
                outbox=outbox.get(repair.unique_key) or Lookup.unknown("outbox", "the key is missing in the answer"),
            )
            for repair in repairs
        ]

    def _now_ms(self, repair: Repair) -> int:
        # The claim was written with database time: the lease tells it back.
        if repair.lease_until_ms is None:
            return self._clock.now_ms()
        return repair.lease_until_ms - round(self._rules.claim_lease_seconds * 1000)

    # ---- one repair

    def _work(self, one_pass: _Pass, case: Case, token: str) -> RepairOutcome:
        for _ in range(STEPS_MAX):
            case, decision = self._answered(one_pass, case)
            if decision.act is not Act.WRITE:
                braked = self._braked(one_pass)
                if braked is not None:
                    wait = _stay(case, braked, self._rules.held_wait_seconds)
                    return self._write(case, wait, token, outcome="held")[1]
                acted = self._act(case, decision, token)
                if acted is None:
                    return _outcome(case.repair, "the claim ran out", "taken")
                case, decision = acted
            changed, outcome = self._write(case, decision, token)
            if changed is None or not decision.goes_on:
                return outcome
            case = replace(case, repair=changed)
        return self._write(case, _stay(case, "goes on later", 1.0), token)[1]

    def _answered(self, one_pass: _Pass, case: Case) -> tuple[Case, Decision]:
        """Asks until it is decided."""
        while isinstance(answer := decide(case), Ask):
            case = one_pass.questions.answer(case, answer)
        return case, answer

    def _braked(self, one_pass: _Pass) -> str | None:
        brake = one_pass.held_by or self._rate_limit(one_pass.topic)
        if brake is not None:
            return f"held: {brake}"
        self._bucket(one_pass.topic).charge(1)
        return None

    def _rate_limit(self, topic: TopicPlan) -> str | None:
        has_token = self._bucket(topic).available(self._clock.monotonic_seconds()) > 0
        return None if has_token else "rate limit"

    def _bucket(self, topic: TopicPlan) -> TokenBucket:
        if topic.topic not in self._buckets:
            self._buckets[topic.topic] = TokenBucket(self._rules.rate_per_second, burst=self._rules.burst)
        return self._buckets[topic.topic]

    def _write(
        self, case: Case, decision: Decision, token: str, *, outcome: str | None = None
    ) -> tuple[Repair | None, RepairOutcome]:
        changed = self._change(case.repair, decision, token, counts=False)
        if changed is None:
            return None, _outcome(case.repair, "the claim ran out", "taken")
        return changed, _outcome(changed, decision.reason, outcome or _word(changed))

    def _change(self, repair: Repair, decision: Decision, token: str, *, counts: bool) -> Repair | None:
        require_legal(repair.state, decision.state)
        changed = self._repairs.change(
            repair,
            RepairChange(
                state=decision.state,
                rung=decision.rung,
                counts_as_attempt=counts,
                target=_target(decision) if counts else None,
                answer=decision.reason,
                wait_seconds=decision.wait_seconds,
                releases=not counts and not decision.goes_on,
            ),
            token=token,
        )
        if changed is not None and (changed.state is not repair.state or changed.rung is not repair.rung):
            self._events.emit(
                RepairStepped(
                    environment=repair.environment,
                    topic=repair.topic,
                    scope=repair.scope,
                    unique_key=repair.unique_key,
                    rung=changed.rung,
                    before=repair.state,
                    after=changed.state,
                    attempts=changed.attempts,
                    answer=decision.reason,
                )
            )
        return changed

    # ---- acts

    def _act(self, case: Case, decision: Decision, token: str) -> tuple[Case, Decision] | None:
        """Does it, and returns what is to be written; None: the claim ran out before anything was sent."""
        if decision.act is Act.CLOSE:
            return case, self._close(case, decision)
        sending = self._change(case.repair, decision, token, counts=True)
        if sending is None:
            return None
        # Every look-up is asked again before another send: this one may have changed the answers.
        case = replace(case, repair=sending, copies=None, halves=None, parked=None, standings=None)
        return case, after_answer(case, self._send(case, decision))

    def _send(self, case: Case, decision: Decision) -> SendAnswer:
        message = decision.subject
        if decision.act is Act.END:
            return self._sends.end_transaction(message, expected=_expected(case, message), commit=True)
        if decision.act is Act.REPUBLISH:
            return self._sends.republish(message)
        self._hand_overs.insert(case.repair.environment, message, groups=decision.groups)
        return SendAnswer(outcome=EndOutcome.DONE, detail=f"handed over to {', '.join(decision.groups)}")

    def _close(self, case: Case, decision: Decision) -> Decision:
        answers = [
            self._sends.end_transaction(half, expected=_expected(case, half), commit=False) for half in decision.halves
        ]
        unsure = [a for a in answers if a.outcome in (EndOutcome.NO_ANSWER, EndOutcome.REFUSED_FOR_NOW)]
        if not unsure:
            return decision.only_writes()
        reason = f"the effect is there; END ROLLBACK: {unsure[0].outcome} {unsure[0].detail}"
        return _stay(case, reason, self._rules.verify_after_seconds)


def _expected(case: Case, half: StoredMessage) -> OutboxRow:
    return row_of(case.outbox) or stand_in_row(half)


def _stay(case: Case, reason: str, wait_seconds: float) -> Decision:
    return Decision(
        act=Act.WRITE, state=case.repair.state, rung=case.repair.rung, reason=reason, wait_seconds=wait_seconds
    )


def _target(decision: Decision) -> Mapping[str, object]:
    """What a send aims at, written before it."""
    message = decision.subject
    return {
        "broker": message.broker,
        "topic": message.topic,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "groups": list(decision.groups),
    }


def _word(repair: Repair) -> str:
    match repair.state:
        case RepairState.DONE:
            return "done"
        case RepairState.FAILED:
            return "failed"
        case RepairState.SENT:
            return "sent"
        case _:
            return "waits"


def _outcome(repair: Repair, reason: str, outcome: str) -> RepairOutcome:
    return RepairOutcome(
        unique_key=repair.unique_key,
        rung=repair.rung,
        state=repair.state,
        attempts=repair.attempts,
        reason=reason,
        outcome=outcome,
    )
