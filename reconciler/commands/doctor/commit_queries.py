"""Checks whether the queries of a topic can be trusted, before they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from reconciler.commands.diagnosis import Diagnosis, Level, NamedCheck
from reconciler.contract.facts import Code, Fact, Field
from reconciler.halves.values import HalfCopy
from reconciler.policy.commit_query_dry_run import (
    EFFECTS_TOO_FEW,
    PERSON_ACCEPTS,
    TOO_FEW,
    Fitness,
    QueryAspect,
    QueryFinding,
    TriedHalf,
)
from reconciler.policy.effect_query import EffectQuery
from reconciler.policy.evidence import StoredMessage
from reconciler.wiring.commit_queries import (
    ConfiguredQuery,
    accepted_query,
    configured_queries,
    dry_run,
    require_drivers,
)
from reconciler.wiring.connections import Connections
from reconciler.wiring.effect_queries import dry_run_of_effects
from reconciler.wiring.ended_halves import ClusterSample, sample_ended
from reconciler.wiring.half_scan import Progress, ScanRequest
from reconciler.wiring.query_trials import examine_query

HALVES_OF_BROKER = Code("doctor.halves-of-broker", broker=Field.NAME)
ENDED_HALF = Code("doctor.ended-half", topic=Field.NAME, key=Field.NAME)
MAKE_HALVES_READABLE = Code("doctor.make-halves-readable")

_ASPECTS = {
    QueryAspect.TRUST: Code("doctor.query-trust", topic=Field.NAME),
    QueryAspect.ANSWER: Code("doctor.query-answer", topic=Field.NAME),
    QueryAspect.LOGIN: Code("doctor.query-login", topic=Field.NAME),
    QueryAspect.READ_ONLY: Code("doctor.query-read-only", topic=Field.NAME),
    QueryAspect.BOUNDS: Code("doctor.query-bounds", topic=Field.NAME),
    QueryAspect.COLUMNS: Code("doctor.query-columns", topic=Field.NAME),
    QueryAspect.PLAN: Code("doctor.query-plan", topic=Field.NAME),
    QueryAspect.COLLATION: Code("doctor.query-collation", topic=Field.NAME),
    QueryAspect.ROLE: Code("doctor.query-role", topic=Field.NAME),
    QueryAspect.TRANSACTIONS: Code("doctor.query-transactions", topic=Field.NAME),
    QueryAspect.KEYS: Code("doctor.query-keys", topic=Field.NAME),
    QueryAspect.COMMITTED_HALVES: Code("doctor.query-committed-halves", topic=Field.NAME),
    QueryAspect.ROLLED_BACK_HALVES: Code("doctor.query-rolled-back-halves", topic=Field.NAME),
}
_MENDED_BY = {
    QueryAspect.TRUST: Code("doctor.mend-what-is-named"),
    QueryAspect.ANSWER: Code("doctor.mend-query"),
    QueryAspect.LOGIN: Code("doctor.grant-select-alone"),
    QueryAspect.READ_ONLY: Code("doctor.let-begin-read-only"),
    QueryAspect.BOUNDS: Code("doctor.let-end-statements"),
    QueryAspect.COLUMNS: Code("doctor.return-key-and-state"),
    QueryAspect.PLAN: Code("doctor.make-index-of-key"),
    QueryAspect.COLLATION: Code("doctor.compare-keys-as-bytes"),
    QueryAspect.ROLE: Code("doctor.ask-primary"),
    QueryAspect.TRANSACTIONS: Code("doctor.see-transactions"),
    QueryAspect.KEYS: Code("doctor.take-key-of-transaction"),
    QueryAspect.COMMITTED_HALVES: Code("doctor.look-at-exceptions"),
    QueryAspect.ROLLED_BACK_HALVES: Code("doctor.look-at-rolled-back"),
}
#: What is checked of an effect query: the name of the aspect.
EFFECT_QUERY = Code("doctor.effect-query", subscription=Field.NAME, aspect=Field.NAME)
EFFECT_QUERY_TRUST = Code("doctor.effect-query-trust", subscription=Field.NAME)
DELIVERED_MESSAGE = Code("doctor.delivered-message", topic=Field.NAME, key=Field.NAME)
_MENDED_OF_EFFECTS = {
    **_MENDED_BY,
    QueryAspect.COLUMNS: Code("doctor.return-key-and-effect"),
    QueryAspect.DELIVERED_MESSAGES: Code("doctor.look-at-missing-effects"),
}
CONFIGURED_QUERY = Code("doctor.configured-query", topic=Field.NAME)
QUERY_ACCEPTANCE = Code("doctor.query-acceptance", topic=Field.NAME)
NOBODY_ACCEPTED = Code("doctor.nobody-accepted")
ACCEPTED_BY = Code("doctor.accepted-by", by=Field.NAME, at_ms=Field.TIME)
ACCEPT_QUERY = Code("doctor.accept-query", topic=Field.NAME)
ACCEPT_BY_PERSON = Code("doctor.accept-by-person", topic=Field.NAME)
WAIT_FOR_MORE = Code("doctor.wait-for-more", topic=Field.NAME)
_LEVELS: dict[Fitness, Level] = {
    Fitness.FIT: "ok",
    Fitness.NOTED: "note",
    Fitness.DOUBTFUL: "fail",
    Fitness.UNFIT: "fail",
}


#: Returns unique key -> a committed copy, for halves whose message the group of an effect query has passed.
Delivered = Callable[[EffectQuery, Sequence[HalfCopy]], Mapping[str, StoredMessage]]


def examine_queries(
    request: ScanRequest,
    queries: Sequence[ConfiguredQuery],
    *,
    progress: Progress,
    delivered: Delivered = lambda _query, _halves: {},
) -> list[Diagnosis]:
    """Tries each query on halves whose end is known, and the effect queries of its topic on messages that were
    `delivered`.

    Raises MissingDependency for a driver that is not installed. Raises BrokerUnavailable if no name server answers.
    """
    require_drivers(queries)
    keys = {one.query.topic: one.query.key for one in queries}
    sample = sample_ended(request, keys, progress=progress)
    found = [*_brokers(sample)]
    for one in queries:
        topic = one.query.topic
        ended = sample.topics[topic]
        found += [_diagnosis(topic, told) for told in dry_run(one, ended, clock=request.clock)]
        for effects in one.effects:
            copies = delivered(effects.query, ended.committed)
            tried = dry_run_of_effects(effects, copies, clock=request.clock)
            found += [_of_effects(effects.query, told) for told in tried]
    return found


def query_checks(connections: Connections) -> Iterator[NamedCheck]:
    """Yields one check for each commit query that the settings name instead of an outbox."""
    for topic, one in configured_queries(connections.settings).items():
        yield NamedCheck(CONFIGURED_QUERY(topic=topic), None, partial(_configured, connections, topic, one))


def _configured(connections: Connections, topic: str, one: ConfiguredQuery) -> Iterator[Diagnosis]:
    """Yields what the query's database shows, and whether a person has accepted the query. Raises DatabaseAway."""
    for told in examine_query(one, clock=connections.clock):
        yield _diagnosis(topic, told)
    for effects in one.effects:
        yield from (_of_effects(effects.query, told) for told in examine_query(effects, clock=connections.clock))
    check, act = QUERY_ACCEPTANCE(topic=topic), accepted_query(connections, one)
    if act is None:
        yield Diagnosis(check=check, level="note", found=NOBODY_ACCEPTED(), remedy=ACCEPT_QUERY(topic=topic))
    else:
        yield Diagnosis(check=check, level="ok", found=ACCEPTED_BY(by=act.intent.by, at_ms=act.started_at_ms))


