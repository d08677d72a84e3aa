"""The world of stock services: halves announce, and a query of the business's own tables proves commits.

No process of a service holds our code; where a group has an inbox, its handler does. What the product reads of half
topics, notes in the ledger and asks of tables is its own; only the wires are simulated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from checkback_consumers.handler import KeyRecorder
from checkback_producers.ports import Outcome
from reconciler.announcing.port import PulledBatch
from reconciler.announcing.rules import AnnouncementRules, HalfRules
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import QUERY_NOT_ACCEPTED
from reconciler.contract.keyspace import broker_of
from reconciler.contract.verdicts import Verdict
from reconciler.halves.announced import HalfTopicSource, StoredHalves
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.evidence import BusinessQueries, HalfReadingBeforeSends, Horizon
from reconciler.rocketmq.consumer.pulling import PullResult, PullStatus
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC, HALF_TOPIC
from reconciler.shards.sets import RedisHalfSets
from tests.simulation.broker import Broker
from tests.simulation.business_table import CANCELLED, PAID, QUERY, BusinessTable, QueriesSeen
from tests.simulation.half_queues_read import HalfQueuesRead
from tests.simulation.halves_judged import HalvesJudged, unrest_of_halves
from tests.simulation.kernel import NEVER, Process
from tests.simulation.outbox_database import PRODUCER_GROUP, TOPIC
from tests.simulation.producing import ENVIRONMENT, Order
from tests.simulation.reconciling import LedgerSeen, PulledAtOnce
from tests.simulation.redis_client import SimulatedRedis
from tests.simulation.stock_service import StockService
from tests.simulation.witnesses import ClientSeen, RoutesSeen, ask
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence


class HalvesSeen(HalfTopicSource):
    """The product's source of one process over simulated wires; stands in the place of AnnouncementsSeen."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(
            ClientSeen(process, world.cluster),  # type: ignore[arg-type]
            RoutesSeen(world.cluster),  # type: ignore[arg-type]
            queries={TOPIC: QUERY},
            shards=world.swarm.shards,
            note=partial(world.ledger_of(process).halves.note, ENVIRONMENT),
        )
        self._world = world
        self._process = process
        #: As AnnouncementsSeen has it.
        self.asked_at: dict[AnnouncementQueue, float] = {}

    def begin_pull(
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> PulledAtOnce:
        batch: PulledBatch = self._noted(self._pulled(queue, offset, max_messages))
        return PulledAtOnce(batch)

    def earliest(self, queue: AnnouncementQueue) -> int:
        broker = self._broker(queue)
        return int(ask(self._process, broker, lambda: broker.bounds(HALF_TOPIC, 0)[0], "GET_MIN_OFFSET"))

    def end(self, queue: AnnouncementQueue) -> int:
        broker = self._broker(queue)
        return int(ask(self._process, broker, lambda: broker.bounds(HALF_TOPIC, 0)[1], "GET_MAX_OFFSET"))

    def _broker(self, queue: AnnouncementQueue) -> Broker:
        return self._world.cluster.brokers[broker_of(queue.broker)]

    def _pulled(self, queue: AnnouncementQueue, offset: int, maximum: int) -> PullResult:
        broker = self._broker(queue)
        self.asked_at[queue] = self._world.kernel.now

        def pull() -> PullResult:
            first, last = broker.bounds(HALF_TOPIC, 0)
            is_legal = first <= offset <= last
            records = broker.read(HALF_TOPIC, 0, offset, maximum) if is_legal else []
            if records:
                self._world.kernel.saw("half read as an announcement")
            status = PullStatus.FOUND if records else PullStatus.NO_NEW
            return PullResult(
                status=status if is_legal else PullStatus.OFFSET_MOVED, records=records,
                next_offset=offset + len(records), min_offset=first, max_offset=last, suggested_broker_id=0,
            )  # fmt: skip

        result: PullResult = ask(self._process, broker, pull, "PULL halves")
        return result


class _NoRecorder:
    """A stock consumer tells nobody what it consumed."""

    def record(self, topic: str, unique_key: str) -> bool:
        del topic, unique_key
        return False


class HalvesWorld(World):
    """Stock producers and consumers; announcement consumers and reconcilers are the product's."""

    checkers: HalvesJudged

    # ---- what services and evidence are

    def outbox_names(self) -> Sequence[str]:
        return ()

    def commit_evidence(self) -> CommitEvidence:
        source = CommitSource(producer_group=PRODUCER_GROUP, topics=frozenset({TOPIC}), url=None, query=QUERY)
        return CommitEvidence((source,))

    def commit_queries(self, process: Process) -> BusinessQueries:
        return QueriesSeen(self, process)

    def subscription(self, group: str) -> SubscriptionPlan:
        return replace(super().subscription(group), reads_halves=True, asks_effects=group in self.by_effect_query)

    @property
    def by_effect_query(self) -> frozenset[str]:
        """Groups whose effects a query of their own table shows."""
        return frozenset({"group-0"}) if self.swarm.of("effects by a query") else frozenset()

    def half_reading(self, process: Process, client: SimulatedRedis) -> StoredHalves:
        shards = [shard for plan in self.plan.subscriptions for shard in self.plan.shards_of(plan.subscription)]
        half_sets = RedisHalfSets(client, clock=process.clock)  # type: ignore[arg-type]
        return StoredHalves(HalvesSeen(self, process), RoutesSeen(self.cluster), half_sets, {TOPIC: shards})  # type: ignore[arg-type]

    def queue_reading(self, process: Process, horizon: Callable[[str], Horizon]) -> HalfReadingBeforeSends | None:
        return HalfQueuesRead(self, process, horizon)

    def why_not_accepted(self, _topic: str) -> Fact | None:
        """A person stands by the query from some moment on."""
        return None if self.kernel.now >= self.accepted_at else QUERY_NOT_ACCEPTED(topic=TOPIC)

    def announcements_of(self, process: Process) -> Any:
        return HalvesSeen(self, process)

    def announcement_rules(self, plan: SubscriptionPlan) -> AnnouncementRules | HalfRules:
        return HalfRules(topic=TOPIC, tags=plan.tags)

    @property
    def announcement_topic(self) -> str:
        return HALF_TOPIC

    def new_checkers(self) -> HalvesJudged:
        return HalvesJudged(self)

    def recorder_of(self, client: SimulatedRedis, group: str) -> KeyRecorder:
        return _NoRecorder() if group in self.inboxes.unknown else super().recorder_of(client, group)

    def ledger_of(self, process: Process) -> LedgerSeen:
        seen = super().ledger_of(process)
        self.checkers.watch(process, seen)
        return seen

    def _watch(self) -> None:
        super()._watch()
        self.kernel.on_close = self.checkers.sends.closed

    # ---- processes

    def _start(self) -> None:
        swarm, of = self.swarm, self.swarm.of
        self.plan = self.right_plan = replace(self.plan, sends_by_query=bool(of("sends by a query")))
        #: Before, nothing may be sent.
        self.accepted_at = swarm.load_seconds * self.kernel.dice.random() if of("sends by a query") else NEVER
        #: Until when no producer runs, and what begins them then.
        self._away_until, self._away = 0.0, list[Callable[[], None]]()
        self.table = BusinessTable(self.kernel, self._link("outbox"))
        self.table.link.trouble(of("outbox away"), of("outbox away"), of("connections break"))
        self.table.commit_reply_lost = 0.05 * of("outbox commits")
        #: Key -> what its service says of its transaction.
        self.outcomes: dict[str, Outcome] = {}
        #: Key -> when its transaction committed, and when its half was sent.
        self.committed: dict[str, float] = {}
        self.sent_at: dict[str, float] = {}
        #: Business key and tag -> keys of its halves.
        self.tries: defaultdict[tuple[str, str | None], list[str]] = defaultdict(list)
        for number in range(swarm.producers):
            self._begin("producer", f"producer-{number}", self._service)
        for group in self.inboxes:
            self.start_consumers(group)
        self._start_ours()
        self._plan_accidents()

    def _service(self, process: Process) -> StockService:
        self._producing += 1
        process.on_death.append(partial(self._producer_died, process))
        return StockService(self, process)

    def _again(self, kind: str, name: str, make: Callable[[Process], Any]) -> None:
        if kind == "producer" and self.kernel.now < self._away_until:
            self._away.append(partial(super()._again, kind, name, make))
        else:
            super()._again(kind, name, make)

    def _all_producers_go(self) -> None:
        """None could answer a question for a while."""
        if self.is_healed or self.producers_stay_away:
            return
        seconds = 30 + 90 * self.kernel.dice.random()
        self._away_until = self.kernel.now + seconds
        self.kernel.after(seconds, self._producers_come)
        for process in [one for one in self.processes if one.kind == "producer"]:
            process.die()

    def _producers_come(self) -> None:
        self._away_until, away = 0.0, self._away
        self._away = []
        for begin in away:
            begin()

    def about_to_send(self) -> None:
        """A reconciler has noted in the ledger that it sends: now and then brokers put halves back, or producers come
        back, before it does."""
        if self.kernel.dice.random() < 0.2:
            self.kernel.saw("check round between a claim and its send")
            for broker in self.cluster.brokers.values():
                broker.check_now()
        if self._away and self.kernel.dice.random() < 0.2:
            self.kernel.saw("producer came back between a claim and its send")
            self._producers_come()

    def about_to_ask(self, key: str) -> None:
        """A reconciler has claimed the repair of a message: now and then an instance tries the order again, and dies
        before its END."""
        order = self.orders[key]
        is_first = self.swarm.of("two tries") and self.tries_of(order.keys[0]) == 1
        if not is_first or self.kernel.dice.random() >= 0.1:
            return
        for broker in self.cluster.brokers.values():
            for half in broker.index.get((HALF_TOPIC, key), ())[:1]:
                self.kernel.saw("second try of an order between a claim and its send", key[-4:])
                again = replace(order, unique_key=self.key_shapes.next_key())
                self.sent(again)
                properties = {**half.properties, "UNIQ_KEY": again.unique_key}
                broker.send_half(TOPIC, half.queue_id, properties, half.body, born_ms=broker.clock.now_ms())
                self.commit([again.unique_key], order.keys[0])
                return

    def _delete_halves(self) -> None:
        """By their age, of messages that brokers have given up and kept."""
        for broker in self.cluster.brokers.values():
            for key in dict.fromkeys(record.unique_key for record in broker.read(DISCARD_TOPIC, 0, 0, NEVER)):
                if self.kernel.dice.random() < 0.3 and self._is_over(key) and broker.forget_halves(key):
                    self.kernel.saw("halves deleted behind a parked one", key[-4:])

    def _is_over(self, key: str) -> bool:
        """Its transaction was over long ago: nobody waits for the row of the half any more."""
        rows = [self.candidate(group, key) for group in self.inboxes]
        return self.is_committed(key) and all(row is None or row.verdict is not Verdict.REJECTED for row in rows)

    def _plan_accidents(self) -> None:
        """Those that no other history has."""
        kernel, random, seconds = self.kernel, self.kernel.dice.random, self.swarm.load_seconds
        if self.swarm.of("sends by a query"):
            longer = self.troubles.longer_seconds
            kernel.after(seconds * random(), self._all_producers_go)
            kernel.after(seconds + longer * random(), self._all_producers_go)
            for _ in range(4):
                kernel.after(seconds + (longer + 300) * random(), self._delete_halves)
        if random() < 0.5:
            kernel.after(seconds * random(), self._stop_check_service)
        for _ in range(3 if self.swarm.of("query replica") else 0):
            kernel.after((seconds + 30) * random(), self._read_replica)

    def _stop_check_service(self) -> None:
        """Of one broker: it asks nobody for a while."""
        brokers = list(self.cluster.brokers.values())
        broker = brokers[self.kernel.any_of(len(brokers))]
        self.kernel.saw("check service stood still", broker.name)
        broker.checks_stand_until = self.kernel.now + 120 * self.kernel.dice.random()

    def _read_replica(self) -> None:
        """Queries go to a replica for a while, which is behind."""
        if self.is_healed:
            return
        self.table.behind_seconds = 10 + 50 * self.kernel.dice.random()
        self.kernel.after(60 * self.kernel.dice.random(), self._read_primary)

    def _read_primary(self) -> None:
        self.table.behind_seconds = 0.0

    def heal(self) -> None:
        super().heal()
        self._producers_come()
        self.table.link.heal()
        self.table.commit_reply_lost = 0.0
        self._read_primary()
        for broker in self.cluster.brokers.values():
            broker.checks_stand_until = 0.0

    # ---- messages

    def sent(self, order: Order) -> None:
        """A half of an order is about to be sent."""
        self.meant(order, order.unique_key)
        self.sent_at[order.unique_key] = self.kernel.now
        self.tries[order.keys[0], order.tag].append(order.unique_key)

    def commit(self, keys: Sequence[str], number: str) -> None:
        """The transaction of some halves has committed."""
        self.table.commit(number, PAID)
        self.committed.update(dict.fromkeys(keys, self.kernel.now))
        self.outcomes.update(dict.fromkeys(keys, Outcome.COMMIT))

    def cancel(self, number: str) -> None:
        """Another transaction ends the order: what is not delivered by then is not to be."""
        self.table.commit(number, CANCELLED)
        self.kernel.tell(f"{number} is cancelled")

    def is_committed(self, key: str) -> bool:
        return key in self.committed

    def is_cancelled(self, key: str) -> bool:
        """Its order is over."""
        return self.table.state(self.orders[key].keys[0]) == CANCELLED

    def has_siblings(self, key: str) -> bool:
        """Halves of other messages have its business key and tag."""
        order = self.orders[key]
        return len(self.tries[order.keys[0], order.tag]) > 1

    def tries_of(self, order: str) -> int:
        """Messages of an order, of any tag."""
        return sum(len(keys) for (number, _), keys in self.tries.items() if number == order)

    def unrest(self) -> str:
        return unrest_of_halves(self)

    @property
    def copies(self) -> Counter[str]:
        """Key -> committed copies."""
        return self.checkers.copies
