"""A reconciler that a test drives by hand. Announcement steps, sweeps, rounds and outage recovery are those of the
product. The broker answers requests as a real broker does. Shards and ledger are in memory.

The rules are the product's defaults. Each job that `reconciler run` does on a thread at intervals is one call here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.remoting import RemotingAnnouncements
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.announcing.port import StepKind
from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import Clock
from reconciler.contract.defaults import SWEEP_AFTER_SECONDS
from reconciler.contract.keyspace import SHARDS_DEFAULT
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import RepairState, Rung
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.brakes import BreakerRules, CircuitBreaker
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.events import Event, RepairStepped, RoundFinished
from reconciler.policy.judging.judge import Judge, JudgingRules
from reconciler.policy.judging.selection import SelectionRules, SuspectSelector
from reconciler.policy.outage import OutageRecovery
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.repairing.repair import Repairer, RepairRules
from reconciler.policy.round import ReconcileRound
from reconciler.policy.shard_rounds import ShardRounds
from reconciler.policy.sweeping import SweepRules, SweptSubscription
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.sql.engines import open_engine
from reconciler.testing.held_replica import OutboxAsSeen, read_sign_of_life
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from reconciler.words import said

OWNER = "test kit"
_STEPS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A producer group, its topics, and the database of its outbox."""

    group: str
    topics: tuple[str, ...]
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving:
    """A consumer group of one topic, its tags and the database of its inbox. `tags` None: the group takes every tag."""

    group: str
    topic: str
    tags: frozenset[str] | None
    url: str

    def takes(self, tag: str | None) -> bool:
        """Returns True if the broker gives the group messages with this tag."""
        return self.tags is None or tag in self.tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The waits of the product. If a database server sets the time, all waits are 0, because a test cannot move the
    server's time."""

    grace_period_seconds: float
    sweep_after_seconds: float
    skew_margin_seconds: float
    check_back_wait_seconds: float | None
    verify_after_seconds: float


#: The defaults of the settings.
MOVED_TIMES = Times(
    grace_period_seconds=30.0,
    sweep_after_seconds=SWEEP_AFTER_SECONDS,
    skew_margin_seconds=10.0,
    check_back_wait_seconds=None,
    verify_after_seconds=5.0,
)
#: The waits for tests that cannot move the time.
REAL_TIMES = Times(
    grace_period_seconds=0.0,
    sweep_after_seconds=0.0,
    skew_margin_seconds=0.0,
    check_back_wait_seconds=0.0,
    verify_after_seconds=0.0,
)


@dataclass(slots=True)
class SeenEvents:
    """An EventSink that counts the decisions of rounds."""

    verdicts: Counter[str] = field(default_factory=Counter)
    #: Rung -> number of sends. Each attempt counts once.
    sends: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    #: Subscription -> the reason why no key of the subscription is judged at the moment.
    gates: dict[Subscription, str] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        """Counts one event of the policy."""
        if isinstance(event, RoundFinished):
            self.verdicts.update(event.verdicts)
            self.problems += map(said, event.problems)
            shut = event.gate == "shut" or event.gate == "unknown"
            self.gates[event.subscription] = said(event.gate_detail) if shut and event.gate_detail else ""
        if isinstance(event, RepairStepped) and event.after is RepairState.SENT and event.before is not event.after:
            self.sends[event.rung.value] += 1


