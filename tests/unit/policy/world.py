"""One producer, one broker, groups, a ledger and Redis in memory: everything a round talks to. One thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from reconciler.clock import ManualClock
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, REPAIR_ORDER_DEFAULT, OutboxState, Rung
from reconciler.policy.brakes import BreakerRules, CircuitBreaker
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.commit_query import CommitQuery, KeyType
from reconciler.policy.events import Event
from reconciler.policy.evidence import InboxRow, StoredMessage
from reconciler.policy.judging.judge import Judge, JudgingRules
from reconciler.policy.judging.selection import SelectionRules, SuspectSelector
from reconciler.policy.outage import OutageRecovery
from reconciler.policy.plan import EVERY_MESSAGE_MS, SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import Candidate, Repair
from reconciler.policy.repairing.repair import Repairer, RepairRules
from reconciler.policy.round import ReconcileRound, RoundReport
from reconciler.policy.shard_rounds import ShardRounds
from reconciler.policy.sharing import Sharing
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from reconciler.words import said
from tests.simulation.outbox_table import TableRow
from tests.unit.policy.fake_broker import FakeBroker
from tests.unit.policy.fake_databases import FakeInbox, FakeOutbox, FakeQueries, FakeReading, FakeRest

ENVIRONMENT = "test"
TOPIC = "ORDERS"
LEASE_SECONDS = 12.0
PRODUCER_GROUP = "order-service"
#: In place of an outbox.
QUERY = CommitQuery(
    topic="ORDERS",
    sql="SELECT number, status FROM orders WHERE number IN :keys",
    key="KEYS",
    key_type=KeyType.TEXT,
    committed=("PAID",),
    rolled_back=("CANCELLED",),
    longest_transaction_seconds=600.0,
)
T = TypeVar("T")


def key(number: int) -> str:
    """A unique key."""
    return f"{number:032X}"


class Events:
    """EventSink that keeps all."""

    def __init__(self) -> None:
        self.all: list[Event] = []

    def emit(self, event: Event) -> None:
        """Keeps it."""
        self.all.append(event)

    def of(self, kind: type[T]) -> list[T]:
        """Those of one class."""
        return [event for event in self.all if isinstance(event, kind)]


class Crash(BaseException):
    """The process died."""


class Mortal:
    """Counts port calls of one process and kills it at one of them; a dead process's ports refuse everything."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.calls = 0
        self.is_dead = False
        self._dies_at = dies_at

    def wrap(self, port: T) -> T:
        """The port, as this process sees it."""
        return cast(T, _Watched(self, port))

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """One port call."""
        if self.is_dead:
            raise Crash
        self.calls += 1
        if self.calls == self._dies_at:
            self.is_dead = True
            raise Crash
        return function(*args, **kwargs)


class _Watched:
    def __init__(self, process: Mortal, port: object) -> None:
        self._process = process
        self._port = port

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found
        return lambda *args, **kwargs: self._process.call(found, args, kwargs)


class WrongClock(ManualClock):
    """Another clock whose wall time is wrong by an amount that may change: that of Redis' machine, or the ledger's."""

    def __init__(self, right: ManualClock) -> None:
        super().__init__()
        self._right = right
        self.wrong_by_seconds = 0.0

    def now_ms(self) -> int:
        """Wall clock."""
        return self._right.now_ms() + round(self.wrong_by_seconds * 1000)

    def monotonic_seconds(self) -> float:
        """Steps change nothing of it."""
        return self._right.monotonic_seconds()


def evidence(url: str | None) -> CommitEvidence:
    """Of the producer group. None: the announcement alone."""
    return CommitEvidence((CommitSource(producer_group=PRODUCER_GROUP, topics=frozenset({TOPIC}), url=url),))


