"""The simulated machine room: one thread, one heap of events, a virtual clock, processes that are greenlets.

Every port call of the product ends up in `Process.enter` and `Kernel.sleep`: there other processes get their turn, and
there a process may stop for a while or die. Death is a `Crash`, a BaseException, so the product's own `except
Exception` blocks cannot catch it; whatever a dead process's `finally` blocks try to do is refused in the same way.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from typing import Any, NoReturn

from greenlet import getcurrent, greenlet

BASE_MS = 1_700_000_000_000
#: Of a statement (rounds.statement_seconds).
DEADLINE_SECONDS = 10.0
NEVER = 1 << 60


class Crash(BaseException):
    """The process died at this port call."""


class SimulationBug(AssertionError):
    """The simulator itself is wrong."""


class Kernel:
    """Time and turns. The hub is the greenlet that calls `run`."""

    def __init__(self, dice: random.Random) -> None:
        self.now = 0.0
        self.dice = dice
        #: Accidents that have really happened, by kind: taken from the world, not from whoever injects.
        self.seen: Counter[str] = Counter()
        self.story: list[str] | None = None
        self.events = 0
        #: Told when a repair of the reconciler reaches a broker: process, key, kind.
        self.on_repair: Callable[[Process, str, str], None] = lambda _process, _key, _kind: None
        self.on_end: Callable[[Process, Any, Any], None] = lambda _process, _broker, _half: None
        #: Told when an END ROLLBACK of the reconciler does: key.
        self.on_close: Callable[[str], None] = lambda _key: None
        #: Of all processes, the dead ones', too, until they have ended.
        self.threads: dict[greenlet, None] = {}
        self._heap: list[tuple[float, int, Any]] = []
        self._numbers = 0
        self._limit = 0.0
        self._hub = getcurrent()

    def at(self, when: float, act: Callable[[], object] | greenlet) -> None:
        """Plans a call in the hub (it must not block), or the next turn of a greenlet."""
        self._numbers += 1
        heappush(self._heap, (when, self._numbers, act))

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """The same, counted from now."""
        self.at(self.now + seconds, act)

    def sleep(self, seconds: float) -> None:
        """Called by a greenlet: others have their turn until the time has passed."""
        until = self.now + seconds
        heap = self._heap
        if until <= self._limit and (not heap or heap[0][0] > until):
            self.now = until  # no other thread has anything to do before
        else:
            self.sleep_until(until)

    def sleep_until(self, until: float) -> None:
        """Another turn comes before: straight to it if it is a thread's, else by way of the hub."""
        heap = self._heap
        self._numbers += 1
        heappush(heap, (until, self._numbers, getcurrent()))
        when, _, act = heap[0]
        # A thread that never ran before must begin below the hub, which is where it ends.
        if when > self._limit or act.__class__ is not greenlet or not act:
            self._hub.switch()
            return
        heappop(heap)
        self.events += 1
        if when > self.now:
            self.now = when
        act.switch()

    def run(self, until: float) -> None:
        """Runs events up to a time."""
        self._hub = getcurrent()
        self._limit = until
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, _, act = heappop(heap)
            if when > self.now:
                self.now = when
            self.events += 1
            if act.__class__ is greenlet:
                if not act.dead:
                    act.switch()
            else:
                act()
        self.now = max(self.now, until)

    def close(self) -> None:
        """Ends every thread, so that the history can be forgotten: Python's collector leaves alone whatever a
        suspended greenlet can reach."""
        self._heap.clear()
        while self.threads:
            thread, _ = self.threads.popitem()
            if thread:
                thread.throw(Crash)

    def any_of(self, count: int) -> int:
        """A number below `count`."""
        return int(self.dice.random() * count)

    def saw(self, kind: str, what: object = "") -> None:
        """An accident has happened."""
        self.seen[kind] += 1
        if self.story is not None:
            self.tell(f"** {kind} {what}".rstrip())

    def tell(self, line: str) -> None:
        """One line of the story, if one is kept."""
        if self.story is not None:
            self.story.append(f"{self.now:9.3f}  {line}")