def trusts_of(findings: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Returns the conclusions from all findings about the queries of a topic: whether each query can be trusted."""
    return [one for one in findings if one.check.code in (_ASPECTS[QueryAspect.TRUST], EFFECT_QUERY_TRUST)]


def unproved_by(trusts: Sequence[Diagnosis]) -> tuple[str, ...]:
    """Returns the aspects that only a person can accept, each once."""
    doubtful = [one.found.fields["aspects"] for one in trusts if one.found.code is PERSON_ACCEPTS]
    named = [str(name) for names in doubtful if isinstance(names, tuple) for name in names]
    return tuple(dict.fromkeys(named))


def as_accepted(findings: Sequence[Diagnosis], *, told: Fact) -> list[Diagnosis]:
    """Returns the findings after a person's acceptance. A finding without proof becomes a note without a remedy.

    `told`: the present conclusion about each query that was not proved.
    """
    return [
        replace(_as_accepted(one), found=told) if one.found.code is PERSON_ACCEPTS else _as_accepted(one)
        for one in findings
    ]


def _as_accepted(one: Diagnosis) -> Diagnosis:
    if one.level != "fail":
        return one
    return replace(one, level="note", remedy=None, following=tuple(map(_as_accepted, one.following)))


def _brokers(sample: ClusterSample) -> Iterator[Diagnosis]:
    """Yields findings about halves that could not be read."""
    for broker in sample.brokers:
        told = [*broker.notes] if broker.unread is None else [broker.unread, *broker.notes]
        for note in told:
            check = HALVES_OF_BROKER(broker=broker.broker)
            yield Diagnosis(check=check, level="note", found=note, remedy=MAKE_HALVES_READABLE())


def _diagnosis(topic: str, one: QueryFinding) -> Diagnosis:
    return Diagnosis(
        check=_ASPECTS[one.aspect](topic=topic),
        level=_LEVELS[one.fitness],
        found=one.found,
        remedy=_remedy(topic, one),
        following=tuple(_exception(topic, half, one.fitness) for half in one.exceptions),
    )


def _of_effects(query: EffectQuery, one: QueryFinding) -> Diagnosis:
    """Returns the finding about an effect query."""
    level: Level = "note" if one.fitness is Fitness.FIT else "fail"
    of, aspect = f"{query.topic}/{query.group}", one.aspect
    is_trust = aspect is QueryAspect.TRUST
    return Diagnosis(
        check=EFFECT_QUERY_TRUST(subscription=of) if is_trust else EFFECT_QUERY(subscription=of, aspect=aspect.value),
        level=_LEVELS[one.fitness],
        found=one.found,
        remedy=_remedy(query.topic, one, is_of_effects=True),
        following=tuple(
            Diagnosis(check=DELIVERED_MESSAGE(topic=query.topic, key=half.unique_key), level=level, found=half.says())
            for half in one.exceptions
        ),
    )


def _remedy(topic: str, one: QueryFinding, *, is_of_effects: bool = False) -> Fact | None:
    if one.fitness is Fitness.FIT:
        return None
    if one.aspect is QueryAspect.TRUST and one.fitness is Fitness.DOUBTFUL:
        return ACCEPT_BY_PERSON(topic=topic)
    if one.found.code in (TOO_FEW, EFFECTS_TOO_FEW) and not one.exceptions:
        return WAIT_FOR_MORE(topic=topic)
    return _MENDED_OF_EFFECTS[one.aspect]() if is_of_effects else _MENDED_BY[one.aspect]()


def _exception(topic: str, half: TriedHalf, fitness: Fitness) -> Diagnosis:
    check = ENDED_HALF(topic=topic, key=half.unique_key)
    return Diagnosis(check=check, level="note" if fitness is Fitness.FIT else "fail", found=half.says())