class ReconcilerByHand:
    """One process of the reconciler without its threads. Only the test's thread uses it."""

    def __init__(
        self,
        *,
        environment: str,
        sendings: Sequence[Sending],
        receivings: Sequence[Receiving],
        instance: ClientInstance,
        shards: MemoryShards,
        ledger: MemoryLedger,
        clock: Clock,
        times: Times,
        unique_key_topic: str,
    ) -> None:
        self._closing = ExitStack()
        self.environment = environment
        self.events = SeenEvents()
        self._sendings, self._receivings = sendings, receivings
        self._instance, self._shards, self.ledger = instance, shards, ledger
        self._clock, self._times = clock, times
        self._commits = CommitEvidence(
            tuple(CommitSource(producer_group=s.group, topics=frozenset(s.topics), url=s.url) for s in sendings)
        )
        self._plans = list(self._topic_plans())
        self._source = RemotingAnnouncementSource(instance.client, instance.routes)
        self.outbox = OutboxAsSeen(self._open_outboxes({}))
        self._inbox = self._inboxes()
        self._steps = [self._step(receiving, unique_key_topic) for receiving in receivings]
        self._sweeper = self._sweeps(unique_key_topic)
        self._rounds = self._round()
        self._recovery = OutageRecovery(
            self._plans, memory=shards, commit_sets=shards, inbox=self._inbox, outages=ledger.outages,
            rounds=ledger.rounds, clock=clock, events=self.events,
        )  # fmt: skip

    def close(self) -> None:
        """Closes the databases."""
        self._closing.close()

    @property
    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, by topic."""
        return [plan.subscription for topic in self._plans for plan in topic.subscriptions]

    def hold_replica(self, url: str, replica_url: str) -> None:
        """Makes the reconciler read the outbox of this URL from a held replica, which is a copy of the database."""
        engine = open_engine(replica_url, read_only=True)
        self._closing.callback(engine.dispose)
        self.outbox.hold(self._open_outboxes({url: replica_url}), read_sign_of_life(engine))

    # ---- what the processes do

    def sweep(self) -> None:
        """Runs `reconciler sweep` once."""
        report = self._sweeper.sweep_once()
        self.events.problems += report.problems

    def take_announcements(self, written: Container[int]) -> None:
        """Reads the queues of the unique-key topic to their ends. Reads only queues whose number is in `written`."""
        for step in self._steps:
            for queue in self._source.queues(step.unique_key_topic):
                if queue.queue_id in written:
                    self._read_to_end(step, queue)

    def run_rounds(self) -> None:
        """Takes the next step of an open outage, then runs one round per subscription."""
        self._recovery.run(self.environment)
        for subscription in self.subscriptions:
            self._rounds.run(subscription)

    def _read_to_end(self, step: AnnouncementStep, queue: AnnouncementQueue) -> None:
        for _ in range(_STEPS_MAX):
            if step.run_once(queue).kind is not StepKind.MOVED_ON:
                return

    # ---- how it is made

    def _open_outboxes(self, replicas: Mapping[str, str]) -> SqlOutboxReader:
        sources = [
            CommitSource(
                producer_group=sending.group,
                topics=frozenset(sending.topics),
                url=replicas.get(sending.url, sending.url),
            )
            for sending in self._sendings
        ]
        reader = SqlOutboxReader(
            sources, clock=self._clock, skew_margin_seconds=self._times.skew_margin_seconds, statement_seconds=None
        )
        self._closing.callback(reader.close)
        return reader

    def _topic_plans(self) -> Iterator[TopicPlan]:
        for topic in dict.fromkeys(receiving.topic for receiving in self._receivings):
            yield TopicPlan(
                environment=self.environment,
                topic=topic,
                subscriptions=tuple(
                    SubscriptionPlan(
                        subscription=self.subscription_of(receiving),
                        tags=receiving.tags,
                        grace_period_seconds=self._times.grace_period_seconds,
                        since_ms=0,
                    )
                    for receiving in self._receivings
                    if receiving.topic == topic
                ),
                evidence=self._commits.of_topic(topic),
                repair_order=(Rung.END, Rung.REPUBLISH),
            )

    def subscription_of(self, receiving: Receiving) -> Subscription:
        """Returns the subscription of this receiving group."""
        return Subscription(environment=self.environment, topic=receiving.topic, group=receiving.group)

    def _inboxes(self) -> SqlInboxEvidence:
        engines: dict[str, sa.Engine] = {}
        for url in {receiving.url for receiving in self._receivings}:
            engines[url] = open_engine(url, read_only=True)
            self._closing.callback(engines[url].dispose)
        return SqlInboxEvidence({self.subscription_of(one): [engines[one.url]] for one in self._receivings})

    def _step(self, receiving: Receiving, unique_key_topic: str) -> AnnouncementStep:
        has_outbox = self._commits.of_topic(receiving.topic).has_outbox
        return AnnouncementStep(
            self.subscription_of(receiving),
            unique_key_topic=unique_key_topic,
            shards=SHARDS_DEFAULT,
            half_sets=self._shards,
            ledger=self.ledger.announcements,
            source=self._source,
            rules=AnnouncementRules(
                environment=self.environment, topic=receiving.topic, tags=receiving.tags if has_outbox else None
            ),
            token=OWNER,
            clock=self._clock,
        )

    def _sweeps(self, unique_key_topic: str) -> Sweeper:
        route = AnnouncementRoute(
            environment=self.environment, unique_key_topic=unique_key_topic, queues=SHARDS_DEFAULT
        )
        outboxes: dict[str, SqlOutbox] = {}
        for url in {sending.url for sending in self._sendings}:
            outboxes[url] = SqlOutbox(url)
            self._closing.callback(outboxes[url].close)
        return Sweeper(
            [OutboxSource(producer_group=sending.group, outbox=outboxes[sending.url]) for sending in self._sendings],
            announcer=Announcer(RemotingAnnouncements("reconciler-sweeper", self._instance), route),
            subscriptions=[
                SweptSubscription(subscription=self.subscription_of(one), tags=one.tags) for one in self._receivings
            ],
            inboxes=self._inbox,
            rules=SweepRules(sweep_after_seconds=self._times.sweep_after_seconds),
        )

    def _round(self) -> ReconcileRound:
        ledger, shards, clock, skew = self.ledger, self._shards, self._clock, self._times.skew_margin_seconds
        brokers = RemotingBrokerEvidence(self._instance, skew_margin_seconds=skew)
        return ReconcileRound(
            self._plans,
            shards=ShardRounds(
                memory=shards, leases=shards, rounds=ledger.rounds, owner=OWNER, lease_seconds=30.0, clock=clock,
                events=self.events,
            ),
            memory=shards,
            selector=SuspectSelector(
                memory=shards, candidates=ledger.candidates, rules=SelectionRules(skew_margin_seconds=skew)
            ),
            judge=Judge(
                brokers=brokers, outbox=self.outbox, inbox=self._inbox, repairs=ledger.repairs,
                known_brokers=ledger.brokers, english=said,
                rules=JudgingRules(
                    skew_margin_seconds=skew, check_back_wait_seconds=self._times.check_back_wait_seconds
                ),
            ),
            repairer=Repairer(
                brokers=brokers, sends=RemotingBrokerRepairs(self._instance, english=said), outbox=self.outbox,
                inbox=self._inbox, candidates=ledger.candidates, repairs=ledger.repairs, hand_overs=ledger.hand_overs,
                holds=ledger.holds, clock=clock, owner=OWNER, events=self.events, english=said,
                rules=RepairRules(skew_margin_seconds=skew, verify_after_seconds=self._times.verify_after_seconds),
            ),
            breaker=CircuitBreaker(
                holds=ledger.holds, rules=BreakerRules(), owner=OWNER, clock=clock, events=self.events
            ),
            candidates=ledger.candidates, repairs=ledger.repairs, outages=ledger.outages, outbox=self.outbox,
            clock=clock, owner=OWNER, events=self.events,
        )  # fmt: skip
