"""Asks the product's own pure functions, `judge` and `decide`, about a try.

Every question of theirs is answered from the state alone. What an answer depends on is small, so that each is asked
once: a search of hundreds of thousands of steps calls the product some thousand times.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

from reconciler.contract.reasons import NO_SIBLING_DELIVERED, SIBLING_DELIVERED, SIBLING_MAY_BE_GONE, SIBLINGS
from reconciler.contract.stored_facts import REASON, with_texts
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, RepairState, Rung
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, CommitQuery, KeyType, Siblings
from reconciler.policy.effect_query import effect_of
from reconciler.policy.evidence import (
    ConsumeMode,
    EndOutcome,
    FilterKind,
    Lookup,
    Presence,
    ProducerLook,
    QueuePosition,
    SendAnswer,
    StoredMessage,
    TransactionState,
    WitnessAnswer,
)
from reconciler.policy.inquiry.case_file import CaseFile, GroupAnswers, HalfAge, Question
from reconciler.policy.inquiry.delivery import DEAD_LETTER, RETRY
from reconciler.policy.judging.judgement import judge, state_of
from reconciler.policy.judging.suspect import Suspect
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import Candidate, Repair
from reconciler.policy.repairing.case import RepairCase, RepairStep, require_legal
from reconciler.policy.repairing.ladder import after_answer, decide
from reconciler.policy.repairing.rungs import Act, first_rung
from reconciler.words import said
from tests.model.halves.state import Copies, Half, Hand, Known, Repairing, Rules, Try

F = TypeVar("F", bound=CaseFile)

NOW_MS = 1_700_000_000_000
_HOUR_MS = 3_600_000
#: Halves are stored so long ago: after grace period and questions, and long before brokers delete by age.
_STORED_MS = NOW_MS - 2 * _HOUR_MS
_INTERVAL_SECONDS = 60.0
_TOPIC, _GROUP, _PRODUCERS, _BROKER, _ORDER = "ORDERS", "billing", "shop", "broker-a", "order-7"
_HALF_TOPIC, _PARKED_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
KEYS = ("7F000001000018B4AAC20000000000A1", "7F000001000018B4AAC20000000000B2")
#: Where the half queue ended at our first look without a producer; halves that were put back since lie behind it.
_END_AT_LOOK = 100

_QUERY = CommitQuery(
    topic=_TOPIC, sql="SELECT number, state FROM orders WHERE number IN :keys", key="KEYS", key_type=KeyType.TEXT,
    committed=("PAID",), rolled_back=("CANCELLED",), longest_transaction_seconds=600.0,
)  # fmt: skip
_SOURCE = CommitSource(producer_group=_PRODUCERS, topics=frozenset({_TOPIC}), url=None, query=_QUERY)
_PLAN = SubscriptionPlan(
    subscription=Subscription(environment="model", topic=_TOPIC, group=_GROUP), since_ms=0, reads_halves=True
)
_TOPIC_PLAN = TopicPlan(
    environment="model", topic=_TOPIC, subscriptions=(_PLAN,), evidence=CommitEvidence((_SOURCE,)), sends_by_query=True
)
_OF_TRIES = {
    SIBLING_DELIVERED: Known.OTHER_DELIVERED,
    NO_SIBLING_DELIVERED: Known.NO_TRY_DELIVERED,
    SIBLING_MAY_BE_GONE: Known.NO_TRY_DELIVERED,
    SIBLINGS: Known.TRIES,
}


class Seen(NamedTuple):
    """What witnesses show of a try, and of the other one."""

    half: Half
    put_back: int
    fresh: int
    has_copy: bool
    passed: bool
    is_applied: bool
    is_paid: bool
    has_other: bool
    other_has_copy: bool
    connected: bool
    away: int
    known: Known
    was_lost: bool
    repair: Repairing
    tried: bool


class Decided(NamedTuple):
    """The decisions on a repair until it sends or waits."""

    repair: Repairing
    hand: Hand
    #: END ROLLBACK was asked for.
    closes: bool
    looked_for_producers: bool
    #: END names a copy of the half that is not the newest.
    aims_low: bool = False


@cache
def seen_of(tries: tuple[Try, ...], i: int, *, connected: int, away: int) -> Seen:
    """The truth, as honest witnesses show it."""
    own, others = tries[i], [one for j, one in enumerate(tries) if j != i]
    return Seen(
        half=own.half,
        put_back=own.put_back,
        fresh=own.fresh,
        has_copy=own.copies is not Copies.NONE,
        passed=bool(own.passed),
        is_applied=any(one.applied for one in tries),
        is_paid=any(one.is_committed for one in tries),
        has_other=any(one.half is not Half.NONE for one in others),
        other_has_copy=any(one.copies is not Copies.NONE for one in others),
        connected=bool(connected),
        away=away,
        known=own.known,
        was_lost=bool(own.was_lost),
        repair=own.repair,
        tried=bool(own.tried),
    )


@cache
def judged(seen: Seen, rules: Rules) -> Known:
    """The product's verdict on a try whose times are over."""
    seen = _weakened(seen, rules)
    suspect = Suspect(
        unique_key=KEYS[0],
        **_set_up(rules),
        first_seen_ms=_STORED_MS,
        shard=0,
        now_ms=NOW_MS,
        known=_candidate(seen),
        repair=_repair(seen),
    )
    answer = judge(suspect)
    while isinstance(answer, Question):
        suspect = _answered(suspect, answer, seen)
        answer = judge(suspect)
    if answer.verdict in LOSSES:
        return Known.LOST
    if answer.verdict is Verdict.UNKNOWN:
        return _OF_TRIES.get(answer.reason.code, Known.UNKNOWN)
    return Known[answer.verdict.name]


