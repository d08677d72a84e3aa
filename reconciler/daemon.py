"""The long-running service: ticks on APScheduler, signals, a bounded drain.

A tick is one turn of a job; it catches nothing itself. A TransientError costs that turn only: the next one tries
again, so the daemon survives every dependency that goes away, without a restart. Two daemons at once do no harm:
correctness rests on the round's fence and on the ledger's claims, not on who is alone.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from reconciler.clock import Clock
from reconciler.errors import ConfigurationError, TransientError

logger = logging.getLogger(__name__)

#: How long SIGTERM waits for the turns in hand.
DRAIN_SECONDS_DEFAULT = 30.0
#: Exit code of SIGINT and of a second SIGTERM.
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A job that runs again and again, never twice at the same time."""

    name: str
    interval_seconds: float
    run: Callable[[], object]


class StopSignals:
    """SIGTERM and SIGINT ask for a stop; a second one ends the process at once with 130.

    Install from the main thread only.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._interrupted = False

    def install(self) -> None:
        """Takes over both signals."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.requested.is_set():
            # Nothing may run any more: whatever is in hand is safe to lose, like a kill -9.
            os._exit(INTERRUPTED)
        self._interrupted = number == signal.SIGINT
        self.requested.set()

    @property
    def exit_code(self) -> int:
        """0 after SIGTERM, 130 after SIGINT."""
        return INTERRUPTED if self._interrupted else 0


class Daemon:
    """Runs ticks until a stop is asked for. Not reusable; `run` blocks the calling thread."""

    def __init__(
        self,
        ticks: Sequence[Tick],
        *,
        stop: threading.Event,
        clock: Clock,
        drain_seconds: float = DRAIN_SECONDS_DEFAULT,
    ) -> None:
        self._ticks = {tick.name: tick for tick in ticks}
        self._stop = stop
        self._clock = clock
        self._drain_seconds = drain_seconds
        self._running: Counter[str] = Counter()
        self._lock = threading.Condition()
        #: (job, why) -> turns that did not run; "missed" and "still running" by APScheduler, "away" by us.
        self.skipped: Counter[tuple[str, str]] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Starts all ticks at once, waits for the stop, drains. Raises the first error that no retry can cure."""
        scheduler = BackgroundScheduler(
            timezone="UTC",
            executors={"default": ThreadPoolExecutor(max_workers=max(2, len(self._ticks)))},
            job_defaults={
                "coalesce": True,  # after a pause one turn is enough: a round takes everything that waits
                "max_instances": 1,
                "misfire_grace_time": None,  # a late turn is better than none; lateness is not an error
            },
        )
        scheduler.add_listener(self._on_skipped, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
        for tick in self._ticks.values():
            # Jitter, so that two daemons started together do not meet at every turn.
            scheduler.add_job(
                self._turn,
                "interval",
                args=[tick],
                id=tick.name,
                seconds=tick.interval_seconds,
                jitter=min(1.0, tick.interval_seconds / 10),
            )
        scheduler.start()
        for tick in self._ticks.values():
            first = random.random() * min(1.0, tick.interval_seconds)
            job = scheduler.get_job(tick.name)
            job.modify(next_run_time=job.next_run_time - timedelta(seconds=tick.interval_seconds - first))
        notify_systemd("READY=1")
        self._stop.wait()
        notify_systemd("STOPPING=1")
        scheduler.shutdown(wait=False)
        self._drain()
        if self.failure is not None:
            raise self.failure

    def _turn(self, tick: Tick) -> None:
        if self._stop.is_set():
            return
        with self._lock:
            self._running[tick.name] += 1
        try:
            tick.run()
        except TransientError as error:
            self.skipped[tick.name, "away"] += 1
            logger.warning("turn_skipped", extra={"job": tick.name, "error": str(error)})
        except ConfigurationError as error:
            self._fail(tick, error)
        except Exception as error:
            logger.exception("turn_failed", extra={"job": tick.name})
            self.skipped[tick.name, type(error).__name__] += 1
        finally:
            with self._lock:
                self._running[tick.name] -= 1
                self._lock.notify_all()

    def _fail(self, tick: Tick, error: BaseException) -> None:
        # Only a person can mend the configuration: stop, so that the supervisor and the alarm notice.
        logger.error("daemon_stops", extra={"job": tick.name, "error": str(error)})
        self.failure = self.failure or error
        self._stop.set()

    def _on_skipped(self, event: JobEvent) -> None:
        why = "missed" if event.code == EVENT_JOB_MISSED else "still running"
        self.skipped[event.job_id, why] += 1
        logger.warning("turn_skipped", extra={"job": event.job_id, "error": why})

    def _drain(self) -> None:
        deadline = self._clock.monotonic_seconds() + self._drain_seconds
        with self._lock:
            while any(self._running.values()):
                left = deadline - self._clock.monotonic_seconds()
                if left <= 0:
                    busy = sorted(name for name, count in self._running.items() if count)
                    logger.warning("drain_gave_up", extra={"jobs": busy, "drain_seconds": self._drain_seconds})
                    return
                self._lock.wait(left)


def notify_systemd(state: str) -> None:
    """Tells systemd about start and stop (sd_notify); does nothing outside a unit of Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto(state.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)
        except OSError as error:
            logger.warning("systemd_not_notified", extra={"error": str(error)})
