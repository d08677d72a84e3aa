"""`reconciler query accept` and `query withdraw`: a person accepts the queries of a topic, or withdraws the acceptance.

The ledger records both acts. Before an acceptance the query is tried, as `doctor --commit-query` tries it. If a person
gives a reason, unproved findings do not prevent the acceptance. Nobody can accept a query that is disproved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.asking.delivered_messages import delivered_messages
from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.doctor.commit_queries import as_accepted, examine_queries, trusts_of, unproved_by
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.kept_facts import ACT_QUERY_ACCEPTED, ACT_QUERY_WITHDRAWN
from reconciler.contract.row_rules import QUERY_ACCEPTANCE, QUERY_WITHDRAWAL
from reconciler.errors import InvalidValue
from reconciler.halves.values import HalfCopy
from reconciler.policy.commit_query_dry_run import PERSON_ACCEPTS
from reconciler.policy.effect_query import EffectQuery
from reconciler.policy.evidence import StoredMessage
from reconciler.telling.ports.actions import OperatorAction
from reconciler.wiring.commit_queries import (
    ConfiguredQuery,
    accepted_digest,
    accepted_query,
    standing_acceptance,
    with_effects,
)
from reconciler.wiring.connections import Connections, credentials, tls_settings
from reconciler.wiring.half_scan import Progress, ScanRequest
from reconciler.wiring.subscriptions import require_topic, subscription_of

ACCEPTED = Code("query.accepted", topic=Field.NAME, by=Field.NAME, at_ms=Field.TIME)
ACCEPTED_NOW = Code("query.accepted-now", topic=Field.NAME)
ACCEPTED_UNPROVED = Code("query.accepted-unproved", topic=Field.NAME, aspects=Field.NAMES)
BY_PERSON = Code("query.by-person", aspects=Field.NAMES)
REASON_WANTED = Code("query.reason-wanted", topic=Field.NAME)
NOT_ACCEPTED = Code("query.not-accepted", topic=Field.NAME)
WITHDRAWN_NOW = Code("query.withdrawn-now", topic=Field.NAME, by=Field.NAME, at_ms=Field.TIME)
NONE_STANDS = Code("query.none-stands", topic=Field.NAME)
STILL_ACCEPTED = Code("query.still-accepted", topic=Field.NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAcceptance:
    """The findings about a query, and whether the query is accepted now."""

    is_accepted: bool
    told: Fact
    #: Findings of the try. Empty: the query was accepted before, so it was not tried again. A finding that a person has
    #: accepted does not fail.
    findings: Sequence[Diagnosis] = ()


def accept_query(
    connections: Connections,
    queries: Sequence[ConfiguredQuery],
    topic: str,
    *,
    reason: str,
    by: str,
    records_per_second: float,
    progress: Progress,
) -> QueryAcceptance:
    """Tries the topic's query, and records that it is accepted. The acceptance holds for this query at this database.

    Raises InvalidValue for a topic without a query, MissingDependency for a driver that is not installed, and
    BrokerUnavailable if no name server answers. Raises DatabaseAway, because an unrecorded acceptance is not valid.
    """
    settings = connections.settings
    require_topic(settings, topic)
    query = next((one for one in queries if one.query.topic == topic), None)
    if query is None:
        raise InvalidValue("TOPIC", topic, "neither the file nor the settings have a query of this topic")
    query = with_effects(settings, query)
    if (before := accepted_query(connections, query)) is not None:
        return QueryAcceptance(is_accepted=True, told=told_of(before))
    request = ScanRequest(
        name_servers=settings.rocketmq.name_servers,
        acl=credentials(settings.rocketmq.acl),
        tls=tls_settings(settings.rocketmq.tls),
        request_timeout_seconds=settings.rocketmq.request_timeout_seconds,
        records_per_second=records_per_second,
        clock=connections.clock,
    )
    findings = examine_queries(request, [query], progress=progress, delivered=partial(_delivered, connections))
    trusts = trusts_of(findings)
    unproved = unproved_by(trusts)
    is_disproved = any(one.level == "fail" and one.found.code is not PERSON_ACCEPTS for one in trusts)
    if is_disproved or (unproved and not reason):
        told = NOT_ACCEPTED(topic=topic) if is_disproved else REASON_WANTED(topic=topic)
        return QueryAcceptance(is_accepted=False, told=told, findings=findings)
    fact = ACT_QUERY_ACCEPTED(topic=topic, digest=query.digest, unproved=unproved)
    with recorded(connections, QUERY_ACCEPTANCE, by=by, topic=topic, detail=reason, fact=fact) as outcome:
        outcome.result = "accepted"
    if not unproved:
        return QueryAcceptance(is_accepted=True, told=ACCEPTED_NOW(topic=topic), findings=findings)
    findings = as_accepted(findings, told=BY_PERSON(aspects=unproved))
    return QueryAcceptance(is_accepted=True, told=ACCEPTED_UNPROVED(topic=topic, aspects=unproved), findings=findings)


def _delivered(
    connections: Connections, query: EffectQuery, committed: Sequence[HalfCopy]
) -> Mapping[str, StoredMessage]:
    configured = next(
        one for one in connections.settings.subscriptions if (one.topic, one.group) == (query.topic, query.group)
    )
    return delivered_messages(connections, subscription_of(connections.settings, configured), committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryWithdrawal:
    """The result of a withdrawal, and whether it left the topic without an accepted query."""

    is_withdrawn: bool
    told: Fact


def withdraw_query(connections: Connections, topic: str, *, reason: str, by: str) -> QueryWithdrawal:
    """Records that no query of the topic is accepted any more. A withdrawal asks no broker and runs no query.

    Raises InvalidValue for a topic that the settings lack. Raises DatabaseAway, because an unrecorded withdrawal is not
    valid.
    """
    require_topic(connections.settings, topic)
    before = standing_acceptance(connections, topic)
    if before is None:
        return QueryWithdrawal(is_withdrawn=True, told=NONE_STANDS(topic=topic))
    fact = ACT_QUERY_WITHDRAWN(topic=topic, digest=accepted_digest(before))
    with recorded(connections, QUERY_WITHDRAWAL, by=by, topic=topic, detail=reason, fact=fact) as outcome:
        outcome.result = "withdrawn"
    # Meanwhile another person accepted the query, or the ledger's clock was set back.
    if standing_acceptance(connections, topic) is not None:
        return QueryWithdrawal(is_withdrawn=False, told=STILL_ACCEPTED(topic=topic))
    told = WITHDRAWN_NOW(topic=topic, by=before.intent.by, at_ms=before.started_at_ms)
    return QueryWithdrawal(is_withdrawn=True, told=told)


def told_of(act: OperatorAction) -> Fact:
    """Returns a fact that says who accepted the query, and when."""
    return ACCEPTED(topic=act.intent.topic or "", by=act.intent.by, at_ms=act.started_at_ms)
