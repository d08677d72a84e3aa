"""Subscriptions at rest, each of a topic of its own: what they cost `run`, Redis and the ledger while nothing happens.

`python -m benchmarks.load.many --few 1 --many 50` runs both, one after the other, and compares them: processor time of
one machine and one hour says little, the ratio of the two runs does.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.load import service_log
from benchmarks.load.figures import Goal, at_most, equal, report
from benchmarks.load.job import Job
from benchmarks.load.processes import Meter
from benchmarks.load.world import BUSINESS_QUEUES, Timing, World, until
from reconciler.policy.shard_rounds import REST_SECONDS_MAX
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.wiring.rounds import LONG_REST, REST_TURNS


def sections(job: Job, number: int) -> str:
    """Settings of all subscriptions but the job's own."""
    return "".join(
        f'\n[[producers]]\ngroup = "service-{n}"\ntopics = ["{topic}"]\n'
        f'\n[[subscriptions]]\ntopic = "{topic}"\ngroup = "{job.consumer_group}"\n'
        for n, topic in enumerate(topics(job, number))
        if topic != job.topic
    )


def topics(job: Job, number: int) -> list[str]:
    """The topic of the job, and others."""
    return [job.topic, *(f"{job.topic}_{n}" for n in range(1, number))]


def rows(ledger: Path) -> int:
    """Rounds that are stored."""
    with closing(sqlite3.connect(ledger, timeout=30)) as db:
        return int(db.execute("SELECT count(*) FROM reconciler_round").fetchone()[0])


def at_rest(number: int, options: argparse.Namespace) -> dict[str, Any]:
    """Figures of so many subscriptions."""
    timing = Timing(interval_seconds=options.interval)
    with World() as world:
        job = Job(
            folder=str(world.folder), name_servers=world.name_servers, redis_url=world.redis.url, run=world.run,
            inbox_url=f"sqlite:///{world.folder / 'inbox.db'}",
        )  # fmt: skip
        with ClientInstance(world.name_servers) as instance:
            for address in instance.cluster_addresses():
                for topic in topics(job, number):
                    Admin(instance.client).create_topic(address, topic, queues=BUSINESS_QUEUES)
        world.configure(job, timing, more=sections(job, number))
        ledger = world.folder / "ledger.db"
        world.service()
        until(lambda: rows(ledger) >= number * job.shards, within_seconds=600, what="the first rounds of all")
        time.sleep(options.settle)
        meter, stored, skipped = Meter(world.pids), rows(ledger), _skipped(world)
        began = time.monotonic()
        meter.start()
        time.sleep(options.seconds)
        took = time.monotonic() - began
        cores = meter.cores(took)
        return {
            "subscriptions": number,
            "seconds": round(took, 1),
            "cores_by_process": cores,
            "resident_mib_by_process": meter.resident_mib,
            "rows_a_minute_a_subscription": round((rows(ledger) - stored) * 60 / took / number, 2),
            "turns_skipped": dict(_skipped(world) - skipped),
        }


def _skipped(world: World) -> Counter[str]:
    """Why -> lines that told of it."""
    return Counter(service_log.rounds(world.log("run")).skipped)


def goals_of(few: dict[str, Any], many: dict[str, Any], interval_seconds: float) -> list[Goal]:
    """What must hold of both runs. Each of 16 shards at rest has a round after two thirds of its long rest, or later;
    the row of rest is written in place."""
    rest_seconds = min(REST_SECONDS_MAX, REST_TURNS * interval_seconds) * LONG_REST
    return [
        at_most("rows a minute and subscription", many["rows_a_minute_a_subscription"], 16 * 1.5 * 60 / rest_seconds),
        equal("rounds skipped at rest", many["turns_skipped"], {}),
        at_most("processor of many, as many times that of few", round(_times(few, many), 2), many["subscriptions"] / 2),
    ]


def _times(few: dict[str, Any], many: dict[str, Any]) -> float:
    return float(many["cores_by_process"]["run"] / max(0.001, few["cores_by_process"]["run"]))


def main(arguments: list[str] | None = None) -> int:
    """Figures and goals as one JSON document."""
    parser = argparse.ArgumentParser(prog="benchmarks.load.many", description=__doc__)
    parser.add_argument("--few", type=int, default=1, help="subscriptions of the first run")
    parser.add_argument("--many", type=int, default=50, help="subscriptions of the second run")
    parser.add_argument("--seconds", type=float, default=120.0, help="length of each run, after its first rounds")
    parser.add_argument("--settle", type=float, default=45.0, help="seconds between the first rounds and the run")
    parser.add_argument("--interval", type=float, default=5.0, help="rounds.interval_seconds")
    parser.add_argument("--out", type=Path, default=None, help="file that keeps the figures")
    options = parser.parse_args(arguments)
    few, many = (at_rest(number, options) for number in (options.few, options.many))
    times = round(_times(few, many), 2)
    return report(
        "load-many",
        {"few": few, "many": many, "run_many_by_few": times},
        goals_of(few, many, options.interval),
        options.out,
    )


if __name__ == "__main__":
    sys.exit(main())
