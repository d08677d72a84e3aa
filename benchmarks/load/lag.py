"""A group stops consuming while ids are announced: `python -m benchmarks.load.lag [--ids 10000000] [--seconds 0]`.

The stopped hour, compressed: messages and announcements of an hour come as fast as producers can send them, the group
consumes nothing, then it starts again and consumes everything. Clocks are real, so everything that has a rate by the
clock (the trickle: one look-up a second) is told by the hour, too. --seconds makes the stop at least so long.

Every id is a message at the broker. What must hold: no repair, no verdict of a loss, at most 4 000 QUERY_MESSAGE in
all and by the hour of the stop (index probes apart), every message consumed, pending empty at the end.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.load import service_log
from benchmarks.load.figures import Goal, at_most, equal, report
from benchmarks.load.job import Job
from benchmarks.load.processes import Meter
from benchmarks.load.world import BUSINESS_QUEUES, Timing, World, until
from tests.services.processes import Child

#: The group has an offset in every queue before it stops.
WARM_UP_IDS = 64 * BUSINESS_QUEUES
QUERIES_MAX = 4_000
#: As many from memory in one pull as the consumer asks for: the broker's default is 32.
PULLS = {"maxTransferCountOnMessageInMemory": "1024", "maxTransferCountOnMessageInDisk": "1024"}


def count(ledger: Path, sql: str) -> int:
    """One number."""
    with closing(sqlite3.connect(ledger, timeout=60)) as db:
        return int(db.execute(sql).fetchone()[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What was seen until the group started again."""

    seconds: float
    #: Of those, until the last id was announced.
    fed_seconds: float
    #: Redis' memory when every id was pending.
    redis_bytes: int
    #: QUERY_MESSAGE so far: for keys, and for index probes.
    queries: int
    probes: int
    candidates: int
    #: By process.
    cores: dict[str, float]

    @property
    def by_the_hour(self) -> float:
        """QUERY_MESSAGE for keys."""
        return self.queries * 3_600 / self.seconds


