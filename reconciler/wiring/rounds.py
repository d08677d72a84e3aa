"""Wiring of the policy. Makes rounds and outage recovery from settings, witnesses, ledger and Redis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reconciler.announcing.consumer import process_token
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import shard_of
from reconciler.errors import ReconcilerError
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.history.sink import HistorySink
from reconciler.instrumentation.event_log import EventLog
from reconciler.ledger.retention import SqlRetention
from reconciler.policy.brakes import CircuitBreaker
from reconciler.policy.commit_evidence import CommitEvidence, EffectEvidence
from reconciler.policy.events import Event, EventSink
from reconciler.policy.evidence import Lookup, Presence
from reconciler.policy.judging.judge import Judge, JudgingRules
from reconciler.policy.judging.selection import SuspectSelector
from reconciler.policy.keys_by_hand import KeysByHand
from reconciler.policy.outage import OutageRecovery
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.evidence import BrokerRepairs
from reconciler.policy.ports.rounds import KeyPlaces
from reconciler.policy.repairing.repair import Repairer, RepairRules
from reconciler.policy.round import ReconcileRound
from reconciler.policy.shard_rounds import LONG_REST_SECONDS_MAX, REST_SECONDS_MAX, ShardRounds
from reconciler.policy.sharing import Sharing
from reconciler.policy.turn import Turn
from reconciler.settings.schema import Settings, SubscriptionSettings, may_send_by_query
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.commit_samples import sample_commit_sets
from reconciler.shards.key_places import places_of
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.shards.sets import RedisCommitSets
from reconciler.shards.sharers import RedisSharers
from reconciler.wiring.announcements import stored_halves
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import commit_evidence, effect_evidence
from reconciler.wiring.evidence import build_witnesses, half_reading, inbox_evidence, reused_offsets
from reconciler.wiring.metrics import Metering
from reconciler.wiring.round_rules import breaker_rules, commit_generations, history_generations, selection_rules
from reconciler.wiring.shard_numbers import ShardNumbers
from reconciler.wiring.subscriptions import subscription_of
from reconciler.words import said

#: A shard at rest has its next round after this number of turns, or after REST_SECONDS_MAX if that is sooner.
REST_TURNS = 12
#: If rows of rest can be stored, the rest of a shard may last this many times longer.
LONG_REST = LONG_REST_SECONDS_MAX / REST_SECONDS_MAX


def broker_repairs(connections: Connections) -> BrokerRepairs:
    """Makes the adapter that sends repairs to brokers."""
    return RemotingBrokerRepairs(connections.rocketmq, english=said, client=connections.shared(Connections.new_client))


def topic_plans(settings: Settings) -> list[TopicPlan]:
    """Returns one plan for each topic, with all of its subscriptions, because END and republish reach all of them."""
    commits, effects = commit_evidence(settings), effect_evidence(settings)
    return [
        _topic_plan(settings, configured, commits.of_topic(topic), effects)
        for topic, configured in settings.subscriptions_of_topics().items()
    ]


def _topic_plan(
    settings: Settings, configured: Sequence[SubscriptionSettings], evidence: CommitEvidence, effects: EffectEvidence
) -> TopicPlan:
    return TopicPlan(
        environment=settings.environment,
        topic=configured[0].topic,
        subscriptions=tuple(
            SubscriptionPlan(
                subscription=subscription_of(settings, s),
                tags=s.tag_set,
                grace_period_seconds=s.grace_period_seconds,
                inbox_keep_seconds=None if s.inbox_keep_days is None else s.inbox_keep_days * 86_400,
                has_several_inboxes=len(effects.inboxes_of(subscription_of(settings, s))) > 1,
                lag_alarm_seconds=s.lag_alarm_seconds,
                since_ms=s.since_ms,
                reads_halves=s.reads_halves,
                asks_effects=effects.asks_business(subscription_of(settings, s)),
            )
            for s in configured
        ),
        evidence=evidence,
        shards=settings.unique_key_topic.queues,
        repair_order=tuple(configured[0].repair_order),
        sends_by_query=evidence.asks_business and may_send_by_query(configured),
    )


def _open_redis(connections: Connections) -> RoundRedis:
    redis = open_redis(connections.settings.redis.url, silences=connections.redis_silences)
    connections.close_at_end(redis.close)
    return redis


def key_in_redis(connections: Connections, subscription: Subscription, unique_key: str) -> Lookup[KeyPlaces]:
    """Returns the places in which the Redis primary has a key of a subscription.

    No replica is asked, because a replica may lag. UNKNOWN: the primary does not answer, or its data is damaged.
    """
    settings = connections.settings
    shard = Shard(subscription=subscription, number=shard_of(unique_key, settings.unique_key_topic.queues))
    generations = commit_generations(settings)
    try:
        redis = connections.shared(_open_redis)
        places = places_of(redis.client, shard, unique_key, commit_generations=generations)
    except ReconcilerError as error:
        return Lookup.unknown("redis", str(error))
    presence = Presence.FOUND if places.is_anywhere else Presence.ABSENT
    return Lookup(presence=presence, records=(places,) if places.is_anywhere else ())


class _SeveralSinks:
    """An EventSink that passes each event to several sinks one after the other."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def emit(self, event: Event) -> None:
        """Passes one event to every sink."""
        for sink in self._sinks:
            sink.emit(event)


