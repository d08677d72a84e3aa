"""The half of a message that a person dismisses. Decides whether the half is open, until when its broker may still
deliver it, and whether it may be closed.

A broker asks the producers about an open half. If the outbox row is committed, they answer COMMIT, and the dismissed
message is delivered after all. END ROLLBACK stops these questions. END ROLLBACK also takes the message away from every
group of the topic that still needs the message. So END ROLLBACK needs a proof that no group needs the message: each
group, even a group that only the brokers know, has the effect or is dismissed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.clock import Clock
from reconciler.contract.facts import Fact
from reconciler.contract.outcomes import (
    AND_ANSWERED,
    ANSWER_UNKNOWN,
    ANSWERS_COMMIT,
    ANSWERS_NO_COMMIT,
    ASKED_UNTIL,
    CLOSED,
    COMMITTED,
    COMMITTED_UNKNOWN,
    END_FAILED,
    END_REFUSED,
    GIVEN_UP,
    GROUP_NEEDS_IT,
    HALF_NONE,
    HALF_UNKNOWN,
    LEFT_OPEN,
    NEVER_ASKED,
    NOT_PROVED,
    OPEN_NOBODY_KNOWS,
    OPEN_UNTIL,
    OPEN_UNTIL_OR_LATER,
    OUTBOX_SILENT,
    PUT_BACK,
    READERS_UNKNOWN,
    ROLLED_BACK,
    STRANGE_READER,
    UNDER_REPAIR,
)
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.tables import CandidateState
from reconciler.policy.evidence import Commit, EndOutcome, HalfQuestions, Lookup, OutboxRow, SendAnswer, StoredMessage
from reconciler.policy.inquiry.case_file import HalfAge
from reconciler.policy.inquiry.delivery import (
    contradiction,
    double_effect,
    message_of,
    newest_per_broker,
    of_row,
    other_content,
    own_halves,
    row_of,
)
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.evidence import (
    WHENEVER_COMMITTED_MS,
    BrokerEvidence,
    BrokerRepairs,
    InboxEvidence,
    OutboxEvidence,
)
from reconciler.policy.ports.ledger import Candidate

#: Most ENDs for one half. A check may put a newer copy back between the look and the END.
_TRIES_MAX = 3


class HalfState(StrEnum):
    """The state of a key's half, as far as it is known."""

    #: No broker has a half.
    NONE = "none"
    #: The half's broker may still deliver it.
    OPEN = "open"
    #: The half was committed: its topic has the message.
    COMMITTED = "committed"
    #: The half was rolled back, or its broker has given it up. Nothing will deliver it.
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHalf:
    """A key's half, as a person reads about it."""

    state: HalfState
    told: Fact
    #: Why the half must not be closed. None: the half is open and may be closed.
    objection: Fact | None
    #: The newest copy on each broker.
    copies: tuple[StoredMessage, ...] = ()
    #: The commit with which copies are compared.
    commit: Commit | None = None
    #: Roughly when the last broker gives the half up, in ms UTC. None: the half is not open, or that time is unknown.
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedHalf:
    """The result of closing a half."""

    #: True if every broker with the half has answered the END ROLLBACK.
    is_closed: bool
    state: HalfState
    told: Fact


