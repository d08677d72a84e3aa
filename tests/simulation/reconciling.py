"""Processes of the reconciler: rounds with outage recovery, and announcement consumers, wired as in the product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from reconciler.announcing.looking import AnnouncementLook
from reconciler.announcing.outage_watch import OutageWatch
from reconciler.announcing.port import PulledBatch, SeenRecord, StepKind
from reconciler.announcing.reader import QueueReader
from reconciler.announcing.rules import PulledAnnouncement
from reconciler.announcing.step import AnnouncementStep
from reconciler.contract.queue_proof import record_of
from reconciler.errors import BrokerUnavailable, DatabaseAway, RequestTimeout, TransientError
from reconciler.policy.brakes import BreakerRules, CircuitBreaker
from reconciler.policy.events import BreakerOpened, Event, RepairStepped, RoundFinished, ShardStopped
from reconciler.policy.judging.judge import Judge, JudgingRules
from reconciler.policy.judging.selection import SelectionRules, SuspectSelector
from reconciler.policy.outage import OutageRecovery
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.repairing.repair import Repairer, RepairRules
from reconciler.policy.round import ReconcileRound
from reconciler.policy.shard_rounds import ShardRounds
from reconciler.policy.sharing import Sharing
from reconciler.policy.turn import Turn
from reconciler.shards.client import RoundRedis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.shards.sets import RedisCommitSets, RedisHalfSets
from reconciler.shards.sharers import RedisSharers
from reconciler.testing.memory import MemoryLedger
from reconciler.words import said
from tests.simulation.bounds import bounds_of
from tests.simulation.broker import Broker
from tests.simulation.kernel import Link, Process
from tests.simulation.producing import ENVIRONMENT
from tests.simulation.redis_client import SimulatedRedis
from tests.simulation.repairs_seen import SimulatedRepairs
from tests.simulation.tables_seen import InboxSeen, OutboxSeen
from tests.simulation.witnesses import SimulatedEvidence, ask

if TYPE_CHECKING:
    from tests.simulation.world import World


class LedgerPort:
    """One process' view of one part of the ledger: every call is a transaction that may fail before or after."""

    def __init__(self, process: Process, link: Link, parts: Sequence[Any]) -> None:
        self._process = process
        self._link = link
        self._parts = parts

    def __getattr__(self, name: str) -> Callable[..., Any]:
        part = next(part for part in self._parts if hasattr(part, name))
        function = getattr(part, name)

        def call(*arguments: Any, **named: Any) -> Any:
            return self._link.call(self._process, partial(function, *arguments, **named), DatabaseAway, None, name)

        self.__dict__[name] = call
        return call


class LedgerSeen:
    """All parts, as one process sees them."""

    def __init__(self, process: Process, link: Link, ledger: MemoryLedger) -> None:
        def port(*parts: Any) -> Any:
            return LedgerPort(process, link, parts)

        self.candidates = port(ledger.candidates)
        self.repairs = port(ledger.repairs)
        self.hand_overs = port(ledger.hand_overs)
        self.rounds = port(ledger.rounds)
        self.holds = port(ledger.holds)
        self.brokers = port(ledger.brokers)
        self.halves = port(ledger.halves)
        self.outages = port(ledger.outages)
        self.announcements = port(ledger.announcements)
        self.hand_over_queue = port(ledger.repairs, ledger.hand_overs, ledger.holds)
        self.closings = port(ledger.closings)


