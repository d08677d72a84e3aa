"""The full path at its maximum: `python -m benchmarks.load.sql [--seconds 60] [--producers 2] [--threads 8] ...`.

Half message, local transaction with outbox row and order, outcome read, END_TRANSACTION, announcement; inbox row and
effect in one transaction, commit set, acknowledgement; rounds and sweeper beside it. PostgreSQL is real and durable
(fsync, synchronous_commit). A closed loop: every producing thread sends its next message when the last one is done.

The figure is messages with an effect a second, from the first outbox row to the last effect: a consumer that falls
behind lowers it. Fails below --goal, and unless every committed message had one effect and nothing was repaired.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.load import service_log
from benchmarks.load.figures import at_least, equal, percentile, report
from benchmarks.load.job import Job
from benchmarks.load.processes import Meter
from benchmarks.load.world import Timing, World, until

WORKERS_START_SECONDS = 4.0


def ask(url: str, sql: str) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        return connection.execute(sql.encode()).fetchall()


def tell(url: str, sql: str) -> None:
    """One statement."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute(sql.encode())


def run(options: argparse.Namespace, world: World) -> int:
    """The whole benchmark; the exit code."""
    assert world.postgres is not None
    outbox, inbox, ledger = (world.postgres.create_database(name) for name in ("orders", "billing", "ledger"))
    job = Job(
        folder=str(world.folder),
        name_servers=world.name_servers,
        redis_url=world.redis.url,
        outbox_url=outbox,
        inbox_url=inbox,
        run=world.run,
        shards=options.shards,
        threads=options.threads,
    )
    timing = Timing(
        interval_seconds=options.interval, skew_margin_seconds=options.skew, grace_period_seconds=options.grace
    )
    world.configure(job, timing, ledger_url=ledger)
    tell(outbox, "CREATE TABLE orders (unique_key varchar(64) PRIMARY KEY, amount integer NOT NULL)")
    tell(inbox, "CREATE TABLE effects (unique_key varchar(64) NOT NULL, amount integer NOT NULL)")
    world.service()
    world.reconciler("sweep")
    consumers = [
        world.worker(f"consumer-{n}", "benchmarks.load.sql_consumer", str(job.path), str(options.consumer_threads))
        for n in range(options.consumers)
    ]
    job = replace(job, start_at_seconds=time.time() + WORKERS_START_SECONDS)
    job.write()
    outs = [world.folder / f"producer-{n}.json" for n in range(options.producers)]
    producers = [
        world.worker(f"producer-{n}", "benchmarks.load.sql_producer", str(job.path), str(options.seconds), str(outs[n]))
        for n in range(options.producers)
    ]
    until(lambda: time.time() >= job.start_at_seconds, within_seconds=60, what="the start", every_seconds=0.01)
    meter = Meter(world.pids)
    meter.start()
    while time.time() < job.start_at_seconds + options.seconds - 0.2:
        meter.look()
        time.sleep(0.2)
    cores = meter.cores(time.time() - job.start_at_seconds)
    until(lambda: all(p.exit_code is not None for p in producers), within_seconds=120, what="producers have ended")
    told: Counter[str] = sum((Counter(service_log.document(out)) for out in outs), Counter())
    until(
        lambda: int(ask(inbox, "SELECT count(*) FROM effects")[0][0]) >= told["committed"],
        within_seconds=300,
        what=f"{told['committed']} effects",
    )
    until(lambda: world.pending(job) == 0, within_seconds=60 + 4 * options.interval, what="pending is empty")
    for consumer in consumers:
        consumer.stop()
    figures = _figures(outbox, inbox) | {
        "options": {
            name: getattr(options, name)
            for name in ("broker", "seconds", "producers", "threads", "consumers", "consumer_threads")
        },
        "producers_told": dict(told),
        "consumers_told": [world.log(f"consumer-{n}").read_text().split("\n")[-2] for n in range(options.consumers)],
        "cores_by_process": cores,
        "cores_all": round(sum(cores.values()), 2),
        "resident_mib_by_process": meter.resident_mib,
        "redis_slow_commands": world.slowest_commands(),
        "rounds": asdict(service_log.rounds(world.log("run"))),
        "timing": asdict(timing),
    }
    goals = [
        at_least("messages with an effect a second", figures["messages_per_second"], options.goal),
        equal("outbox rows", figures["outbox_rows"], told["committed"]),
        equal("effects", figures["effects"], told["committed"]),
        equal("messages with an effect", figures["messages_with_an_effect"], told["committed"]),
        equal("repairs", ask(ledger, "SELECT count(*) FROM reconciler_repair")[0][0], 0),
        equal("failed sales", {k: v for k, v in told.items() if k not in {"committed", "announced"}}, {}),
    ]
    return report("load_sql", figures, goals, options.out)


def _figures(outbox: str, inbox: str) -> dict[str, Any]:
    created = dict(ask(outbox, "SELECT unique_key, created_at_ms FROM reconciler_outbox"))
    applied = dict(ask(inbox, "SELECT unique_key, applied_at_ms FROM reconciler_inbox"))
    waits = sorted(applied[key] - created[key] for key in applied.keys() & created.keys())
    span_ms = max(applied.values()) - min(created.values())
    sold_ms = max(created.values()) - min(created.values())
    return {
        "messages_per_second": round(len(applied) * 1_000 / span_ms),
        "sold_per_second": round(len(created) * 1_000 / sold_ms),
        "outbox_rows": len(created),
        "effects": ask(inbox, "SELECT count(*) FROM effects")[0][0],
        "messages_with_an_effect": ask(inbox, "SELECT count(DISTINCT unique_key) FROM effects")[0][0],
        "outbox_row_to_effect_ms": {"p50": percentile(waits, 50), "p99": percentile(waits, 99), "longest": waits[-1]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--goal", type=float, default=1_000)
    parser.add_argument("--producers", type=int, default=2, help="producing processes")
    parser.add_argument("--threads", type=int, default=8, help="of each producing process")
    parser.add_argument("--consumers", type=int, default=2, help="consuming processes")
    parser.add_argument("--consumer-threads", type=int, default=8, help="of each consuming process")
    parser.add_argument("--broker", default="embedded")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--interval", type=float, default=5.0, help="rounds.interval_seconds")
    parser.add_argument("--skew", type=float, default=10.0, help="rounds.skew_margin_seconds")
    parser.add_argument("--grace", type=float, default=30.0, help="grace_period_seconds")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with World(broker=options.broker, postgres=True) as world:
        return run(options, world)


if __name__ == "__main__":
    sys.exit(main())
