"""The batching recorder: writes consumed keys into the commit sets and never delays the business.

The recorder flushes a batch when the batch has 200 keys or is 20 ms old. If an acknowledgement waits for the batch, the
recorder flushes it as soon as the batch before is done. A batch is sent as one SADD per shard. An acknowledgement waits
at most 50 ms for its batch, and does not wait while Redis is away. Keys that Redis did not take are tried again until
they are 10 s old, so a short silence of Redis costs nothing. Older keys are dropped and counted, and so are keys above
the memory bound. The inbox has all dropped keys.

SADD may be repeated safely, even if Redis executed the first SADD and only its answer was lost. A late SADD is
harmless, too. A SADD names the commit set and never an older generation, so it adds keys to the set that is youngest at
its arrival.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Protocol, Self

from reconciler.clock import Clock, SystemClock
from reconciler.contract.keyspace import SHARDS_DEFAULT, SHARDS_MAX
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.errors import InvalidValue, ReconcilerError, TransientError

logger = logging.getLogger(__name__)

BATCH_KEYS = 200
BATCH_SECONDS = 0.02
WAIT_SECONDS = 0.05
#: The longest wait for a connection or an answer of Redis. The Redis client repeats nothing.
REDIS_TIMEOUT_SECONDS = 0.05
#: The most keys that wait in memory (about 10 MiB), including the keys that are tried again. Further keys are dropped
#: and counted.
WAITING_KEYS_MAX = 50_000
#: Keys are tried again up to this age, which is well below any grace period. After the grace period the reconciler asks
#: the inbox anyway.
KEEP_SECONDS = 10.0
#: The most keys that are tried again in one call, so that a Redis that has just come back answers in time.
AGAIN_KEYS_MAX = 2_000
#: Shortest and longest pause between tries while Redis is away.
AWAY_SECONDS_MIN = 0.1
AWAY_SECONDS_MAX = 1.0
_CHECK_SHARDS_SECONDS = 60.0

#: Called as (topic, keys) with keys that were not recorded. The function runs on the recorder's or the handler's
#: thread, so it must be quick.
OnMissed = Callable[[str, Sequence[str]], None]


class CommitSink(Protocol):
    """Does what ports.CommitSets does, and reads the number of shards that the reconciler stored."""

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        """Adds keys."""
        ...

    def stored_shards(self, subscription: Subscription) -> int | None:
        """Returns the number of shards that the reconciler stored, or None if the reconciler has stored no number
        yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderState:
    """Counters since the start."""

    recorded: int
    #: Keys given up, because Redis was away for too long, the memory bound was reached, or the number of shards
    #: differs. The inbox has these keys.
    missed: int
    #: Keys that wait for their first or a later try.
    waiting: int
    batches: int
    is_away: bool


@dataclass(frozen=True, slots=True)
class RetryEntry:
    """Keys of one topic, and the monotonic second after which they are given up."""

    topic: str
    keys: Sequence[str]
    until_seconds: float


class Batch:
    """Keys that are sent together. Until the batch is closed, the recorder's lock guards it."""

    def __init__(self, opened_at: float) -> None:
        self.opened_at = opened_at
        self.keys: dict[str, list[str]] = {}
        self.count = 0
        self.has_waiter = False
        #: True if Redis was away when the batch was opened: no acknowledgement waits for it.
        self.is_held = False
        #: Set after the batch's first try.
        self.done = threading.Event()
        #: Topics whose keys the first try did not record.
        self.missed_topics: set[str] = set()


class RetryQueue:
    """Keys that Redis did not take, in the order of their arrival. The recorder's lock guards the queue."""

    def __init__(self) -> None:
        self._queue: deque[RetryEntry] = deque()
        #: Number of keys in all entries.
        self.count = 0

    def add(self, entry: RetryEntry) -> None:
        """Adds an entry at the end."""
        self._queue.append(entry)
        self.count += len(entry.keys)

    def oldest(self, keys_max: int) -> list[RetryEntry]:
        """Returns the oldest entry and the entries of the same topic that follow it. The entries have at most
        `keys_max` keys in total, unless the oldest entry alone has more."""
        found: list[RetryEntry] = []
        total = 0
        for entry in self._queue:
            total += len(entry.keys)
            if found and (entry.topic != found[0].topic or total > keys_max):
                break
            found.append(entry)
        return found

    def remove(self, entries: int) -> None:
        """Removes the oldest `entries`, as returned by oldest()."""
        for _ in range(entries):
            self.count -= len(self._queue.popleft().keys)

    def take_expired(self, now_seconds: float) -> list[RetryEntry]:
        """Removes and returns entries that are given up. An entry behind a younger entry is given up after the younger
        entry."""
        expired: list[RetryEntry] = []
        while self._queue and self._queue[0].until_seconds <= now_seconds:
            expired.append(self._queue.popleft())
            self.count -= len(expired[-1].keys)
        return expired