class OpenHalves:
    """Looks at halves and closes them. Only one thread uses it."""

    def __init__(
        self,
        *,
        brokers: BrokerEvidence,
        sends: BrokerRepairs,
        outbox: OutboxEvidence,
        inbox: InboxEvidence,
        readers: Callable[[str], Sequence[str] | None],
        clock: Clock,
    ) -> None:
        """`readers`: returns the groups that brokers know for a topic. None: a broker did not answer."""
        self._brokers = brokers
        self._sends = sends
        self._outbox = outbox
        self._inbox = inbox
        self._readers = readers
        self._clock = clock

    def look(
        self, topic: TopicPlan, unique_key: str, *, ledger: KeyInLedger, dismissing: Collection[str] = ()
    ) -> OpenHalf:
        """Asks every witness now. `dismissing`: groups that are dismissed at the same time. Raises DatabaseAway."""
        outbox = self._outbox.look_up(topic.topic, {unique_key: WHENEVER_COMMITTED_MS})[unique_key]
        row = row_of(outbox)
        found = self._state(topic, unique_key, row)
        if found.state is not HalfState.OPEN:
            return found
        doubts = self._doubts(topic, unique_key, outbox, ledger, dismissing)
        return OpenHalf(
            state=found.state,
            told=AND_ANSWERED(half=found.told, answer=_answered(outbox, row)),
            objection=next(doubts, None),
            copies=found.copies,
            commit=row.commit if row is not None else None,
            until_ms=found.until_ms,
        )

    def close(self, topic: TopicPlan, unique_key: str, *, read_ledger: Callable[[], KeyInLedger]) -> ClosedHalf:
        """Sends END ROLLBACK for the newest copy on each broker if no objection is left. A copy that a check has put
        back meanwhile is closed, too. A question that is under way may still be answered COMMIT, and brokers obey that
        answer. Raises DatabaseAway."""
        closed: dict[str, int] = {}
        for _ in range(_TRIES_MAX):
            found = self.look(topic, unique_key, ledger=read_ledger())
            left = [half for half in found.copies if closed.get(half.broker) != half.commit_log_offset]
            if closed and (found.state is not HalfState.OPEN or not left):
                return ClosedHalf(is_closed=True, state=HalfState.ENDED, told=CLOSED(places=_places(closed)))
            if found.state is not HalfState.OPEN or found.commit is None or found.objection is not None:
                told = found.told if found.state is not HalfState.OPEN else LEFT_OPEN(why=found.objection or found.told)
                return ClosedHalf(is_closed=False, state=found.state, told=told)
            for half in left:
                answer = self._sends.end_transaction(half, expected=found.commit, commit=False)()()
                if answer.outcome is not EndOutcome.DONE:
                    told = _refused(half.broker, answer)
                    return ClosedHalf(is_closed=False, state=HalfState.OPEN, told=told)
                closed[half.broker] = half.commit_log_offset
        return ClosedHalf(is_closed=False, state=HalfState.OPEN, told=PUT_BACK(places=_places(closed)))

    def _state(self, topic: TopicPlan, unique_key: str, row: OutboxRow | None) -> OpenHalf:
        brokers, message = self._brokers, row.message if row is not None else None
        since_ms = message.created_at_ms if message is not None else 0
        horizon = brokers.horizon(topic.topic)
        asked = brokers.half_copies(topic.topic, unique_key, horizon=horizon, not_before_ms=since_ms, outbox=row)()
        halves = own_halves(asked, topic=topic, row=message)
        if halves.is_unknown:
            return _simple(HalfState.UNKNOWN, HALF_UNKNOWN(why=halves.reason))
        if halves.is_absent:
            return _simple(HalfState.NONE, HALF_NONE())
        committed = of_row(
            brokers.committed_copies(topic.topic, unique_key, horizon=horizon, not_before_ms=since_ms)(), message
        )
        if committed.is_found:
            return _simple(HalfState.COMMITTED, COMMITTED())
        if committed.is_unknown:
            return _simple(HalfState.UNKNOWN, COMMITTED_UNKNOWN(why=committed.reason))
        parked = brokers.parked_copies(topic.topic, unique_key, horizon=horizon, not_before_ms=since_ms)()
        return self._age(halves, newest_per_broker(own_halves(parked, topic=topic, row=message).records))

    def _age(self, halves: Lookup[StoredMessage], parked: Mapping[str, StoredMessage]) -> OpenHalf:
        """Decides by the age of halves. `parked`: the newest parked copy on each broker. If a half lies behind that
        copy, a person had the broker ask again (resumeCheckHalfMessage)."""
        newest = tuple(
            half
            for broker, half in newest_per_broker(halves.records).items()
            if broker not in parked or half.commit_log_offset > parked[broker].commit_log_offset
        )
        if not newest:
            return _simple(HalfState.ENDED, GIVEN_UP())
        brokers = tuple(half.broker for half in newest)
        now_ms = self._clock.now_ms()
        ends: list[HalfQuestions] = []
        for half in newest:
            check_back = self._brokers.check_back_of(half)
            if check_back is None:
                told = OPEN_NOBODY_KNOWS(brokers=brokers, broker=half.broker)
                return OpenHalf(state=HalfState.OPEN, told=told, objection=None, copies=newest)
            ends.append(check_back)
        if not any(one.is_asked for one in ends):
            return _simple(HalfState.ENDED, NEVER_ASKED())
        until_ms, never_ms = max(one.until_ms for one in ends), max(one.never_after_ms for one in ends)
        if now_ms > until_ms and any(self._brokers.is_past_check(half) is False for half in newest):
            until_ms = never_ms  # the check service stopped before the half, and will ask when it runs again
        if now_ms > until_ms:
            return _simple(HalfState.ENDED, ASKED_UNTIL(until_ms=until_ms))
        if self._was_rolled_back(halves.records, now_ms):
            return _simple(HalfState.ENDED, ROLLED_BACK())
        told = OPEN_UNTIL(brokers=brokers, until_ms=until_ms)
        if never_ms > until_ms:
            told = OPEN_UNTIL_OR_LATER(brokers=brokers, until_ms=until_ms, never_ms=never_ms)
        return OpenHalf(state=HalfState.OPEN, told=told, objection=None, copies=newest, until_ms=until_ms)

    def _was_rolled_back(self, halves: Sequence[StoredMessage], now_ms: int) -> bool:
        age = HalfAge(
            age_seconds=(now_ms - halves[0].store_timestamp_ms) / 1000,
            wait_seconds=0.0,
            rollback_evident_after_seconds=self._brokers.rollback_evident_after_seconds(halves[0]),
        )
        return age.looks_rolled_back(halves) and self._brokers.is_past_check(halves[0]) is not False

    def _doubts(
        self,
        topic: TopicPlan,
        unique_key: str,
        outbox: Lookup[OutboxRow],
        ledger: KeyInLedger,
        dismissing: Collection[str],
    ) -> Iterator[Fact]:
        """Yields reasons why END ROLLBACK could take the message away from a group. The strongest reason comes
        first."""
        row = row_of(outbox)
        if outbox.is_unknown:
            yield OUTBOX_SILENT(why=outbox.reason)
        if row is None or row.commit is None:
            yield NOT_PROVED()
        two = contradiction(outbox)
        if two is not None:
            yield two
        for repair in ledger.repairs:
            if repair.state not in FINISHED_REPAIRS:
                yield UNDER_REPAIR(state=str(repair.state))
        rows = {one.subscription.group: one for one in ledger.candidates}
        for plan in topic.subscriptions:
            if plan.group in dismissing or _is_dismissed(rows.get(plan.group)):
                continue
            inbox = self._inbox.look_up(plan.subscription, [unique_key])[unique_key]
            other = other_content(inbox, message_of(outbox), topic=topic.topic) or double_effect(inbox)
            if not inbox.is_found or other is not None:
                yield GROUP_NEEDS_IT(group=plan.group, why=other or inbox.reason)
        readers = self._readers(topic.topic)
        if readers is None:
            yield READERS_UNKNOWN()
        configured = {plan.group for plan in topic.subscriptions}
        for group in sorted(set(readers or ()) - configured):
            yield STRANGE_READER(group=group)


def _is_dismissed(row: Candidate | None) -> bool:
    return row is not None and row.state is CandidateState.SETTLED and "dismissed_by" in row.evidence


def _answered(outbox: Lookup[OutboxRow], row: OutboxRow | None) -> Fact:
    """Returns the answer of the producer's plug-in to a check-back. The plug-in reads the same row."""
    if outbox.is_unknown:
        return ANSWER_UNKNOWN()
    if row is None or row.commit is None:
        return ANSWERS_NO_COMMIT()
    return ANSWERS_COMMIT()


def _refused(broker: str, answer: SendAnswer) -> Fact:
    outcome = str(answer.outcome)
    if not answer.detail:
        return END_REFUSED(broker=broker, outcome=outcome)
    return END_FAILED(broker=broker, outcome=outcome, detail=answer.detail)


def _simple(state: HalfState, told: Fact) -> OpenHalf:
    return OpenHalf(state=state, told=told, objection=told)


def _places(closed: dict[str, int]) -> tuple[str, ...]:
    return tuple(f"{broker}@{offset}" for broker, offset in sorted(closed.items()))
