"""From the commit of a producer that dies at once to the effect: `python -m benchmarks.load.dead [--producers 40] ...`.

Every producer is a process with a group of its own. It commits some messages and is killed before their
END_TRANSACTION and announcement. So nobody answers a check-back, and only the outbox rows are left. The service and
the sweeper have their default settings. Producers die at random moments, so each phase of sweeps and rounds is met.

Fails above --goal seconds (p99), and unless every committed message had one effect.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.load.dead_producer import group_of
from benchmarks.load.figures import Goal, at_most, equal, percentile, report
from benchmarks.load.job import Job
from benchmarks.load.postgres import ask, make_shop
from benchmarks.load.world import START_SECONDS, Timing, World, until

#: Until the last message has its effect.
PATIENCE_SECONDS = 300.0
_EFFECTS = "SELECT count(*), count(DISTINCT unique_key) FROM effects"


def run(options: argparse.Namespace, world: World) -> int:
    """The whole benchmark; the exit code."""
    job, ledger = _prepare(options, world)
    world.service()
    world.reconciler("sweep")
    consumer = world.worker("consumer", "benchmarks.load.sql_consumer", str(job.path), "4")
    dice = random.Random(options.seed)
    for number in range(options.producers):
        time.sleep(dice.uniform(0, 2 * options.pause))
        child = world.worker(f"producer-{number}", "benchmarks.load.dead_producer", str(job.path), str(number))
        until(lambda c=child: c.exit_code is not None, within_seconds=START_SECONDS, what=f"producer {number} is dead")
        if child.exit_code != -signal.SIGKILL:
            raise SystemExit(f"producer {number}:\n{world.log(f'producer-{number}').read_text()}")
    outbox, inbox = job.outbox_url or "", job.inbox_url or ""
    committed = int(ask(outbox, "SELECT count(*) FROM orders")[0][0])
    until(
        lambda: int(ask(inbox, "SELECT count(*) FROM effects")[0][0]) >= committed,
        within_seconds=PATIENCE_SECONDS,
        what=f"{committed} effects",
    )
    consumer.stop()
    figures = {"producers": options.producers, "messages": committed, **_figures(outbox, inbox, ledger)}
    return report("load_dead", figures, _goals(options, figures, ask(inbox, _EFFECTS)[0]), options.out)


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
        threads=options.messages,
    )
    groups = "".join(
        f'\n[[producers]]\ngroup = "{group_of(job, number)}"\ntopics = ["{job.topic}"]\noutbox_url = "{outbox}"\n'
        for number in range(options.producers)
    )
    world.configure(job, Timing(interval_seconds=options.interval), ledger_url=ledger, more=groups)
    return job, ledger


def _figures(outbox: str, inbox: str, ledger: str) -> dict[str, Any]:
    """Seconds from the commit to each step. All three databases are of one server, and have its clock."""
    committed = dict(ask(outbox, "SELECT unique_key, created_at_ms FROM reconciler_outbox"))
    steps = {
        "announced": dict(ask(outbox, "SELECT unique_key, announced_at_ms FROM reconciler_outbox")),
        "proved": dict(ask(ledger, "SELECT unique_key, created_at_ms FROM reconciler_repair")),
        "effect": dict(ask(inbox, "SELECT unique_key, applied_at_ms FROM reconciler_inbox")),
    }
    return {f"seconds_to_{name}": _spread(committed, at) for name, at in steps.items()}


def _spread(committed: dict[str, int], at: dict[str, int]) -> dict[str, float]:
    waits = sorted((at[key] - committed[key]) / 1_000 for key in at.keys() & committed.keys())
    return {"p50": percentile(waits, 50), "p99": percentile(waits, 99), "longest": waits[-1], "messages": len(waits)}


def _goals(options: argparse.Namespace, figures: dict[str, Any], effects: tuple[Any, ...]) -> list[Goal]:
    committed = figures["messages"]
    return [
        equal("committed messages", committed, options.producers * options.messages),
        equal("effects, and messages with one", effects, (committed, committed)),
        equal("messages that were proved to be lost", figures["seconds_to_proved"]["messages"], committed),
        at_most("seconds from commit to effect, p99", figures["seconds_to_effect"]["p99"], options.goal),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--producers", type=int, default=40, help="producing processes that die, one after the other")
    parser.add_argument("--messages", type=int, default=10, help="messages that each has committed when it dies")
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between a death and the next start")
    parser.add_argument("--goal", type=float, default=60.0, help="seconds")
    parser.add_argument("--broker", default="embedded")
    parser.add_argument("--interval", type=float, default=5.0, help="rounds.interval_seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with World(broker=options.broker, postgres=True) as world:
        return run(options, world)


if __name__ == "__main__":
    sys.exit(main())