@cache
def decided(seen: Seen, rules: Rules) -> Decided:
    """The product's decision on a claimed repair, with the answers of one moment."""
    seen = _weakened(seen, rules)
    if not rules.asks_for_tries_again:
        seen = seen._replace(has_other=False)
    case = _case(seen, rules)
    for _ in range(9):
        answer = decide(case)
        while isinstance(answer, Question):
            case = _answered(case, answer, seen)
            answer = decide(case)
        require_legal(case.repair.state, answer.state)
        looked = case.producers is not None
        if answer.act is Act.CLOSE:
            return Decided(Repairing.DONE, Hand.NOTHING, closes=True, looked_for_producers=looked)
        if answer.act in (Act.END, Act.REPUBLISH):
            return Decided(
                Repairing.SENDING,
                Hand[answer.act.name],
                closes=False,
                looked_for_producers=looked,
                aims_low=answer.act is Act.END and answer.subject != _halves(seen)[-1],
            )
        if not answer.goes_on:
            return Decided(Repairing[answer.state.name], Hand.NOTHING, closes=False, looked_for_producers=looked)
        case = _with_repair(case, answer)
    raise AssertionError("the decisions on a repair never end")


@cache
def after(seen: Seen, hand: Hand, outcome: EndOutcome, rules: Rules) -> Repairing:
    """The repair's state after the answer to a send."""
    rung = Rung.END if hand is Hand.END else Rung.REPUBLISH
    case = _case(seen, rules)
    case = replace(case, repair=replace(case.repair, rung=rung))
    return Repairing[after_answer(case, SendAnswer(outcome=outcome)).state.name]


def _weakened(seen: Seen, rules: Rules) -> Seen:
    """What a reconciler sees that leaves a question out."""
    if not rules.asks_row:
        seen = seen._replace(is_paid=True)
    if not rules.asks_for_tries:
        seen = seen._replace(has_other=False)
    if not rules.asks_effect:
        seen = seen._replace(is_applied=seen.is_applied or seen.passed)
    return seen if rules.asks_offset else seen._replace(passed=True)


