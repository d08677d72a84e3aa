"""The long-running service: jobs on APScheduler, signals, and a stop that waits a limited time for running turns.

A tick is a job that runs in turns. A turn need not catch errors. A TransientError ends only that turn, and the next
turn tries again. So the daemon needs no restart when a dependency goes away. Two daemons at once do no harm, because
the fence of rounds and the claims in the ledger make rounds correct.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from reconciler.clock import Clock, Reminders
from reconciler.contract.own_limits import lacking
from reconciler.errors import ConfigurationError, ReconcilerError, TransientError

logger = logging.getLogger(__name__)

#: Longest time that a stop by SIGTERM waits for running turns.
DRAIN_SECONDS_DEFAULT = 30.0
#: Pause between two tries to start while a dependency is away.
START_AGAIN_SECONDS = 2.0
#: After this time a trouble that is back is logged again.
TOLD_AGAIN_SECONDS = 600.0
#: Pause between two checks whether the wall clock was set back.
CLOCK_WATCH_SECONDS = 1.0
#: A turn is planned at most its interval and this time ahead. The time includes a second of jitter.
PLANNED_AHEAD_SECONDS_MAX = 2.0
#: Maximum number of turns that run at the same time, of jobs whose turns another job begins.
BEGUN_TURNS_MAX = 32
#: Exit code after SIGINT, after a second SIGTERM, and after a stop that gave up waiting for a turn.
INTERRUPTED = 130
_STOPPING = (signal.SIGTERM, signal.SIGINT)


class DrainGaveUp(ReconcilerError):
    """Some turns did not end in time. Leaving them unfinished is as safe as a kill -9."""

    exit_code = INTERRUPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A job that runs at an interval. Two turns of a job never run at the same time."""

    name: str
    interval_seconds: float
    run: Callable[[], object]
    #: True: another job begins the turns of this job (TickRunner.begin), at most one turn per interval. If a turn takes
    #: longer than the interval, as in a flood, the next turn begins right after it.
    is_begun: bool = False


class StopSignals:
    """Handles SIGTERM and SIGINT, which ask for a stop. A second signal ends the process at once with exit code 130.

    Only the main thread may install this. A separate thread takes the signals, because a Python handler interrupts the
    main thread at any point. If a handler called Event.set within Event.wait of the same event, it would wait for ever.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._interrupted = False

    def install(self) -> None:
        """Takes over SIGTERM and SIGINT."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)  # the interpreter requires it
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in _STOPPING:
            signal.signal(number, _left_to_the_pipe)
        threading.Thread(target=self._take, args=(reader,), name="signals", daemon=True).start()

    def _take(self, reader: int) -> None:
        while numbers := os.read(reader, 64):
            for number in numbers:
                if number in _STOPPING:
                    self._handle(number)
        os.close(reader)  # whoever closes the other end takes the signals over

    def _handle(self, number: int) -> None:
        if self.requested.is_set():
            # Nothing may run any more. The loss of the work in hand is as safe as after a kill -9.
            os._exit(INTERRUPTED)
        self._interrupted = number == signal.SIGINT
        self.requested.set()

    @property
    def exit_code(self) -> int:
        """Returns 0 after SIGTERM, 130 after SIGINT."""
        return INTERRUPTED if self._interrupted else 0


def _left_to_the_pipe(_number: int, _frame: FrameType | None) -> None:
    """Replaces the default action of a signal. The signal's byte in the wakeup pipe is handled instead."""


class _Threads(BaseExecutor):  # type: ignore[misc]  # APScheduler has no types
    """Runs each turn on a daemon thread.

    At the end of the process, concurrent.futures would wait for a turn that hangs.
    """

    def _do_submit_job(self, job: Any, run_times: Any) -> None:
        threading.Thread(target=self._run, args=(job, run_times), name=job.id, daemon=True).start()

    def _run(self, job: Any, run_times: Any) -> None:
        # A Job has a store only inside the scheduler. run_job catches every exception of a turn.
        self._run_job_success(job.id, run_job(job, "default", run_times, self._logger.name))


class _Interval(IntervalTrigger):  # type: ignore[misc]  # APScheduler has no types
    """An interval trigger that lists one due turn after the clock jumped ahead.

    APScheduler's own trigger would list every turn in between before any turn runs: hundreds of millions for ten years.
    """

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        following: datetime | None = super().get_next_fire_time(previous_fire_time, now)
        if following is None or following > now:
            return following
        missed: int = (now - following) // self.interval + 1
        return following + timedelta(seconds=missed * self.interval_length)


