"""Makes the announcement consumer for all subscriptions (step 6 of ARCHITECTURE.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from reconciler.announcing.consumer import AnnouncementConsumer, process_token
from reconciler.announcing.looking import AnnouncementLook
from reconciler.announcing.outage_watch import OutageWatch
from reconciler.announcing.port import AnnouncementLog
from reconciler.announcing.rules import AnnouncementRules, HalfRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.announcing.step import AnnouncementStep
from reconciler.contract.subscription import Shard, Subscription
from reconciler.halves.announced import HalfTopicSource, SourceByTopic, StoredHalves
from reconciler.policy.commit_evidence import CommitEvidence
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.settings.schema import Settings, SubscriptionSettings
from reconciler.shards.sets import RedisHalfSets
from reconciler.wiring.commit_queries import configured_queries
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import commit_evidence
from reconciler.wiring.shard_numbers import ShardNumbers
from reconciler.wiring.subscriptions import announcement_topic, subscription_of

__all__ = ["AnnouncementConsumer", "build_announcement_consumer", "require_stored_shards"]


def build_announcement_consumer(
    connections: Connections, *, concerns: Callable[[Subscription], bool] = lambda _: True
) -> AnnouncementConsumer:
    """Makes one consumer for all subscriptions that concern this process. The consumer is not started here.

    The consumer has its own connections. If a pull gets no answer in time, its connection is closed, and a repair on
    the same connection would then be in doubt.
    """
    settings, evidence = connections.settings, commit_evidence(connections.settings)
    shards, client, routes = settings.unique_key_topic.queues, connections.new_client(), connections.rocketmq.routes
    source = SourceByTopic(RemotingAnnouncementSource(client, routes), _half_source(connections, client))
    half_sets = RedisHalfSets(connections.redis, clock=connections.clock)
    token = process_token()
    ledger = connections.ledger.announcements
    outages = OutageWatch(ledger, settings.environment, clock=connections.clock)
    numbers, log = connections.shared(ShardNumbers), AnnouncementLog(connections.clock)
    steps = [
        AnnouncementStep(
            subscription_of(settings, configured),
            unique_key_topic=announcement_topic(settings, configured),
            shards=shards,
            half_sets=half_sets,
            ledger=ledger,
            source=source,
            rules=_rules(settings, configured, evidence.of_topic(configured.topic)),
            token=token,
            clock=connections.clock,
            half_set_keys_max=settings.redis.half_set_keys_max,
            lease_seconds=settings.rounds.lease_seconds,
            why_refused=numbers.told,
            concerns=concerns,
            on_event=log,
            outages=outages,
        )
        for configured in settings.subscriptions
    ]
    look = AnnouncementLook(steps, half_sets, outages, clock=connections.clock)
    return AnnouncementConsumer(steps, source, look, clock=connections.clock)


def _half_source(connections: Connections, client: RemotingClient) -> HalfTopicSource:
    settings = connections.settings
    of_halves = {one.topic for one in settings.subscriptions if one.reads_halves}
    queries = {topic: one.query for topic, one in configured_queries(settings).items() if topic in of_halves}
    note = partial(connections.ledger.halves.note, settings.environment)
    shards = settings.unique_key_topic.queues
    return HalfTopicSource(client, connections.rocketmq.routes, queries=queries, shards=shards, note=note)


def stored_halves(connections: Connections) -> StoredHalves | None:
    """Makes the reader of half topics that verdicts need. The reader has its own connections.

    None: no topic has halves as its announcements.
    """
    settings = connections.settings
    shards: dict[str, list[Shard]] = {}
    for configured in settings.subscriptions:
        if configured.reads_halves:
            numbers, subscription = range(settings.unique_key_topic.queues), subscription_of(settings, configured)
            of_group = [Shard(subscription=subscription, number=number) for number in numbers]
            shards.setdefault(configured.topic, []).extend(of_group)
    if not shards:
        return None
    half_sets = RedisHalfSets(connections.redis, clock=connections.clock)
    source = _half_source(connections, connections.new_client())
    return StoredHalves(source, connections.rocketmq.routes, half_sets, shards)


def _rules(
    settings: Settings, configured: SubscriptionSettings, evidence: CommitEvidence
) -> AnnouncementRules | HalfRules:
    if configured.reads_halves:
        return HalfRules(topic=configured.topic, tags=configured.tag_set)
    return AnnouncementRules(
        environment=settings.environment,
        topic=configured.topic,
        bare_keys=settings.unique_key_topic.bare_keys,
        signature_secret=settings.unique_key_topic.signature_key,
        # Only an outbox row proves the tag of a key.
        tags=configured.tag_set if evidence.has_outbox else None,
    )


def require_stored_shards(connections: Connections) -> None:
    """Raises ConfigurationError if `reconciler run` stored another number of shards for every subscription.

    If the number differs only for some subscriptions, nothing is raised here.
    """
    connections.shared(ShardNumbers).require_one()