class Process:
    """A simulated process: threads are greenlets; it dies as a whole."""

    def __init__(self, kernel: Kernel, kind: str, name: str, *, skew_ms: int = 0) -> None:
        self.kernel = kernel
        self.kind = kind
        self.name = name
        self.is_dead = False
        self.calls = 0
        #: Number of the port call at which something happens to the process.
        self.trouble_at = NEVER
        self.trouble: Callable[[], None] = lambda: None
        self.on_death: list[Callable[[], None]] = []
        #: Broker -> offset and time of the newest record up to which its index was proved to this process.
        self.proved: dict[str, tuple[int, float]] = {}
        #: Brokers that this process had never heard of, and when last.
        self.knew_nothing_of: dict[str, float] = {}
        #: When it last read an inbox, and until when it was last stopped by SIGSTOP; for the checkers.
        self.asked_inbox_at = self.stopped_until = 0.0
        #: Whose offsets it read last: before its first look-up a round asks where its group stands; for the checkers.
        self.asked_offsets_of = ""
        #: Broker -> since when, and when last, its looks found no producer connected; for the checkers.
        self.saw_no_producer: dict[str, tuple[float, float]] = {}
        #: Broker and message -> when it looked last for a younger copy of the half, and how long the broker's log was.
        self.looked_for_newest: dict[tuple[str, str], tuple[float, int]] = {}
        #: Broker and message -> when it looked last for a committed copy, and up to where the index was proved to it at
        #: the last answer.
        self.looked_for_copies: dict[tuple[str, str], tuple[float, int]] = {}
        self.clock = MachineClock(self, skew_ms)
        self._threads: list[greenlet] = []

    def spawn(self, body: Callable[[], object], *, after: float = 0.0) -> None:
        """A thread of the process; an exception other than Crash is a bug of product or simulator."""

        def run() -> None:
            try:
                if not self.is_dead:
                    body()
            except Crash:
                if not self.is_dead:
                    raise SimulationBug(f"{self.name} crashed although it is alive") from None
            finally:
                self.kernel.threads.pop(getcurrent(), None)

        thread = greenlet(run, parent=self.kernel._hub)
        self._threads = [known for known in self._threads if not known.dead]
        self._threads.append(thread)
        self.kernel.threads[thread] = None
        self.kernel.at(self.kernel.now + after, thread)

    def enter(self) -> None:
        """Every port call passes here, before it does anything and again before its answer is given."""
        if self.is_dead:
            raise Crash
        self.calls += 1
        if self.calls >= self.trouble_at:
            self.meet_trouble()

    def meet_trouble(self) -> None:
        """What was planned for this port call."""
        self.trouble_at = NEVER
        self.trouble()
        if self.is_dead:
            raise Crash

    def sleep(self, seconds: float) -> None:
        """Waits, and dies there if it was killed meanwhile."""
        self.kernel.sleep(seconds)
        if self.is_dead:
            raise Crash

    def die(self) -> None:
        """kill -9. The thread that is running now, if it is one of the process's, must raise Crash itself."""
        if self.is_dead:
            return
        self.is_dead = True
        self.kernel.tell(f"{self.name} dies")
        for act in self.on_death:
            act()
        current = getcurrent()
        for thread in self._threads:
            if thread is not current and not thread.dead:
                self.kernel.at(self.kernel.now, _killer(thread))


def _killer(thread: greenlet) -> Callable[[], None]:
    def kill() -> None:
        if thread:  # a thread that has not begun sees by itself that it is too late
            thread.throw(Crash)

    return kill


class MachineClock:
    """reconciler.clock.Clock of one machine: its wall clock is wrong by some amount that may jump."""

    def __init__(self, process: Process, skew_ms: int) -> None:
        self._process = process
        self._kernel = process.kernel
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Wall clock."""
        return BASE_MS + int(self._kernel.now * 1000) + self.skew_ms

    def monotonic_seconds(self) -> float:
        """Since the history began."""
        return self._kernel.now

    def sleep(self, seconds: float) -> None:
        """Waits in virtual time."""
        self._process.enter()
        if seconds > 0:
            self._process.sleep(seconds)

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Waits the whole time: nothing sets events in here."""
        if not event.is_set():
            self.sleep(timeout_seconds)
        return event.is_set()