class _Places:
    """A limited number of places for turns. Turns that find no place wait in the order in which they came.

    A turn that comes again waits behind all waiting turns.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        with self._lock:
            given = None if self._free else threading.Event()
            if given is None:
                self._free -= 1
            else:
                self._waiting.append(given)
        if given is not None:
            given.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._free += 1


@dataclass(slots=True)
class _AwayTurns:
    """Turns in a row that failed because a dependency is away. A trouble is the name and the remedy of an error."""

    count: int = 0
    #: The trouble that was logged last.
    logged: tuple[str, str] | None = None
    #: Trouble -> when it was logged, in monotonic seconds.
    logged_at: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, trouble: tuple[str, str], now: float) -> bool:
        """Counts a turn. Returns True if its trouble is to be logged: the server may be back and refuse the login.

        Two troubles may alternate, so one that is back is logged again only some time after it was logged. It is
        logged then, too, if it came back before.
        """
        self.count += 1
        is_another = trouble != self.logged
        is_told = is_another and now - self.logged_at.get(trouble, float("-inf")) >= TOLD_AGAIN_SECONDS
        if is_told:
            self.logged, self.logged_at[trouble] = trouble, now
        return is_told


class TickRunner:
    """Runs ticks until a stop is requested. A runner cannot be used twice. `run` blocks the calling thread."""

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
        self._began: dict[str, float] = {}
        self._began_at: float | None = None
        self._overlaps: Counter[str] = Counter()
        #: Job -> its turns in a row that failed because a dependency is away.
        self._away: dict[str, _AwayTurns] = {}
        self._lock = threading.Condition()
        self._room = _Places(BEGUN_TURNS_MAX)
        #: (Job, why) -> number of turns that did not run or failed. The values of `why` are: "still running" for a turn
        #: that found the turn before still running; "missed" for a turn while the process was stopped or starved;
        #: "away"; and the name of an exception that shows a bug.
        self.skipped: Counter[tuple[str, str]] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Starts all ticks at once, waits for the stop, and drains.

        Raises the first error that no retry can cure, and DrainGaveUp.
        """
        scheduler = BackgroundScheduler(
            timezone="UTC",
            executors={"default": _Threads()},
            job_defaults={
                "coalesce": True,  # one turn after a pause is enough, because one round takes all waiting keys
                "max_instances": 1,
                "misfire_grace_time": None,  # a late turn still runs
            },
        )
        scheduler.add_listener(lambda event: self._still_runs(event.job_id), EVENT_JOB_MAX_INSTANCES)
        ticks = [tick for tick in self._ticks.values() if not tick.is_begun]
        for tick in ticks:
            # With jitter, two daemons that were started together do not collide at every turn.
            scheduler.add_job(
                self._turn,
                _Interval(seconds=tick.interval_seconds, jitter=min(1.0, tick.interval_seconds / 10), timezone=UTC),
                args=[tick],
                id=tick.name,
            )
        self._began_at = self._clock.monotonic_seconds()
        scheduler.start()
        for tick in ticks:
            first = random.random() * min(1.0, tick.interval_seconds)
            job = scheduler.get_job(tick.name)
            job.modify(next_run_time=job.next_run_time - timedelta(seconds=tick.interval_seconds - first))
        notify_systemd("READY=1")
        self._until_stop(scheduler, ticks)
        logger.info("daemon_stopping", extra={"drain_seconds": self._drain_seconds})
        notify_systemd("STOPPING=1")
        scheduler.shutdown(wait=False)
        left_behind = self._drain()
        if self.failure is not None:
            raise self.failure
        if left_behind:
            raise DrainGaveUp(f"{', '.join(left_behind)} did not end within {self._drain_seconds:g} s: left behind")

    def _until_stop(self, scheduler: BackgroundScheduler, ticks: Sequence[Tick]) -> None:
        """Waits for the stop. Makes a new plan of turns if the wall clock was set back.

        APScheduler plans and sleeps by the wall clock, and would otherwise sleep until the planned time.
        """
        while not self._clock.wait(self._stop, CLOCK_WATCH_SECONDS):
            now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
            for tick in ticks:
                planned = scheduler.get_job(tick.name).next_run_time
                if planned - now > timedelta(seconds=tick.interval_seconds + PLANNED_AHEAD_SECONDS_MAX):
                    logger.warning("clock_set_back", extra={"job": tick.name, "planned": planned.isoformat()})
                    scheduler.modify_job(tick.name, next_run_time=now)
            scheduler.wakeup()  # a turn may have become due while the scheduler slept

    def begin(self, name: str) -> None:
        """Begins a turn of a job that has is_begun, unless the last turn of the job still runs.

        At most BEGUN_TURNS_MAX turns run at the same time. Further turns wait. Raises RuntimeError if this process gets
        no more threads.
        """
        tick = self._ticks[name]
        with self._lock:
            is_running = self._running[name] > 0
            if not is_running:
                threading.Thread(target=self._begun_turn, args=(tick,), name=name, daemon=True).start()
                self._running[name] += 1
        if is_running:
            self._still_runs(name)

    def _begun_turn(self, tick: Tick) -> None:
        with self._ending(tick):
            is_behind = True
            while is_behind:
                with self._room.taken():
                    is_done = self._run_turn(tick)
                is_behind = is_done and self._overlaps[tick.name] > 0 and not self._stop.is_set()

    def _turn(self, tick: Tick) -> None:
        with self._lock:
            self._running[tick.name] += 1
        with self._ending(tick):
            self._run_turn(tick)

    @contextmanager
    def _ending(self, tick: Tick) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._running[tick.name] -= 1
                self._lock.notify_all()

    def _run_turn(self, tick: Tick) -> bool:
        """Runs one turn. Returns False if the turn failed.

        After a failure the next turn does not begin before its time, because a dependency may be away.
        """
        try:
            if not self._stop.is_set():
                self._count_missed(tick)
                tick.run()
        except TransientError as error:
            self._skip_away(tick, error, str(error), remedy=error.remedy)
        except ConfigurationError as error:
            self._fail(tick, error)
        except Exception as error:
            if remedy := lacking(error):
                self._skip_away(tick, error, f"{error}; {remedy}", remedy=remedy)
                return False
            logger.exception("turn_failed", extra={"job": tick.name})
            self.skipped[tick.name, type(error).__name__] += 1
        else:
            skipped = self._away.pop(tick.name, None)
            if skipped is not None and skipped.count > 1:
                logger.info("turns_resumed", extra={"job": tick.name, "skipped": skipped.count})
            return True
        return False

    def _skip_away(self, tick: Tick, error: Exception, told: str, *, remedy: str) -> None:
        cause = type(error).__name__
        away = self._away.setdefault(tick.name, _AwayTurns())
        is_told = away.add((cause, remedy), self._clock.monotonic_seconds())
        self._skip(tick.name, "away", told, cause=cause, is_told=is_told)

    def _fail(self, tick: Tick, error: BaseException) -> None:
        # Only a person can correct the configuration, so the service stops. The supervisor and an alarm notice the
        # stop.
        logger.error("daemon_stops", extra={"job": tick.name, "cause": type(error).__name__, "error": str(error)})
        self.failure = self.failure or error
        self._stop.set()

    def lateness_seconds(self) -> dict[str, float]:
        """Returns job -> the seconds by which its next turn is overdue, or 0. A second of jitter does not count."""
        now = self._clock.monotonic_seconds()
        began = self._began_at if self._began_at is not None else now
        return {
            name: max(0.0, now - self._began.get(name, began) - tick.interval_seconds - PLANNED_AHEAD_SECONDS_MAX)
            for name, tick in self._ticks.items()
            if self._running[name] or not tick.is_begun  # a begun job that does not run has no planned turn
        }

    def _still_runs(self, name: str) -> None:
        self._overlaps[name] += 1
        self._skip(name, "still running", "still running", is_told=self._overlaps[name] == 1)

    def _count_missed(self, tick: Tick) -> None:
        """Counts the turns that should have begun since the last turn. APScheduler does not log these."""
        now = self._clock.monotonic_seconds()
        before, self._began[tick.name] = self._began.get(tick.name), now
        overlaps = self._overlaps.pop(tick.name, 0)
        if before is None or tick.is_begun:
            return
        missed = round((now - before) / tick.interval_seconds) - 1 - overlaps
        if missed > 0:
            self._skip(tick.name, "missed", f"{missed} missed", turns=missed)

    def _skip(self, job: str, why: str, error: str, *, cause: str = "", turns: int = 1, is_told: bool = True) -> None:
        """Counts skipped turns, and logs them. `why`: a word of self.skipped.

        `cause`: the name of an error, which the log has instead of `why`. `is_told`: False if the log has this already.
        """
        self.skipped[job, why] += turns
        if is_told:
            logger.warning("turn_skipped", extra={"job": job, "cause": cause or why, "error": error})

    def _drain(self) -> list[str]:
        """Waits for running turns, and returns the jobs whose turns did not end in time."""
        deadline = self._clock.monotonic_seconds() + self._drain_seconds
        with self._lock:
            while any(self._running.values()):
                left = deadline - self._clock.monotonic_seconds()
                if left <= 0:
                    return sorted(name for name, count in self._running.items() if count)
                self._lock.wait(left)
        return []


def serve_when_possible(serve: Callable[[], None], *, stop: threading.Event, clock: Clock) -> None:
    """Runs `serve`. If a dependency is away at the start, waits and starts `serve` again, until the stop."""
    reminders = Reminders(clock)
    while not stop.is_set():
        try:
            serve()
        except TransientError as error:
            notify_systemd("READY=1")  # the service waits by itself, so systemd need not restart it
            cause = type(error).__name__
            if reminders.is_due((cause, error.remedy)):
                logger.warning("start_waits", extra={"cause": cause, "error": str(error)})
            clock.wait(stop, START_AGAIN_SECONDS)
        else:
            return


def notify_systemd(state: str) -> None:
    """Tells systemd about start and stop (sd_notify). Outside a unit with Type=notify nothing is told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto(state.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)
        except OSError as error:
            logger.warning("systemd_not_notified", extra={"error": str(error)})
