"""What browsers that look cost the rounds: 50 of them, polling every 2 s, beside 1 000 ids a second.

    python -m benchmarks.web [--browsers 50,100,200,400] [--seconds 18] [--turns 4] [--rate 1000] [--apart]

Ids are announced and consumed all the time, as in load.ids. Phases without browsers and with each number of them take
turns in one run of seven minutes, so that a machine that becomes slower does so for all. The 95th percentile of a
round's duration with them is told as a ratio to that without; the most browsers up to which the ratio holds are
reported. A browser asks for what a page that is open asks for, five times as often. The console is served by
`reconciler run` itself, which is the dearer way, since pages and rounds share an interpreter; with --apart it is a
`reconciler web` of its own.

Fails unless the first number of browsers holds, and no loss was missed or made up.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.load import service_log
from benchmarks.load.figures import Goal, at_most, equal, percentile, report
from benchmarks.load.ids import WORKERS_START_SECONDS, found
from benchmarks.load.job import Job
from benchmarks.load.processes import Meter
from benchmarks.load.world import Timing, World, until
from tests.services.ports import free_port

#: Of a round with browsers to one without.
RATIO_MAX = 1.2
EVERY_SECONDS = 2.0
LOSE_EVERY = 1_000


class Phases:
    """Durations of rounds, by what else went on. Used by one thread."""

    def __init__(self, options: argparse.Namespace, world: World) -> None:
        self._options = options
        self._world = world
        self._port = free_port()
        self._spans: dict[int, list[tuple[float, float]]] = {}
        self._polls: dict[int, list[dict[str, Any]]] = {}
        self._cores: dict[int, list[dict[str, float]]] = {}

    def start(self, job: Job) -> Job:
        """Service, console, announcer and consumer; the job with the time of its first id."""
        options, world = self._options, self._world
        timing = Timing(interval_seconds=options.interval, skew_margin_seconds=1.0, grace_period_seconds=5.0)
        listen = f'\n[web]\nlisten = "127.0.0.1:{self._port}"\n'
        world.configure(job, timing, more="" if options.apart else listen)
        world.service()
        if options.apart:
            world.reconciler("web", "--listen", f"127.0.0.1:{self._port}")
        job = replace(job, start_at_seconds=time.time() + WORKERS_START_SECONDS)
        job.write()
        for name in ("announcer", "consumer"):
            world.worker(name, f"benchmarks.load.ids_{name}", str(job.path), str(world.folder / f"{name}.json"))
        until(lambda: time.time() >= job.start_at_seconds + options.settle, within_seconds=60, what="the load")
        return job

    def phase(self, browsers: int) -> None:
        """One phase; 0: nobody looks."""
        world, out = self._world, self._world.folder / "browsers.json"
        out.unlink(missing_ok=True)
        polling = None
        if browsers:
            url = f"http://127.0.0.1:{self._port}{self._options.path}"
            polling = world.worker(
                "browsers", "benchmarks.load.browsers", url, str(browsers), str(EVERY_SECONDS), str(out)
            )
        time.sleep(self._options.settle)
        meter = Meter(dict(world.pids))
        meter.start()
        began = time.time()
        time.sleep(self._options.seconds)
        until(lambda: bool(self._rounds_ms([(began, time.time())])), within_seconds=60, what="a round in the phase")
        self._spans.setdefault(browsers, []).append((began, time.time()))
        self._cores.setdefault(browsers, []).append(meter.cores(time.time() - began))
        if polling is not None:
            polling.stop()
            self._polls.setdefault(browsers, []).append(service_log.document(out))
            del world.pids["browsers"]

    def durations_ms(self, browsers: int) -> list[float]:
        """Of the rounds within the phases of this many, ascending."""
        return self._rounds_ms(self._spans[browsers])

    def _rounds_ms(self, spans: Sequence[tuple[float, float]]) -> list[float]:
        return sorted(
            line["duration_seconds"] * 1_000
            for line in service_log.lines(self._world.log("run"))
            if line.get("event") == "round_finished"
            and any(began <= line["at_ms"] / 1_000 < ended for began, ended in spans)
        )

    def ratio(self, browsers: int) -> float:
        """95th percentile of a round with them, to that without."""
        return percentile(self.durations_ms(browsers), 95) / percentile(self.durations_ms(0), 95)

    def figures(self) -> list[dict[str, Any]]:
        """One line for each number of browsers."""
        lines = []
        for browsers in self._spans:
            durations = self.durations_ms(browsers)
            cores = self._cores[browsers]
            lines.append(
                {
                    "browsers": browsers,
                    "rounds": len(durations),
                    "round_p50_ms": round(percentile(durations, 50), 1),
                    "round_p95_ms": round(percentile(durations, 95), 1),
                    "ratio_p95": round(self.ratio(browsers), 3),
                    "cores": {name: round(sum(c[name] for c in cores) / len(cores), 3) for name in cores[0]},
                    "polls": self._polls.get(browsers, []),
                }
            )
        return lines

    def holds(self, browsers: int) -> bool:
        """Whether rounds and answers came as they should."""
        return self.ratio(browsers) <= RATIO_MAX and self.failed_requests(browsers) == 0

    def failed_requests(self, browsers: int) -> int:
        """Of the phases of this many."""
        return sum(poll["failures"] for poll in self._polls.get(browsers, []))


def goals_of(phases: Phases, first: int, lost: set[str], proved: set[str], due: set[str]) -> list[Goal]:
    """`due`: losses that are old enough to have been proved."""
    return [
        at_most(f"round p95 beside {first} browsers, of that without", phases.ratio(first), RATIO_MAX),
        equal(f"requests of {first} browsers without an answer", phases.failed_requests(first), 0),
        equal("losses that were not planted", len(proved - lost), 0),
        equal("planted losses that were not proved", len(due - proved), 0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--browsers", default="50,100,200,400", help="numbers that are tried, ascending")
    parser.add_argument("--seconds", type=float, default=18.0, help="of a phase")
    parser.add_argument(
        "--settle", type=float, default=2.0, help="seconds that a phase begins with and that do not count"
    )
    parser.add_argument("--turns", type=int, default=4, help="phases of each kind")
    parser.add_argument("--rate", type=int, default=1_000, help="ids a second")
    parser.add_argument("--interval", type=float, default=0.5, help="rounds.interval_seconds")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--path", default="/overview/now", help="what a browser polls")
    parser.add_argument("--apart", action="store_true", help="the console is a process of its own")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    numbers = [int(text) for text in options.browsers.split(",")]
    longest = (options.seconds + options.settle + 4) * options.turns * (1 + len(numbers))
    with World(check_interval_seconds=2.0) as world:
        job = Job(
            folder=str(world.folder),
            name_servers=world.name_servers,
            redis_url=world.redis.url,
            run=world.run,
            shards=options.shards,
            rate=options.rate,
            ids=int(longest * options.rate) + 100 * options.rate,
            lose_every=LOSE_EVERY,
            inbox_url=f"sqlite:///{world.folder / 'inbox.db'}",
        )
        phases = Phases(options, world)
        job = phases.start(job)
        for _ in range(options.turns):
            for browsers in (0, *numbers):
                phases.phase(browsers)
        held = list(takewhile(phases.holds, numbers))
        seconds = time.time() - job.start_at_seconds
        proved = set(found(world.folder / "ledger.db"))
        lost = {job.key(number) for number in job.lost_numbers()}
        # Grace, the broker's check and some rounds are over for what was lost half a minute ago.
        due = {job.key(number) for number in job.lost_numbers() if number < (seconds - 30) * job.rate}
        figures = {
            "served_by": "reconciler web" if options.apart else "reconciler run",
            "ids_per_second": options.rate,
            "most_browsers_that_held": max(held, default=0),
            "requests_per_second_that_held": max(held, default=0) / EVERY_SECONDS,
            "phases": phases.figures(),
        }
        return report("web", figures, goals_of(phases, numbers[0], lost, proved, due), options.out)


if __name__ == "__main__":
    sys.exit(main())
