"""Runs the history of one service in two threads. One thread writes events and Redis' rounds into the spool.

The other thread turns the spool into Parquet. Sealing may take long, or hang with the file system. Capturing must not
wait for sealing, because a round's sets can be read for a few rounds only. Both threads are daemon threads. If they
leave segments behind, the next start adopts the segments.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from reconciler.clock import Clock
from reconciler.history.health import Counters
from reconciler.history.maintenance import HistoryMaintenance
from reconciler.history.recorder import HistoryRecorder
from reconciler.history.sink import HistorySink

logger = logging.getLogger(__name__)

#: Longest time that the start waits for the capture of an earlier process's rounds.
CATCH_UP_SECONDS = 10.0
#: Longest time that the end waits for the last snapshot and the last seal.
CLOSE_SECONDS = 20.0
#: Time in which rounds of neighbouring shards are gathered for one pass.
GATHER_SECONDS = 0.1
#: Longest time that events and failures wait for a pass.
PASS_SECONDS = 1.0
SEAL_LOOK_SECONDS = 1.0
#: Time in which the same exception is logged once.
REPEAT_SECONDS = 60.0


class HistoryService:
    """History of one service. Started and closed once, by the thread that wires."""

    def __init__(
        self,
        *,
        sink: HistorySink,
        recorder: HistoryRecorder,
        maintenance: HistoryMaintenance,
        counters: Counters,
        clock: Clock,
        seal_seconds: float,
    ) -> None:
        self.sink = sink
        self.counters = counters
        self._recorder = recorder
        self._maintenance = maintenance
        self._clock = clock
        self._seal_seconds = seal_seconds
        self._is_closed = False
        #: Name of an exception -> when it was logged.
        self._logged: dict[str, float] = {}
        self._stop = threading.Event()
        self._caught_up = threading.Event()
        self._captured_all = threading.Event()
        self._threads = [
            threading.Thread(target=self._capture, name="history capture", daemon=True),
            threading.Thread(target=self._seal, name="history seal", daemon=True),
        ]

    def start(self, *, within_seconds: float = CATCH_UP_SECONDS) -> bool:
        """Starts both threads and waits until rounds of an earlier process are captured.

        False: the time was not enough.
        """
        for thread in self._threads:
            thread.start()
        has_caught_up = self._caught_up.wait(within_seconds)
        if not has_caught_up:
            logger.warning("history_catches_up_later", extra={"waited_seconds": within_seconds})
        return has_caught_up

    def close(self, *, within_seconds: float = CLOSE_SECONDS) -> bool:
        """Captures rounds, records pending, and seals. False: the time was not enough.

        A second call or the next start does the rest.
        """
        self._stop.set()
        self.sink.wake.set()
        deadline = self._clock.monotonic_seconds() + within_seconds
        for thread in (thread for thread in self._threads if thread.ident is not None):
            thread.join(max(0.0, deadline - self._clock.monotonic_seconds()))
        is_done = not any(thread.is_alive() for thread in self._threads)
        spool = self._recorder.spool
        if is_done and spool is not None and not self._is_closed:
            self._is_closed = True
            spool.close()
        if not is_done or (spool is not None and spool.size_bytes):
            logger.warning("history_left_in_spool", extra={"is_done": is_done, **self.counters.as_dict()})
        return is_done

    def _capture(self) -> None:
        rotated = self._clock.monotonic_seconds()
        while not self._stop.is_set():
            self._guarded(self._recorder.run_pass)
            if self._recorder.has_caught_up:
                self._caught_up.set()
            now = self._clock.monotonic_seconds()
            if now - rotated >= self._seal_seconds:
                self._recorder.rotate()
                rotated = now
            if self._clock.wait(self.sink.wake, PASS_SECONDS):
                self.sink.wake.clear()
                self._clock.wait(self._stop, GATHER_SECONDS)
        self._guarded(lambda: self._recorder.run_pass(shutdown=True))
        self._recorder.rotate()
        self._captured_all.set()

    def _seal(self) -> None:
        while not self._recorder.positions_known.wait(SEAL_LOOK_SECONDS) and not self._captured_all.is_set():
            pass
        while not self._captured_all.is_set():
            self._guarded(lambda: self._maintenance.run_turn(self._recorder.spool))
            self._clock.wait(self._captured_all, SEAL_LOOK_SECONDS)
        self._guarded(lambda: self._maintenance.run_turn(self._recorder.spool, is_last=True))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Keeps a bug from ending the history.

        The error is logged at most once per minute, and the next turn tries again.
        """
        try:
            act()
        except Exception as error:
            now = self._clock.monotonic_seconds()
            name = type(error).__name__
            if now - self._logged.get(name, -REPEAT_SECONDS) >= REPEAT_SECONDS:
                self._logged[name] = now
                logger.exception("history_turn_failed")