class ServerClock:
    """The clock of a server: Redis, a broker or a database; also good as reconciler.clock.Clock for the ledger."""

    def __init__(self, kernel: Kernel, skew_ms: int = 0) -> None:
        self._kernel = kernel
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Wall clock of the server."""
        return BASE_MS + int(self._kernel.now * 1000) + self.skew_ms

    def monotonic_seconds(self) -> float:
        """Since the history began."""
        return self._kernel.now

    def sleep(self, seconds: float) -> None:
        """A server waits for nobody."""
        raise SimulationBug(f"a server slept {seconds} s")

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """A server waits for nobody."""
        raise SimulationBug(f"a server waited {timeout_seconds} s for {event}")


def _quietly(act: Callable[[], Any]) -> None:
    """Nobody hears of an error."""
    with suppress(Exception):
        act()


class Link:
    """The way to one server, with its troubles. `name` is what fault kinds begin with: redis, broker, outbox ..."""

    def __init__(self, kernel: Kernel, name: str, *, delay_seconds: float) -> None:
        self.name = name
        self.is_troubled = False
        #: Some rate below is not zero.
        self.is_faulty = False
        self.request_lost = 0.0
        self.reply_lost = 0.0
        self.slow = 0.0
        self.refused = 0.0
        #: The connection breaks behind a request, which may have been executed; what then is raised, if it is known.
        self.breaks = 0.0
        self.broken: Callable[[str], Exception] | None = None
        self.down_until = 0.0
        #: The server's process is stopped: its kernel takes requests, which it executes when it goes on, or ends.
        self.stands_until = 0.0
        self.timeout_seconds = 1.0
        self._kernel = kernel
        self._delay_seconds = delay_seconds
        self._random = kernel.dice.random

    def call(
        self,
        process: Process,
        act: Callable[[], Any],
        away: Callable[[str], Exception],
        unanswered: Callable[[str], Exception] | None = None,
        what: str = "",
    ) -> Any:
        """Runs `act` on the server. `away` makes the error of a call that was not executed for certain, `unanswered`
        that of one that nobody answered (default: the same)."""
        # Process.enter and Kernel.sleep are written out here: every second call of a history is one of this function.
        if process.is_dead:
            raise Crash
        process.calls += 1
        if process.calls >= process.trouble_at:
            process.meet_trouble()
        kernel = self._kernel
        until = kernel.now + self._delay_seconds * (0.2 + 1.6 * self._random())
        heap = kernel._heap
        if until <= kernel._limit and (not heap or heap[0][0] > until):
            kernel.now = until
        else:
            kernel.sleep_until(until)
            if process.is_dead:
                raise Crash
        if self.is_troubled and (self.is_faulty or kernel.now < self.down_until or kernel.now < self.stands_until):
            if kernel.now < self.stands_until:
                self._stand_still(process, act, unanswered or away, what)
            self._trouble_before(process, away, unanswered or away, what)
            if self.breaks and self._random() < self.breaks:
                self._break(process, act, away, what)
        answer = act()
        if process.is_dead:
            raise Crash
        process.calls += 1
        if process.calls >= process.trouble_at:
            process.meet_trouble()
        if self.is_troubled and self._random() < self.reply_lost:
            kernel.saw(f"{self.name} reply lost", what)
            process.sleep(self.timeout_seconds)
            raise (unanswered or away)("no answer in time")
        return answer

    def _trouble_before(
        self, process: Process, away: Callable[[str], Exception], unanswered: Callable[[str], Exception], what: str
    ) -> None:
        kernel, random_ = self._kernel, self._random
        if kernel.now < self.down_until:
            kernel.saw(f"{self.name} away", what)
            raise away("connection refused")
        if self.request_lost and random_() < self.request_lost:
            kernel.saw(f"{self.name} request lost", what)
            process.sleep(self.timeout_seconds)
            raise unanswered("no answer in time")
        if self.refused and random_() < self.refused:
            kernel.saw(f"{self.name} refused", what)
            raise away("refused for now")
        if self.slow and random_() < self.slow:
            kernel.saw(f"{self.name} slow", what)
            process.sleep(self.timeout_seconds * 5 * random_() ** 2)

    def _stand_still(
        self, process: Process, act: Callable[[], Any], unanswered: Callable[[str], Exception], what: str
    ) -> None:
        """The statement ends at its deadline; every second one is executed all the same when the server goes on."""
        kernel = self._kernel
        kernel.saw(f"{self.name} stood still", what)
        if self._random() < 0.5:
            kernel.at(self.stands_until, partial(_quietly, act))
        process.sleep(DEADLINE_SECONDS if self.name != "redis" else self.timeout_seconds)
        raise unanswered("no answer before the deadline")

    def _break(self, process: Process, act: Callable[[], Any], away: Callable[[str], Exception], what: str) -> NoReturn:
        """At once: nothing is waited for. Every second request has been executed."""
        self._kernel.saw(f"{self.name} connection broke", what)
        if self._random() < 0.5:
            _quietly(act)
            if process.is_dead:
                raise Crash
        raise (self.broken or away)("the connection broke behind the request")

    def trouble(self, network: float, away: float, breaks: float = 0.0) -> None:
        """From now on, by the strength of three troubles."""
        self.breaks = (0.2 if self.name == "broker" else 0.05) * breaks
        self.request_lost, self.reply_lost, self.slow = 0.03 * network, 0.03 * network, 0.02 * network
        self.refused = 0.01 * away
        self.is_troubled, self.is_faulty = True, bool(network or away or breaks)

    def heal(self) -> None:
        """No trouble from now on."""
        self.stands_until = 0.0
        self.is_troubled = self.is_faulty = False
        self.request_lost = self.reply_lost = self.slow = self.refused = self.breaks = self.down_until = 0.0
