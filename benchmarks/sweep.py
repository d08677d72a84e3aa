"""`reconciler sweep` over outboxes at rest: what its looks and sweeps cost.

    python -m benchmarks.sweep [--outboxes 200] [--seconds 60] [--postgres] [--out FILE]

Every outbox is a service's own: a topic, a group and a database. Each is a SQLite file; with `--postgres` all are
databases of one server. Every 2 s rows that became due are looked for, every 10 s all is swept. The figure is processor
time of the process, and fails above 0.07 of a core.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.load.figures import at_most, report
from benchmarks.load.job import Job
from benchmarks.load.processes import Meter
from benchmarks.load.world import BUSINESS_QUEUES, Timing, World
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.sql import schema

CORES_MAX = 0.07


def run(options: argparse.Namespace, world: World) -> int:
    """The whole benchmark; the exit code."""
    urls = _outboxes(options.outboxes, world)
    job = Job(
        folder=str(world.folder), name_servers=world.name_servers, redis_url=world.redis.url, outbox_url=urls[0],
        run=world.run,
    )  # fmt: skip
    topics = [f"{job.topic}_{n}" for n in range(1, len(urls))]
    with ClientInstance(world.name_servers) as instance:
        for address in instance.cluster_addresses():
            for topic in topics:
                Admin(instance.client).create_topic(address, topic, queues=BUSINESS_QUEUES)
    sections = "".join(
        f'\n[[producers]]\ngroup = "service-{topic}"\ntopics = ["{topic}"]\noutbox_url = "{url}"\n'
        f'\n[[subscriptions]]\ntopic = "{topic}"\ngroup = "{job.consumer_group}"\n'
        for topic, url in zip(topics, urls[1:], strict=True)
    )
    world.configure(job, Timing(), more=sections)
    sweeper = world.reconciler("sweep")
    time.sleep(options.settle)
    meter = Meter(world.pids)
    meter.start()
    began = time.monotonic()
    time.sleep(options.seconds)
    took = time.monotonic() - began
    cores = meter.cores(took)
    if sweeper.exit_code is not None or "problem" in world.log("sweep").read_text():
        raise SystemExit(world.log("sweep").read_text()[-2_000:])
    figures = {
        "outboxes": len(urls),
        "database": "postgresql" if options.postgres else "sqlite",
        "seconds": round(took, 1),
        "cores_by_process": cores,
        "resident_mib": meter.resident_mib["sweep"],
    }
    return report("sweep", figures, [at_most("cores of `sweep`", cores["sweep"], CORES_MAX)], options.out)


def _outboxes(number: int, world: World) -> list[str]:
    """Addresses, with their tables."""
    if world.postgres is None:
        urls = [f"sqlite:///{world.folder / f'outbox-{n}.db'}" for n in range(number)]
    else:
        urls = [world.postgres.create_database("orders") for _ in range(number)]
    for url in urls[1:]:
        schema.upgrade(url, "outbox")
    return urls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outboxes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="that are measured")
    parser.add_argument("--settle", type=float, default=25.0, help="seconds from the start of `sweep` until then")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with World(postgres=options.postgres) as world:
        return run(options, world)


if __name__ == "__main__":
    sys.exit(main())
