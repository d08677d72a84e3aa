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

from benchmarks.load import service_log
from benchmarks.load.figures import Goal, at_least, equal, percentile, report
from benchmarks.load.job import Job
from benchmarks.load.postgres import ask, make_shop
from benchmarks.load.processes import Meter
from benchmarks.load.world import Timing, World, until

WORKERS_START_SECONDS = 4.0
_TOLD_OPTIONS = (
    *("broker", "seconds", "producers", "threads", "consumers", "consumer_threads"),
    *("batch", "pull_interval", "plain_driver", "shards"),
)


def run(options: argparse.Namespace, world: World) -> int:
    """The whole benchmark; the exit code."""
    job, ledger = _prepare(options, world)
    world.service()
    world.reconciler("sweep")
    consumers = [
        world.worker(f"consumer-{n}", "benchmarks.load.sql_consumer", str(job.path), str(options.consumer_threads))
        for n in range(options.consumers)
    ]
    told, usage = _sell(options, world, job)
    outbox, inbox = job.outbox_url or "", job.inbox_url or ""
    until(
        lambda: int(ask(inbox, "SELECT count(*) FROM effects")[0][0]) >= told["committed"],
        within_seconds=300,
        what=f"{told['committed']} effects",
    )
    until(lambda: world.pending(job) == 0, within_seconds=60 + 4 * options.interval, what="pending is empty")
    for consumer in consumers:
        consumer.stop()
    figures = _figures(outbox, inbox) | {
        "options": {name: getattr(options, name) for name in _TOLD_OPTIONS},
        "producers_told": dict(told),
        "consumers_told": [world.log(f"consumer-{n}").read_text().split("\n")[-2] for n in range(options.consumers)],
        **usage,
        "redis_slow_commands": world.slowest_commands(),
        "rounds": asdict(service_log.rounds(world.log("run"))),
        "timing": asdict(_timing(options)),
    }
    return report("load_sql", figures, _goals(options, figures, told, ledger), options.out)


def _prepare(options: argparse.Namespace, world: World) -> tuple[Job, str]:
    """Databases, tables and settings; the job and the ledger's URL."""
    assert world.postgres is not None
    outbox, inbox, ledger = make_shop(world.postgres)
    job = Job(
        folder=str(world.folder),
        name_servers=world.name_servers,
        redis_url=world.redis.url,
        outbox_url=outbox,
        inbox_url=inbox,
        run=world.run,
        shards=options.shards,
        threads=options.threads,
        plain_driver=options.plain_driver,
        batch=options.batch,
        pull_interval_seconds=options.pull_interval,
    )
    world.configure(job, _timing(options), ledger_url=ledger)
    return job, ledger


def _timing(options: argparse.Namespace) -> Timing:
    return Timing(
        interval_seconds=options.interval, skew_margin_seconds=options.skew, grace_period_seconds=options.grace
    )


def _sell(options: argparse.Namespace, world: World, job: Job) -> tuple[Counter[str], dict[str, Any]]:
    """Runs the producers to their end: what they told, and what every process used while they sold."""
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
    seconds = time.time() - job.start_at_seconds
    cores = meter.cores(seconds)
    effects = int(ask(job.inbox_url or "", "SELECT count(*) FROM effects")[0][0])
    until(lambda: all(p.exit_code is not None for p in producers), within_seconds=120, what="producers have ended")
    told: Counter[str] = sum((Counter(service_log.document(out)) for out in outs), Counter())
    return told, {
        "cores_by_process": cores,
        "cores_all": round(sum(cores.values()), 2),
        "milliseconds_a_message": _milliseconds(cores, seconds, sold=told["committed"], effects=effects),
        "resident_mib_by_process": meter.resident_mib,
    }


def _milliseconds(cores: dict[str, float], seconds: float, *, sold: int, effects: int) -> dict[str, float]:
    """Processor time a message of each kind of process: a consumer's messages are those that had their effect."""
    found: dict[str, float] = {"all": 0.0}
    for name, used in cores.items():
        kind = name.partition("-")[0]
        each = 1_000 * used * seconds / max(1, effects if kind == "consumer" else sold)
        found[kind] = found.get(kind, 0.0) + each
        found["all"] += each
    return {kind: round(value, 3) for kind, value in found.items()}


def _goals(options: argparse.Namespace, figures: dict[str, Any], told: Counter[str], ledger: str) -> list[Goal]:
    committed = told["committed"]
    return [
        at_least("messages with an effect a second", figures["messages_per_second"], options.goal),
        equal("outbox rows", figures["outbox_rows"], committed),
        equal("outbox rows that are marked as announced", figures["outbox_rows_announced"], committed),
        equal("effects", figures["effects"], committed),
        equal("messages with an effect", figures["messages_with_an_effect"], committed),
        equal("repairs", ask(ledger, "SELECT count(*) FROM reconciler_repair")[0][0], 0),
        equal("failed sales", {kind: number for kind, number in told.items() if kind != "committed"}, {}),
    ]


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
        "outbox_rows_announced": ask(outbox, "SELECT count(*) FROM reconciler_outbox WHERE state = 'ANNOUNCED'")[0][0],
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
    parser.add_argument("--batch", type=int, default=1, help="messages of a queue that share one inbox transaction")
    parser.add_argument(
        "--pull-interval", type=float, default=0.0, help="seconds between a consumer's pulls of a queue"
    )
    parser.add_argument("--plain-driver", action="store_true", help="the services' own statements without SQLAlchemy")
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
