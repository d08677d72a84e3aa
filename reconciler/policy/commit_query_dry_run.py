"""Decides whether a commit query or an effect query can be trusted. The decision uses checks of the query and its dry
run, and needs no knowledge of the business. Pure.

Halves that ended in commit have a committed row, and halves that were rolled back have none. A query that contradicts
this for more than one half in a hundred uses another key, column or table. So does an effect query that does not find
the effects of messages that a group has passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.query_answers import NULL_STATE, OTHER_STATE, STATES_DIFFER
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, is_committed
from reconciler.policy.effect_query import is_applied

COMMITTED_FOUND = Code("query.committed-found", found=Field.NUMBER, halves=Field.NUMBER)
COMMITTED_MISSED = Code(
    "query.committed-missed", missed=Field.NUMBER, halves=Field.NUMBER, names=Field.NAMES, first=Field.FACT
)
ROLLED_BACK_UNFOUND = Code("query.rolled-back-unfound", found=Field.NUMBER, halves=Field.NUMBER)
ROLLED_BACK_FOUND = Code("query.rolled-back-found", found=Field.NUMBER, halves=Field.NUMBER, names=Field.NAMES)
TOO_FEW = Code("query.too-few", found=Field.NUMBER, halves=Field.NUMBER, least=Field.NUMBER)
UNANSWERED = Code("query.unanswered", unanswered=Field.NUMBER, halves=Field.NUMBER, why=Field.FACT)
SAYS = Code("query.says", key=Field.TEXT, state=Field.NAME)
SAYS_WHY = Code("query.says-why", key=Field.TEXT, state=Field.NAME, why=Field.FACT)
EFFECTS_FOUND = Code("query.effects-found", found=Field.NUMBER, messages=Field.NUMBER)
EFFECTS_MISSED = Code(
    "query.effects-missed", missed=Field.NUMBER, messages=Field.NUMBER, names=Field.NAMES, first=Field.FACT
)
EFFECTS_TOO_FEW = Code("query.effects-too-few", found=Field.NUMBER, messages=Field.NUMBER, least=Field.NUMBER)
KEYS_OWN = Code("query.keys-own", halves=Field.NUMBER)
KEYS_SHARED = Code("query.keys-shared", keys=Field.NUMBER, halves=Field.NUMBER, names=Field.NAMES)
KEYS_NOT_SEEN = Code("query.keys-not-seen")
TRUSTED = Code("query.trusted")
TRUSTED_EXCEPT = Code("query.trusted-except", aspects=Field.NAMES)
PERSON_ACCEPTS = Code("query.person-accepts", aspects=Field.NAMES)
NOT_TRUSTED = Code("query.not-trusted", aspects=Field.NAMES)

#: The smallest number of halves whose share proves anything.
HALVES_MIN = 20
#: Maximum number of exceptions in a hundred halves.
EXCEPTIONS_PERCENT_MAX = 1
#: Maximum number of exceptions that a sentence names. The other exceptions are listed beside the sentence.
_NAMED_MAX = 5
#: Reasons that concern one key, not the whole statement.
_OF_ONE_ROW = frozenset({NULL_STATE, OTHER_STATE, STATES_DIFFER})


class QueryAspect(StrEnum):
    """The aspects that are checked, in the order in which they are shown."""

    TRUST = "trust"
    ANSWER = "answer"
    LOGIN = "login"
    READ_ONLY = "read-only"
    BOUNDS = "bounds"
    COLUMNS = "columns"
    PLAN = "plan"
    COLLATION = "collation"
    ROLE = "role"
    TRANSACTIONS = "transactions"
    KEYS = "keys"
    COMMITTED_HALVES = "committed-halves"
    ROLLED_BACK_HALVES = "rolled-back-halves"
    DELIVERED_MESSAGES = "delivered-messages"


class Fitness(StrEnum):
    """The conclusion about one aspect."""

    FIT = "fit"
    #: Nothing is concluded: the aspect cannot be checked, or a person should only know the finding.
    NOTED = "noted"
    #: A person may accept the query in spite of doubts.
    DOUBTFUL = "doubtful"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedHalf:
    """A half whose end is known, with the query's answer. None: the primary has no row for the half."""

    unique_key: str
    key: str
    tags: str
    answer: BusinessAnswer | None

    @property
    def is_answered(self) -> bool:
        """False if the query said nothing about this key: the whole statement failed, or the key was in no
        statement."""
        why = None if self.answer is None else self.answer.why
        return why is None or why.code in _OF_ONE_ROW

    def says(self) -> Fact:
        """Returns the query's answer about the half."""
        state = BusinessState.NO_ROW if self.answer is None else self.answer.state
        if self.answer is not None and self.answer.why is not None:
            return SAYS_WHY(key=self.key, state=state.value, why=self.answer.why)
        return SAYS(key=self.key, state=state.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFinding:
    """The finding about one aspect."""

    aspect: QueryAspect
    fitness: Fitness
    found: Fact
    #: Halves about which the query's answer is wrong.
    exceptions: tuple[TriedHalf, ...] = ()


def try_on_committed(halves: Sequence[TriedHalf]) -> QueryFinding:
    """Checks that at least 99 of a hundred halves that ended in commit are COMMITTED. Halves without an answer count as
    not committed."""
    aspect, missed = QueryAspect.COMMITTED_HALVES, tuple(half for half in halves if not is_committed(half.answer))
    found = len(halves) - len(missed)
    if len(halves) < HALVES_MIN:
        told, fitness = _too_few(found, len(halves)), Fitness.DOUBTFUL
    elif len(missed) * 100 > len(halves) * EXCEPTIONS_PERCENT_MAX:
        fitness = Fitness.DOUBTFUL
        told = COMMITTED_MISSED(missed=len(missed), halves=len(halves), names=_names(missed), first=missed[0].says())
    else:
        told, fitness = COMMITTED_FOUND(found=found, halves=len(halves)), Fitness.FIT
    if not found and halves:
        fitness = Fitness.UNFIT  # a person must not accept this query
    return QueryFinding(aspect=aspect, fitness=fitness, found=told, exceptions=missed)


def try_on_rolled_back(halves: Sequence[TriedHalf]) -> QueryFinding:
    """Checks that at most one of a hundred halves that were rolled back is COMMITTED. Halves without an answer prove
    nothing."""
    aspect = QueryAspect.ROLLED_BACK_HALVES
    answered = [half for half in halves if half.is_answered]
    wrong = tuple(half for half in answered if is_committed(half.answer))
    if len(answered) < HALVES_MIN <= len(halves):
        silent = [half.answer.why for half in halves if not half.is_answered and half.answer is not None]
        why = next(one for one in silent if one is not None)
        told = UNANSWERED(unanswered=len(halves) - len(answered), halves=len(halves), why=why)
        return QueryFinding(aspect=aspect, fitness=Fitness.UNFIT, found=told, exceptions=wrong)
    if len(wrong) * 100 > len(answered) * EXCEPTIONS_PERCENT_MAX:
        fitness = Fitness.DOUBTFUL
        told = ROLLED_BACK_FOUND(found=len(wrong), halves=len(answered), names=_names(wrong))
    elif len(answered) < HALVES_MIN:
        told, fitness = _too_few(len(wrong), len(answered)), Fitness.DOUBTFUL
    else:
        told, fitness = ROLLED_BACK_UNFOUND(found=len(wrong), halves=len(answered)), Fitness.FIT
    return QueryFinding(aspect=aspect, fitness=fitness, found=told, exceptions=wrong)


def try_on_delivered(messages: Sequence[TriedHalf]) -> QueryFinding:
    """Checks that an effect query finds the effects of at least 99 of a hundred messages that the group has passed."""
    aspect, missed = QueryAspect.DELIVERED_MESSAGES, tuple(one for one in messages if not is_applied(one.answer))
    found = len(messages) - len(missed)
    if len(messages) < HALVES_MIN:
        told = EFFECTS_TOO_FEW(found=found, messages=len(messages), least=HALVES_MIN)
        fitness = Fitness.DOUBTFUL
    elif len(missed) * 100 > len(messages) * EXCEPTIONS_PERCENT_MAX:
        fitness = Fitness.DOUBTFUL
        told = EFFECTS_MISSED(missed=len(missed), messages=len(messages), names=_names(missed), first=missed[0].says())
    else:
        told, fitness = EFFECTS_FOUND(found=found, messages=len(messages)), Fitness.FIT
    if not found and messages:
        fitness = Fitness.UNFIT  # a person could accept nothing here
    return QueryFinding(aspect=aspect, fitness=fitness, found=told, exceptions=missed)


def shared_keys(halves: Iterable[TriedHalf]) -> QueryFinding:
    """Checks whether each business key belongs to one half only, or to several tries with the same tag."""
    tries = Counter((half.key, half.tags) for half in halves if half.key)
    shared = {pair: number for pair, number in tries.items() if number > 1}
    if not tries:
        return QueryFinding(aspect=QueryAspect.KEYS, fitness=Fitness.NOTED, found=KEYS_NOT_SEEN())
    if not shared:
        return QueryFinding(aspect=QueryAspect.KEYS, fitness=Fitness.FIT, found=KEYS_OWN(halves=tries.total()))
    names = tuple(dict.fromkeys(key for key, _ in shared))
    told = KEYS_SHARED(keys=len(names), halves=sum(shared.values()), names=names[:_NAMED_MAX])
    return QueryFinding(aspect=QueryAspect.KEYS, fitness=Fitness.NOTED, found=told)


def trust(findings: Sequence[QueryFinding]) -> QueryFinding:
    """Returns the worst of all findings as the conclusion."""

    def aspects(fitness: Fitness) -> tuple[str, ...]:
        found = {one.aspect for one in findings if one.fitness is fitness}
        return tuple(aspect.value for aspect in QueryAspect if aspect in found)

    if unfit := aspects(Fitness.UNFIT):
        told, fitness = NOT_TRUSTED(aspects=unfit), Fitness.UNFIT
    elif doubtful := aspects(Fitness.DOUBTFUL):
        told, fitness = PERSON_ACCEPTS(aspects=doubtful), Fitness.DOUBTFUL
    elif noted := aspects(Fitness.NOTED):
        told, fitness = TRUSTED_EXCEPT(aspects=noted), Fitness.NOTED
    else:
        told, fitness = TRUSTED(), Fitness.FIT
    return QueryFinding(aspect=QueryAspect.TRUST, fitness=fitness, found=told)


def _too_few(found: int, halves: int) -> Fact:
    return TOO_FEW(found=found, halves=halves, least=HALVES_MIN)


def _names(halves: Sequence[TriedHalf]) -> tuple[str, ...]:
    return tuple(half.unique_key for half in halves[:_NAMED_MAX])
