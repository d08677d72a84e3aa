"""Repairs through END on one broker: from announced and lost to sent, as the product does it, and one call at a time.

    [BROKER=5.3.3] python -m benchmarks.repairs [--keys 400] [--repeat 3] [--round-trip-ms 0]

Every key is a half whose END never came, with an outbox row. Measured is one round: verification (committed copies,
halves), ledger rows, claims, attempts and END, until every repair is SENT; the ledger is SQLite with fsync, brakes are
wide open. `bare` is what a script would do without a ledger: the same four requests a key over one connection, one
call at a time (look-up of the copy, look-up of the half, the half again by its offset, END). Both take turns on the
same broker. Prints one JSON line with the medians of keys a second and of this process's processor milliseconds a key,
and the medians of each turn's ratios of the rounds to `bare`. Without BROKER the embedded broker runs as a process of
its own. `--round-trip-ms` puts a network of that length between (benchmarks/distance.py): on loopback there is next to
nothing to wait for, and whoever asks several at a time gains by little else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.distance import far_away
from reconciler.clock import SystemClock
from reconciler.contract.tables import EVERY_GROUP, OutboxState, RepairState
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.brakes import BreakerRules, CircuitBreaker
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.evidence import EndOutcome
from reconciler.policy.judging.judge import Judge, JudgingRules
from reconciler.policy.judging.selection import SelectionRules, SuspectSelector
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.evidence import Horizon
from reconciler.policy.repairing.repair import Repairer, RepairRules
from reconciler.policy.round import ReconcileRound
from reconciler.policy.shard_rounds import ShardRounds
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import TopicNotFound
from reconciler.rocketmq.wire.codes import PROBE_TOPIC
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from reconciler.testing.memory_shards import MemoryShards
from reconciler.words import said
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.rocketmq import RocketMQCluster
from tests.simulation.outbox_table import TableRow
from tests.unit.policy.fake_databases import FakeInbox, FakeOutbox
from tests.unit.policy.world import ENVIRONMENT, TOPIC, Events, World

PRODUCERS = "order-service"
#: Nobody asks back while it is measured.
PATIENT = {"transactionCheckInterval": "3600000", "transactionTimeOut": "3600000"}


@dataclass(kw_only=True)
class Bench:
    """A reconciler without a daemon over one broker."""

    instance: ClientInstance
    plan: TopicPlan
    ledger: SqlLedger
    shards: MemoryShards
    outbox: FakeOutbox
    evidence: RemotingBrokerEvidence
    rounds: ReconcileRound

    def lose(self, keys: int) -> list[str]:
        """Halves and outbox rows; END never comes."""
        sender, lost = self.instance.sender(PRODUCERS), []
        for number in range(keys):
            message = Message(topic=TOPIC, body=b"order" * 40, tags="paid", keys=(f"order-{number}",))
            sent = sender.send(message, is_half=True)
            self.outbox.rows[sent.unique_key] = TableRow(
                unique_key=sent.unique_key, topic=TOPIC, producer_group=PRODUCERS, tag="paid", message_keys=None,
                business_id=None, half_broker=sent.broker_name, half_commit_log_offset=sent.commit_log_offset,
                half_queue_offset=sent.queue_offset, properties=None, body=None, content_digest=None,
                state=OutboxState.ANNOUNCED, created_at_ms=self.instance.clock.now_ms(),
                announced_at_ms=self.instance.clock.now_ms(),
                settled_at_ms=None,
            )  # fmt: skip
            lost.append(sent.unique_key)
        return lost

    def announce(self, lost: list[str]) -> None:
        """Into the half sets, then into pending, old enough to be judged."""
        shards = self.plan.shards_of(self.plan.subscriptions[0].subscription)
        for key in lost:
            self.shards._memory(shards[self.plan.shard_of(key)]).half.add(key)  # noqa: SLF001 - what announcements do
        self.rounds.run(self.plan.subscriptions[0].subscription)
        time.sleep(0.2)  # the grace period: nothing to wait for that could be asked

    def sent(self, lost: list[str]) -> int:
        """Repairs of these keys that are SENT."""
        rows = self.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, lost)
        return sum(row.state is RepairState.SENT for of in rows.values() for row in of if row.scope == EVERY_GROUP)


def make_bench(instance: ClientInstance, folder: Path) -> Bench:
    """The object graph as the product wires it, with a ledger in SQLite and the other databases in memory."""
    clock, shards, events, outbox, inbox = (
        SystemClock(),
        MemoryShards(SystemClock()),
        Events(),
        FakeOutbox(),
        FakeInbox(),
    )
    engine = open_engine(f"sqlite:///{folder}/ledger.db")
    ledger_metadata.create_all(engine)
    ledger = SqlLedger(engine, english=said)
    subscription = World().subscriptions[0]
    source = CommitSource(producer_group=PRODUCERS, topics=frozenset({TOPIC}), url="sqlite://")
    plan = TopicPlan(
        environment=ENVIRONMENT, topic=TOPIC, evidence=CommitEvidence((source,)), shards=2,
        subscriptions=(SubscriptionPlan(subscription=subscription, grace_period_seconds=0.1),),
    )  # fmt: skip
    evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=0.0)
    rounds = ReconcileRound(
        [plan],
        shards=ShardRounds(
            memory=shards, leases=shards, rounds=ledger.rounds, owner="one", lease_seconds=60, clock=SystemClock(),
            events=events,
        ),
        memory=shards,
        selector=SuspectSelector(
            memory=shards, candidates=ledger.candidates,
            rules=SelectionRules(skew_margin_seconds=0.0, candidates_max=20_000, retention_seconds=0.1),
        ),
        judge=Judge(
            english=said,
            brokers=evidence, outbox=outbox, inbox=inbox, repairs=ledger.repairs, known_brokers=ledger.brokers,
            rules=JudgingRules(skew_margin_seconds=0.0, check_back_wait_seconds=0.0),
        ),
        repairer=Repairer(
            english=said,
            brokers=evidence, sends=RemotingBrokerRepairs(instance, english=said), outbox=outbox, inbox=inbox,
            candidates=ledger.candidates, repairs=ledger.repairs, hand_overs=ledger.hand_overs, holds=ledger.holds,
            clock=clock, owner="one", events=events,
            rules=RepairRules(rate_per_second=1e6, burst=1e6),
        ),
        breaker=CircuitBreaker(
            holds=ledger.holds, rules=BreakerRules(candidates_min=10**6), owner="one", clock=clock, events=events
        ),
        candidates=ledger.candidates, repairs=ledger.repairs, outages=ledger.outages, outbox=outbox, clock=clock,
        owner="one", events=events,
    )  # fmt: skip
    return Bench(
        instance=instance,
        plan=plan,
        ledger=ledger,
        shards=shards,
        outbox=outbox,
        evidence=evidence,
        rounds=rounds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Seconds for some keys: of the wall's clock, and of this process's processors."""

    wall: float
    processor: float


