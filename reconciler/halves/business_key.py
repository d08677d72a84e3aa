"""Finds the business key in a half, and decides whether the business's row with this key belongs to the half."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.query_answers import NO_KEY
from reconciler.errors import ReconcilerError
from reconciler.halves.classify import Identity
from reconciler.halves.values import Half, HalfCopy, HalfFate
from reconciler.policy.commit_query import (
    KEYS_MAX,
    BusinessAnswer,
    BusinessQuery,
    CommitQuery,
    KeyValue,
    folded,
    is_committed,
    unknown,
    without_row,
)
from reconciler.policy.commit_query_dry_run import TriedHalf
from reconciler.rocketmq.wire.record import MessageRecord

OTHER_DELIVERED = Code("query.other-delivered")
OTHER_HALVES = Code("query.other-halves", number=Field.NUMBER)
OTHERS_NOT_LOOKED_UP = Code("query.others-not-looked-up")

#: A source is UNIQ_KEY, KEYS, property:NAME or body:PATH. A PATH is a list of names, separated by dots.
KEY_SOURCE = re.compile(r"UNIQ_KEY|KEYS|property:\S+|body:[^.\s]+(\.[^.\s]+)*")


def business_key(record: MessageRecord, source: str) -> str:
    """Returns the text of the key. Returns "" if the half has no key, or several keys."""
    return key_in(source, unique_key=record.unique_key, properties=record.properties, body=record.plain_body)


def key_in(source: str, *, unique_key: str, properties: Mapping[str, str], body: Callable[[], bytes]) -> str:
    """Returns the text of the key in a message with these parts. Returns "" if the message has no key, or several
    keys."""
    if source == "UNIQ_KEY":
        return unique_key
    if source == "KEYS":
        keys = properties.get("KEYS", "").split()
        return keys[0] if len(keys) == 1 else ""
    kind, _, name = source.partition(":")
    return properties.get(name, "") if kind == "property" else _in_body(body, name.split("."))


def _in_body(body: Callable[[], bytes], path: list[str]) -> str:
    try:
        value = json.loads(body())
    except (ReconcilerError, ValueError, RecursionError):  # no package for its compression, or the body is no JSON
        return ""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


#: The fates of halves about which the business is asked. The message of any other half is in its topic, or may still
#: arrive there.
_ASKED = frozenset({HalfFate.OPEN, HalfFate.GIVEN_UP, HalfFate.ENDED})
_DELIVERED = frozenset({HalfFate.DELIVERED, HalfFate.GIVEN_UP_DELIVERED})


def judge_halves(
    query: CommitQuery,
    halves: Collection[Half],
    *,
    ask: Callable[[Sequence[KeyValue]], Mapping[KeyValue, BusinessAnswer | None]],
    others: Callable[[Sequence[HalfCopy]], Mapping[Identity, bool | None]],
    now_ms: int,
) -> dict[Identity, BusinessAnswer]:
    """Returns the answers of the business's tables about the stuck halves of one topic.

    A row proves that some transaction with its key was committed. A failed try also leaves a half. So the row belongs
    to a half only if no other half has the same key and tag, whether stuck or delivered. `others` finds delivered
    halves by KEYS, for which brokers have an index.
    """
    answers: dict[Identity, BusinessAnswer] = {}
    values: dict[HalfCopy, KeyValue] = {}
    tries: dict[tuple[str, str], dict[Identity, HalfFate]] = {}
    for half in halves:
        copy = half.copy
        tries.setdefault((folded(copy.business_key), copy.tags), {})[copy.identity] = half.state
        if half.state in _ASKED:
            value = query.key_type.value_of(copy.business_key)
            if value is None:
                answers[copy.identity] = without_key(query)
            else:
                values[copy] = value
    keys = list(dict.fromkeys(values.values()))
    rows: dict[KeyValue, BusinessAnswer | None] = {}
    for start in range(0, len(keys), KEYS_MAX):
        rows |= ask(keys[start : start + KEYS_MAX])
    committed = [copy for copy, value in values.items() if is_committed(rows[value])]
    delivered = others(committed) if query.key == "KEYS" else {}
    for copy, value in values.items():
        answer = rows[value]
        if answer is None:
            # `copy` is not the first copy of a half that was put back. But all copies of a half have the same birth
            # time.
            stored_ms = copy.born_ms if copy.is_put_back else copy.store_ms
            answer = without_row(query, stored_ms=stored_ms, now_ms=now_ms)
        elif is_committed(answer):
            doubt = _doubt(
                tries[folded(copy.business_key), copy.tags], is_delivered=delivered.get(copy.identity, False)
            )
            answer = answer if doubt is None else unknown(doubt)
        answers[copy.identity] = answer
    return answers


def tried_halves(
    query: BusinessQuery, copies: Sequence[HalfCopy], answers: Mapping[KeyValue, BusinessAnswer | None]
) -> list[TriedHalf]:
    """Returns halves whose end is known. Each half has the answer that its key alone gives."""
    tried = []
    for copy in copies:
        value = query.key_type.value_of(copy.business_key)
        answer = without_key(query) if value is None else answers[value]
        tried.append(TriedHalf(unique_key=copy.identity[1], key=copy.business_key, tags=copy.tags, answer=answer))
    return tried


def without_key(query: BusinessQuery) -> BusinessAnswer:
    """Returns the answer for a message that has no key, or several keys."""
    return unknown(NO_KEY(source=query.key, type=query.key_type.value))


def _doubt(tries: Mapping[Identity, HalfFate], *, is_delivered: bool | None) -> Fact | None:
    """Returns the reason why a committed row may belong to another half."""
    if is_delivered or not _DELIVERED.isdisjoint(tries.values()):
        return OTHER_DELIVERED()
    if len(tries) > 1:
        return OTHER_HALVES(number=len(tries))
    return OTHERS_NOT_LOOKED_UP() if is_delivered is None else None
