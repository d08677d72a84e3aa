"""Decides about a send that rests on a row of the business. Only answers from after the claim count. Pure.

A producer's answer to its broker delivers the message as an END does. So nothing is sent while a producer could answer,
or if a producer may have rolled the half back.
"""

from __future__ import annotations

from dataclasses import replace

from reconciler.contract.answers import HALVES_LEFT
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import (
    NOT_PUT_BACK,
    PRODUCER_CONNECTED,
    PRODUCERS_AWAY,
    PRODUCERS_BEHIND_PROXY,
    PRODUCERS_UNKNOWN,
    SECOND_EFFECT,
)
from reconciler.contract.reasons import SIBLINGS, SIBLINGS_OF_OTHER_TAGS
from reconciler.policy.commit_query import is_committed
from reconciler.policy.evidence import Lookup, ProducerLook, StoredMessage
from reconciler.policy.inquiry.business import other_tags_doubt, sibling_doubt, why_not_committed
from reconciler.policy.inquiry.case_file import Question
from reconciler.policy.inquiry.delivery import newest_per_broker
from reconciler.policy.repairing.case import RepairCase, RepairStep, stay

#: Longest pause between two looks at a repair whose row may belong to another message, because only the end of that
#: message changes this.
SIBLINGS_WAIT_SECONDS_MAX = 300.0
#: Pause before more of the half queues is read.
_READING_ON_SECONDS = 1.0


def proved_by_row(case: RepairCase, answer: RepairStep) -> Question | RepairStep:
    """Returns the send once the row is known to belong to this message alone. If two messages have the same key and
    tag, each look sees the other message, and neither is sent. So two sends of a key are never under way."""
    if case.business is None:
        return Question.COMMIT_QUERY
    committed = is_committed(case.business)
    doubt = sibling_doubt(case.siblings, may_be_unread=False) if committed else why_not_committed(case.business)
    if (doubt := doubt or other_tags_doubt(case.siblings)) is not None:
        return stay(case, doubt, _pause_seconds(case, doubt))
    return _unanswered(case, replace(answer, commit=case.topic.evidence.commit_by_row(answer.subject)))


def sent_anew(of_key: Lookup[StoredMessage], case: RepairCase, message: StoredMessage) -> Lookup[StoredMessage]:
    """Returns delivered messages with the same key and tag but another unique key, such as a message that the service
    sent again. The row of the business may belong to such a message."""
    return of_key.only(lambda one: one.unique_key != case.unique_key and one.tag == message.tag)


def second_effect(why: Fact) -> Fact:
    """Returns the fact that another copy could have a second effect."""
    return SECOND_EFFECT(why=why)


def _unanswered(case: RepairCase, send: RepairStep) -> Question | RepairStep:
    """Returns the send if no connected producer could answer a broker's question about a half, and no producer may have
    rolled a half back. An answer would deliver the message a second time. Producers are not asked about a half that was
    given up."""
    parked = newest_per_broker(case.own_parked.records if case.own_parked is not None else ())
    asked = {
        broker: half
        for broker, half in newest_per_broker(case.own_halves.records if case.own_halves is not None else ()).items()
        if broker not in parked or parked[broker].commit_log_offset < half.commit_log_offset
    }
    if not asked:
        return send
    if case.producers is None:
        return Question.PRODUCERS
    for broker, half in asked.items():
        if half.producer_group == half.real_topic:  # proxies use the topic as the name of their clients' group
            return _wait(case, PRODUCERS_BEHIND_PROXY(topic=half.real_topic, broker=broker))
        look = case.producers[broker]
        if look.is_connected is not False:
            code = PRODUCERS_UNKNOWN if look.is_connected is None else PRODUCER_CONNECTED
            return _wait(case, code(group=half.producer_group, broker=broker))
        left_seconds = look.interval_seconds - min(look.away_seconds, case.waited_seconds)
        if left_seconds > 0:
            return stay(case, PRODUCERS_AWAY(group=half.producer_group, broker=broker), max(1.0, left_seconds))
        # END and END ROLLBACK leave the half at its place. The broker puts back only a half that is open.
        if half.check_times is None or not _is_put_back(half, look, since_seconds=case.waited_seconds):
            return _wait(case, NOT_PUT_BACK(group=half.producer_group, broker=broker))
    return replace(send, halves=tuple(asked.values()))


def _is_put_back(half: StoredMessage, look: ProducerLook, *, since_seconds: float) -> bool:
    """Returns True if the half was put back after a look that found no producer, at least `since_seconds` ago."""
    ends = [end for seconds, end in look.half_queue_ends if seconds <= since_seconds]
    return bool(ends) and half.queue_offset >= min(ends)


def _pause_seconds(case: RepairCase, doubt: Fact) -> float:
    if doubt.code in (SIBLINGS, SIBLINGS_OF_OTHER_TAGS):
        return max(case.usual_wait_seconds, min(case.waited_seconds / 4, SIBLINGS_WAIT_SECONDS_MAX))
    why = doubt.fields.get("why")
    is_read_on = isinstance(why, Fact) and why.code is HALVES_LEFT
    return _READING_ON_SECONDS if is_read_on else case.usual_wait_seconds


def _wait(case: RepairCase, reason: Fact) -> RepairStep:
    return stay(case, reason, case.usual_wait_seconds)
