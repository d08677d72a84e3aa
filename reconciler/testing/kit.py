"""Checkback: a broker, databases with the tables of both plug-ins, and a reconciler that a test drives by hand.

Producers, consumers, handlers and recorders are those of the plug-ins. Broker protocol, sweeps, verdicts and repairs
are those of the product. Only the ledger and the contents of Redis are in memory. The test moves the time.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Protocol, get_args

import sqlalchemy as sa

from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import open_producer
from checkback_producers.transaction import Completion
from reconciler.contract.keyspace import SHARDS_DEFAULT
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import OutboxState, RepairState
from reconciler.embedded.faults import Faults
from reconciler.embedded.layout import encode
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.errors import InvalidValue, UsageError
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.consumer.push_consumer import PushConsumer
from reconciler.rocketmq.wire.codes import PROBE_TOPIC
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import received
from reconciler.rocketmq.wire.record import decode_records
from reconciler.sql.engines import open_engine
from reconciler.testing.by_hand import MOVED_TIMES, REAL_TIMES, Receiving, ReconcilerByHand, Sending
from reconciler.testing.made_tables import make_tables
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryCommitSink, MemoryShards
from reconciler.testing.moved_clock import Host, MovedClock, MovedClocks, SqliteTime
from reconciler.testing.offsets import progress, set_back, written_queues
from reconciler.testing.standing import CommittedRow, LackingEffect, Standings, commits_of, effects_of
from reconciler.testing.turns import Turns, wait_for, wait_for_answers
from reconciler.words import said

UNIQUE_KEY_TOPIC = "RECONCILER_UNIQUE_KEY"
ENVIRONMENT = "test"
#: The longest time by which a lost END delays a block.
END_TIMEOUT_SECONDS = 1.0


class RunningConsumer(Protocol):
    """A consumer that `run` starts and stops. Such a consumer is a TransactionalConsumer, or a consumer of the service
    with these two methods."""

    def start(self) -> object:
        """Joins the consumer group."""
        ...

    def shutdown(self) -> object:
        """Leaves the consumer group."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Summary of what happened until everything was at rest."""

    #: True: every commit took effect in each group that takes it, and no work is left. False: nothing changed any more,
    #: but something waits for a person, or for a part that the test has stopped.
    is_at_rest: bool
    #: Seconds by which the clock was moved. With a database server it is 0, because the server's time is real.
    moved_seconds: float
    #: Verdict -> number of times that rounds gave it to a key. A commit that arrived needs no verdict.
    verdicts: Mapping[str, int]
    #: Rung ("end" or "republish") -> number of repairs that were sent.
    repairs: Mapping[str, int]
    #: Problems, one sentence each.
    problems: tuple[str, ...] = field(default=())