class Events:
    """EventSink: into the story, and to the checkers."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def emit(self, event: Event) -> None:
        kernel = self._world.kernel
        if isinstance(event, ShardStopped):
            self._world.checkers.stopped(event.reason)
        if isinstance(event, BreakerOpened):
            kernel.saw("breaker opened", event.reason)
        if kernel.story is None or type(event).__name__ in (
            "ShardRoundRan",
            "ShardsAtRest",
            "VerdictsWritten",
            "KeysLeft",
            "KeysNotTaken",
        ):
            return
        if isinstance(event, RoundFinished):
            kernel.tell(
                f"{self._process.name} round of {event.subscription.group}: announced {event.announced}, matched "
                f"{event.matched}, pending {event.pending_after}, gate {event.gate}, {dict(event.verdicts)} "
                f"{dict(event.repairs)} {'; '.join(map(said, event.problems))}"
            )
            if event.not_taken:
                kernel.tell(f"{self._process.name} {event.not_taken} keys are not taken by {event.subscription.group}")
        elif isinstance(event, RepairStepped):
            kernel.tell(
                f"{self._process.name} repair of {event.unique_key[-4:]} {event.rung}: {event.before} -> {event.after} "
                f"({event.answer})"
            )
        else:
            kernel.tell(f"{self._process.name} {event}")


def _memory_of(world: World, client: SimulatedRedis) -> RedisShardMemory:
    return RedisShardMemory(
        RoundRedis(client=client),  # type: ignore[arg-type]
        commit_generations=world.swarm.older_sets,
        new_epoch=lambda: f"{world.kernel.dice.getrandbits(64):016x}",
    )


def rounds_of(world: World, process: Process) -> ReconcileRound:
    """The product's round, as a process has it."""
    swarm = world.swarm
    client = SimulatedRedis(world.redis, process, retries=bool(swarm.of("retries on")))
    memory = _memory_of(world, client)
    ledger = world.ledger_of(process)
    evidence = SimulatedEvidence(
        process, world.cluster, skew_margin_seconds=swarm.skew_margin, asks_at_once=swarm.asks_at_once,
        kept=world.business_queues.kept_by(process, world._ledger_link), on_look=world.business_queues.looked,
    )  # fmt: skip
    evidence.lookups.on_look_up = partial(world.checkers.looked_up, process)
    outbox = OutboxSeen(process, [] if swarm.of("no outbox known") else world.outboxes)
    inbox = InboxSeen(process, world.inboxes)
    queries = world.commit_queries(process)
    sending = queries if world.plan.sends_by_query else None
    events = Events(world, process)
    return ReconcileRound(
        [world.plan],
        shards=ShardRounds(
            memory=memory,
            leases=RedisRoundLeases(
                client, clock=process.clock, commit_generations=swarm.older_sets,  # type: ignore[arg-type]
            ),
            rounds=ledger.rounds, owner=process.name, lease_seconds=30.0, clock=process.clock,
            events=events,
            sharing=Sharing(
                RedisSharers(client), environment=ENVIRONMENT, owner=process.name, lease_seconds=30.0,  # type: ignore[arg-type]
                clock=process.clock,
            ),
            rest_seconds=float("inf"),  # no round of its own accord hides what rest forgets
        ),
        memory=memory,
        selector=SuspectSelector(
            memory=memory,
            candidates=ledger.candidates,
            rules=SelectionRules(
                skew_margin_seconds=swarm.skew_margin, retention_seconds=world.retention_seconds,
                **{name: swarm.pace.of_a_round(number) for name, number in bounds_of(swarm, "selection").items()},
            ),
        ),
        judge=Judge(
            english=said,
            brokers=evidence, outbox=outbox, inbox=inbox, repairs=ledger.repairs, known_brokers=ledger.brokers,
            rules=JudgingRules(skew_margin_seconds=swarm.skew_margin),
            queries=queries, halves=ledger.halves,
            reading=world.half_reading(process, client),
        ),
        repairer=Repairer(
            english=said,
            brokers=evidence, sends=SimulatedRepairs(process, world.cluster, evidence), outbox=outbox, inbox=inbox,
            candidates=ledger.candidates, repairs=ledger.repairs, hand_overs=ledger.hand_overs, holds=ledger.holds,
            rules=RepairRules(enabled=world.set_ups.begins(process), **bounds_of(swarm, "repair")),
            clock=process.clock, owner=process.name, events=events, queries=sending, halves=ledger.halves,
            reading=world.queue_reading(process, evidence.horizon) if sending else None,
        ),
        breaker=CircuitBreaker(
            holds=ledger.holds, rules=BreakerRules(pace=swarm.pace, **bounds_of(swarm, "breaker")), owner=process.name,
            clock=process.clock, events=events,
        ),
        candidates=ledger.candidates,
        repairs=ledger.repairs,
        outages=ledger.outages,
        outbox=outbox,
        clock=process.clock,
        owner=process.name,
        events=events,
    )  # fmt: skip


