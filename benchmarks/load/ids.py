"""The ids' path under load: announced and recorded at a rate, one in a thousand lost, without SQL on that path.

    python -m benchmarks.load.ids [--seconds 600] [--rate 5000] [--lose-every 1000] [--broker embedded|5.3.3]

redis-server, a broker, the installed `reconciler run`, an announcing process (producers' plug-in), a consuming one
(consumers' plug-in) and a client that pings Redis. There is no outbox: any other key that were asked about would be
proved lost and fail the run. Only repaired messages, and what the recorder missed, have inbox rows. Times of the
service are the defaults of its settings unless told otherwise; the broker asks back after --check-interval and its
time-out, which must be over within the grace period for the figure of detection to be the reconciler's own.

Fails unless every planted loss is proved and nothing else, every one is repaired, no id was missed, the rate was held,
no round was skipped and detection kept its bound.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.load import service_log
from benchmarks.load.figures import Goal, at_least, at_most, equal, percentile, report
from benchmarks.load.job import Job
from benchmarks.load.processes import Meter
from benchmarks.load.world import Timing, World, until

#: Until the workers have started.
WORKERS_START_SECONDS = 3.0


def found(ledger: Path) -> dict[str, tuple[int, str]]:
    """Key -> when its loss was proved (milliseconds), and the state of its repair."""
    with closing(sqlite3.connect(ledger, timeout=30)) as db:
        rows = db.execute(
            "SELECT c.unique_key, r.created_at_ms, r.state FROM reconciler_candidate c "
            "LEFT JOIN reconciler_repair r ON r.unique_key = c.unique_key WHERE c.loss_verdict IS NOT NULL"
        )
        return {key: (int(at_ms or 0), str(state)) for key, at_ms, state in rows}


def looked_at(ledger: Path) -> int:
    """Keys that were verified at all."""
    with closing(sqlite3.connect(ledger, timeout=30)) as db:
        return int(db.execute("SELECT count(*) FROM reconciler_candidate").fetchone()[0])


def run(options: argparse.Namespace) -> int:
    """The whole benchmark; the exit code."""
    timing = Timing(
        interval_seconds=options.interval,
        skew_margin_seconds=options.skew,
        grace_period_seconds=options.grace,
    )
    with World(broker=options.broker, check_interval_seconds=options.check_interval) as world:
        ids = int(options.seconds * options.rate)
        job = Job(
            folder=str(world.folder),
            name_servers=world.name_servers,
            redis_url=world.redis.url,
            run=world.run,
            shards=options.shards,
            rate=options.rate,
            ids=ids,
            lose_every=options.lose_every,
            inbox_url=f"sqlite:///{world.folder / 'inbox.db'}",
        )
        world.configure(job, timing)
        world.service()
        job = replace(job, start_at_seconds=time.time() + WORKERS_START_SECONDS)
        job.write()
        return _measure(options, timing, world, job)


def _measure(options: argparse.Namespace, timing: Timing, world: World, job: Job) -> int:
    announced_file, consumed_file, probe_file = (world.folder / f"{n}.json" for n in ("announced", "consumed", "probe"))
    ledger = world.folder / "ledger.db"
    announcer = world.worker("announcer", "benchmarks.load.ids_announcer", str(job.path), str(announced_file))
    consumer = world.worker("consumer", "benchmarks.load.ids_consumer", str(job.path), str(consumed_file))
    probe = world.worker(
        "probe", "benchmarks.load.probe", str(world.redis.port), str(options.probe_ms), str(probe_file)
    )
    until(lambda: time.time() >= job.start_at_seconds, within_seconds=30, what="the start", every_seconds=0.01)
    meter = Meter(world.pids)
    meter.start()
    memory = 0
    pending_most = 0
    while not announced_file.exists():
        if announcer.exit_code is not None or consumer.exit_code is not None:
            raise SystemExit(f"a worker ended: {world.log('announcer').read_text()}{world.log('consumer').read_text()}")
        meter.look()
        memory = max(memory, world.redis_memory_bytes())
        pending_most = max(pending_most, world.pending(job))
        time.sleep(min(1.0, timing.interval_seconds / 4))
    announced = json.loads(announced_file.read_text())
    load_seconds = announced["seconds"]
    cores = meter.cores(load_seconds)
    lost_at_ms: dict[str, int] = announced["lost_at_ms"]
    patience = timing.grace_period_seconds + options.check_interval + 10 * timing.interval_seconds + 60

    def all_settled() -> bool:
        proved = found(ledger)
        return all(key in proved for key in lost_at_ms) and world.pending(job) == 0

    deadline = time.monotonic() + patience
    while not all_settled() and time.monotonic() < deadline:
        time.sleep(0.5)
    settled_after = time.time() - job.start_at_seconds - load_seconds
    until(
        lambda: all(state == "DONE" for _, state in found(ledger).values()) or time.monotonic() > deadline,
        within_seconds=patience + 10,
        what="repairs are done",
        every_seconds=0.5,
    )
    for child in (consumer, probe, announcer):
        child.stop()
    consumed = json.loads(consumed_file.read_text())
    rounds = service_log.rounds(world.log("run"))
    proved = found(ledger)
    detection = sorted(
        (at_ms - lost_at_ms[key]) / 1_000 - timing.grace_period_seconds
        for key, (at_ms, _) in proved.items()
        if key in lost_at_ms
    )
    bound = 2 * timing.interval_seconds + 2 * timing.skew_margin_seconds
    figures: dict[str, Any] = {
        "broker": options.broker,
        "seconds": round(load_seconds, 1),
        "ids": job.ids,
        "announced_per_second": round(announced["announced"] / load_seconds),
        "recorded_per_second": round(consumed["recorded"] / load_seconds),
        "announced_late_seconds_max": round(announced["late_seconds_max"], 3),
        "consumed_late_seconds_max": round(consumed["late_seconds_max"], 3),
        "missed_by_the_recorder": consumed["missed"],
        "unconfirmed_at_acknowledgement": consumed["unconfirmed"],
        "recorder_batches": consumed["batches"],
        "cores_by_process": cores,
        "cores_all": round(sum(cores.values()), 3),
        "resident_mib_by_process": meter.resident_mib,
        "redis_used_memory_mib_most": round(memory / 1024 / 1024, 1),
        "pending_and_unseen_most": pending_most,
        "timing": asdict(timing),
        "check_back_interval_seconds": options.check_interval,
        "detection_seconds": {
            "planted": len(lost_at_ms),
            "p50": round(percentile(detection, 50), 2),
            "p99": round(percentile(detection, 99), 2),
            "longest": round(detection[-1], 2) if detection else None,
        },
        "settled_seconds_after_the_load": round(settled_after, 1),
        "keys_verified": looked_at(ledger),
        "redis_ping": json.loads(probe_file.read_text()),
        "redis_slow_commands": world.slowest_commands(),
        "rounds": asdict(rounds),
    }
    goals = correctness(job, announced=announced, consumed=consumed, proved=proved, counted=rounds.announced)
    goals += [
        at_most("ids missed by the recorder", consumed["missed"], job.ids / 1_000),
        at_least("announced a second", figures["announced_per_second"], 0.98 * options.rate),
        at_least("recorded a second", figures["recorded_per_second"], 0.98 * 0.999 * options.rate),
        equal("rounds skipped", sum(n for what, n in rounds.skipped.items() if what.startswith("rounds")), 0),
        at_most("detection p99 seconds", figures["detection_seconds"]["p99"], bound),
    ]
    return report("load_ids", figures, goals, options.out)


def correctness(
    job: Job, *, announced: dict[str, Any], consumed: dict[str, Any], proved: dict[str, tuple[int, str]], counted: int
) -> list[Goal]:
    """What must hold on any machine. `counted`: announced keys by the rounds' own count."""
    planted = set(announced["lost_at_ms"])
    return [
        equal("planted losses that were not proved", len(planted - set(proved)), 0),
        equal("losses that were not planted", len(set(proved) - planted), 0),
        equal("repaired and consumed once", sorted(consumed["repaired"]) == sorted(planted), wanted=True),
        equal("repairs not DONE", sum(state != "DONE" for _, state in proved.values()), 0),
        equal("failed announcements", announced["failures"], []),
        equal("ids counted by the rounds", counted, job.ids),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--lose-every", type=int, default=1_000)
    parser.add_argument("--broker", default="embedded")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--interval", type=float, default=5.0, help="rounds.interval_seconds")
    parser.add_argument("--skew", type=float, default=10.0, help="rounds.skew_margin_seconds")
    parser.add_argument("--grace", type=float, default=30.0, help="grace_period_seconds")
    parser.add_argument("--check-interval", type=float, default=15.0, help="the broker's, seconds")
    parser.add_argument("--probe-ms", type=float, default=1.0, help="between two pings of Redis")
    parser.add_argument("--out", type=Path)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