def _set_up(rules: Rules) -> Any:
    """The group, with or without an effect query."""
    plan = replace(_PLAN, asks_effects=rules.has_effect_query)
    return {
        "topic": replace(_TOPIC_PLAN, subscriptions=(plan,)),
        "plans": (plan,),
        "of_group": {_GROUP: GroupAnswers.of(plan, has_inbox=False)},
    }


def _case(seen: Seen, rules: Rules) -> RepairCase:
    repair, known = _repair(seen), _candidate(seen)
    assert repair is not None
    return RepairCase(
        unique_key=KEYS[0],
        **_set_up(rules),
        repair=repair,
        now_ms=NOW_MS,
        verify_after_seconds=5.0,
        verdicts={_GROUP: known} if known is not None else {},
    )


def _with_repair(case: RepairCase, step: RepairStep) -> RepairCase:
    return replace(case, repair=replace(case.repair, state=step.state, rung=step.rung))


def _candidate(seen: Seen) -> Candidate | None:
    if seen.known is Known.NONE:
        return None
    others = (KEYS[1],)
    verdict, reason = {
        Known.LOST: (Verdict.PARKED if seen.half is Half.PARKED else Verdict.LOST_CONFIRM, None),
        Known.TRIES: (Verdict.UNKNOWN, SIBLINGS(number=1, unique_keys=others)),
        Known.OTHER_DELIVERED: (Verdict.UNKNOWN, SIBLING_DELIVERED(unique_key=KEYS[1])),
        Known.NO_TRY_DELIVERED: (Verdict.UNKNOWN, NO_SIBLING_DELIVERED(number=1, unique_keys=others)),
    }.get(seen.known) or (Verdict[seen.known.name], None)
    return Candidate(
        subscription=_PLAN.subscription,
        unique_key=KEYS[0],
        shard=0,
        state=state_of(verdict),
        verdict=verdict,
        loss_verdict=Verdict.LOST_CONFIRM if seen.was_lost else None,
        evidence=with_texts({} if reason is None else {REASON: reason}, said),
        attempts=1,
        first_seen_ms=_STORED_MS,
        next_at_ms=NOW_MS,
        updated_at_ms=NOW_MS - _HOUR_MS,
    )


def _repair(seen: Seen) -> Repair | None:
    if seen.repair is Repairing.NONE:
        return None
    return Repair(
        environment="model",
        topic=_TOPIC,
        scope=EVERY_GROUP,
        unique_key=KEYS[0],
        state=RepairState[seen.repair.name],
        rung=first_rung(_TOPIC_PLAN.repair_order, Verdict.PARKED if seen.half is Half.PARKED else Verdict.LOST_CONFIRM),
        attempts=int(seen.tried),
        next_at_ms=NOW_MS,
        created_at_ms=NOW_MS - _HOUR_MS,
        sent_at_ms=NOW_MS - _HOUR_MS if seen.tried else None,
    )


# ---- what witnesses answer


def _answered(file: F, question: Question, seen: Seen) -> F:
    """The file with one more answer."""
    copies = _lookup(_copy(KEYS[0]) if seen.has_copy else None)
    match question:
        case Question.COMMITTED_COPIES:
            end = 8 if seen.passed else 7
            place = QueuePosition(
                topic=_TOPIC, broker=_BROKER, queue_id=0, consumer_offset=end, min_offset=0, max_offset=8
            )
            return replace(file, copies=copies).with_group_answers("positions", {_GROUP: (place,)})
        case Question.COPIES_AGAIN:
            return replace(file, copies_again=copies)
        case Question.GROUP_COPIES:
            nothing: dict[str, Lookup[StoredMessage]] = {RETRY: _lookup(), DEAD_LETTER: _lookup()}
            return file.with_group_answers("copies", {_GROUP: nothing})
        case Question.CONSUME_MODE:
            return file.with_group_answers("consume_mode", {_GROUP: ConsumeMode.PULL})
        case Question.EFFECT_QUERY:
            row = BusinessAnswer(BusinessState.APPLIED) if seen.is_applied else None
            return file.with_group_answers("inbox", {_GROUP: effect_of(row)})
        case Question.FILTER_KIND:
            return file.with_group_answers("filter_kind", {_GROUP: FilterKind.TAG})
        case Question.HALF_COPIES:
            return replace(file, halves=_lookup(*_halves(seen)))
        case Question.PARKED_COPIES:
            parked = _message(KEYS[0], topic=_PARKED_TOPIC, place=90, check_times=seen.put_back)
            return replace(file, parked=_lookup(parked if seen.half is Half.PARKED else None))
        case Question.CHECK_BACK:
            age = HalfAge(
                age_seconds=2 * _HOUR_MS / 1000,
                wait_seconds=_INTERVAL_SECONDS,
                rollback_evident_after_seconds=2 * _INTERVAL_SECONDS,
                is_past_check=seen.half is not Half.OPEN,
            )
            return replace(file, check_back=age)
        case _:
            return _answered_before_a_send(file, question, seen)


