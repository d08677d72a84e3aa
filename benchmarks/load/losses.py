"""A hundred thousand losses at once: `python -m benchmarks.load.losses [--losses 100000] [--broker 5.3.3]`.

A producing service has committed them and is dead: there is no END_TRANSACTION, no announcement, and nobody to answer a
check-back. Only then `sweep`, `run` and a consumer start, with their default settings. The sweeper announces, the
breaker opens, and lifts itself after three calm rounds; then everything is repaired. Meanwhile a browser has the
console open, and `status` is asked again and again.

Fails unless each message had one effect and was consumed once, and unless all effects were there within the time that
`repairs.rate_per_second` allows from the moment the breaker lifted.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.load import service_log
from benchmarks.load.browsers import Browser
from benchmarks.load.figures import Goal, at_least, at_most, equal, percentile, report
from benchmarks.load.job import Job
from benchmarks.load.postgres import ask, make_shop
from benchmarks.load.processes import Meter
from benchmarks.load.world import Timing, World, until
from tests.services.ports import free_port

#: Of 100 000, from the end of the breaker to the last effect: the default rate needs 500 s. Fewer have their share, and
#: a minute.
REPAIRED_SECONDS, OF_LOSSES, AT_LEAST_SECONDS = 600.0, 100_000, 60.0
#: Until the last message has its effect: proofs, the breaker, repairs.
PATIENCE_SECONDS = 7_200.0
LOOKED_AT_EVERY_SECONDS, ASKED_EVERY_SECONDS = 2.0, 30.0
MEMORY_MIB_MAX = 400.0
_EFFECTS = "SELECT count(*), count(DISTINCT unique_key) FROM effects"
#: Exit codes of `status` that are answers.
_ANSWERS = {0, 1, 3}


class Losses:
    """One run. Used by one thread."""

    def __init__(self, options: argparse.Namespace, world: World) -> None:
        self._options, self._world = options, world
        assert world.postgres is not None
        self._outbox, self._inbox, self._ledger = make_shop(world.postgres)
        self._job = Job(
            folder=str(world.folder), name_servers=world.name_servers, redis_url=world.redis.url,
            outbox_url=self._outbox, inbox_url=self._inbox, run=world.run, ids=options.losses, threads=16,
        )  # fmt: skip
        self._console = free_port()
        self._stop = threading.Event()
        self._status_seconds: list[float] = []
        self._status_codes: set[int] = set()

    def run(self) -> tuple[dict[str, Any], list[Goal]]:
        """Figures and goals."""
        world, job = self._world, self._job
        more = f'\n[web]\nlisten = "127.0.0.1:{self._console}"\n'
        # A broker that asks nobody back for long enough parks halves: those are republished.
        world.configure(job, Timing(), ledger_url=self._ledger, more=more, repair_order=("end", "republish"))
        laid_seconds = self._lay_down()
        began = time.time()
        world.service()
        world.reconciler("sweep")
        consumer = world.worker("consumer", "benchmarks.load.sql_consumer", str(job.path), "4")
        url = f"http://127.0.0.1:{self._console}/overview/now"
        browser = Browser(url, first_seconds=0.0, every_seconds=LOOKED_AT_EVERY_SECONDS, stop=self._stop)
        browser.start()
        meter = Meter(world.pids)
        meter.start()
        self._await_effects(meter)
        took = time.time() - began
        cores = meter.cores(took)
        until(self._are_all_closed, within_seconds=PATIENCE_SECONDS, what="every repair is done", every_seconds=2.0)
        self._stop.set()
        browser.join()
        consumer.stop()
        waits = sorted(browser.waits_ms)
        figures = {
            "broker": self._options.broker, "losses": self._options.losses, "laid_down_seconds": laid_seconds,
            **self._times(began),
            "cores_by_process": cores, "resident_mib_by_process_most": meter.resident_mib,
            "redis_used_memory_mib": round(world.redis_memory_bytes() / 1024**2, 1),
            "console": {
                "answers": len(waits), "p50_ms": round(percentile(waits, 50), 1),
                "p95_ms": round(percentile(waits, 95), 1), "failures": len(browser.failures),
            },
            "status": {"asked": len(self._status_seconds), "longest_seconds": max(self._status_seconds, default=0.0)},
            "rungs": dict(ask(self._ledger, "SELECT rung, count(*) FROM reconciler_repair GROUP BY rung")),
            "consumer": world.log("consumer").read_text().strip().splitlines()[-1],
        }  # fmt: skip
        return figures, self._goals(figures)

    def _lay_down(self) -> float:
        """Returns the seconds that it took; the producer is dead."""
        began, world = time.monotonic(), self._world
        child = world.worker("producer", "benchmarks.load.losses_producer", str(self._job.path))
        until(lambda: child.exit_code is not None, within_seconds=PATIENCE_SECONDS, what="the producer is dead")
        if child.exit_code != -signal.SIGKILL:
            raise SystemExit(f"the producer:\n{world.log('producer').read_text()}")
        del world.pids["producer"]
        return round(time.monotonic() - began, 1)

    def _await_effects(self, meter: Meter) -> None:
        """Looks at memory and asks `status` meanwhile."""
        asked_at = 0.0

        def reached() -> bool:
            nonlocal asked_at
            meter.look()
            if time.monotonic() - asked_at >= ASKED_EVERY_SECONDS:
                asked_at = time.monotonic()
                self._ask_status()
            return bool(ask(self._inbox, _EFFECTS)[0][0] >= self._options.losses)

        until(reached, within_seconds=PATIENCE_SECONDS, what=f"{self._options.losses} effects", every_seconds=1.0)

    def _ask_status(self) -> None:
        began = time.monotonic()
        child = self._world.reconciler("status")
        until(lambda: child.exit_code is not None, within_seconds=600, what="reconciler status", every_seconds=0.05)
        self._status_seconds.append(round(time.monotonic() - began, 1))
        self._status_codes.add(child.exit_code or 0)
        del self._world.pids["status"]

    def _are_all_closed(self) -> bool:
        return ask(self._ledger, "SELECT count(*) FROM reconciler_repair WHERE state <> 'DONE'")[0][0] == 0

    def _times(self, began: float) -> dict[str, Any]:
        """Seconds since the service was started."""
        opened, closed = (
            [_seconds_of(line) - began for line in service_log.lines(self._world.log("run")) if line.get("event") == e]
            for e in ("breaker_opened", "breaker_closed")
        )
        last = ask(self._inbox, "SELECT max(applied_at_ms) FROM reconciler_inbox")[0][0] / 1_000 - began
        proved = ask(self._ledger, "SELECT max(created_at_ms) FROM reconciler_repair")[0][0] / 1_000 - began
        return {
            "breaker_opened": [round(one, 1) for one in opened],
            "breaker_closed": [round(one, 1) for one in closed],
            "last_proved_seconds": round(proved, 1),
            "last_effect_seconds": round(last, 1),
            "repaired_seconds_after_the_breaker": round(last - (closed[-1] if closed else 0.0), 1),
        }

    def _goals(self, figures: dict[str, Any]) -> list[Goal]:
        losses = self._options.losses
        repairs = ask(self._ledger, "SELECT count(*), count(DISTINCT unique_key) FROM reconciler_repair")[0]
        allowed = AT_LEAST_SECONDS + (REPAIRED_SECONDS - AT_LEAST_SECONDS) * losses / OF_LOSSES
        answered = self._status_codes <= _ANSWERS
        return [
            equal("committed messages", ask(self._outbox, "SELECT count(*) FROM orders")[0][0], losses),
            equal("effects, and messages with one", ask(self._inbox, _EFFECTS)[0], (losses, losses)),
            equal("no message was consumed twice", " duplicates 0 " in figures["consumer"], True),
            equal("repairs, and keys with one", repairs, (losses, losses)),
            at_least("times that the breaker opened", len(figures["breaker_opened"]), 1),
            equal("times that it closed", len(figures["breaker_closed"]), len(figures["breaker_opened"])),
            at_most("repairs, seconds from the breaker's end", figures["repaired_seconds_after_the_breaker"], allowed),
            at_most("memory of run, MiB", figures["resident_mib_by_process_most"]["run"], MEMORY_MIB_MAX),
            equal("console without an answer", figures["console"]["failures"], 0),
            equal("status answered each time", answered, True),
        ]


def _seconds_of(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(str(line["timestamp"])).timestamp()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", type=int, default=OF_LOSSES, help="more than 1 000, or no breaker opens")
    parser.add_argument("--broker", default="5.3.3", help="5.3.3, or embedded")
    parser.add_argument("--check-interval", type=float, default=30.0, help="of the broker, seconds: 5.3.3's default")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with World(broker=options.broker, check_interval_seconds=options.check_interval, postgres=True) as world:
        figures, goals = Losses(options, world).run()
    return report("load_losses", figures, goals, options.out)


if __name__ == "__main__":
    sys.exit(main())