class RoundAssembly:
    """Assembles the parts of rounds. Each topic has its own rounds, and only one thread uses the rounds of a topic.

    All assemblies of one process share the open connections and the rate of repairs.
    """

    def __init__(
        self,
        connections: Connections,
        *,
        history: HistorySink | None = None,
        metering: Metering | None = None,
        spans: EventSink | None = None,
        is_shared: bool = False,
    ) -> None:
        """`history`, `metering`, `spans`: further receivers of the events of rounds.

        Whether rounds keep their sets for the history depends on the setting history.path alone. `is_shared`: True if
        the subscriptions are shared among several processes that run rounds.
        """
        settings = connections.settings
        self.settings = settings
        self.plans = topic_plans(settings)
        self.redis = connections.shared(_open_redis)
        self.ledger = connections.ledger
        self.witnesses = build_witnesses(connections)
        connections.shared(reused_offsets).begin_to_keep()
        if metering is not None:
            self.witnesses = replace(self.witnesses, brokers=metering.before(self.witnesses.brokers))
        self.owner = process_token()
        self.memory = RedisShardMemory(
            self.redis,
            commit_generations=commit_generations(settings),
            history_generations=history_generations(settings),
        )
        more = (history, None if metering is None else metering.events, spans)
        self.events: EventSink = _SeveralSinks(EventLog(said), *(sink for sink in more if sink is not None))
        self._connections = connections
        self.shard_numbers = connections.shared(ShardNumbers)
        self._rest_seconds = min(REST_SECONDS_MAX, REST_TURNS * settings.rounds.interval_seconds)
        self.sharing = self._sharing() if is_shared else None
        self._shards = self._shard_rounds()

    @property
    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, ordered by topic."""
        return [plan.subscription for topic in self.plans for plan in topic.subscriptions]

    def sample_commit_sets(self, subscription: Subscription, *, shards: int) -> Iterator[tuple[Shard, bytes]]:
        """Yields a few consumed keys of the last rounds. Raises RedisAway."""
        generations = commit_generations(self.settings)
        return sample_commit_sets(self.redis.client, subscription, shards=shards, commit_generations=generations)

    def concerns(self, subscription: Subscription) -> bool:
        """Returns True if this process has the subscription in its share, or still runs rounds of the subscription."""
        return self.sharing is None or self.sharing.concerns(subscription)

    def leave(self) -> None:
        """Gives up the share of this process at its end. Other processes take over at once. Raises RedisAway."""
        if self.sharing is not None:
            self.sharing.leave()

    def retention(self) -> SqlRetention:
        """Makes the object that deletes finished rows of the ledger."""
        names = [one.name for one in self.settings.notifiers]
        database = self._connections.without_deadlines().ledger.database
        return SqlRetention(database, keep_days=self.settings.ledger.keep_days, notifiers=names)

    def _sharing(self) -> Sharing:
        return Sharing(
            RedisSharers(self.redis.client),
            environment=self.settings.environment,
            owner=self.owner,
            lease_seconds=self.settings.rounds.lease_seconds,
            clock=self._connections.clock,
        )

    def _shard_rounds(self) -> ShardRounds:
        settings, clock = self.settings, self._connections.clock
        generations = commit_generations(settings)
        return ShardRounds(
            memory=self.memory,
            leases=RedisRoundLeases(self.redis.client, clock=clock, commit_generations=generations),
            rounds=self.ledger.rounds,
            owner=self.owner,
            lease_seconds=settings.rounds.lease_seconds,
            clock=clock,
            events=self.events,
            floors_behind=history_generations(settings),
            rest_seconds=self._rest_seconds,
            long_rest_seconds=self._rest_seconds * LONG_REST,
            sharing=self.sharing,
        )

    def turn(self) -> Turn:
        """Makes the object that begins a turn for all topics."""
        ledger = self.ledger
        return Turn(
            self.plans,
            shards=self._shards,
            outages=ledger.outages,
            holds=ledger.holds,
            candidates=ledger.candidates,
            repairs=ledger.repairs,
            clock=self._connections.clock,
            rest_seconds=self._rest_seconds,
        )

    def rounds_of(self, topic: TopicPlan) -> ReconcileRound:
        """Makes the rounds of one topic's subscriptions."""
        settings, ledger, witnesses = self.settings, self.ledger, self.witnesses
        clock = self._connections.clock
        skew = settings.rounds.skew_margin_seconds
        return ReconcileRound(
            [topic],
            shards=self._shards,
            memory=self.memory,
            selector=SuspectSelector(
                memory=self.memory,
                candidates=ledger.candidates,
                rules=selection_rules(settings),
            ),
            judge=Judge(
                brokers=witnesses.brokers,
                outbox=witnesses.outbox,
                inbox=witnesses.inbox,
                repairs=ledger.repairs,
                known_brokers=ledger.brokers,
                english=said,
                queries=witnesses.queries,
                halves=ledger.halves,
                reading=self._connections.shared(stored_halves),
                rules=JudgingRules(
                    skew_margin_seconds=skew,
                    check_back_wait_seconds=settings.repairs.check_back_wait_seconds,
                    retention_seconds=settings.rounds.retention_seconds,
                    retired_brokers=frozenset(settings.rocketmq.retired_brokers),
                ),
            ),
            repairer=self._repairer(topic),
            breaker=CircuitBreaker(
                holds=ledger.holds,
                rules=breaker_rules(settings),
                owner=self.owner,
                clock=clock,
                events=self.events,
            ),
            candidates=ledger.candidates,
            repairs=ledger.repairs,
            outages=ledger.outages,
            outbox=witnesses.outbox,
            clock=clock,
            owner=self.owner,
            events=self.events,
        )

    def keys_by_hand(self, topic: TopicPlan) -> KeysByHand:
        """Makes the acts on single keys of one topic."""
        return self.rounds_of(topic).keys_by_hand

    def _repairer(self, topic: TopicPlan) -> Repairer:
        settings, ledger, witnesses = self.settings, self.ledger, self.witnesses
        return Repairer(
            brokers=witnesses.brokers,
            sends=broker_repairs(self._connections),
            outbox=witnesses.outbox,
            inbox=witnesses.inbox,
            candidates=ledger.candidates,
            repairs=ledger.repairs,
            hand_overs=ledger.hand_overs,
            holds=ledger.holds,
            rules=RepairRules(
                enabled=settings.repairs.is_enabled_for(topic.topic),
                claim_lease_seconds=settings.repairs.claim_lease_seconds,
                skew_margin_seconds=settings.rounds.skew_margin_seconds,
                retention_seconds=settings.rounds.retention_seconds,
            ),
            clock=self._connections.clock,
            owner=self.owner,
            events=self.events,
            english=said,
            rate_limit=self._connections.repair_rate,
            queries=witnesses.queries,
            halves=ledger.halves,
            reading=self._connections.shared(half_reading) if topic.sends_by_query else None,
        )

    def recovery(self, *, has_deadlines: bool = True) -> OutageRecovery:
        """Makes the outage recovery for all topics. `has_deadlines`: False if a person waits for the whole scan."""
        return OutageRecovery(
            self.plans,
            memory=self.memory,
            commit_sets=RedisCommitSets(self._connections.redis),
            inbox=self.witnesses.inbox if has_deadlines else inbox_evidence(self._connections.without_deadlines()),
            outages=self.ledger.outages,
            rounds=self.ledger.rounds,
            clock=self._connections.clock,
            events=self.events,
        )