class _FlushResult(Enum):
    DONE = auto()
    #: Redis did not take the keys, but may take them later.
    NOT_NOW = auto()
    #: No later try can succeed.
    NEVER = auto()


class CommitRecorder:
    """Records consumed keys for all threads of the consumer, under one lock. A daemon thread flushes the batches.

    After a fork, the recorder of the child process is empty from its first record() on. Keys that wait belong to the
    parent.
    """

    def __init__(
        self,
        sink: CommitSink,
        *,
        environment: str,
        group: str,
        shards: int = SHARDS_DEFAULT,
        clock: Clock | None = None,
        batch_keys: int = BATCH_KEYS,
        batch_seconds: float = BATCH_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        waiting_keys_max: int = WAITING_KEYS_MAX,
        keep_seconds: float = KEEP_SECONDS,
        on_missed: OnMissed | None = None,
    ) -> None:
        if not 1 <= shards <= SHARDS_MAX:
            raise InvalidValue("shards", shards, f"1 to {SHARDS_MAX}, equal to unique_key_topic.queues")
        self._sink = sink
        #: The group whose commit sets get the keys. A handler of another group refuses this recorder.
        self.group = group
        self._environment = environment
        self._shards = shards
        self._clock = clock or SystemClock()
        self._batch_keys = batch_keys
        self._batch_seconds = batch_seconds
        self._wait_seconds = wait_seconds
        self._waiting_keys_max = waiting_keys_max
        self._keep_seconds = keep_seconds
        self._on_missed = on_missed
        self._recorded = self._missed = self._batches = 0
        self._checked_at: dict[str, float] = {}
        self._refused_topics: set[str] = set()
        self._close_client: Callable[[], object] = lambda: None
        self._begin()

    @classmethod
    def open(
        cls,
        #: URL of the reconciler's Redis.
        redis_url: Secret,
        *,
        #: Environment of the reconciler's settings.
        environment: str,
        #: Consumer group of the handlers.
        group: str,
        #: Topics whose number of shards is checked while the recorder is made.
        topics: Iterable[str] = (),
        #: unique_key_topic.queues of the reconciler's settings.
        shards: int = SHARDS_DEFAULT,
        #: Called with a topic and its keys that Redis did not take in time.
        on_missed: OnMissed | None = None,
        #: Time-out of each call of Redis.
        timeout_seconds: float = REDIS_TIMEOUT_SECONDS,
        #: How long an acknowledgement waits for Redis.
        wait_seconds: float = WAIT_SECONDS,
        #: How long keys that Redis did not take are tried again.
        keep_seconds: float = KEEP_SECONDS,
    ) -> CommitRecorder:
        """Makes a recorder with its own Redis client. If Redis is unreachable, the numbers of shards are checked later.
        Raises InvalidValue if the reconciler stored another number of shards for one of the topics."""
        from reconciler.shards.access import open_client  # loads redis-py, which another kind of sink does not need
        from reconciler.shards.sets import RedisCommitSets

        client = open_client(redis_url, timeout_seconds=timeout_seconds)
        recorder = cls(
            RedisCommitSets(client),
            environment=environment,
            group=group,
            shards=shards,
            wait_seconds=wait_seconds,
            keep_seconds=keep_seconds,
            on_missed=on_missed,
        )
        recorder._close_client = client.close
        try:
            for topic in topics:
                recorder.check_shards(topic)
        except TransientError as error:
            logger.warning("shards_unchecked: number of shards not checked yet: %s", error)
        except BaseException:
            client.close()
            raise
        return recorder

    def check_shards(self, topic: str) -> None:
        """Raises InvalidValue if the reconciler stored another number of shards, RedisAway if Redis is away."""
        stored = self._sink.stored_shards(Subscription(environment=self._environment, topic=topic, group=self.group))
        if stored is not None and stored != self._shards:
            raise InvalidValue(
                "shards", self._shards, f"the reconciler runs {topic}/{self.group} with {stored}: set shards={stored}"
            )
        self._checked_at[topic] = self._clock.monotonic_seconds()

    def record(self, topic: str, unique_key: str) -> bool:
        """Adds the key and waits at most 50 ms for its batch. Returns True if the key is in Redis. Never raises.

        False means that the key is not recorded yet, or never will be. While Redis is away, the call returns False at
        once.
        """
        return self.record_many(topic, (unique_key,), wait=True)

    def record_many(self, topic: str, unique_keys: Sequence[str], *, wait: bool = False) -> bool:
        """Adds several keys, and waits for their batch only if `wait` is set. Returns False if some keys were missed or
        were not recorded in time."""
        batch = self._add(topic, unique_keys, waits=wait)
        if batch is None:
            return False
        if not wait:
            return True
        if batch.is_held:
            return False
        return self._clock.wait(batch.done, self._wait_seconds) and topic not in batch.missed_topics

    def flush(self, *, timeout_seconds: float = 1.0) -> bool:
        """Waits until every key that was added before is recorded or missed. Returns False if the wait took too long.

        While Redis is away, the wait may last as long as keys are tried again.
        """
        with self._lock:
            batches = [batch for batch in (self._flushing, self._batch) if batch is not None and batch.count]
            self._batch.has_waiter = True
            self._wake.notify()
        deadline = self._clock.monotonic_seconds() + timeout_seconds
        events = [*(batch.done for batch in batches), self._no_retries]
        return all(self._clock.wait(event, deadline - self._clock.monotonic_seconds()) for event in events)

    def state(self) -> RecorderState:
        """Returns the counters."""
        with self._lock:
            waiting = self._batch.count + (self._flushing.count if self._flushing else 0) + self._retries.count
            return RecorderState(
                recorded=self._recorded,
                missed=self._missed,
                waiting=waiting,
                batches=self._batches,
                is_away=self._away_seconds > 0,
            )

    def close(self, *, timeout_seconds: float = 1.0) -> None:
        """Flushes all keys and ends the thread. Keys that Redis still does not take are missed, and so are keys that
        are added later."""
        self.flush(timeout_seconds=timeout_seconds)
        with self._lock:
            self._is_closing = True
            self._wake.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_seconds)
        self._close_client()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._batch = Batch(0.0)
        self._flushing: Batch | None = None
        self._retries = RetryQueue()
        self._no_retries = threading.Event()
        self._no_retries.set()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._away_seconds = self._away_until = 0.0
        self._pid = os.getpid()  # comes last, because a forked child's threads must not use the parent's lock

    def _add(self, topic: str, unique_keys: Sequence[str], *, waits: bool) -> Batch | None:
        if self._pid != os.getpid():
            self._begin()
        now = self._clock.monotonic_seconds()
        with self._lock:
            batch = self._batch
            waiting = batch.count + self._retries.count
            is_full = waiting + len(unique_keys) > self._waiting_keys_max and waiting > 0
            if not (self._is_closing or is_full or topic in self._refused_topics) and self._has_thread():
                if not batch.count:
                    batch.opened_at = now
                    batch.is_held = now < self._away_until
                batch.keys.setdefault(topic, []).extend(unique_keys)
                batch.count += len(unique_keys)
                batch.has_waiter = batch.has_waiter or waits
                self._wake.notify()
                return batch
        self._miss(topic, unique_keys)
        return None

    def _has_thread(self) -> bool:
        """Starts the thread at the first call. Returns False if the process may have no more threads. Then keys count
        as missed."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="commit-recorder", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._retry()
            refused: list[RetryEntry] = []
            for topic, keys in batch.keys.items():
                tried = self._flush_topic(topic, keys)
                if tried is _FlushResult.DONE:
                    continue
                batch.missed_topics.add(topic)
                if tried is _FlushResult.NOT_NOW:
                    refused.append(RetryEntry(topic, keys, batch.opened_at + self._keep_seconds))
                else:
                    self._miss(topic, keys)
            with self._lock:
                self._flushing = None
                self._batches += batch.count > 0
                for one in refused:
                    self._retries.add(one)
                self._note_retries()
            batch.done.set()
        self._give_up(math.inf)

    def _next_batch(self) -> Batch | None:
        """Returns the batch that is due. The batch is empty if only keys for another try are due. Returns None if the
        recorder is closed and the last batch was taken."""
        with self._lock:
            while (seconds := self._seconds_until_due()) is None or seconds > 0:
                if self._is_closing:
                    return None
                self._wake.wait(seconds)
            batch, self._batch = self._batch, Batch(0.0)
            self._flushing = batch
            return batch

    def _seconds_until_due(self) -> float | None:
        """Returns the seconds until keys are due, or None if no keys wait."""
        batch = self._batch
        if self._is_closing:
            return 0.0 if batch.count else None
        if batch.count and not batch.is_held and (batch.has_waiter or batch.count >= self._batch_keys):
            return 0.0
        now = self._clock.monotonic_seconds()
        due: list[float] = []
        if batch.count:
            due.append(self._away_until if batch.is_held else batch.opened_at + self._batch_seconds)
        if self._retries.count:
            due.append(self._away_until)
        return max(0.0, min(due) - now) if due else None

    def _retry(self) -> None:
        """Sends again the keys that Redis did not take, until Redis fails."""
        now = self._clock.monotonic_seconds()
        if not self._retries.count or now < self._away_until:
            return
        self._give_up(now)
        while taken := self._retries.oldest(AGAIN_KEYS_MAX):
            topic = taken[0].topic
            tried = self._flush_topic(topic, [key for entry in taken for key in entry.keys])
            if tried is _FlushResult.NOT_NOW:
                return
            if tried is _FlushResult.NEVER:
                for entry in taken:
                    self._miss(topic, entry.keys)
            with self._lock:
                self._retries.remove(len(taken))
                self._note_retries()

    def _give_up(self, until_seconds: float) -> None:
        """Counts the keys that have waited too long for Redis as missed."""
        with self._lock:
            expired = self._retries.take_expired(until_seconds)
        for entry in expired:
            self._miss(entry.topic, entry.keys)
        with self._lock:  # comes after they count as missed, because flush() waits for it
            self._note_retries()

    def _note_retries(self) -> None:
        if self._retries.count:
            self._no_retries.clear()
        else:
            self._no_retries.set()

    def _flush_topic(self, topic: str, keys: list[str]) -> _FlushResult:
        if self._clock.monotonic_seconds() < self._away_until and not self._is_closing:
            return _FlushResult.NOT_NOW  # Redis was away for another topic of this batch a moment ago
        try:
            last_check = self._checked_at.get(topic)
            if last_check is None or self._clock.monotonic_seconds() - last_check > _CHECK_SHARDS_SECONDS:
                self.check_shards(topic)
            subscription = Subscription(environment=self._environment, topic=topic, group=self.group)
            self._sink.record(subscription, keys, shards=self._shards)
        except InvalidValue as error:
            self._refused_topics.add(topic)
            logger.error("recording_ended: nothing of %s is recorded any more: %s", topic, error)  # noqa: TRY400 - no trace needed
            return _FlushResult.NEVER
        except ReconcilerError as error:
            self._note_away(error)
            return _FlushResult.NOT_NOW if isinstance(error, TransientError) else _FlushResult.NEVER
        except Exception:  # no error may end this thread, because the business never waits for it
            logger.exception("recording_failed: recording %d keys of %s failed", len(keys), topic)
            return _FlushResult.NEVER
        if self._away_seconds:
            logger.warning(
                "recording_resumed: Redis is back; %d keys were missed so far, the inbox has them", self._missed
            )
            self._away_seconds = 0.0
        with self._lock:
            self._recorded += len(keys)
        return _FlushResult.DONE

    def _note_away(self, error: ReconcilerError) -> None:
        if not self._away_seconds:
            logger.warning("recording_failed: consumed keys are not recorded, business goes on: %s", error)
        self._away_seconds = min(AWAY_SECONDS_MAX, max(AWAY_SECONDS_MIN, 2 * self._away_seconds))
        self._away_until = self._clock.monotonic_seconds() + self._away_seconds

    def _miss(self, topic: str, unique_keys: Sequence[str]) -> None:
        with self._lock:
            self._missed += len(unique_keys)
        if self._on_missed is not None:
            try:
                self._on_missed(topic, unique_keys)
            except Exception:
                logger.exception("on_missed_failed: on_missed of the recorder failed")