@contextlib.contextmanager
def timed(took: list[Took]) -> Iterator[None]:
    """Adds what the block takes."""
    processor, wall = time.process_time(), time.perf_counter()
    yield
    took.append(Took(wall=time.perf_counter() - wall, processor=time.process_time() - processor))


def through_rounds(bench: Bench, keys: int, took: list[Took]) -> None:
    """Until every key is SENT."""
    lost = bench.lose(keys)
    bench.announce(lost)
    with timed(took):
        bench.rounds.run(bench.plan.subscriptions[0].subscription)
    if bench.sent(lost) != keys:
        raise SystemExit(f"{bench.sent(lost)} of {keys} were sent in one round")


def bare(bench: Bench, keys: int, took: list[Took]) -> None:
    """The same requests, one call at a time, nothing written down."""
    lost, repairs = bench.lose(keys), RemotingBrokerRepairs(bench.instance, english=said)
    with timed(took):
        horizon: Horizon = bench.evidence.horizon(TOPIC)
        for key in lost:
            row = bench.outbox.rows[key]
            copies = bench.evidence.committed_copies(TOPIC, key, horizon=horizon, not_before_ms=0)()
            halves = bench.evidence.half_copies(TOPIC, key, horizon=horizon, not_before_ms=0, outbox=row.seen)()
            answer = repairs.end_transaction(halves.records[-1], expected=row.seen.message, commit=True)()()
            if not copies.is_absent or answer.outcome is not EndOutcome.DONE:
                raise SystemExit(f"{key}: {copies.reason}, END {answer}")