def _answered_before_a_send(file: F, question: Question, seen: Seen) -> F:
    match question:
        case Question.COMMIT_QUERY:
            others = (KEYS[1],) if seen.has_other else ()
            siblings = Siblings(unique_keys=others, newest_ms=_STORED_MS, oldest_ms=_STORED_MS, unread=None)
            answer = BusinessAnswer(BusinessState.COMMITTED if seen.is_paid else BusinessState.NO_ROW)
            return replace(file, business=answer, siblings=siblings, key_word=_ORDER)
        case Question.SIBLING_COPIES:
            return replace(file, sibling_copies=_lookup(_copy(KEYS[1]) if seen.other_has_copy else None))
        case Question.MESSAGES_OF_KEY:
            own, other = _copy(KEYS[0]) if seen.has_copy else None, _copy(KEYS[1]) if seen.other_has_copy else None
            return replace(file, of_key=_lookup(own, other))
        case Question.PRODUCERS:
            look = ProducerLook(
                is_connected=seen.connected,
                away_seconds=600.0 if seen.away > 1 else 0.0,
                half_queue_ends=((600.0, _END_AT_LOOK),) if seen.away else (),
                interval_seconds=_INTERVAL_SECONDS,
            )
            return replace(file, producers={_BROKER: look})
        case _:
            raise AssertionError(f"{question} needs an answer of this world")


def _lookup(*records: StoredMessage | None) -> Lookup[StoredMessage]:
    found = tuple(record for record in records if record is not None)
    presence = Presence.FOUND if found else Presence.ABSENT
    return Lookup(
        presence=presence,
        records=found,
        answers=(WitnessAnswer(witness=_BROKER, presence=presence, detail=""),),
    )


def _halves(seen: Seen) -> list[StoredMessage]:
    """The first copy, and those that were put back; the newest lies behind our look if it was put back since."""
    found = [_message(KEYS[0], topic=_HALF_TOPIC, place=number, check_times=number or None)
             for number in range(1 + seen.put_back)]  # fmt: skip
    return [*found[:-1], replace(found[-1], queue_offset=_END_AT_LOOK + 1)] if seen.fresh else found


def _copy(unique_key: str) -> StoredMessage:
    return _message(unique_key, topic=_TOPIC, place=7, state=TransactionState.COMMIT)


def _message(
    unique_key: str,
    *,
    topic: str,
    place: int,
    check_times: int | None = None,
    state: TransactionState = TransactionState.PREPARED,
) -> StoredMessage:
    return StoredMessage(
        unique_key=unique_key,
        topic=topic,
        real_topic=_TOPIC,
        broker=_BROKER,
        queue_id=0,
        queue_offset=place,
        commit_log_offset=100 + place,
        born_timestamp_ms=_STORED_MS,
        store_timestamp_ms=_STORED_MS,
        transaction_state=state,
        prepared_transaction_offset=0,
        producer_group=_PRODUCERS,
        check_times=check_times,
        reconsume_times=0,
        properties={"TAGS": "paid", "KEYS": _ORDER, "UNIQ_KEY": unique_key},
        body=b"seven",
    )