class World:
    """Everything outside the reconciler, and the reconciler's processes."""

    def __init__(
        self,
        *,
        groups: Sequence[str] = ("billing",),
        tags: Mapping[str, frozenset[str]] | None = None,
        shards: int = 2,
        grace: float = 10.0,
        skew: float = 0.5,
        inbox_keep_seconds: Mapping[str, float] | None = None,
        repair_order: tuple[Rung, ...] = REPAIR_ORDER_DEFAULT,
        trust_announcements: bool = False,
        selection: SelectionRules | None = None,
        judging: JudgingRules | None = None,
        repair: RepairRules | None = None,
        breaker: BreakerRules | None = None,
        since_ms: int | None = EVERY_MESSAGE_MS,
    ) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock)
        self.outbox = FakeOutbox()
        self.outbox.configured = not trust_announcements
        self.inbox = FakeInbox()
        self.queries = FakeQueries()
        self.ledger_clock = WrongClock(self.clock)
        self.ledger = MemoryLedger(self.ledger_clock, english=said)
        self.behind_consumers = FakeRest()
        self.reading = FakeReading(self.broker.halves, self.queries, self.ledger.halves, ENVIRONMENT)
        self.redis_clock = WrongClock(self.clock)
        self.shards = MemoryShards(self.redis_clock)
        self.events = Events()
        self.subscriptions = [Subscription(environment=ENVIRONMENT, topic=TOPIC, group=g) for g in groups]
        self.topic = TopicPlan(
            environment=ENVIRONMENT,
            topic=TOPIC,
            subscriptions=tuple(
                SubscriptionPlan(
                    subscription=s,
                    tags=(tags or {}).get(s.group),
                    grace_period_seconds=grace,
                    inbox_keep_seconds=(inbox_keep_seconds or {}).get(s.group),
                    since_ms=since_ms,
                )
                for s in self.subscriptions
            ),
            evidence=evidence(None if trust_announcements else "sqlite://"),
            shards=shards,
            repair_order=repair_order,
        )
        self.selection = selection or SelectionRules(skew_margin_seconds=skew)
        self.judging_rules = judging or JudgingRules(skew_margin_seconds=skew)
        self.repair_rules = repair or RepairRules(verify_after_seconds=4.0, claim_lease_seconds=20.0)
        self.breaker_rules = breaker or BreakerRules()
        self.deliveries: list[tuple[str, str]] = []

    def with_effect_query(self) -> None:
        """An effect query in place of each inbox, where half messages announce."""
        self.inbox.configured = False
        plans = tuple(replace(plan, reads_halves=True, asks_effects=True) for plan in self.topic.subscriptions)
        self.topic = replace(self.topic, subscriptions=plans)

    def without_evidence(self) -> None:
        """Neither an outbox nor the weaker mode is configured."""
        self.outbox.configured = False
        self.topic = replace(self.topic, evidence=CommitEvidence(()))

    def with_query(self) -> None:
        """A commit query in place of an outbox."""
        self.outbox.configured = False
        source = CommitSource(producer_group=PRODUCER_GROUP, topics=frozenset({TOPIC}), url=None, query=QUERY)
        self.topic = replace(self.topic, evidence=CommitEvidence((source,)))

    # ---- the outside

    def commit_locally(self, unique_key: str, half: StoredMessage | None = None, **changes: Any) -> TableRow:
        """The outbox row."""
        row = {
            "unique_key": unique_key, "topic": TOPIC, "producer_group": PRODUCER_GROUP, "tag": "paid",
            "message_keys": None, "business_id": None, "half_broker": half.broker if half else None,
            "half_commit_log_offset": half.commit_log_offset if half else None,
            "half_queue_offset": half.queue_offset if half else None, "properties": None, "body": None,
            "content_digest": half.content_digest if half else None, "state": OutboxState.ANNOUNCED,
            "created_at_ms": self.clock.now_ms(), "announced_at_ms": self.clock.now_ms(), "settled_at_ms": None,
        } | changes  # fmt: skip
        self.outbox.rows[unique_key] = TableRow(**row)
        return self.outbox.rows[unique_key]

    def announce(self, *unique_keys: str, tag: str | None = None) -> None:
        """Ids into the half sets of every subscription; set apart where a tag is told that the group does not take."""
        for plan in self.topic.subscriptions:
            for unique_key in unique_keys:
                memory = self.shards._memory(self.shard(unique_key, plan.subscription))
                memory.half.add(unique_key)
                if tag is not None and not plan.accepts(tag):
                    memory.apart.add(unique_key)

    def lose(self, number: int) -> str:
        """Half sent, committed locally, announced; END never arrives."""
        half = self.broker.send_half(key(number))
        self.commit_locally(key(number), half)
        self.announce(key(number))
        return key(number)

    def deliver(self, number: int) -> str:
        """The same, and END arrives."""
        half = self.broker.send_half(key(number))
        self.commit_locally(key(number), half)
        self.broker.commit(half)
        self.announce(key(number))
        return key(number)

    def consume(self, *groups: str, effects: bool = True, records: bool = True) -> None:
        """The groups (default: all) take every copy up to the end: inbox, commit set, offset."""
        for plan in self.topic.subscriptions:
            if groups and plan.group not in groups:
                continue
            copies = [c for c in self.broker.copies if c.topic == TOPIC]
            for copy in copies[self.broker.offsets.get(plan.group, 0) :]:
                if not plan.accepts(copy.tag):
                    continue
                self.deliveries.append((plan.group, copy.unique_key))
                if effects:
                    self.apply(plan.group, copy)
                if effects and records:
                    self.shards.record(plan.subscription, [copy.unique_key], shards=self.topic.shards)
            self.broker.offsets[plan.group] = len(copies)

    def inbox_row(self, group: str, unique_key: str, digest: bytes | None = None) -> InboxRow:
        """A row that is not yet in the inbox."""
        return self.inbox_row_of(group, unique_key, self.clock.now_ms(), digest)

    @staticmethod
    def inbox_row_of(group: str, unique_key: str, applied_at_ms: int, digest: bytes | None = None) -> InboxRow:
        """A row of a group."""
        return InboxRow(
            group=group, unique_key=unique_key, topic=TOPIC, content_digest=digest, source="consumer",
            applied_at_ms=applied_at_ms,
        )  # fmt: skip

    def apply(self, group: str, message: StoredMessage) -> None:
        """The effect; a second one is skipped."""
        row = self.inbox_row(group, message.unique_key, message.content_digest)
        self.inbox.rows.setdefault((group, message.unique_key), row)

    def run_replay_workers(self) -> None:
        """Replay workers of all groups run what was handed over."""
        for plan in self.topic.subscriptions:
            for row in self.ledger.repairs.claimable(ENVIRONMENT, TOPIC, scope=plan.group, limit=100):
                claimed = self.ledger.repairs.claim(row, token="worker", lease_seconds=60)
                message = self.ledger.hand_overs.message_of(row)
                assert claimed is not None
                assert message is not None
                self.apply(plan.group, message)
                self.ledger.hand_overs.finish(claimed, token="worker", answer="applied")

    # ---- the reconciler

    def proved_loss(self) -> tuple[ReconcileRound, str]:
        """A lost message that a process has verified once: its verdict is written down, its repair has not begun."""
        lost = self.lose(1)
        self.clock.advance(60)
        process = self.process()
        process.keys_by_hand.judge_one(self.subscriptions[0], lost)
        return process, lost

    def process(
        self, mortal: Mortal | None = None, *, owner: str = "reconciler-1", is_shared: bool = False
    ) -> ReconcileRound:
        """A new process of the reconciler. `is_shared`: it has a part of the subscriptions beside others."""
        m = mortal or Mortal()
        memory, repairs = m.wrap(self.shards), m.wrap(self.ledger.repairs)
        broker, outbox, inbox = m.wrap(self.broker), m.wrap(self.outbox), m.wrap(self.inbox)
        candidates, holds = m.wrap(self.ledger.candidates), m.wrap(self.ledger.holds)
        return ReconcileRound(
            [self.topic],
            shards=ShardRounds(
                memory=memory,
                leases=memory,
                rounds=m.wrap(self.ledger.rounds),
                owner=owner,
                lease_seconds=LEASE_SECONDS,
                clock=self.clock,
                events=self.events,
                sharing=self.sharing(owner) if is_shared else None,
            ),
            memory=memory,
            selector=SuspectSelector(memory=memory, candidates=candidates, rules=self.selection),
            judge=Judge(
                english=said,
                brokers=broker,
                outbox=outbox,
                inbox=inbox,
                repairs=repairs,
                known_brokers=m.wrap(self.ledger.brokers),
                rules=self.judging_rules,
                queries=m.wrap(self.queries),
                halves=m.wrap(self.ledger.halves),
                reading=m.wrap(self.behind_consumers),
            ),
            repairer=Repairer(
                english=said,
                brokers=broker,
                sends=broker,
                outbox=outbox,
                inbox=inbox,
                candidates=candidates,
                repairs=repairs,
                hand_overs=m.wrap(self.ledger.hand_overs),
                holds=holds,
                rules=self.repair_rules,
                clock=self.clock,
                owner=owner,
                events=self.events,
                queries=m.wrap(self.queries),
                halves=m.wrap(self.ledger.halves),
                reading=m.wrap(self.reading),
            ),
            breaker=CircuitBreaker(
                holds=holds, rules=self.breaker_rules, owner=owner, clock=self.clock, events=self.events
            ),
            candidates=candidates,
            repairs=repairs,
            outages=m.wrap(self.ledger.outages),
            outbox=outbox,
            clock=self.clock,
            owner=owner,
            events=self.events,
        )

    def sharing(self, owner: str) -> Sharing:
        """The share of a process."""
        return Sharing(self.shards, environment=ENVIRONMENT, owner=owner, lease_seconds=LEASE_SECONDS, clock=self.clock)

    def recovery(self, mortal: Mortal | None = None, *, page_rows: int = 1000) -> OutageRecovery:
        """The outage procedure of a process."""
        m = mortal or Mortal()
        return OutageRecovery(
            [self.topic],
            memory=m.wrap(self.shards),
            commit_sets=m.wrap(self.shards),
            inbox=m.wrap(self.inbox),
            outages=m.wrap(self.ledger.outages),
            rounds=m.wrap(self.ledger.rounds),
            clock=self.clock,
            events=self.events,
            page_rows=page_rows,
        )

    def look(self, process: ReconcileRound) -> None:
        """The beginning of its turn."""
        process.shards.look([shard for of in self.subscriptions for shard in self.topic.shards_of(of)])

    def rounds(self, process: ReconcileRound, number: int, *, every: float = 5.0, consume: bool = True
               ) -> list[RoundReport]:  # fmt: skip
        """Rounds of every subscription with consumers at work in between; the reports of the last turn."""
        reports: list[RoundReport] = []
        for _ in range(number):
            self.clock.advance(every)
            if consume:
                self.consume()
            self.look(process)
            reports = [process.run(s) for s in self.subscriptions]
        return reports

    # ---- looking

    def shard(self, unique_key: str, subscription: Subscription | None = None) -> Shard:
        """The shard of a key."""
        owner = subscription or self.subscriptions[0]
        return Shard(subscription=owner, number=self.topic.shard_of(unique_key))

    def candidate(self, unique_key: str, group: str | None = None) -> Candidate | None:
        """The ledger's row."""
        subscription = next(s for s in self.subscriptions if group in (None, s.group))
        return self.ledger.candidates.of_keys(subscription, [unique_key]).get(unique_key)

    def verdict(self, unique_key: str, group: str | None = None) -> str | None:
        """Its verdict."""
        row = self.candidate(unique_key, group)
        return None if row is None else str(row.verdict)

    def repair(self, unique_key: str, scope: str = EVERY_GROUP) -> Repair | None:
        """The repair row."""
        rows = self.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, [unique_key]).get(unique_key, ())
        return next((row for row in rows if row.scope == scope), None)

    def pending(self) -> list[str]:
        """All pending keys of the first subscription."""
        found: list[str] = []
        for shard in self.topic.shards_of(self.subscriptions[0]):
            found += [p.unique_key for p in self.shards.due(shard, first_seen_until_ms=1 << 60, limit=10_000)]
        return sorted(found)