@contextlib.contextmanager
def a_broker(name: str) -> Iterator[list[int]]:
    """The ports of a broker that runs; the first one is the name server's."""
    if name == "embedded":
        with EmbeddedBroker(properties=PATIENT) as broker:
            yield [broker.port]
    else:
        with RocketMQCluster(name, properties=PATIENT) as cluster:
            yield [cluster.name_server.port, *(broker.port for broker in cluster.brokers.values())]


@contextlib.contextmanager
def a_distant_broker(name: str, round_trip_ms: float) -> Iterator[str]:
    """Name servers of a broker that runs so far away."""
    with a_broker(name) as ports, contextlib.ExitStack() as stack:
        if round_trip_ms:
            ports = stack.enter_context(far_away(ports, round_trip_ms=round_trip_ms))
        yield f"127.0.0.1:{ports[0]}"


def create_topics(instance: ClientInstance) -> None:
    """TOPIC and the probes', routed."""

    def is_routed(topic: str) -> bool:
        with contextlib.suppress(TopicNotFound):
            return bool(instance.routes.refresh(topic).readable_queues)
        return False

    address = next(broker.master for broker in instance.routes.brokers().values() if broker.master)
    for topic, queues in ((TOPIC, 4), (PROBE_TOPIC, 1)):
        Admin(instance.client).create_topic(address, topic, queues=queues)
        eventually(lambda topic=topic: is_routed(topic), within_seconds=15)  # type: ignore[misc]


def measure(name: str, *, keys: int, repeat: int, round_trip_ms: float = 0.0) -> dict[str, object]:
    """Keys a second and processor time a key of both ways, and ratios."""
    took: dict[str, list[Took]] = {"bare": [], "rounds": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        a_distant_broker(name, round_trip_ms) as servers,
        ClientInstance(servers) as instance,
    ):
        create_topics(instance)
        bench = make_bench(instance, Path(folder))
        bare(bench, 50, [])  # connects, and warms the broker
        through_rounds(bench, 50, [])
        for _ in range(repeat):
            bare(bench, keys, took["bare"])
            through_rounds(bench, keys, took["rounds"])
        bench.ledger.database.engine.dispose()
    pairs = list(zip(took["rounds"], took["bare"], strict=True))
    return {
        "broker": name,
        "keys": keys,
        "round_trip_ms": round_trip_ms,
        "keys_per_second": {way: round(keys / statistics.median(t.wall for t in of), 1) for way, of in took.items()},
        "processor_ms_per_key": {
            way: round(statistics.median(t.processor for t in of) * 1000 / keys, 2) for way, of in took.items()
        },
        "keys_to_bare": round(statistics.median(one.wall / own.wall for own, one in pairs), 2),
        "processor_to_bare": round(statistics.median(own.processor / one.processor for own, one in pairs), 2),
        "turns": repeat,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=400)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--round-trip-ms", type=float, default=0.0)
    options = parser.parse_args()
    found = measure(
        os.environ.get("BROKER", "embedded"),
        keys=options.keys,
        repeat=options.repeat,
        round_trip_ms=options.round_trip_ms,
    )
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