class Reconciling:
    """reconciler run, without its announcement consumer."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._plan = world.plan
        self._process = process
        self.rounds = rounds_of(world, process)
        client = SimulatedRedis(world.redis, process, retries=bool(world.swarm.of("retries on")))
        ledger = world.ledger_of(process)
        self._turn = Turn(
            [world.plan], shards=self.rounds.shards, outages=ledger.outages, holds=ledger.holds,
            candidates=ledger.candidates, repairs=ledger.repairs, clock=process.clock,
        )  # fmt: skip
        self._recovery = OutageRecovery(
            [world.plan], memory=_memory_of(world, client), commit_sets=RedisCommitSets(client),  # type: ignore[arg-type]
            inbox=InboxSeen(process, world.inboxes), outages=ledger.outages, rounds=ledger.rounds, clock=process.clock,
            events=Events(world, process), page_rows=20,
        )  # fmt: skip
        process.spawn(self._run_rounds)
        process.spawn(self._recover)

    def _run_rounds(self) -> None:
        world, process = self._world, self._process
        process.sleep(world.swarm.round_interval * world.kernel.dice.random())
        while True:
            try:
                for topic in self._turn.begin():
                    for plan in topic.subscriptions:
                        self.rounds.run(plan.subscription)
                    if self.rounds.may_rest:
                        self._turn.ended(topic)
            except TransientError as error:
                world.kernel.tell(f"{process.name}: the turn ends: {error}")
            process.sleep(world.swarm.round_interval)
            wait = world.reconcilers_stopped_until - world.kernel.now
            if wait > 0:
                world.kernel.saw("reconcilers stopped for long")
                process.sleep(wait)

    def _recover(self) -> None:
        while True:
            self._process.sleep(2.0)
            # Looked up without a port call: an economy of the simulator; the port is asked when there is an outage.
            if self._world.has_open_outage():
                try:
                    self._recovery.run(ENVIRONMENT)
                except TransientError as error:
                    self._world.kernel.tell(f"{self._process.name}: recovery waits: {error}")


class PulledAtOnce:
    """PullUnderWay of a broker that holds nothing: the simulator has greenlets that wait."""

    is_done = True

    def __init__(self, batch: PulledBatch) -> None:
        self._batch = batch

    def batch(self) -> PulledBatch:
        return self._batch

    def when_done(self, call: Callable[[], None]) -> None:
        call()

    def cancel(self) -> None:
        pass


class AnnouncementsSeen:
    """reconciler.announcing.port.AnnouncementSource of one process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        #: Queue -> when it was asked last, by the step that is under way.
        self.asked_at: dict[AnnouncementQueue, float] = {}

    def queues(self, unique_key_topic: str) -> Sequence[AnnouncementQueue]:
        return [
            AnnouncementQueue(unique_key_topic=unique_key_topic, broker=broker.name, queue_id=number)
            for broker in self._world.cluster.brokers.values()
            for number in range(self._world.swarm.shards)
        ]

    def _broker(self, queue: AnnouncementQueue) -> Broker:
        return self._world.cluster.brokers[queue.broker]

    def pull(self, queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        return self._pull(queue, tag, offset, max_messages)

    def begin_pull(
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> PulledAtOnce:
        return PulledAtOnce(self._pull(queue, None, offset, max_messages))

    def _pull(self, queue: AnnouncementQueue, tag: str | None, offset: int, max_messages: int) -> PulledBatch:
        broker = self._broker(queue)
        self.asked_at[queue] = self._world.kernel.now

        def pull() -> PulledBatch:
            first, last = broker.bounds(queue.unique_key_topic, queue.queue_id)
            if not first <= offset <= last:
                self._world.kernel.saw("announcement offset illegal", f"{offset} not in {first}..{last}")
                return PulledBatch(
                    messages=(), next_offset=offset, min_offset=first, max_offset=last, is_offset_illegal=True
                )
            records = broker.read(queue.unique_key_topic, queue.queue_id, offset, max_messages)
            messages = [
                PulledAnnouncement(record=record_of(record), tag=record.tags, body=record.body)
                for record in records
                if tag in (None, record.tags)
            ]
            return PulledBatch(
                messages=messages, next_offset=offset + len(records), min_offset=first, max_offset=last
            )  # fmt: skip

        batch: PulledBatch = ask(self._process, broker, pull, "PULL announcements")
        return batch

    def look(self, queue: AnnouncementQueue, *, offset: int) -> SeenRecord:
        broker = self._broker(queue)

        def look() -> SeenRecord:
            first, last = broker.bounds(queue.unique_key_topic, queue.queue_id)
            records = broker.read(queue.unique_key_topic, queue.queue_id, offset, 1) if first <= offset < last else []
            found = record_of(records[0]) if records else None
            return SeenRecord(record=found, min_offset=first, max_offset=last)

        seen: SeenRecord = ask(self._process, broker, look, "PULL one record")
        return seen

    def earliest(self, queue: AnnouncementQueue) -> int:
        broker = self._broker(queue)
        first: int = ask(
            self._process, broker, lambda: broker.bounds(queue.unique_key_topic, queue.queue_id)[0], "GET_MIN_OFFSET"
        )
        return first


class Announcing:
    """reconciler.announcing.consumer.AnnouncementConsumer without threads: every queue is stepped by a greenlet, and so
    are its common reader and the look."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        half_sets = RedisHalfSets(SimulatedRedis(world.redis, process), clock=process.clock)  # type: ignore[arg-type]
        ledger, dice = world.ledger_of(process).announcements, world.kernel.dice
        outages = OutageWatch(ledger, ENVIRONMENT, clock=process.clock)
        common, topic = world.announcements_of(process), world.announcement_topic
        #: Queue -> when the reader asked last, of what it has handed out.
        self._handed_out_at: dict[AnnouncementQueue, float] = {}
        readers = {
            queue: QueueReader(queue, source=common, clock=process.clock, wake=lambda: None)
            for queue in common.queues(topic)
        }
        steps = []
        for plan in world.plan.subscriptions:
            source = world.announcements_of(process)
            step = AnnouncementStep(
                plan.subscription,
                unique_key_topic=topic,
                shards=world.swarm.shards,
                half_sets=half_sets,
                ledger=ledger,
                source=source,
                rules=world.announcement_rules(plan),
                token=process.name,
                clock=process.clock,
                on_event=lambda event: world.kernel.tell(f"{process.name} {event.kind} {event.detail}"),
                outages=outages,
                jitter=dice,
            )
            steps.append(step)
            for queue, reader in readers.items():
                step.share(queue, reader, wake=lambda: None)
                process.spawn(self._stepping(step, source, queue), after=dice.random())
        for queue, reader in readers.items():
            process.spawn(self._reading(reader, common, queue), after=1 + dice.random())
        process.spawn(self._looking(AnnouncementLook(steps, half_sets, outages, clock=process.clock)), after=2.0)

    def _reading(self, reader: QueueReader, source: AnnouncementsSeen, queue: AnnouncementQueue) -> Callable[[], None]:
        process, dice = self._process, self._world.kernel.dice

        def run() -> None:
            while True:
                source.asked_at.pop(queue, None)
                wait = reader.run_once()
                if queue in source.asked_at:
                    self._handed_out_at[queue] = source.asked_at[queue]
                process.sleep(0.05 if wait == 0.0 else 3.0 + 2 * dice.random())

        return run

    def _looking(self, look: AnnouncementLook) -> Callable[[], None]:
        def run() -> None:
            while True:
                look.run_once()
                self._process.sleep(2.0)

        return run

    def _stepping(
        self, step: AnnouncementStep, source: AnnouncementsSeen, queue: AnnouncementQueue
    ) -> Callable[[], None]:
        world, process, dice = self._world, self._process, self._world.kernel.dice

        def run() -> None:
            while True:
                handed_out_at = self._handed_out_at.get(queue)
                outcome = step.run_once(queue)
                asked_at = handed_out_at if outcome.is_called_for else source.asked_at.pop(queue, None)
                if asked_at is not None:
                    group = step.subscription.group
                    world.checkers.announcements.stepped(group, queue.broker, queue.queue_id, asked_at=asked_at)
                if world.announcers_stopped_until > world.kernel.now:
                    world.kernel.saw("announcement consumers stopped for long")
                    process.sleep(world.announcers_stopped_until - world.kernel.now)
                # Threads have other queues to step: the wait may be longer than asked for.
                lazily = 0.05 if outcome.kind is StepKind.MOVED_ON else 3.0 + 2 * dice.random()
                process.sleep(max(outcome.wait_seconds, lazily))

        return run


__all__ = ["BrokerUnavailable", "RequestTimeout"]
