"""The ids' path under load: announced and recorded at a rate, one in a thousand lost, without SQL on that path.

    python -m benchmarks.load.ids [--seconds 600] [--rate 5000] [--lose-every 1000] [--broker embedded|5.3.3]
    python -m benchmarks.load.ids --foreign 5000 [--seconds 60] [--rate 2500]

redis-server, a broker, the installed `reconciler run`, an announcing process (producers' plug-in), a consuming one
(consumers' plug-in) and a client that pings Redis. There is no outbox: any other key that were asked about would be
proved lost and fail the run. Only repaired messages, and what the recorder missed, have inbox rows. Times of the
service are the defaults of its settings unless told otherwise; the broker asks back after --check-interval and its
time-out, which must be over within the grace period for the figure of detection to be the reconciler's own.

With --foreign the group takes one tag, and there are two runs: one without, one with as many ids a second of another
tag beside the others, which nobody consumes. An outbox has rows of the lost ids and of those, written before the load.
Detection must take at most 1.2 times as long with them, and none of them may leave a row in the ledger.

Fails unless every planted loss is proved and nothing else, every one is repaired, no id was missed, the rate was held,
no round was skipped and detection kept its bound.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.load import service_log
from benchmarks.load.figures import Goal, at_least, at_most, equal, percentile, report
from benchmarks.load.job import FOREIGN_PREFIX, Job
from benchmarks.load.processes import Meter
from benchmarks.load.world import Timing, World, until
from tests.services.processes import Child

#: Of detection with ids of another tag to that without.
FOREIGN_RATIO_MAX = 1.2
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


def foreign_rows(ledger: Path) -> int:
    """Rows of ids that the group does not take."""
    with closing(sqlite3.connect(ledger, timeout=30)) as db:
        query = "SELECT count(*) FROM reconciler_candidate WHERE unique_key LIKE ?"
        return int(db.execute(query, [f"{FOREIGN_PREFIX}%"]).fetchone()[0])


def fill_outbox(job: Job, outbox: Path) -> None:
    """Rows of all ids that will be asked about, as producers would have written them."""
    now_ms = int(time.time() * 1_000)
    rows = [(job.foreign_key(number), "foreign") for number in range(job.foreign_ids)]
    rows += [(job.key(number), job.tag or "") for number in job.lost_numbers()]
    with closing(sqlite3.connect(outbox, timeout=30)) as db, db:
        db.executemany(
            "INSERT INTO reconciler_outbox (unique_key, topic, producer_group, tag, state, created_at_ms, "
            "announced_at_ms) VALUES (?, ?, ?, ?, 'ANNOUNCED', ?, ?)",
            [(key, job.topic, job.producer_group, tag, now_ms, now_ms) for key, tag in rows],
        )


def looked_at(ledger: Path) -> int:
    """Keys that were verified at all."""
    with closing(sqlite3.connect(ledger, timeout=30)) as db:
        return int(db.execute("SELECT count(*) FROM reconciler_candidate").fetchone()[0])


class Ids:
    """One run. Used by one thread."""

    def __init__(self, options: argparse.Namespace, world: World, *, foreign: int | None = None) -> None:
        """`foreign`: ids a second of another tag; None: the group takes every tag, and there is no outbox."""
        self._options = options
        self._world = world
        self._timing = Timing(
            interval_seconds=options.interval,
            skew_margin_seconds=options.skew,
            grace_period_seconds=options.grace,
        )
        self._job = Job(
            folder=str(world.folder),
            name_servers=world.name_servers,
            redis_url=world.redis.url,
            run=world.run,
            shards=options.shards,
            rate=options.rate,
            ids=int(options.seconds * options.rate),
            lose_every=options.lose_every,
            inbox_url=f"sqlite:///{world.folder / 'inbox.db'}",
            outbox_url=None if foreign is None else f"sqlite:///{world.folder / 'outbox.db'}",
            tag=None if foreign is None else "taken",
            foreign_rate=foreign or 0,
        )
        self._ledger = world.folder / "ledger.db"
        self._announced_file, self._consumed_file, self._probe_file = (
            world.folder / f"{name}.json" for name in ("announced", "consumed", "probe")
        )
        self._memory_most = 0
        self._pending_most = 0

    def run(self) -> tuple[dict[str, Any], list[Goal]]:
        """Load, then patience until everything is settled; figures and goals."""
        world = self._world
        world.configure(self._job, self._timing)
        if self._job.outbox_url is not None:
            fill_outbox(self._job, world.folder / "outbox.db")
        world.service()
        self._job = replace(self._job, start_at_seconds=time.time() + WORKERS_START_SECONDS)
        self._job.write()
        workers = self._start()
        meter = Meter(world.pids)
        until(lambda: time.time() >= self._job.start_at_seconds, within_seconds=30, what="start", every_seconds=0.01)
        meter.start()
        self._watch(meter, workers)
        announced = service_log.document(self._announced_file)
        cores = meter.cores(announced["seconds"])
        settled_seconds = self._await_settled(announced)
        for worker in reversed(workers):
            worker.stop()
        consumed = service_log.document(self._consumed_file)
        proved = found(self._ledger)
        rounds = service_log.rounds(world.log("run"))
        figures = self._figures(announced, consumed, proved) | {
            "cores_by_process": cores,
            "cores_all": round(sum(cores.values()), 3),
            "resident_mib_by_process": meter.resident_mib,
            "settled_seconds_after_the_load": round(settled_seconds, 1),
            "rounds": asdict(rounds),
        }
        goals = correctness(self._job, announced=announced, consumed=consumed, proved=proved, counted=rounds.announced)
        return figures, goals + self._goals(figures, rounds)

    def _start(self) -> list[Child]:
        world, path = self._world, str(self._job.path)
        return [
            world.worker("announcer", "benchmarks.load.ids_announcer", path, str(self._announced_file)),
            world.worker(
                "probe",
                "benchmarks.load.probe",
                *(str(world.redis.port), str(self._options.probe_ms), str(self._probe_file)),
            ),
            world.worker("consumer", "benchmarks.load.ids_consumer", path, str(self._consumed_file)),
        ]

    def _watch(self, meter: Meter, workers: list[Child]) -> None:
        """Until everything is announced."""
        world = self._world
        while not self._announced_file.exists():
            if any(worker.exit_code is not None for worker in workers):
                raise SystemExit("".join(world.log(name).read_text() for name in ("announcer", "probe", "consumer")))
            meter.look()
            self._memory_most = max(self._memory_most, world.redis_memory_bytes())
            self._pending_most = max(self._pending_most, world.pending(self._job))
            time.sleep(min(1.0, self._timing.interval_seconds / 4))

    def _await_settled(self, announced: dict[str, Any]) -> float:
        """Until every loss is proved, repaired and consumed, or patience ends: goals tell what is missing then."""
        timing = self._timing
        began = time.monotonic()
        patience = timing.grace_period_seconds + self._options.check_interval + 10 * timing.interval_seconds + 120

        def is_settled() -> bool:
            proved = found(self._ledger)
            is_done = all(proved.get(key, (0, ""))[1] == "DONE" for key in announced["lost_at_ms"])
            return is_done and self._world.pending(self._job) == 0

        while not is_settled() and time.monotonic() - began < patience:
            time.sleep(0.5)
        return time.monotonic() - began

    def _figures(
        self, announced: dict[str, Any], consumed: dict[str, Any], proved: dict[str, tuple[int, str]]
    ) -> dict[str, Any]:
        job, timing, seconds = self._job, self._timing, announced["seconds"]
        lost_at_ms: dict[str, int] = announced["lost_at_ms"]
        detection = sorted(
            (at_ms - lost_at_ms[key]) / 1_000 - timing.grace_period_seconds
            for key, (at_ms, _) in proved.items()
            if key in lost_at_ms
        )
        return {
            "broker": self._options.broker,
            "seconds": round(seconds, 1),
            "ids": job.ids,
            "announced_per_second": round(announced["announced"] / seconds),
            "recorded_per_second": round(consumed["recorded"] / seconds),
            "announced_late_seconds_max": round(announced["late_seconds_max"], 3),
            "consumed_late_seconds_max": round(consumed["late_seconds_max"], 3),
            "missed_by_the_recorder": consumed["missed"],
            "unconfirmed_at_acknowledgement": consumed["unconfirmed"],
            "recorder_batches": consumed["batches"],
            "redis_used_memory_mib_most": round(self._memory_most / 1024 / 1024, 1),
            "pending_and_unseen_most": self._pending_most,
            "timing": asdict(timing),
            "check_back_interval_seconds": self._options.check_interval,
            "detection_seconds": {
                "planted": len(lost_at_ms),
                "p50": round(percentile(detection, 50), 2),
                "p99": round(percentile(detection, 99), 2),
                "longest": round(detection[-1], 2) if detection else None,
            },
            "foreign_per_second": round(announced["foreign"] / seconds),
            "keys_verified": looked_at(self._ledger),
            "foreign_rows_in_the_ledger": foreign_rows(self._ledger),
            "redis_ping": service_log.document(self._probe_file),
            "redis_slow_commands": self._world.slowest_commands(),
        }

    def _goals(self, figures: dict[str, Any], rounds: service_log.Rounds) -> list[Goal]:
        """What depends on the machine."""
        rate, timing = self._options.rate, self._timing
        bound = 2 * timing.interval_seconds + 2 * timing.skew_margin_seconds
        return [
            at_most("ids missed by the recorder", figures["missed_by_the_recorder"], self._job.ids / 1_000),
            at_least("announced a second", figures["announced_per_second"], 0.98 * rate),
            at_least("recorded a second", figures["recorded_per_second"], 0.98 * 0.999 * rate),
            equal("rounds skipped", sum(n for what, n in rounds.skipped.items() if what.startswith("rounds")), 0),
            at_most("detection p99 seconds", figures["detection_seconds"]["p99"], bound),
            at_least("foreign ids a second", figures["foreign_per_second"], 0.98 * self._job.foreign_rate),
            equal("rows of foreign ids in the ledger", figures["foreign_rows_in_the_ledger"], 0),
        ]


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
        equal("ids counted by the rounds", counted, job.ids + job.foreign_ids),
    ]


def one_run(options: argparse.Namespace, foreign: int | None) -> tuple[dict[str, Any], list[Goal]]:
    """A world of its own."""
    with World(broker=options.broker, check_interval_seconds=options.check_interval) as world:
        return Ids(options, world, foreign=foreign).run()


def detected_after(options: argparse.Namespace, figures: dict[str, Any]) -> float:
    """Seconds from the loss until it is proved, the grace period included: 99 of 100."""
    return float(options.grace + figures["detection_seconds"]["p99"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=None, help="600; with --foreign 60, twice")
    parser.add_argument("--rate", type=int, default=None, help="5000; with --foreign 2500")
    parser.add_argument("--foreign", type=int, default=None, help="ids a second of a tag that the group does not take")
    parser.add_argument("--lose-every", type=int, default=1_000)
    parser.add_argument("--broker", default="embedded")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--interval", type=float, default=5.0, help="rounds.interval_seconds")
    parser.add_argument("--skew", type=float, default=10.0, help="rounds.skew_margin_seconds")
    parser.add_argument("--grace", type=float, default=30.0, help="grace_period_seconds")
    parser.add_argument("--check-interval", type=float, default=15.0, help="the broker's, seconds")
    parser.add_argument("--probe-ms", type=float, default=1.0, help="between two pings of Redis")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.seconds = options.seconds or (600.0 if options.foreign is None else 60.0)
    options.rate = options.rate or (5_000 if options.foreign is None else 2_500)
    if options.foreign is None:
        figures, goals = one_run(options, None)
        return report("load_ids", figures, goals, options.out)
    without, goals = one_run(options, 0)
    beside, more = one_run(options, options.foreign)
    ratio = detected_after(options, beside) / detected_after(options, without)
    figures = {"detection_p99_ratio": round(ratio, 3), "without": without, "with": beside}
    goals += [*more, at_most("detection p99, of that without", ratio, FOREIGN_RATIO_MAX)]
    return report("load_foreign", figures, goals, options.out)


if __name__ == "__main__":
    sys.exit(main())
