"""A group that was away catches up: messages that share transactions against one transaction each.

    python -m benchmarks.catch_up [--messages 6000] [--batches 1,8,32] [--repeat 3]

All messages wait at the embedded broker. A consuming process with SQLAlchemy handlers (inbox row and effect in
PostgreSQL with fsync, commit set in Redis) takes them all, as a new group each time; the ways take turns. Measured is
the time from the first inbox row to the last, and PostgreSQL's processor time. Fails unless every message had one
effect. Prints one JSON line; `to_one` is the median of each turn's ratio to the first of --batches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.load.job import Job
from benchmarks.load.lag_producer import main as send
from benchmarks.load.postgres import ask, tell
from benchmarks.load.processes import usage
from benchmarks.load.world import Timing, World, until

WITHIN_SECONDS = 300


def consume(world: World, job: Job, messages: int, threads: int) -> dict[str, float]:
    """One group, from nothing to everything."""
    url = job.inbox_url or ""
    tell(url, "TRUNCATE effects, reconciler_inbox")
    tell(url, "CHECKPOINT")
    Path(job.folder).mkdir()
    job.write()
    postgres = world.pids["postgres"]
    before = usage(postgres).cpu_seconds
    worker = world.worker(job.consumer_group, "benchmarks.load.sql_consumer", str(job.path), str(threads))
    counted = "SELECT count(*) FROM effects"
    until(
        lambda: ask(url, counted)[0][0] >= messages,
        within_seconds=WITHIN_SECONDS,
        what=f"{messages} effects",
        every_seconds=0.2,
    )
    postgres_ms = 1_000 * (usage(postgres).cpu_seconds - before) / messages
    worker.stop()
    ((effects, different, span_ms),) = ask(
        url,
        "SELECT (SELECT count(*) FROM effects), (SELECT count(DISTINCT unique_key) FROM effects),"
        " max(applied_at_ms) - min(applied_at_ms) FROM reconciler_inbox",
    )
    if (effects, different) != (messages, messages):
        raise SystemExit(f"{effects} effects of {different} messages, not {messages}")
    return {"per_second": messages * 1_000 / span_ms, "postgres_ms": postgres_ms}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Turns of all batch sizes."""
    batches = [int(size) for size in options.batches.split(",")]
    seen: dict[int, list[dict[str, float]]] = {size: [] for size in batches}
    with World(postgres=True) as world:
        assert world.postgres is not None
        url = world.postgres.create_database("billing")
        job = Job(
            folder=str(world.folder), name_servers=world.name_servers, redis_url=world.redis.url, inbox_url=url,
            run=world.run,
        )  # fmt: skip
        world.configure(job, Timing())
        tell(url, "CREATE TABLE effects (unique_key varchar(64) NOT NULL, amount integer NOT NULL)")
        send(str(job.path), 0, options.messages)
        for turn in range(options.repeat):
            for size in batches:
                name = f"billing-{turn}-{size}"
                mine = replace(job, folder=str(world.folder / name), consumer_group=name, batch=size)
                seen[size].append(consume(world, mine, options.messages, options.threads))
    return {
        "messages": options.messages,
        "threads": options.threads,
        "turns": options.repeat,
        **{
            f"batch_{size}": {
                "messages_per_second": round(statistics.median(one["per_second"] for one in of)),
                "postgres_ms_per_message": round(statistics.median(one["postgres_ms"] for one in of), 3),
                "to_one": round(
                    statistics.median(
                        one["per_second"] / first["per_second"] for one, first in zip(of, seen[batches[0]], strict=True)
                    ),
                    2,
                ),
            }
            for size, of in seen.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=6_000)
    parser.add_argument("--batches", default="1,8,32", help="the first one is what the others are compared with")
    parser.add_argument("--threads", type=int, default=8, help="of the consuming process")
    parser.add_argument("--repeat", type=int, default=3)
    print(json.dumps(measure(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
