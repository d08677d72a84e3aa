"""One history: everything put together from a swarm's parameters, run with troubles, healed, and judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from checkback_consumers.effect import Inbox, SqlInbox
from checkback_consumers.handler import DatabaseOf, KeyRecorder
from checkback_consumers.message import ConsumedMessage
from reconciler.announcing.rules import AnnouncementRules, HalfRules
from reconciler.contract.queue_proof import QueueProof
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import Rung
from reconciler.errors import BrokerUnavailable, RequestTimeout
from reconciler.policy.commit_evidence import CommitEvidence
from reconciler.policy.plan import EVERY_MESSAGE_MS, SubscriptionPlan, TopicPlan
from reconciler.policy.ports.evidence import BusinessQueries, HalfReading, HalfReadingBeforeSends, Horizon
from reconciler.policy.ports.ledger import Candidate
from reconciler.rocketmq.client.connection import ConnectionLost
from reconciler.rocketmq.producer.ending import EndAnswer, EndStatus
from reconciler.rocketmq.wire.codes import MQVersion
from reconciler.rocketmq.wire.record import MessageRecord
from reconciler.testing.memory import MemoryLedger
from tests.simulation.added_groups import SinceJudged
from tests.simulation.broker import Broker, BrokerSettings
from tests.simulation.business_queues import BusinessQueues
from tests.simulation.checkers import Checkers, Judgement
from tests.simulation.consuming import ConsumingService, ShardRecorder
from tests.simulation.excuses import Excuses
from tests.simulation.faults import saw_at_rest, saw_round
from tests.simulation.halfway import EndsHalves
from tests.simulation.inbox_database import GroupInboxes, InboxDatabase, Inboxes
from tests.simulation.kernel import NEVER, Kernel, Link, Process, ServerClock
from tests.simulation.key_shapes import KeyShapes
from tests.simulation.operators import Operator
from tests.simulation.outbox_database import PRODUCER_GROUP, TOPIC, OutboxDatabase
from tests.simulation.producing import ENVIRONMENT, UNIQUE_KEY_TOPIC, Order, ProducingService, Sweeping
from tests.simulation.reconciling import AnnouncementsSeen, Announcing, LedgerSeen, Reconciling
from tests.simulation.redis_client import RedisServer, SimulatedRedis
from tests.simulation.redis_data import RedisData
from tests.simulation.renamed_groups import RenamesGroup, Renaming
from tests.simulation.repairs_seen import end_answer
from tests.simulation.rest import unrest
from tests.simulation.set_ups import SetUps
from tests.simulation.strangers import Stranger
from tests.simulation.swarm import Swarm
from tests.simulation.tables_seen import commit_evidence
from tests.simulation.troubles import Troubles
from tests.simulation.witnesses import Cluster, ask

ORDERS = {
    "full": (Rung.END, Rung.REPUBLISH, Rung.HAND_OVER),
    "republish": (Rung.END, Rung.REPUBLISH),
    "hand-over": (Rung.HAND_OVER,),
}
PAID = frozenset({"paid"})
#: A setting of `tags` that is wrong: no message has one of them.
WRONG_TAGS = frozenset({"payed"})
#: A history that is not quiet so long after the last trouble has failed.
LIVENESS_SECONDS = 1_800.0


class World:
    """All there is."""

    def __init__(self, swarm: Swarm, *, story: list[str] | None = None) -> None:
        self.swarm = swarm
        self.kernel = kernel = Kernel(random.Random(swarm.seed))
        kernel.story = story
        dice = kernel.dice
        skew = swarm.skew_margin * 1000 / 2 * 0.9 if swarm.clocks_differ else 0.0
        self._skew: Callable[[], int] = lambda: round(skew * (2 * dice.random() - 1))
        self.retention_seconds = 3600.0
        # By default hours: only where announcements, or rows about them, get lost must the sweeper be quick.
        forgetting = (
            "broker tail",
            "queues anew",
            "retention",
            "ledger damage",
            "inboxes by instance",
            "tags corrected",
        )
        is_forgotten = any(map(swarm.of, forgetting))
        self.announce_again_seconds = 120.0 if is_forgotten else 21_600.0
        self.look_ups_max = 2_000
        self.half_unsafe = self.announcements_lost = self.announcements_twice = 0.0
        self.end_lost = self.end_late = self.end_twice = self.checks_lost = 0.0
        self.group_stopped_until: dict[str, float] = {}
        self.announcers_stopped_until = self.reconcilers_stopped_until = 0.0
        self.renaming: Renaming | None = None
        #: New name of a group -> the one that it had at the beginning.
        self.first_names: dict[str, str] = {}
        self.producers_stay_away = False
        self.is_healed, self.healed_at = False, 0.0
        self.set_ups = SetUps(self)
        # Servers.
        self.cluster = Cluster([self._broker(number) for number in range(swarm.brokers)], queues=swarm.queues)
        redis_link = Link(kernel, "redis", delay_seconds=0.0005)
        self.redis_clock = ServerClock(kernel, self._skew())
        #: By how much Redis' clock has been wrong.
        self.redis_skews_ms = [self.redis_clock.skew_ms]
        self.redis = RedisServer(RedisData(self.redis_clock.now_ms), redis_link)
        names = self.outbox_names()
        self.outboxes = [OutboxDatabase(kernel, name, link=self._link("outbox"), skew_ms=0) for name in names]
        #: Commits of strangers in the producer group, by key: no outbox that is known here has their rows.
        self.strangers_commits: dict[str, float] = {}
        #: Rows that the last sweep could not read.
        self.damaged_rows_told = 0
        #: Rows whose key an inbox has with another content, as the last sweep said.
        self.differing_told = 0
        groups = [f"group-{number}" for number in range(swarm.groups)]
        #: Two a group where it has several: the database is a function of the message, or of the instance.
        count = 2 if swarm.of("several inboxes") or swarm.of("inboxes by instance") else 1
        self.databases: list[OutboxDatabase | InboxDatabase] = [*self.outboxes]
        self.inboxes = Inboxes({g: GroupInboxes([self.new_inbox(g) for _ in range(count)]) for g in groups})
        if swarm.of("no inbox known") or swarm.of("effects by a query"):
            self.inboxes.unknown.add("group-0")
        #: Keys of which two outboxes have committed rows of different contents, and since when.
        self.contradicted: dict[str, float] = {}
        #: Groups that came in mid-history, and that were taken out of the settings.
        self.added: list[str] = []
        self.removed: list[str] = []
        self.ledger_clock = ServerClock(kernel, self._skew())
        self.ledger = MemoryLedger(self.ledger_clock, host_clock=ServerClock(kernel, 0))
        self._ledger_link = self._link("ledger")
        self.plan = TopicPlan(
            environment=ENVIRONMENT,
            topic=TOPIC,
            subscriptions=tuple(self.subscription(group) for group in groups),
            evidence=self.commit_evidence(),
            shards=swarm.shards,
            repair_order=ORDERS[swarm.repair_order],
        )
        # The groups were there before there was a time since when a group answers for messages.
        self.ledger.rows.since_ms.update({one.subscription: EVERY_MESSAGE_MS for one in self.plan.subscriptions})
        #: What the operator will write into the settings of the reconciler.
        self.right_plan = self.plan
        if swarm.of("tags corrected"):
            first, *others = self.plan.subscriptions
            self.plan = replace(self.plan, subscriptions=(replace(first, tags=WRONG_TAGS), *others))
        self.wrongly_set: list[Process] = []
        self.cluster.groups_that_pop |= {group for group in groups if self.pops(group)}
        self.cluster.popping_unseen |= self.cluster.groups_that_pop if swarm.of("no sign of popping") else set()
        self.cluster.filters_by_sql92 = self.set_ups.filters_by_sql92
        self.business_queues = BusinessQueues(self)
        self.excuses = Excuses(self)
        self.checkers = self.new_checkers()
        self.since_judged = SinceJudged(self, self.checkers.judgement.other)
        self._watch()
        self.on_round: Callable[[str], None] = lambda _root: None
        # Messages.
        self.key_shapes = KeyShapes(kernel, share_of_text=swarm.of("keys of text"))
        self.orders: dict[str, Order] = {}
        self._left: dict[tuple[str, str], int] = {}
        self._halfway: set[tuple[str, str]] = set()
        #: Group and key of halves that a person has undone: whether they come again is up to the broker's retries.
        self.undone: set[tuple[str, str]] = set()
        self.troubles = Troubles(self)
        self._to_send = [self.troubles.order(number) for number in range(swarm.messages)]
        self._to_send.reverse()
        self._producing = 0
        self._services: dict[Process, Any] = {}
        self.processes: list[Process] = []
        self._start()

    # ---- what a history's services and evidence are

    def outbox_names(self) -> Sequence[str]:
        """Outboxes of the producer group."""
        return ("outbox of orders", "second outbox of orders")[: 2 if self.swarm.of("several outboxes") else 1]

    def commit_evidence(self) -> CommitEvidence:
        """What rounds know of commits."""
        return commit_evidence([] if self.swarm.of("no outbox known") else self.outbox_names())

    def commit_queries(self, process: Process) -> BusinessQueries | None:
        """What a process asks the business's own tables by; None: nobody asks them."""
        del process
        return None

    def half_reading(self, process: Process, client: SimulatedRedis) -> HalfReading | None:
        """What a process reads half topics by for verdicts; None: nobody does."""
        del process, client
        return None

    def queue_reading(self, process: Process, horizon: Callable[[str], Horizon]) -> HalfReadingBeforeSends | None:
        """What a process reads half queues by before it sends; None: nobody does."""
        del process, horizon
        return None

    def announcements_of(self, process: Process) -> AnnouncementsSeen:
        """What a process reads announcements from."""
        return AnnouncementsSeen(self, process)

    def announcement_rules(self, plan: SubscriptionPlan) -> AnnouncementRules | HalfRules:
        """Which announcements a group takes."""
        return AnnouncementRules(environment=ENVIRONMENT, topic=TOPIC, tags=plan.tags)

    @property
    def announcement_topic(self) -> str:
        """Where announcements are."""
        return UNIQUE_KEY_TOPIC

    def new_checkers(self) -> Checkers:
        """Who judges the history."""
        return Checkers(self)

    def heal(self) -> None:
        """All troubles end."""
        self.troubles.heal()

    def unrest(self) -> str:
        """Why the world is not quiet yet; empty when it is."""
        return unrest(self)

    def _watch(self) -> None:
        """The checkers see repairs, ENDs, rounds, floors and keys as they happen."""
        self.kernel.on_repair, self.kernel.on_end = self.checkers.repaired, self.checkers.ended
        self.redis.before_round, self.redis.after_round = self.checkers.before_round, self._after_round
        self.redis.before_zrem, self.redis.before_record = self.checkers.forgotten, self.checkers.recorded
        self.redis.after_script = self.checkers.announcements.scripted
        raise_floor = self.ledger.rounds.raise_floor

        def watched(subscription: Subscription, floor: Mapping[str, int], proofs: Mapping[str, QueueProof]) -> None:
            raise_floor(subscription, floor, proofs)
            self.checkers.floor_raised(subscription)

        setattr(self.ledger.rounds, "raise_floor", watched)  # noqa: B010 - a method

    def _broker(self, number: int) -> Broker:
        swarm, kernel = self.swarm, self.kernel
        settings = BrokerSettings(
            version=MQVersion.of_release(swarm.version), transaction_timeout=6.0,
            check_interval=kernel.dice.choice((10.0, 20.0)), check_max=kernel.dice.choice((2, 5, 15)),
        )  # fmt: skip
        link = Link(kernel, "broker", delay_seconds=0.002)
        link.broken = ConnectionLost
        host = f"10.0.0.{number + 1}"
        broker = Broker(kernel, f"broker-{number}", settings, host=host, link=link, skew_ms=self._skew())
        broker.ask = self._check_back
        broker.on_copy = lambda record: self.checkers.copied(record)
        if broker.facts.has_check_back:
            kernel.after(settings.check_interval * kernel.dice.random(), broker.check_round)
        return broker

    def _link(self, name: str) -> Link:
        return Link(self.kernel, name, delay_seconds=0.002)

    def new_inbox(self, group: str) -> InboxDatabase:
        """One more database of a consuming service."""
        database = InboxDatabase(self.kernel, group, link=self._link("inbox"), skew_ms=self._skew())
        database.has_column = bool(self.swarm.of("halfway handlers"))
        self.databases.append(database)
        return database

    def subscription(self, group: str) -> SubscriptionPlan:
        """A group of the topic, as settings have it."""
        return SubscriptionPlan(
            subscription=Subscription(environment=ENVIRONMENT, topic=TOPIC, group=group),
            tags=self.tags_of(group),
            grace_period_seconds=self.swarm.grace_period,
            has_several_inboxes=len(self.inboxes[group].databases) > 1,
            inbox_keep_seconds=self.set_ups.inbox_keep_seconds,
        )

    @property
    def redis_was_set(self) -> bool:
        """Redis' clock was wrong by more than the margin: keys looked older, or younger than what brokers stored."""
        return len(self.redis_skews_ms) > 1

    @property
    def redis_times_ms(self) -> tuple[int, int]:
        """The earliest and the latest that Redis' clock would show now, had it never been set again."""
        right_ms = self.redis_clock.now_ms() - self.redis_clock.skew_ms
        return right_ms + min(self.redis_skews_ms), right_ms + max(self.redis_skews_ms)

    # ---- processes

    def _start(self) -> None:
        swarm = self.swarm
        for number in range(swarm.producers):
            self._begin("producer", f"producer-{number}", partial(self._producer, number))
        if swarm.of("mixed group"):
            self._begin("producer", "stranger", self._stranger)
        for group in self.inboxes:
            self.start_consumers(group)
        for number in range(swarm.sweepers):
            self._begin("sweeper", f"sweeper-{number}", lambda process: Sweeping(self, process))
        self._start_ours()
        if swarm.of("halfway handlers"):
            self._begin("operator", "ender", lambda process: EndsHalves(self, process))
        for number in range(2 if swarm.of("operators") else 0):
            self._begin("operator", f"operator-{number}", lambda process: Operator(self, process))

    def _start_ours(self) -> None:
        """What reads announcements, and what runs rounds."""
        for number in range(self.swarm.announcers):
            self._begin("announcer", f"announcer-{number}", lambda process: Announcing(self, process))
        for number in range(self.swarm.reconcilers):
            self._begin("reconciler", f"reconciler-{number}", lambda process: Reconciling(self, process))

    def start_consumers(self, group: str) -> None:
        """The members of a group."""
        for number in range(self.swarm.consumers):
            self._begin("consumer", f"{group}-{number}", partial(self.consumer, group, number))

    def restart(self, *kinds: str) -> None:
        """Processes of these kinds, one after the other, with the settings as they are by then."""
        for process in self.processes:
            if process.kind in kinds:
                self.kernel.after(30 * self.kernel.dice.random() ** 2, process.die)

    def _producer(self, number: int, process: Process) -> ProducingService:
        self._producing += 1
        service = ProducingService(self, process, self.outboxes[number % len(self.outboxes)])
        process.on_death.append(partial(self._producer_died, process))
        return service

    def consumer(self, group: str, number: int, process: Process) -> ConsumingService:
        """A member of a group."""
        return ConsumingService(self, process, group, number)

    def _begin(self, kind: str, name: str, make: Callable[[Process], Any]) -> None:
        process = self.start_one(kind, name, make)
        process.on_death.append(partial(self._again, kind, name, make))

    def start_one(self, kind: str, name: str, make: Callable[[Process], Any]) -> Process:
        """A process that nobody starts again."""
        process = Process(self.kernel, kind, name, skew_ms=self._skew())
        self.processes = [known for known in self.processes if not known.is_dead]
        self.processes.append(process)
        if self.plan is not self.right_plan and kind in ("sweeper", "announcer", "reconciler"):
            self.wrongly_set.append(process)
        self.troubles.plan(process)
        process.spawn(lambda: self._services.__setitem__(process, make(process)))
        return process

    def _again(self, kind: str, name: str, make: Callable[[Process], Any]) -> None:
        if kind == "producer" and self.producers_stay_away:
            self.kernel.saw("producer does not come back", name)
            return
        pause = 1.0 if self.is_healed else 20 * self.kernel.dice.random() ** 2
        self.kernel.after(pause, partial(self._once_more, kind, name, make))

    def _once_more(self, kind: str, name: str, make: Callable[[Process], Any]) -> None:
        if kind == "consumer" and name.rpartition("-")[0] in self.removed:
            return
        if self.renaming is None or not self.renaming.is_away(kind, name):
            self._begin(kind, name, make)
        elif not self.renaming.is_done:
            self.kernel.after(1.0, partial(self._once_more, kind, name, make))

    def begin_renaming(self) -> None:
        """A person gives the last group another name."""
        group = list(self.inboxes)[-1]
        # Under another name nothing tells that other tags were set before.
        has_wrong_tags = bool(self.swarm.of("tags corrected")) and group == self.right_plan.subscriptions[0].group
        if not self.pops(group) and not has_wrong_tags:
            renaming = self.renaming = Renaming(self, group)
            self._begin("operator who renames", "renamer", lambda process: RenamesGroup(self, process, renaming))

    def rename(self, old: str, new: str, inboxes: GroupInboxes) -> None:
        """The settings have the new name from now on, and everybody who judges."""
        self.first_names[new] = old
        self.inboxes.rename(old, new, inboxes)
        self.added[:] = [new if group == old else group for group in self.added]
        is_right = self.plan is self.right_plan
        self.right_plan = _renamed(self.right_plan, old, new)
        self.plan = self.right_plan if is_right else _renamed(self.plan, old, new)
        acts, judged = self.checkers.acts, self.checkers._left_by_setting
        acts.dismissed.update({(new, key): at for (group, key), at in acts.dismissed.items() if group == old})
        for kept in (self.undone, judged, self._halfway):
            kept |= {(new, key) for group, key in kept if group == old}
        self.troubles.reset_over[new] = self.troubles.reset_over.get(old, set())

    def first_name(self, group: str) -> str:
        """What a group was called at the beginning."""
        return self.first_names.get(group, group)

    def delayed(self) -> list[tuple[str, str]]:
        """Retry topic and key of messages that come again."""
        brokers = self.cluster.brokers.values()
        return [place for broker in brokers for place, number in broker.delayed.items() if number]

    def _stranger(self, process: Process) -> Stranger:
        self._producing += 1
        process.on_death.append(partial(self._producer_died, process))
        return Stranger(self, process)

    def is_older(self, process: Process) -> bool:
        """An instance of the release before halves had marks."""
        return process.name == "producer-0" and bool(self.swarm.of("older instances"))

    def _producer_died(self, process: Process) -> None:
        self._producing -= 1
        self._services.pop(process, None)

        def noticed() -> None:
            for broker in self.cluster.brokers.values():
                broker.producers[PRODUCER_GROUP] = max(0, broker.producers.get(PRODUCER_GROUP, 0) - 1)

        self.kernel.after(10 * self.kernel.dice.random(), noticed)

    def done_producing(self, process: Process) -> None:
        """A producer has nothing left to send; it goes on answering check-backs."""
        self._producing -= 1

    def recorder_of(self, client: SimulatedRedis, group: str) -> KeyRecorder:
        """Where a group's consumed keys are recorded."""
        return ShardRecorder(client, group, self.swarm.shards)

    def inbox_of(self, process: Process, group: str, number: int) -> Inbox | DatabaseOf:
        """How a group's effects happen once; `number`: the instance of the group."""
        databases = self.inboxes[group].databases
        is_by_instance = bool(self.swarm.of("inboxes by instance"))

        def database_of(message: ConsumedMessage) -> Callable[[], Any]:
            place = number if is_by_instance else int(str(message.unique_key)[-1], 36)
            return partial(databases[place % len(databases)].connection, process)

        return database_of if len(databases) > 1 else SqlInbox(partial(databases[0].connection, process))

    def ledger_of(self, process: Process) -> LedgerSeen:
        """The ledger as a process sees it."""
        return LedgerSeen(process, self._ledger_link, self.ledger)

    # ---- messages

    def next_order(self) -> Order | None:
        """The next message that a producer is to send."""
        return self._to_send.pop() if self._to_send else None

    def meant(self, order: Order, unique_key: str) -> None:
        """An order has its key."""
        order.unique_key = unique_key
        self.orders[unique_key] = order
        self.kernel.tell(f"order {order.number} is {unique_key[-4:]}")

    def fails_now(self, order: Order, group: str) -> bool:
        """A handler that fails a few times before it takes a message."""
        left = self._left.get((group, order.unique_key), order.failures)
        self._left[group, order.unique_key] = left - 1
        return left > 0

    def commits_halfway_now(self, order: Order, group: str) -> bool:
        """The first time that a handler of the group sees an order of which it commits a half."""
        is_first = order.commits_halfway and (group, order.unique_key) not in self._halfway
        self._halfway.add((group, order.unique_key))
        return is_first

    def tags_of(self, group: str) -> frozenset[str] | None:
        """Tags that a group subscribes to; None: all."""
        if self.swarm.of("filtered") and self.first_name(group) == "group-0":
            return PAID
        return None

    def pops(self, group: str) -> bool:
        """The group pops its messages, where brokers know that."""
        brokers = self.cluster.brokers.values()
        return bool(self.swarm.of("groups that pop")) and group == "group-0" and all(b.facts.has_pop for b in brokers)

    def takes(self, group: str, tag: str | None) -> bool:
        """True if the group wants messages of the tag."""
        return tag == "paid" or self.tags_of(group) is None

    def owes(self, group: str, key: str) -> bool:
        """True if the group has to have the effect of a committed order."""
        is_taken = self.takes(group, self.orders[key].tag) and not self.set_ups.is_kept_away(group, key)
        return is_taken and self.since_judged.is_owed(group, key)

    def may_be_left_out(self, group: str) -> bool:
        """A setting has, or had, wrong tags for the group, or it was not in the settings of some process."""
        return group in self.added or (bool(self.wrongly_set) and group == self.right_plan.subscriptions[0].group)

    def is_committed(self, key: str) -> bool:
        """The business of the message has committed."""
        return any(key in database.orders for database in self.outboxes) or key in self.strangers_commits

    # ---- what brokers and networks do

    def send_end(
        self, process: Process, broker: Broker, half: MessageRecord, group: str, *, is_commit: bool,
        is_oneway: bool = False,
    ) -> EndAnswer:  # fmt: skip
        """END_TRANSACTION from a producing process, which the network may drop, delay or repeat."""
        kernel, dice = self.kernel, self.kernel.dice
        what = f"{'COMMIT' if is_commit else 'ROLLBACK'} {half.unique_key[-4:]}"
        half_offset = half.physical_offset
        # What a dead process says is lost; what an older instance says must be repaired, no more.
        if not is_commit and not process.is_dead and not self.is_older(process):
            self.checkers.told_to_roll_back(half.unique_key)

        def end() -> tuple[int, str]:
            return broker.end(
                group=group, table_offset=half.queue_offset, log_offset=half_offset, is_commit=is_commit
            )  # fmt: skip

        no_answer = EndAnswer(status=EndStatus.NO_ANSWER, remark="lost")
        if self.end_lost and dice.random() < self.end_lost:
            process.enter()
            kernel.saw("END lost", what)
            if not is_oneway:
                process.sleep(3.0)
            return no_answer
        if self.end_late and dice.random() < self.end_late:
            process.enter()
            kernel.saw("END delayed", what)
            kernel.after(3 + 60 * dice.random() ** 3, end)
            if not is_oneway:
                process.sleep(3.0)
            return no_answer
        try:
            code, remark = ask(process, broker, end, "END")
        except (RequestTimeout, ConnectionLost) as error:
            return EndAnswer(status=EndStatus.NO_ANSWER, remark=str(error))
        except BrokerUnavailable as error:
            return EndAnswer(status=EndStatus.REFUSED_FOR_NOW, remark=str(error))
        if self.end_twice and dice.random() < self.end_twice:
            kernel.saw("END executed twice", what)
            kernel.after(5 * dice.random(), end)
        return end_answer(code, remark)

    def _check_back(self, broker: Broker, record: MessageRecord) -> None:
        dice = self.kernel.dice
        if self.checks_lost and dice.random() < self.checks_lost:
            self.kernel.saw("check-back question lost", record.unique_key[-4:])
            return
        alive = [process for process in self._services if process.kind == "producer" and not process.is_dead]
        if not alive:
            self.kernel.saw("check-back without a producer", record.unique_key[-4:])
            return
        process = alive[dice.randrange(len(alive))]
        halves = self._services[process].halves
        process.spawn(lambda: halves.checked(broker, record), after=0.005 + 0.1 * dice.random() ** 3)

    def _after_round(self, root: str, before: Any) -> None:
        saw_round(self)
        self.checkers.after_round(root, before)
        self.on_round(root)

    # ---- reading the truth

    def candidate(self, group: str, key: str) -> Candidate | None:
        """The ledger's row."""
        subscription = Subscription(environment=ENVIRONMENT, topic=TOPIC, group=group)
        return self.ledger.rows.candidates.get((subscription, key))

    def has_open_outage(self) -> bool:
        """An outage row is open."""
        return self.ledger.outages.current(ENVIRONMENT) is not None

    def has_hand_overs(self) -> bool:
        """A row for a replay worker exists."""
        return any(key[2] != "*" for key in self.ledger.rows.repairs)

    def is_producing(self) -> bool:
        """Messages are still to be sent, and a producer will."""
        return bool(self._to_send or self._producing > 0) and not self.producers_stay_away

    # ---- the history

    def run(self) -> Judgement:
        """Load with troubles, healing, and the way to rest."""
        kernel = self.kernel
        heal_at = self.swarm.load_seconds + 15.0 + 30 * kernel.dice.random()
        kernel.run(heal_at + self.troubles.longer_seconds)
        self.heal()
        self.is_healed, self.healed_at = True, kernel.now
        self.set_ups.correct()
        kernel.tell("---- all troubles end")
        until, why_not = kernel.now + LIVENESS_SECONDS, "not looked"
        while kernel.now < until:
            kernel.run(kernel.now + 5.0)
            why_not = self.unrest()
            if not why_not:
                break
        saw_at_rest(self)
        judgement = self.checkers.judge(is_quiet=not why_not, why_not=why_not)
        judgement.settled_seconds = kernel.now - heal_at
        return judgement

    def close(self) -> None:
        """Nothing runs any more."""
        for process in self.processes:
            process.is_dead = True
        self.kernel.close()


def _renamed(plan: TopicPlan, old: str, new: str) -> TopicPlan:
    name = Subscription(environment=ENVIRONMENT, topic=TOPIC, group=new)
    plans = [replace(one, subscription=name) if one.group == old else one for one in plan.subscriptions]
    return replace(plan, subscriptions=tuple(plans))


__all__ = ["NEVER", "World"]