class Lag:
    """One run. Used by one thread."""

    def __init__(self, options: argparse.Namespace, world: World) -> None:
        self._options = options
        self._world = world
        self._job = Job(
            folder=str(world.folder),
            name_servers=world.name_servers,
            redis_url=world.redis.url,
            inbox_url=f"sqlite:///{world.folder / 'inbox.db'}",
            run=world.run,
            shards=options.shards,
            ids=options.ids,
        )
        self._ledger = world.folder / "ledger.db"
        self._queries = world.folder / "queries.log"
        self._consumed = world.folder / "consumed"
        self._probe_file = world.folder / "probe.json"
        self._memory_most = 0
        self._pending_most = 0

    def run(self) -> tuple[dict[str, Any], list[Goal]]:
        """Warm-up, stop, catch-up; figures and goals."""
        options, world = self._options, self._world
        timing = Timing(
            interval_seconds=options.interval,
            skew_margin_seconds=options.skew,
            grace_period_seconds=options.grace,
        )
        world.configure(self._job, timing)
        self._warm_up()
        bytes_before = world.redis_memory_bytes()
        probe = world.worker(
            "probe", "benchmarks.load.probe", str(world.redis.port), str(options.probe_ms), str(self._probe_file)
        )
        meter = Meter(world.pids)
        meter.start()
        stopped = self._stopped(meter)
        consumed_seconds, empty_seconds = self._caught_up(meter, probe)
        queries, probes = self._count_queries()
        figures = {
            "broker": options.broker,
            "ids": options.ids,
            "timing": asdict(timing),
            **self._figures_of(stopped, bytes_before),
            "redis_used_memory_mib_most": round(self._memory_most / 1024**2, 1),
            "resident_mib_by_process_most": meter.resident_mib,
            "query_message_in_all": {"keys": queries, "probes": probes},
            "candidates_in_all": count(self._ledger, "SELECT count(*) FROM reconciler_candidate"),
            "consumed_seconds": round(consumed_seconds, 1),
            "consumed_per_second": round((options.ids - WARM_UP_IDS) / consumed_seconds),
            "missed_by_the_recorder": int(world.log("consumer").read_text().split()[-1]),
            "pending_empty_seconds_after_the_last_consumed": round(empty_seconds, 1),
            "redis_ping": service_log.document(self._probe_file),
            "redis_slow_commands": world.slowest_commands(),
            "rounds": asdict(service_log.rounds(world.log("run"))),
        }
        return figures, self._goals(queries, stopped.by_the_hour)

    def _warm_up(self) -> None:
        """The service runs, and the group has consumed from every queue before it stops."""
        world, job = self._world, self._job
        service = world.worker(
            "run", "benchmarks.load.counted_service", str(self._queries), "run", "--config", str(world.config)
        )
        world.await_first_round(service)
        consumer = self._consumer()
        self._produce(0, WARM_UP_IDS)
        self._await_consumed(WARM_UP_IDS, within_seconds=60)
        until(lambda: world.pending(job) == 0, within_seconds=60, what="pending is empty after the warm-up")
        self._end(consumer)

    def _stopped(self, meter: Meter) -> Stopped:
        """Ids come and no group consumes; returns when the stop is over."""
        options = self._options
        stopped_at = time.time()
        self._produce(WARM_UP_IDS, options.ids, meter)
        fed_seconds = time.time() - stopped_at
        until(self._all_pending, within_seconds=600, what="every announced id is pending", every_seconds=1.0)
        bytes_lagging = self._world.redis_memory_bytes()
        until(
            lambda: time.time() - stopped_at >= options.seconds and self._is_trickling(meter),
            within_seconds=options.seconds + 600,
            what="the trickle looks at keys",
        )
        seconds = time.time() - stopped_at
        queries, probes = self._count_queries()
        return Stopped(
            seconds=seconds,
            fed_seconds=fed_seconds,
            redis_bytes=bytes_lagging,
            queries=queries,
            probes=probes,
            candidates=count(self._ledger, "SELECT count(*) FROM reconciler_candidate"),
            cores=meter.cores(seconds),
        )

    def _caught_up(self, meter: Meter, probe: Child) -> tuple[float, float]:
        """The group consumes everything; seconds until it had, and from then until pending was empty."""
        options, world, job = self._options, self._world, self._job
        started_at = time.time()
        self._consumed.unlink(missing_ok=True)
        consumer = self._consumer()
        meter.pids = world.pids
        self._await_consumed(options.ids - WARM_UP_IDS, within_seconds=3_600, meter=meter)
        consumed_seconds = time.time() - started_at
        until(lambda: world.pending(job) == 0, within_seconds=3_600, what="pending is empty", every_seconds=0.2)
        empty_seconds = time.time() - started_at - consumed_seconds
        until(self._all_closed, within_seconds=options.grace * 4 + 360, what="open candidates are settled")
        for child in (consumer, probe):
            self._end(child)
        return consumed_seconds, empty_seconds

    def _figures_of(self, stopped: Stopped, bytes_before: int) -> dict[str, Any]:
        ids = self._options.ids - WARM_UP_IDS
        return {
            "fed_seconds": round(stopped.fed_seconds, 1),
            "announced_per_second": round(ids / stopped.fed_seconds),
            "stop_seconds": round(stopped.seconds, 1),
            "pending_most": self._pending_most,
            "redis_bytes_an_id_lagging": round((stopped.redis_bytes - bytes_before) / ids, 1),
            "redis_used_memory_mib_lagging": round(stopped.redis_bytes / 1024**2, 1),
            "cores_by_process_while_stopped": stopped.cores,
            "query_message_while_stopped": {"keys": stopped.queries, "probes": stopped.probes},
            "query_message_by_the_hour_of_the_stop": round(stopped.by_the_hour),
            "candidates_while_stopped": stopped.candidates,
        }

    def _goals(self, queries: int, by_the_hour: float) -> list[Goal]:
        losses = "SELECT count(*) FROM reconciler_candidate WHERE loss_verdict IS NOT NULL"
        ledger = self._ledger
        return [
            equal("repairs", count(ledger, "SELECT count(*) FROM reconciler_repair"), 0),
            equal("verdicts of a loss", count(ledger, losses), 0),
            at_most("QUERY_MESSAGE for keys in all", queries, QUERIES_MAX),
            at_most("QUERY_MESSAGE for keys by the hour of the stop", round(by_the_hour), QUERIES_MAX),
            equal("ids that reached pending", self._pending_most, self._options.ids - WARM_UP_IDS),
            equal(
                "candidates that are not settled",
                count(ledger, "SELECT count(*) FROM reconciler_candidate WHERE state <> 'SETTLED'"),
                0,
            ),
        ]

    # ----------------------------------------------------------------- steps

    def _consumer(self) -> Child:
        return self._world.worker("consumer", "benchmarks.load.lag_consumer", str(self._job.path), str(self._consumed))

    def _produce(self, first: int, last: int, meter: Meter | None = None) -> None:
        producer = self._world.worker(
            "producer", "benchmarks.load.lag_producer", str(self._job.path), str(first), str(last)
        )
        while producer.exit_code is None:
            self._look(meter)
        if producer.exit_code != 0:
            raise SystemExit(f"the producer ended:\n{self._world.log('producer').read_text()}")
        del self._world.pids["producer"]

    def _look(self, meter: Meter | None) -> None:
        if meter is not None:
            meter.look()
        self._memory_most = max(self._memory_most, self._world.redis_memory_bytes())
        time.sleep(0.5)

    def _all_pending(self) -> bool:
        """False while announcements wait at the broker."""
        self._pending_most = self._world.pending(self._job)
        return self._pending_most >= int(self._options.ids) - WARM_UP_IDS

    def _is_trickling(self, meter: Meter) -> bool:
        """False while no key has been looked up: a stop that no round noticed shows nothing."""
        self._look(meter)
        return self._count_queries()[0] > 0

    def _all_closed(self) -> bool:
        return count(self._ledger, "SELECT count(*) FROM reconciler_candidate WHERE state = 'OPEN'") == 0

    def _await_consumed(self, ids: int, *, within_seconds: float, meter: Meter | None = None) -> None:
        def reached() -> bool:
            self._look(meter)
            text = self._consumed.read_text() if self._consumed.exists() else ""
            return int(text or 0) >= ids

        until(reached, within_seconds=within_seconds, what=f"{ids} ids are consumed")

    def _end(self, child: Child) -> None:
        if child.stop() != 0:
            raise SystemExit(f"{child.command} ended with {child.exit_code}")

    def _count_queries(self) -> tuple[int, int]:
        """QUERY_MESSAGE so far: for keys, and for index probes."""
        topics = [line.split()[1] for line in self._queries.read_text().splitlines()] if self._queries.exists() else []
        probes = topics.count(self._job.probe_topic)
        return len(topics) - probes, probes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=0.0, help="the stop lasts at least so long")
    parser.add_argument("--broker", default="5.3.3", help="5.3.3, or embedded (at most 2 million messages)")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--interval", type=float, default=5.0, help="rounds.interval_seconds")
    parser.add_argument("--skew", type=float, default=10.0, help="rounds.skew_margin_seconds")
    parser.add_argument("--grace", type=float, default=30.0, help="grace_period_seconds")
    parser.add_argument("--probe-ms", type=float, default=1.0, help="between two pings of Redis")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    properties = PULLS if options.broker != "embedded" else {}
    with World(broker=options.broker, properties=properties) as world:
        figures, goals = Lag(options, world).run()
    return report("load_lag", figures, goals, options.out)


if __name__ == "__main__":
    sys.exit(main())