class Checkback:
    """The world of one service, for one test. The thread of the test calls its methods.

    `sends` and `receives` describe the service, and make the topics, tables and groups that it needs. `producer` and
    `recorder` return objects of the kinds that the service uses in production, and `run` starts its consumers. `settle`
    lets everything come to rest. Most of the other methods cause accidents.
    """

    def __init__(self, url: str, *, folder: Path, family: str = "5.x", environment: str = ENVIRONMENT) -> None:
        """`url` is the database of outboxes and inboxes, unless `sends` or `receives` names another database. `folder`
        keeps files that live as long as the test. `family` is the family of RocketMQ that the broker imitates."""
        self.environment = environment
        self._url, self._folder = url, folder
        self._clocks = MovedClocks()
        self._closing = ExitStack()
        self._closing.enter_context(SqliteTime(self._clock("database").now_ms))
        self.broker = EmbeddedBroker(
            family=family,
            settings=BrokerSettings(auto_create_topic=False),
            clock=self._clock("broker", moves_intervals=False),
        )
        self._closing.enter_context(self.broker)
        self._engines: dict[str, sa.Engine] = {}
        self._sendings: list[Sending] = []
        self._receivings: list[Receiving] = []
        self._consumers: dict[str, tuple[Callable[[], RunningConsumer], RunningConsumer | None]] = {}
        self._handlers: dict[str, dict[TransactionalHandler, dict[str, int]]] = {}
        #: Fault that strikes later -> name and present value of the counter that the fault increases.
        self._ordered: dict[str, tuple[str, int]] = {}
        self._upstream: dict[str, TransactionalProducer] = {}
        self._shards = MemoryShards(self._clock("redis"))
        self._ledger = MemoryLedger(self._clock("database"), english=said)
        self._by_hand: ReconcilerByHand | None = None
        self._instance: ClientInstance | None = None
        self._service: ClientInstance | None = None
        self._producer_instances: list[ClientInstance] = []
        self._make_topic(UNIQUE_KEY_TOPIC, queues=SHARDS_DEFAULT)
        self._make_topic(PROBE_TOPIC, queues=1)

    # ---- the service

    @property
    def database(self) -> sa.Engine:
        """The database of the test, with the tables of both plug-ins. The service makes its own tables in it."""
        return self._engine(self._url)

    @property
    def name_servers(self) -> str:
        """Addresses of the name servers, for the service's clients."""
        return self.broker.name_servers

    @property
    def instance(self) -> ClientInstance:
        """The client for producers and consumers that your service opens with `instance=`. Those producers and
        consumers follow the clock of the test, like the ones that the kit opens."""
        if self._service is None:
            self._service = self._producer_instance()
        return self._service

    @property
    def faults(self) -> Faults:
        """Knobs of the broker, for accidents that have no method here."""
        return self.broker.faults

    def topic(self, name: str, *, queues: int = 2) -> None:
        """Makes a topic. As in production, a send does not make a topic."""
        self._make_topic(name, queues=queues)

    def sends(self, group: str, *topics: str, url: str | None = None) -> None:
        """Declares that the producer group `group` sends to these topics. Its outbox is in the database of the test, or
        in `url`."""
        if not topics:
            raise UsageError(f"name the topics that {group} sends to")
        for name in topics:
            self.topic(name)
        self._sendings.append(Sending(group=group, topics=topics, url=url or self._url))
        self._engine(url or self._url)
        self._begin_again()

    def receives(self, group: str, *topics: str, tags: Iterable[str] | None = None, url: str | None = None) -> None:
        """Declares that the consumer group `group` takes these topics. With `tags`, the group takes only messages with
        one of the tags. Its inbox is in the database of the test, or in `url`."""
        if not topics:
            raise UsageError(f"name the topics that {group} receives")
        for name in topics:
            self.topic(name)
            self._receivings.append(
                Receiving(group=group, topic=name, tags=None if tags is None else frozenset(tags), url=url or self._url)
            )
        self._engine(url or self._url)
        self._begin_again()

    def producer(
        self,
        group: str,
        *,
        completion: Completion = "end",
        keep_bodies: bool = False,
        local_transaction_timeout_seconds: float = 60.0,
    ) -> TransactionalProducer:
        """Opens and starts a producer of a group that `sends` has named. The end of the test shuts it down."""
        sending = next((one for one in self._sendings if one.group == group), None)
        if sending is None:
            raise UsageError(f"say first what it does: sends({group!r}, topic)")
        producer = open_producer(
            group=group,
            environment=self.environment,
            instance=self._producer_instance(),
            outbox_url=sending.url,
            completion=completion,
            keep_bodies=keep_bodies,
            local_transaction_timeout_seconds=local_transaction_timeout_seconds,
            end_timeout_seconds=END_TIMEOUT_SECONDS,
        )
        self._closing.callback(producer.shutdown)
        return producer.start()

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        business_id: str | None = None,
        tags: str | None = None,
        keys: Sequence[str] = (),
    ) -> str:
        """Sends a message as the service that owns the topic does, in a transaction of its own. Returns its unique key.

        Use it for topics that your service receives. A topic without a producer group gets a producer group. Raises
        UsageError if the topic was not made.
        """
        self._require_topic(topic)
        if all(topic not in sending.topics for sending in self._sendings):
            self.sends(f"upstream-of-{topic}", topic)
        sending = next(one for one in self._sendings if topic in one.topics)
        if sending.group not in self._upstream:
            self._upstream[sending.group] = self.producer(sending.group)
        message = Message(topic=topic, body=body, tags=tags, keys=tuple(keys))
        with (
            self._upstream[sending.group].transaction(message, business_id=business_id) as tx,
            self._engine(sending.url).begin() as connection,
        ):
            tx.record(connection)
        return tx.unique_key

    def messages(self, topic: str) -> list[ConsumedMessage]:
        """Returns the messages that consumers of a topic can see, sorted by queue. Raises UsageError for a topic that
        neither `sends` nor `receives` nor `topic` has made. Topics of the broker, such as `%DLQ%billing`, may be
        empty."""
        if not topic.startswith("%"):
            self._require_topic(topic)
        stored = self.broker.stored(topic)
        return [received(record) for one in stored for record in decode_records(encode(one), "")]

    def recorder(self, group: str) -> CommitRecorder:
        """Opens the recorder of a consumer group, for its handlers. The end of the test closes it."""
        recorder = CommitRecorder(
            MemoryCommitSink(self._shards), environment=self.environment, group=group, shards=SHARDS_DEFAULT
        )
        self._closing.callback(recorder.close)
        return recorder

    def run(self, group: str, make: Callable[[], RunningConsumer]) -> None:
        """Starts the consumer of a group that `receives` has named. Call it once per group. `make` is called at each
        start. The end of the test shuts the consumer down."""
        if all(receiving.group != group for receiving in self._receivings):
            raise UsageError(f"say first what it does: receives({group!r}, topic)")
        if group in self._consumers:
            raise UsageError(f"{group} has its consumer: run({group!r}, ...) was called before")
        self._consumers[group] = (make, None)
        self.start_group(group)

    def stand_in(self, *topics: str, group: str = "stand-in") -> None:
        """Starts a consumer that takes these topics and does nothing. In tests of a service that only sends, it stands
        for the services that receive."""
        self.receives(group, *topics)
        take = transactional_handler(self.database, group=group, topics=topics, recorder=self.recorder(group))
        handler = take(lambda _message, _connection: None)
        self.run(group, lambda: TransactionalConsumer(handler, name_servers=self.name_servers))

    def counts(self, group: str) -> Mapping[str, int]:
        """Returns counts of all handlers that run in a TransactionalConsumer which `run` has started for a group. The
        names are "applied", "duplicates" (the handler was not called), "failed", "collisions", "incomplete" and
        "unrecorded"."""
        self._consumer(group)
        found: Counter[str] = Counter()
        for handler, before in self._handlers.get(group, {}).items():
            found.update(asdict(handler.counts))
            found.subtract(before)
        return found

    # ---- time

    def advance(self, seconds: float) -> None:
        """Lets time pass on every host, without waiting. Raises UsageError with a database server."""
        self._require_moved_time()
        self._clocks.advance(seconds)
        self.broker.pass_time()

    def turn(self) -> None:
        """Lets each process work once. The work is deliveries, check-backs, a sweep, announcements, and one round per
        group."""
        by_hand = self._reconciler()
        self._wait_for_consumers()
        self._ask_producers()
        self._wait_for_consumers()
        by_hand.sweep()
        by_hand.take_announcements(self.broker.call(lambda broker: written_queues(broker, UNIQUE_KEY_TOPIC)))
        by_hand.run_rounds()
        self._wait_for_consumers()

    def settle(self) -> Settled:
        """Lets everything come to rest. Runs turns of deliveries, check-backs, sweeps, announcements, rounds and
        repairs, and moves the clock between the turns.

        With a database server, the clock is real, and grace period, sweep age and margins are 0. Raises UsageError if a
        running consumer does not consume the messages of its queues.
        """
        by_hand = self._reconciler()
        verdicts, sends, problems = self._seen(by_hand)
        moved = self._clocks.moved_seconds()
        turns = Turns(self._look, waits=self._waits, is_moved=self._moves_time, advance=self._clocks.advance)
        is_at_rest = turns.until(self.turn, self._is_at_rest)
        now_verdicts, now_sends, now_problems = self._seen(by_hand)
        return Settled(
            is_at_rest=is_at_rest,
            moved_seconds=self._clocks.moved_seconds() - moved,
            verdicts=dict(now_verdicts - verdicts),
            repairs=dict(now_sends - sends),
            problems=tuple(now_problems[len(problems) :]),
        )

    # ---- what is so

    def lacking_effects(self) -> list[LackingEffect]:
        """Returns each commit that has had no effect in a group that takes it, with the step that it has reached. If no
        group receives a topic in the test, returns each commit that has not reached the topic."""
        return self._lacking(commits_of(self._engines, self._sendings), effects_of(self._engines, self._receivings))

    def assert_every_commit_took_effect(self) -> None:
        """Fails if a commit has had no effect in a group that takes it. The message has one line per commit, with its
        key, business id and step."""
        __tracebackhide__ = True
        lacking = self.lacking_effects()
        if lacking:
            raise AssertionError("\n".join((f"{len(lacking)} effects are missing:", *map(str, lacking))))

    def assert_every_accident_struck(self) -> None:
        """Fails if `lose_next_end` or `kill_producer_before_end` was called and no END followed. The fixture calls this
        at the end of each test."""
        __tracebackhide__ = True
        vain = [name for name, (counted, before) in self._ordered.items() if self.faults.counts[counted] <= before]
        if vain:
            raise AssertionError(
                f"{' and '.join(vain)} struck nothing: no END came afterwards; call it before you send"
            )

    # ---- accidents

    def lose_next_end(self) -> None:
        """Loses the next END_TRANSACTION on its way, and closes the connection by which it came."""
        self._order("lose_next_end()", "close_on_end")
        self.faults.close_on_end(1)

    def kill_producer_before_end(self) -> None:
        """Kills the next producer whose END_TRANSACTION is due. It sends neither END nor announcement and answers no
        check-back, until `revive_producer`."""
        self._order("kill_producer_before_end()", "kill_producer_on_end")
        self.faults.kill_producers_on_end(1)

    def revive_producer(self, group: str) -> None:
        """Revives a killed producer, as a restart does. The broker can ask it at once."""
        if all(sending.group != group for sending in self._sendings):
            raise UsageError(f"no producer group {group} was named: sends({group!r}, topic)")
        self.faults.revive(group)
        for instance in self._producer_instances:
            instance.heartbeats.beat()

    def stop_group(self, group: str) -> None:
        """Stops the consumers of a group that `run` started, until `start_group`."""
        make, consumer = self._consumer(group)
        if consumer is not None:
            consumer.shutdown()
        self._consumers[group] = (make, None)

    def start_group(self, group: str) -> None:
        """Starts the consumers of a group again. Harmless if they run."""
        make, consumer = self._consumer(group)
        if consumer is None:
            consumer = make()
            if isinstance(consumer, TransactionalConsumer):
                known = self._handlers.setdefault(group, {})
                for handler in consumer.handlers:  # a handler of a module may have counts of other tests
                    if handler not in known:
                        self._closing.callback(handler.open_apart())
                    known.setdefault(handler, asdict(handler.counts))
            consumer.start()
            self._consumers[group] = (make, consumer)

    def redeliver(self, group: str) -> None:
        """Delivers all messages of the group once more, as after a crash before its offsets were stored."""
        self.stop_group(group)
        topics = {receiving.topic for receiving in self._receivings if receiving.group == group}
        has_had = self.broker.call(lambda broker: set_back(broker, group, topics))
        self.start_group(group)
        if not has_had:
            raise UsageError(f"{group} has had no message that could come again: settle() first")

    def forget_redis(self) -> None:
        """Makes Redis lose everything that it holds."""
        self._shards.wipe()

    def hold_replica(self, group: str) -> None:
        """Makes the reconciler read the outbox of a producer group from a replica that no longer follows its primary,
        until `release_replica`. Needs SQLite."""
        sending = next((one for one in self._sendings if one.group == group), None)
        if sending is None:
            raise UsageError(f"no producer group {group} was named: sends({group!r}, topic)")
        path = self._engine(sending.url).url.database
        if not self._moves_time or path is None:
            raise UsageError("hold_replica copies a SQLite file: with a server, stop the replication of a real replica")
        by_hand = self._reconciler()
        by_hand.sweep()  # a real replica has the sign of life of an earlier sweep when it stops
        replica = self._folder / "replica.db"
        replica.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as primary, closing(sqlite3.connect(replica)) as copy:
            primary.backup(copy)
        by_hand.hold_replica(sending.url, f"sqlite:///{replica}")

    def release_replica(self) -> None:
        """Lets the replica catch up with its primary."""
        self._reconciler().outbox.release()

    def step_clock(self, host: Host, seconds: float) -> None:
        """Moves the wall clock of one kind of host, forwards or backwards, as an NTP step does. `host` is "broker",
        "database", "redis", "reconciler" or "service"."""
        if host not in get_args(Host):
            raise InvalidValue("host", host, f"one of {', '.join(get_args(Host))}")
        if host == "database":
            self._require_moved_time()
        self._clocks.step(host, seconds)

    # ---- its end

    def close(self) -> None:
        """Stops consumers and producers, then the broker, and closes the databases."""
        for group in list(self._consumers):
            self.stop_group(group)
        self._begin_again()
        self._closing.close()

    # ---- inside

    @property
    def _moves_time(self) -> bool:
        """True if the test moves the time. False: a database server sets the time."""
        return all(engine.dialect.name == "sqlite" for engine in self._engines.values())

    def _require_moved_time(self) -> None:
        if not self._moves_time:
            raise UsageError("a database server tells the time, which no test moves: settle() uses the real one")

    def _clock(self, host: Host, *, moves_intervals: bool = True) -> MovedClock:
        return MovedClock(self._clocks, host, moves_intervals=moves_intervals)

    def _order(self, knob: str, counted: str) -> None:
        self._ordered[knob] = (counted, self.faults.counts[counted])

    def _producer_instance(self) -> ClientInstance:
        instance = self._client_instance("service")
        self._producer_instances.append(instance)
        return instance

    def _client_instance(self, host: Host) -> ClientInstance:
        client = RemotingClient(clock=self._clock(host, moves_intervals=False))
        self._closing.callback(client.close)
        instance = ClientInstance(self.name_servers, client=client, clock=self._clock(host))
        self._closing.callback(instance.close)
        return instance

    def _engine(self, url: str) -> sa.Engine:
        if url not in self._engines:
            engine = open_engine(url)
            self._closing.callback(engine.dispose)
            make_tables(engine)
            self._engines[url] = engine
        return self._engines[url]

    def _require_topic(self, name: str) -> None:
        made = self.broker.call(lambda broker: set(broker.state.topics))
        if name not in made:
            near = get_close_matches(name, made, n=1)
            remedy = f"is it {near[0]}?" if near else f"sends(group, {name!r}) or receives(group, {name!r})"
            raise UsageError(f"no topic {name} was made: {remedy}")

    def _make_topic(self, name: str, *, queues: int) -> None:
        self.broker.call(lambda broker: broker.state.ensure_topic(name, queues=queues))

    def _consumer(self, group: str) -> tuple[Callable[[], RunningConsumer], RunningConsumer | None]:
        if group not in self._consumers:
            raise UsageError(f"{group} was not started by run({group!r}, ...): its consumers are not the kit's to stop")
        return self._consumers[group]

    def _reconciler(self) -> ReconcilerByHand:
        if self._by_hand is None:
            if self._instance is None:
                self._instance = self._client_instance("reconciler")
            self._by_hand = ReconcilerByHand(
                environment=self.environment,
                sendings=tuple(self._sendings),
                receivings=tuple(self._receivings),
                instance=self._instance,
                shards=self._shards,
                ledger=self._ledger,
                clock=self._clock("reconciler"),
                times=MOVED_TIMES if self._moves_time else REAL_TIMES,
                unique_key_topic=UNIQUE_KEY_TOPIC,
            )
        return self._by_hand

    def _begin_again(self) -> None:
        if self._by_hand is not None:
            self._by_hand.close()
            self._by_hand = None

    def _seen(self, by_hand: ReconcilerByHand) -> tuple[Counter[str], Counter[str], list[str]]:
        events = by_hand.events
        return Counter(events.verdicts), Counter(events.sends), list(events.problems)

    def _wait_for_consumers(self) -> None:
        """Waits until each group with consumers has consumed the messages of its queues and stored its offsets."""
        for group in dict.fromkeys(receiving.group for receiving in self._receivings):
            topics = [receiving.topic for receiving in self._receivings if receiving.group == group]
            _, consumer = self._consumers.get(group, (None, None))
            member = consumer.consumer if isinstance(consumer, TransactionalConsumer) else None
            wait_for(
                partial(self._has_consumed, group, topics, member), f"{group} has not consumed what its queues hold"
            )

    def _ask_producers(self) -> None:
        """Runs the broker's check round and its other due work, and returns once the asked producers have answered."""
        counts = self.faults.counts
        sent, answered = counts["check_sent"], counts["check_answered"]
        self.broker.pass_time()
        wanted = answered + counts["check_sent"] - sent
        wait_for_answers(lambda: counts["check_answered"] >= wanted)

    def _has_consumed(self, group: str, topics: Sequence[str], member: PushConsumer | None) -> bool:
        """Returns True if the group has consumed its messages and stored its offsets. The kit's consumers are made to
        store their offsets here. A consumer of the service stores its offsets by itself every few seconds."""
        done = (
            {}
            if member is None
            else {(held.queue.topic, held.queue.queue_id): held.committable() for held in member.assigned()}
        )
        is_stored, is_done = self.broker.call(lambda broker: progress(broker, group, topics, done))
        if is_done and not is_stored and member is not None:
            member.commit_offsets()
        return is_done if member is not None else is_stored

    def _lacking(self, commits: Sequence[CommittedRow], effects: Set[tuple[str, str]]) -> list[LackingEffect]:
        standings = Standings(self.broker, self._reconciler(), self._shards)
        return list(standings.lacking(commits, self._receivings, effects))

    def _is_at_rest(self, seen: _Seen) -> bool:
        if any(commit.state is OutboxState.NEW for commit in seen.commits) or seen.pending or seen.outage is not None:
            return False
        repairs = self._ledger.rows.repairs.values()
        has_no_work = all(repair.state in FINISHED_REPAIRS for repair in repairs)
        return has_no_work and not self._lacking(seen.commits, seen.effects)

    def _waits(self) -> bool:
        """Returns True if an unsent repair is due at a later time."""
        now_ms = self._clock("database").now_ms()
        unsent = (RepairState.OPEN, RepairState.SENDING)
        return any(row.state in unsent and row.next_at_ms > now_ms for row in self._ledger.rows.repairs.values())

    def _pending(self) -> int:
        return sum(
            self._shards.pending_size(Shard(subscription=subscription, number=number))[0]
            for subscription in self._reconciler().subscriptions
            for number in range(SHARDS_DEFAULT)
        )

    def _look(self) -> _Seen:
        ledger = self._ledger.rows
        return _Seen(
            commits=commits_of(self._engines, self._sendings),
            effects=effects_of(self._engines, self._receivings),
            candidates=sorted(
                (str(c.subscription), c.unique_key, c.verdict, c.state) for c in ledger.candidates.values()
            ),
            repairs=sorted((r.unique_key, r.scope, r.rung, r.state, r.attempts) for r in ledger.repairs.values()),
            pending=self._pending(),
            outage=self._ledger.outages.current(self.environment),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """All values that a turn may change."""

    commits: Sequence[CommittedRow]
    effects: Set[tuple[str, str]]
    candidates: Sequence[object]
    repairs: Sequence[object]
    pending: int
    outage: object
