"""Announces committed keys outside of the blocks. One message announces the keys that became due within a moment, and
one statement marks their rows.

As in a block, the keys are announced first. Then the keys that a broker confirmed are marked. If a process dies with
waiting keys, their rows stay NEW, and the sweeper announces them. So a batcher needs an outbox.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from checkback_producers.announcer import AnnouncementReceipt, Announcer
from checkback_producers.counts import Counts
from checkback_producers.ports import Outbox
from reconciler.clock import Clock
from reconciler.contract.announcement import AnnouncedKey
from reconciler.errors import InvalidValue

logger = logging.getLogger(__name__)

#: Seconds from the start of one delivery to the start of the next. The first key after a pause is announced at once.
INTERVAL_SECONDS_DEFAULT = 0.25
#: The most keys that wait, about 5 MiB. Above this number, a block announces its own key.
WAITING_KEYS_MAX = 10_000
CLOSE_SECONDS = 5.0

#: The batcher's thread calls this function after the key was announced and its row was marked.
OnAnnounced = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    topic: str
    key: AnnouncedKey
    on_announced: OnAnnounced


def announce_and_mark(
    announcer: Announcer, outbox: Outbox | None, *, topic: str, producer_group: str, keys: Sequence[AnnouncedKey]
) -> AnnouncementReceipt:
    """Announces keys of one topic, then marks the rows of the keys that a broker confirmed. Raises what marking
    raises."""
    announced = announcer.announce(topic, producer_group, keys)
    if outbox is not None:
        outbox.mark_announced(announced.unique_keys)
    return announced


class AnnouncementBatcher:
    """Collects waiting keys, which one daemon thread delivers. Thread-safe. The thread starts with the first key."""

    def __init__(
        self,
        announcer: Announcer,
        outbox: Outbox,
        *,
        producer_group: str,
        counts: Counts,
        clock: Clock,
        interval_seconds: float = INTERVAL_SECONDS_DEFAULT,
        waiting_keys_max: int = WAITING_KEYS_MAX,
    ) -> None:
        if not 0 < interval_seconds <= 10:
            raise InvalidValue("announce_every_seconds", interval_seconds, "more than 0, 10 at most, or None")
        self._announcer = announcer
        self._outbox = outbox
        self._producer_group = producer_group
        self._counts = counts
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._waiting_keys_max = waiting_keys_max
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._has_keys = threading.Event()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, topic: str, key: AnnouncedKey, on_announced: OnAnnounced) -> bool:
        """Takes a committed key. Returns False if the batcher is full, is closing, or has no thread. Then the caller
        must announce the key."""
        with self._lock:
            if self._is_closing.is_set() or len(self._waiting) >= self._waiting_keys_max:
                return False
            if self._thread is None and not self._start():
                return False
            self._waiting.append(_Waiting(topic, key, on_announced))
            if len(self._waiting) == 1:
                self._has_keys.set()
            return True

    def _start(self) -> bool:
        """Starts the thread. Returns False if the process may have no more threads. Does not raise then, because the
        block has committed and must not seem to have failed."""
        thread = threading.Thread(target=self._run, name="announcements", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            logger.warning(
                "announcement_thread_missing: announcements have no thread (%s); each block announces its own", error
            )
            return False
        self._thread = thread
        return True

    def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Delivers waiting keys and ends the thread. If this takes too long, the sweeper announces the rest."""
        with self._lock:
            self._is_closing.set()
            thread = self._thread
        self._has_keys.set()
        if thread is not None:
            thread.join(timeout_seconds)
            if thread.is_alive():
                logger.warning(
                    "announcements_unfinished: announcements did not end in %s s; the sweeper sends the rest",
                    timeout_seconds,
                )

    def _run(self) -> None:
        began = self._clock.monotonic_seconds() - self._interval_seconds
        is_last = False
        while not is_last:
            self._has_keys.wait()
            self._clock.wait(self._is_closing, began + self._interval_seconds - self._clock.monotonic_seconds())
            began = self._clock.monotonic_seconds()
            with self._lock:
                taken, self._waiting = self._waiting, []
                is_last = self._is_closing.is_set()
                if not is_last:
                    self._has_keys.clear()
            self._deliver(taken)

    def _deliver(self, taken: Sequence[_Waiting]) -> None:
        by_topic: dict[str, dict[str, _Waiting]] = {}
        for one in taken:
            by_topic.setdefault(one.topic, {})[one.key.unique_key] = one
        for topic, waiting in by_topic.items():
            failure: Exception | None
            try:
                announced = announce_and_mark(
                    self._announcer,
                    self._outbox,
                    topic=topic,
                    producer_group=self._producer_group,
                    keys=[one.key for one in waiting.values()],
                )
            except Exception as error:  # noqa: BLE001  # no error may end this thread: the sweeper announces
                failed, failure = len(waiting), error
            else:
                for unique_key in announced.unique_keys:
                    waiting[unique_key].on_announced()
                failed, failure = len(waiting) - len(announced.unique_keys), announced.error
            if failed:
                self._counts.add("announcements_failed", failed)
                logger.warning(
                    "announcements_failed: %d announcements of %s failed (%s); the sweeper sends them",
                    failed,
                    topic,
                    failure,
                )
