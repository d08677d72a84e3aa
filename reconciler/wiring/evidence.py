"""Makes the witnesses of the settings: outboxes, inboxes and brokers. No witness can write to a database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.evidence.broker_configs import BrokerConfigs
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.evidence.outbox_inspection import OutboxInspector
from reconciler.evidence.pop_groups import PopGroups
from reconciler.evidence.reused_offsets import ReusedOffsets
from reconciler.halves.reading import RemotingHalfReading
from reconciler.policy.ports.evidence import BrokerEvidence, BusinessQueries, InboxEvidence, OutboxEvidence
from reconciler.wiring.commit_queries import OpenQueries, configured_queries, why_not_accepted
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import commit_evidence, effect_evidence
from reconciler.wiring.effect_queries import configured_effect_queries


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessAdapters:
    """The witnesses for verdicts."""

    brokers: BrokerEvidence
    outbox: OutboxEvidence
    inbox: InboxEvidence
    queries: BusinessQueries


def build_witnesses(connections: Connections) -> WitnessAdapters:
    """Makes all witnesses. Brokers use the remoting client. Outboxes and inboxes use connections that cannot write."""
    outbox = connections.shared(_open_outboxes)
    return WitnessAdapters(
        brokers=connections.shared(broker_evidence),
        outbox=outbox,
        inbox=inbox_evidence(connections),
        queries=connections.shared(_open_queries),
    )


def _open_queries(connections: Connections) -> OpenQueries:
    queries = OpenQueries(
        configured_queries(connections.settings),
        clock=connections.clock,
        why_not=partial(why_not_accepted, connections),
        effects=configured_effect_queries(connections.settings),
    )
    connections.close_at_end(queries.close)
    return queries


def half_reading(connections: Connections) -> RemotingHalfReading:
    """Makes the reader of half queues.

    If a row of the business proves a loss, the half queues are read before anything is sent.
    """
    return RemotingHalfReading(
        connections.rocketmq,
        client=connections.new_client(),
        environment=connections.settings.environment,
        queries={topic: one.query for topic, one in configured_queries(connections.settings).items()},
        noted=connections.ledger.halves,
        why_not=partial(why_not_accepted, connections),
        horizon=connections.shared(broker_evidence).horizon,
    )


def _open_outboxes(connections: Connections) -> SqlOutboxReader:
    outbox = SqlOutboxReader(
        commit_evidence(connections.settings).sources,
        statement_seconds=connections.statement_seconds,
        clock=connections.clock,
        skew_margin_seconds=connections.settings.rounds.skew_margin_seconds,
        silence_pauses=connections.database_pauses,
    )
    connections.close_at_end(outbox.close)
    return outbox


def broker_evidence(connections: Connections) -> BrokerEvidence:
    """Makes the witness for all brokers that the name servers know."""
    settings = connections.settings
    return RemotingBrokerEvidence(
        connections.rocketmq,
        skew_margin_seconds=settings.rounds.skew_margin_seconds,
        probe_topic=settings.rocketmq.probe_topic,
        retired_brokers=settings.rocketmq.retired_brokers,
        reused=connections.shared(reused_offsets),
        pop_groups=connections.shared(pop_groups),
    )


def pop_groups(connections: Connections) -> PopGroups:
    """Makes the memory of brokers' answers about groups that pop. All parts of a process share this memory."""
    admin, of = connections.admin, connections.rocketmq
    configs = BrokerConfigs(admin, clock=of.clock)
    return PopGroups(admin, of.routes, of.families, configs, clock=of.clock)


def reused_offsets(connections: Connections) -> ReusedOffsets:
    """Makes the memory of the queue offsets that this and earlier processes saw. Only processes with rounds write to
    it."""
    return ReusedOffsets(
        connections.clock, kept=connections.ledger.seen_queues, environment=connections.settings.environment
    )


def inbox_evidence(connections: Connections, *, group: str | None = None) -> SqlInboxEvidence:
    """Makes the witness for the inboxes of all subscriptions that have an inbox.

    `group`: looks for rows of this group instead, in every inbox of the topic.
    """
    urls: dict[Subscription, list[Secret]] = {}
    for source, url in effect_evidence(connections.settings).inboxes:
        of = source.subscription if group is None else replace(source.subscription, group=group)
        urls.setdefault(of, []).append(url)
    return SqlInboxEvidence(
        {of: [connections.engine(url, read_only=True) for url in dict.fromkeys(its)] for of, its in urls.items()}
    )


def inspect_outbox(connections: Connections, url: Secret) -> OutboxInspector:
    """Makes the reader of one outbox database, for questions without a unique key."""
    return OutboxInspector(connections.engine(url, read_only=True))
