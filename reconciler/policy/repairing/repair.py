"""Step 10: carries out claimed repairs, one effect a call. ladder.py decides each step.

A crash may follow every step. An unreleased claim ends by itself. A SENDING row shows the next owner that a send may
have happened. The inbox makes a second copy harmless. A process stops work on a row once its claim is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import assert_never

from reconciler.clock import Clock, Standstill
from reconciler.contract.defaults import (
    CLAIM_LEASE_SECONDS,
    REPAIRS_PER_SECOND,
    RETENTION_SECONDS,
    SKEW_MARGIN_SECONDS,
)
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import (
    BY_HOLD,
    CAME_LATER,
    CLAIM_RAN_OUT,
    CLOSE_UNSURE,
    DRY_RUN,
    FINISHED,
    GOES_ON_LATER,
    HELD,
    NOT_DECIDED,
    REPAIR_WITHDRAWN,
    TAKEN,
)  # fmt: skip
from reconciler.contract.tables import EVERY_GROUP, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvariantViolation
from reconciler.policy.brakes import REPAIRS_AT_ONCE, RateLimit
from reconciler.policy.events import EventSink, RepairStepped
from reconciler.policy.evidence import EndOutcome, Recorded, SendAnswer, StoredMessage
from reconciler.policy.inquiry.case_file import GroupAnswers
from reconciler.policy.inquiry.witnesses import BrokerSnapshot, Witnesses
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.asked import Asked, known
from reconciler.policy.ports.evidence import (
    BrokerEvidence,
    BrokerRepairs,
    BusinessQueries,
    HalfReadingBeforeSends,
    Horizon,
    InboxEvidence,
    OutboxEvidence,
)
from reconciler.policy.ports.ledger import Candidates, HandOvers, Holds, NotedHalves, Repair, RepairChange, Repairs
from reconciler.policy.repairing.case import (
    HandOverByHand,
    RepairCase,
    RepairOutcome,
    RepairReport,
    RepairStep,
    not_sent,
    outcome_of,
    require_legal,
    stay,
    target_of,
    waits_since_ms,
    word_of,
)
from reconciler.policy.repairing.ladder import after_answer, by_hand, decide
from reconciler.policy.repairing.rungs import Act, first_rung

#: The number of repairs that are claimed and worked on together. Databases are read and rows are written for all of
#: them at once. All requests to brokers leave before the first answer is awaited.
BATCH = 64
#: The step of a case until decide() has answered.
_UNDECIDED = RepairStep(act=Act.WRITE, state=RepairState.OPEN, rung=Rung.END, reason=NOT_DECIDED())
#: Maximum number of decisions on one row in one pass. The longest way is SENT, climb, ask, send, written.
STEPS_MAX = 24
#: The answer that a hand-over row gets when it is withdrawn from its worker.
WITHDRAWN = REPAIR_WITHDRAWN()
_CLAIM_RAN_OUT, _GOES_ON_LATER = CLAIM_RAN_OUT(), GOES_ON_LATER()
_UNPROVED = Horizon(at_ms={})


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRules:
    """Brakes and times of repairs."""

    #: False means a dry run: verdicts are written and repairs are opened, but nothing is sent.
    enabled: bool = True
    rate_per_second: float = REPAIRS_PER_SECOND
    burst: float = REPAIRS_AT_ONCE
    claim_lease_seconds: float = CLAIM_LEASE_SECONDS
    #: The shortest time from a send to its verification: 5.1+ may put a half back up to 3 s after its END.
    verify_after_seconds: float = 5.0
    #: The pause before another look at a repair that a brake has stopped.
    held_wait_seconds: float = 5.0
    skew_margin_seconds: float = SKEW_MARGIN_SECONDS
    #: fileReservedTime of the brokers.
    retention_seconds: float = RETENTION_SECONDS

    @property
    def repairs_max(self) -> int:
        """Returns the most rows of one pass: those that may be sent at once, and as many again that were sent before
        and are verified now. Without this second part, sends would reach only half of the rate."""
        return 2 * ceil(self.burst)


@dataclass(slots=True, kw_only=True)
class _Work:
    """One claimed repair of a batch. Only the thread of the rounds uses this value."""

    case: RepairCase
    token: str
    #: When the row was claimed, by the process's monotonic clock. A dry run claims nothing.
    claimed_seconds: float = 0.0
    #: The producing span, kept from before the send, because afterwards copies are asked for again.
    traceparent: str | None = None
    #: The next step; nothing is done before it is decided.
    decision: RepairStep = _UNDECIDED
    #: The word that the report shows in place of the state's word.
    word: str | None = None
    outcome: RepairOutcome | None = None


class RepairPass:
    """One pass over the repairs of a topic: the brokers' answers that a pass needs once, and the brakes. Only the
    thread of the rounds uses a pass."""

    def __init__(
        self,
        topic: TopicPlan,
        *,
        snapshot: BrokerSnapshot,
        holds: Holds,
        is_dry_run: bool,
        queries: BusinessQueries | None,
    ) -> None:
        self.topic = topic
        self.snapshot = snapshot
        self._holds = holds
        self._is_dry_run = is_dry_run
        self._queries = queries
        self.holds: tuple[HoldKind, ...] = ()
        self._is_accepted = False
        self.read_holds()

    def read_holds(self) -> None:
        """Reads the topic's holds before each batch of sends, so that a new hold counts during a long pass. A commit
        query whose acceptance was withdrawn counts then, too."""
        self.holds = tuple(self._holds.active(self.topic.environment).get(self.topic.topic, ()))
        self._is_accepted = False

    @property
    def held_by(self) -> Fact | None:
        """Returns the fact that forbids every send. None: sends are allowed."""
        if self._is_dry_run:
            return DRY_RUN()
        if self.holds:
            return BY_HOLD(kind=str(self.holds[0]))
        return self._unaccepted() if self.topic.sends_by_query else None

    def _unaccepted(self) -> Fact | None:
        if self._queries is None:
            raise InvariantViolation("no commit query was opened")
        why = None if self._is_accepted else self._queries.why_not_accepted(self.topic.topic)
        self._is_accepted = why is None
        return why


class Repairer:
    """Works on the repairs of a topic. Only the thread of the rounds uses a repairer; several processes do no harm."""

    def __init__(
        self,
        *,
        brokers: BrokerEvidence,
        sends: BrokerRepairs,
        outbox: OutboxEvidence,
        inbox: InboxEvidence,
        candidates: Candidates,
        repairs: Repairs,
        hand_overs: HandOvers,
        holds: Holds,
        rules: RepairRules,
        clock: Clock,
        owner: str,
        events: EventSink,
        english: Callable[[Fact], str],
        rate_limit: RateLimit | None = None,
        queries: BusinessQueries | None = None,
        halves: NotedHalves | None = None,
        reading: HalfReadingBeforeSends | None = None,
    ) -> None:
        """`english` writes a fact as English text. `rate_limit` is shared by the process's Repairers; None makes a new
        one from the rules. `queries`, `halves` and `reading` are None if no query may prove a send."""
        self._witnesses = Witnesses(
            brokers=brokers,
            outbox=outbox,
            inbox=inbox,
            repairs=repairs,
            queries=queries,
            halves=halves,
            reading=reading,
        )
        self._queries = queries
        self._reading = reading
        self._brokers = brokers
        self._sends = sends
        self._inbox = inbox
        self._candidates = candidates
        self._repairs = repairs
        self._hand_overs = hand_overs
        self._holds = holds
        self._rules = rules
        self._clock = clock
        self._owner = owner
        self._events = events
        self._english = english
        self._claims = 0
        self._standstill = Standstill(clock)
        self._rate_limit = rate_limit or RateLimit(rules.rate_per_second, burst=rules.burst, clock=clock)

    # ---- entry points

    def open(self, topic: TopicPlan, losses: Mapping[str, Verdict]) -> None:
        """Opens a repair for each proved loss (key -> verdict). A repair that exists stays as it is."""
        rungs = {key: first_rung(topic.repair_order, verdict) for key, verdict in losses.items()}
        if rungs:
            self._repairs.open_all(topic.environment, topic.topic, rungs)

    def reopen_unsent(self, topic: TopicPlan, losses: Sequence[tuple[Repair | None, Verdict]]) -> None:
        """Opens repairs again that were closed unsent and whose loss is proved now."""
        for repair, verdict in losses:
            if repair is not None and repair.closed_unsent:
                self._repairs.reopen(repair, rung=first_rung(topic.repair_order, verdict))

    def run(self, topic: TopicPlan) -> RepairReport:
        """Works on due repairs in batches. The longest due come first. A brake does not stop the look for effects."""
        one_pass = self._pass(topic)
        rows = self._repairs.claimable(topic.environment, topic.topic, scope=EVERY_GROUP, limit=self._rules.repairs_max)
        outcomes: list[RepairOutcome] = []
        for start in range(0, len(rows), BATCH):
            outcomes += self._work_batch(one_pass, rows[start : start + BATCH])
        return RepairReport(outcomes=tuple(outcomes), holds=one_pass.holds)

    def repair_one(self, topic: TopicPlan, unique_key: str, *, dry_run: bool) -> RepairOutcome | None:
        """Works on one key now, with the same brakes. None: it has no repair. A dry run only returns the next step."""
        rows = self._repairs.of_keys(topic.environment, topic.topic, [unique_key]).get(unique_key, ())
        found = [row for row in rows if row.scope == EVERY_GROUP]
        if not found:
            return None
        one_pass = self._pass(topic)
        if found[0].state in (RepairState.DONE, RepairState.FAILED):
            return outcome_of(found[0], found[0].why or FINISHED(), found[0].state.lower())
        if dry_run:
            case = self._cases(topic, [replace(found[0], lease_until_ms=None)])[0]
            planned = _Work(case=case, token="")
            self._decide(one_pass, [planned])
            return outcome_of(found[0], planned.decision.reason, "planned")
        outcomes = self._work_batch(one_pass, found)
        return outcomes[0] if outcomes else None

    def end_failed(self, topic: TopicPlan, failed: Sequence[Repair]) -> None:
        """Makes FAILED repairs DONE if no group lacks the message any more. A repair that failed with a group's
        hand-over stays FAILED, because a person must see the worker's error."""
        if not failed:
            return
        rows = self._repairs.of_keys(topic.environment, topic.topic, [repair.unique_key for repair in failed])
        for case in self._cases(topic, failed):
            of_key = [row for row in rows.get(case.repair.unique_key, ()) if row.state is RepairState.FAILED]
            if not case.missing and of_key == [case.repair]:
                self._repairs.dismiss(case.repair, answer=CAME_LATER())

    def withdraw(self, rows: Sequence[Repair]) -> None:
        """Ends hand-over rows of groups that no longer lack the message. A row that a worker has claimed is left to the
        worker.

        A crash in the middle leaves claimed rows, which are free again after the lease.
        """
        claims = [self._claim_of(row) for row in rows]
        if claims:
            claimed = self._repairs.claim_all(claims, lease_seconds=self._rules.claim_lease_seconds)
            done = RepairChange(state=RepairState.DONE, rung=Rung.HAND_OVER, answer=WITHDRAWN)
            ours = [(row, done, token) for row, (_, token) in zip(claimed, claims, strict=True) if row is not None]
            self._repairs.change_all(ours)

    def by_hand(
        self, topic: TopicPlan, plan: SubscriptionPlan, unique_key: str, *, first_seen_ms: int
    ) -> HandOverByHand:
        """Returns the message that a person may hand over to one group's worker, or why nothing may be handed over."""
        wanted = Repair(
            environment=topic.environment,
            topic=topic.topic,
            scope=plan.group,
            unique_key=unique_key,
            state=RepairState.OPEN,
            rung=Rung.HAND_OVER,
            next_at_ms=0,
            created_at_ms=first_seen_ms,
        )
        ((case, step),) = self._witnesses.settle(
            self._cases(topic, [wanted], plans=(plan,)), by_hand, self._pass(topic).snapshot
        )
        if step.act is not Act.HAND_OVER:
            return HandOverByHand(why=step.reason)
        digest = case.proof_of(step.subject).content_digest
        return HandOverByHand(why=step.reason, message=step.subject, content_digest=digest)

    def _claim_of(self, row: Repair) -> tuple[Repair, str]:
        """Returns the row with a token that no other claim has."""
        self._claims += 1
        return row, f"{self._owner}/{self._claims}"

    def _pass(self, topic: TopicPlan) -> RepairPass:
        snapshot = BrokerSnapshot(self._brokers, topic.topic, topic.subscriptions)
        dry = not self._rules.enabled
        return RepairPass(topic, snapshot=snapshot, holds=self._holds, is_dry_run=dry, queries=self._queries)

    # ---- one batch

    def _work_batch(self, one_pass: RepairPass, rows: Sequence[Repair]) -> list[RepairOutcome]:
        outcomes: list[RepairOutcome] = []
        brake = self._brake(one_pass)
        if brake is not None:
            # No send is allowed, so a repair that only waits for its send is not claimed, and no broker is asked about
            # it.
            idle = {c.repair.unique_key for c in self._cases(one_pass.topic, rows) if c.waits_for_a_send}
            outcomes = [outcome_of(row, brake, "held") for row in rows if row.unique_key in idle]
            rows = [row for row in rows if row.unique_key not in idle]
        claims = [self._claim_of(row) for row in rows]
        # After this time nothing is sent, because another process could hold the claim by then.
        claimed_seconds = self._clock.monotonic_seconds()
        until_seconds = claimed_seconds + self._rules.claim_lease_seconds / 2
        mine = self._repairs.claim_all(claims, lease_seconds=self._rules.claim_lease_seconds) if claims else []
        outcomes += [
            outcome_of(row, TAKEN(), "taken") for row, claimed in zip(rows, mine, strict=True) if claimed is None
        ]
        tokens = {claimed.unique_key: token for claimed, (_, token) in zip(mine, claims, strict=True) if claimed}
        cases = self._cases(one_pass.topic, [claimed for claimed in mine if claimed is not None])
        works = [
            _Work(case=case, token=tokens[case.repair.unique_key], claimed_seconds=claimed_seconds) for case in cases
        ]
        self._work(one_pass, works, until_seconds)
        return outcomes + [work.outcome for work in works if work.outcome is not None]

    def _cases(
        self, topic: TopicPlan, repairs: Sequence[Repair], *, plans: tuple[SubscriptionPlan, ...] | None = None
    ) -> list[RepairCase]:
        """Opens a case for each repair. `plans`: the groups to read. Verdicts and databases are read after the
        claims."""
        plans = topic.subscriptions if plans is None else plans
        keys = [repair.unique_key for repair in repairs]
        verdicts = {plan.group: self._candidates.of_keys(plan.subscription, keys) for plan in plans}
        of_group = {p.group: GroupAnswers.of(p, has_inbox=self._inbox.is_configured(p.subscription)) for p in plans}
        opened = [
            RepairCase(
                unique_key=repair.unique_key,
                topic=topic,
                plans=plans,
                skew_margin_seconds=self._rules.skew_margin_seconds,
                retention_seconds=self._rules.retention_seconds,
                of_group=of_group,
                repair=repair,
                now_ms=self._now_ms(repair),
                seen_seconds=self._seen_seconds(repair),
                verify_after_seconds=self._rules.verify_after_seconds,
                verdicts={g: rows[repair.unique_key] for g, rows in verdicts.items() if repair.unique_key in rows},
            )
            for repair in repairs
        ]
        return self._witnesses.ask_outboxes(self._witnesses.ask_inboxes(opened))

    def _now_ms(self, repair: Repair) -> int:
        # The claim was written with database time, so the end of the lease minus its length is the time of the claim.
        if repair.lease_until_ms is None:
            return self._clock.now_ms()
        return repair.lease_until_ms - round(self._rules.claim_lease_seconds * 1000)

    def _seen_seconds(self, repair: Repair) -> float:
        """Returns for how long the last send has lain ahead of the ledger's clock. After that clock was set back, no
        repair waits for the old time to come again."""
        since_ms = waits_since_ms(repair)
        if since_ms <= self._now_ms(repair):
            return 0.0
        place = (repair.environment, repair.topic, repair.scope, repair.unique_key)
        return self._standstill.seconds(place, (since_ms, repair.attempts))

    # ---- the repairs of a batch, together

    def _work(self, one_pass: RepairPass, works: Sequence[_Work], until_seconds: float) -> None:
        """Takes steps until each repair has its outcome."""
        for _ in range(STEPS_MAX):
            going = [work for work in works if work.outcome is None]
            if not going:
                return
            self._decide(one_pass, going)
            self._withdraw([work for work in going if work.decision.act is Act.WITHDRAW])
            acting = [work for work in going if work.decision.act not in (Act.WRITE, Act.WITHDRAW)]
            self._send(self._begin(one_pass, acting, until_seconds), until_seconds)
            self._write([work for work in going if work.outcome is None])
        for work in works:
            work.decision = stay(work.case, _GOES_ON_LATER, 1.0)
        self._write([work for work in works if work.outcome is None])

    def _decide(self, one_pass: RepairPass, works: Sequence[_Work]) -> None:
        """Asks witnesses until the step of each repair is decided."""
        decided = self._witnesses.settle([work.case for work in works], decide, one_pass.snapshot)
        for work, (case, decision) in zip(works, decided, strict=True):
            work.case, work.decision = case, decision
            work.traceparent = work.traceparent or case.traceparent

    def _withdraw(self, works: Sequence[_Work]) -> None:
        """Ends hand-over rows under any brake. The rows are read again, because a worker may have been faster."""
        self.withdraw([row for work in works for row in work.decision.rows])
        for work in works:
            work.case = replace(work.case, hand_overs=None)

    def _begin(self, one_pass: RepairPass, works: Sequence[_Work], until_seconds: float) -> list[_Work]:
        """Checks the brakes in the order of the batch, then writes the rows of all sends before the first send.

        Returns the repairs that are to be sent.
        """
        begun: list[_Work] = []
        if works:
            one_pass.read_holds()
        for work in works:
            if self._is_late(until_seconds):
                work.decision = stay(work.case, _GOES_ON_LATER, 1.0)
                continue
            brake = self._charge(one_pass)
            if brake is not None:
                work.decision = stay(work.case, brake, self._rules.held_wait_seconds)
                work.word = "held"
            else:
                begun.append(work)
        sending = [work for work in begun if work.decision.act is not Act.CLOSE]
        for work, changed in zip(sending, self._change(sending, counts=True), strict=True):
            if changed is None:
                work.outcome = outcome_of(work.case.repair, _CLAIM_RAN_OUT, "taken")
            else:
                # The send may change the answers, so every witness is asked again before the next send.
                work.case = work.case.before_a_send(changed)
        return [work for work in begun if work.outcome is None]

    def _send(self, works: Sequence[_Work], until_seconds: float) -> None:
        """Reads all halves again, then sends every request, and then waits for the answers."""
        begun = [(work, self._acts_of(work.case, work.decision, until_seconds)) for work in works]
        sent = [(work, None if self._is_late(until_seconds) else [send() for send in acts]) for work, acts in begun]
        for work, answers in sent:
            if answers is None:
                work.decision = not_sent(work.case)
            else:
                work.decision = self._after(work.case, work.decision, [answer() for answer in answers])

    def _is_late(self, until_seconds: float) -> bool:
        return self._clock.monotonic_seconds() > until_seconds

    def _write(self, works: Sequence[_Work]) -> None:
        for work, changed in zip(works, self._change(works, counts=False), strict=True):
            if changed is None:
                work.outcome = outcome_of(work.case.repair, _CLAIM_RAN_OUT, "taken")
            elif not work.decision.goes_on:
                work.outcome = outcome_of(changed, work.decision.reason, work.word or word_of(changed))
            else:
                work.case = replace(work.case, repair=changed)

    def _charge(self, one_pass: RepairPass) -> Fact | None:
        """Returns the brake that stops the next send. None: no brake does, and the rate limit counts the send."""
        brake = self._brake(one_pass)
        if brake is None:
            self._rate_limit.charge(one_pass.topic.topic)
        return brake

    def _brake(self, one_pass: RepairPass) -> Fact | None:
        by = one_pass.held_by or self._rate_limit.brake(one_pass.topic.topic)
        return None if by is None else HELD(by=by)

    def _change(self, works: Sequence[_Work], *, counts: bool) -> Sequence[Repair | None]:
        """Writes all decisions in one transaction. An entry is None if the claim on its row has run out."""
        changes: list[tuple[Repair, RepairChange, str]] = []
        for work in works:
            repair, decision = work.case.repair, work.decision
            require_legal(repair.state, decision.state)
            change = RepairChange(
                state=decision.state,
                rung=decision.rung,
                counts_as_attempt=counts,
                takes_back_attempt=decision.takes_back_attempt and not counts,
                target=target_of(decision) if counts else None,
                answer=decision.reason,
                wait_seconds=decision.wait_seconds,
                releases=not counts and not decision.goes_on,
            )
            changes.append((repair, change, work.token))
        written = self._repairs.change_all(changes) if changes else []
        for work, changed in zip(works, written, strict=True):
            if changed is not None:
                self._emit_step(work, changed)
        return written

    def _emit_step(self, work: _Work, changed: Repair) -> None:
        repair = work.case.repair
        if changed.state is not repair.state or changed.rung is not repair.rung:
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
                    answer=self._english(work.decision.reason),
                    answer_code=work.decision.reason.code.name,
                    took_seconds=_took_seconds(changed),
                    worked_seconds=self._clock.monotonic_seconds() - work.claimed_seconds,
                    traceparent=work.traceparent,
                )
            )

    # ---- acts

    def _acts_of(self, case: RepairCase, decision: RepairStep, until_seconds: float) -> list[Asked[Asked[SendAnswer]]]:
        """Returns the calls that send. Only CLOSE has several."""
        match decision.act:
            case Act.END:
                commit = decision.commit or case.proof_of(decision.subject)
                end = self._sends.end_transaction(decision.subject, expected=commit, commit=True)
                return [partial(self._unless_answered, decision, end, until_seconds)]
            case Act.REPUBLISH:
                if decision.commit is None:
                    case.proof_of(decision.subject)
                send = partial(self._sends.republish, decision.subject)
                return [partial(self._unless_answered, decision, send, until_seconds)]
            case Act.HAND_OVER:
                return [partial(self._hand_over, case, decision)]
            case Act.CLOSE:
                return [
                    self._sends.end_transaction(half, expected=case.message or Recorded.of_copy(half), commit=False)
                    for half in decision.halves
                ]
            case Act.WRITE | Act.WITHDRAW:
                raise InvariantViolation(f"{decision.act} sends no message")
            case _:
                assert_never(decision.act)

    def _unless_answered(
        self, decision: RepairStep, send: Asked[Asked[SendAnswer]], until_seconds: float
    ) -> Asked[SendAnswer]:
        """Sends, unless a last look holds the send back. Four findings hold a send back: a newer copy of the half of an
        END by a row, a delivery meanwhile, a producer that could answer a broker's question, or a claim with too little
        time left. For the newer copy, the next turn decides."""
        reading = self._reading if decision.act is Act.END and decision.commit is not None else None
        if reading is not None and reading.is_newest(decision.subject) is not True:
            return _held_back(f"{decision.subject.broker} may have put the half back since")
        if decision.commit is not None and self._was_delivered(decision.subject):
            return _held_back("the message was delivered since")
        for half in decision.halves:
            if self._brokers.producers_of(half).is_connected is not False:
                return _held_back(f"a producer of {half.producer_group} may have come back to {half.broker}")
        if self._is_late(until_seconds):
            return _held_back("the time of the claim ended during the looks before the send")
        return send()

    def _was_delivered(self, message: StoredMessage) -> bool:
        """Looks once more for a copy: a slow END may have made one while the other repairs of the batch were prepared.
        The absence of earlier copies is proved already, so this look needs no horizon."""
        topic, key = message.real_topic, message.unique_key
        return self._brokers.committed_copies(topic, key, horizon=_UNPROVED, not_before_ms=0)().is_found

    def _hand_over(self, case: RepairCase, decision: RepairStep) -> Asked[SendAnswer]:
        message, groups = decision.subject, decision.groups
        digest = case.proof_of(message).content_digest
        self._hand_overs.insert(case.repair.environment, message, groups=groups, content_digest=digest)
        return known(SendAnswer(outcome=EndOutcome.DONE, detail=f"handed over to {', '.join(groups)}"))

    def _after(self, case: RepairCase, decision: RepairStep, answers: Sequence[SendAnswer]) -> RepairStep:
        """Returns the step to write after the answers to a send."""
        if decision.act is not Act.CLOSE:
            return after_answer(case, answers[0])
        unsure = [a for a in answers if a.outcome in (EndOutcome.NO_ANSWER, EndOutcome.REFUSED_FOR_NOW)]
        if not unsure:
            return decision.only_writes()
        reason = CLOSE_UNSURE(outcome=str(unsure[0].outcome), said=unsure[0].detail)
        return stay(case, reason, self._rules.verify_after_seconds)


def _held_back(detail: str) -> Asked[SendAnswer]:
    return known(SendAnswer(outcome=EndOutcome.HELD_BACK, detail=detail))


def _took_seconds(repair: Repair) -> float | None:
    """Returns the seconds from the proof of the loss to the verified repair. None: the repair is not DONE."""
    if repair.done_at_ms is None or repair.state is not RepairState.DONE:
        return None
    return max(0, repair.done_at_ms - repair.created_at_ms) / 1000
