"""The load and its own log: what was committed, what must never be consumed, what the recorder confirmed.

The log is kept in memory by the callers of the product, never read from the product's tables or counters.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from checkback_producers.producer import TransactionalProducer
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import shard_of
from reconciler.errors import ReconcilerError
from reconciler.sql.engines import open_engine
from tests.acceptance.deployment import Deployment
from tests.failover.loops import Loops

#: Every so manieth message is never consumed: its END_TRANSACTION and check-backs are dropped.
LOSE_EVERY = 200
#: The same from the moment of an accident until everything goes on again, which is when keys could vanish.
LOSE_EVERY_IN_AN_ACCIDENT = 40
PRODUCERS = 2
#: Enough for every primary of a Redis Cluster to have one.
SHARDS = 4


@dataclass(frozen=True, slots=True)
class Recorded:
    """A consumed key whose SADD was confirmed."""

    unique_key: str
    at: float


class LoadLog:
    """What happened, in the words of who did it; shared by threads. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.committed: list[str] = []
        self.never_consumed: set[str] = set()
        self.failed: list[BaseException] = []
        self.consumed: dict[str, float] = {}
        self.recorded: dict[str, float] = {}
        self.unrecorded: set[str] = set()
        self.newest_recorded: dict[int, Recorded] = {}

    def note_committed(self, key: str, *, lose: bool) -> None:
        with self._lock:
            self.committed.append(key)
            if lose:
                self.never_consumed.add(key)

    def note_consumed(self, key: str) -> None:
        with self._lock:
            self.consumed.setdefault(key, time.monotonic())

    def note_recorded(self, key: str, *, confirmed: bool) -> None:
        now = time.monotonic()
        with self._lock:
            if not confirmed:
                self.unrecorded.add(key)
                return
            self.recorded[key] = now
            self.newest_recorded[shard_of(key, SHARDS)] = Recorded(key, now)


class _LoggingRecorder:
    """The product's recorder, and its answers in the log."""

    def __init__(self, recorder: CommitRecorder, log: LoadLog) -> None:
        self._recorder, self._log = recorder, log

    def record(self, topic: str, unique_key: str) -> bool:
        confirmed = self._recorder.record(topic, unique_key)
        self._log.note_recorded(unique_key, confirmed=confirmed)
        return confirmed


class Load:
    """Producers and one consumer in this process, until `stop_sending` and the end of the block."""

    def __init__(self, deployed: Deployment, *, per_second: float) -> None:
        self.log = LoadLog()
        self.deployed = deployed
        self.is_accident = False
        self._per_second = per_second
        self._numbers = itertools.count(1)
        self._sending: Loops | None = None
        self._stack = ExitStack()

    @property
    def subscription(self) -> Subscription:
        """The only one."""
        return Subscription(environment=self.deployed.environment, topic=self.deployed.topic, group=self.deployed.group)

    @property
    def shards(self) -> list[ShardKeys]:
        """Its shards' keys."""
        return [ShardKeys(Shard(subscription=self.subscription, number=number)) for number in range(SHARDS)]

    def __enter__(self) -> Self:
        self._consume()
        producer = self.deployed.producer()
        self._sending = self._stack.enter_context(Loops(*[partial(self._produce, producer)] * PRODUCERS, name="load"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def stop_sending(self) -> None:
        """No more messages; the consumer goes on."""
        if self._sending is not None:
            self._sending.stop()

    def _consume(self) -> None:
        deployed, log = self.deployed, self.log
        engine = open_engine(f"sqlite:///{deployed.inbox}", lock_timeout_seconds=30, must_exist=True)
        self._stack.callback(engine.dispose)
        recorder = CommitRecorder.open(
            deployed.redis_url,
            environment=deployed.environment,
            group=deployed.group,
            shards=SHARDS,
            timeout_seconds=0.5,
            wait_seconds=0.5,
        )
        self._stack.callback(recorder.close)

        @transactional_handler(
            engine, group=deployed.group, topics=deployed.topic, recorder=_LoggingRecorder(recorder, log)
        )
        def handle(message: Any, connection: sa.Connection) -> None:
            log.note_consumed(message.unique_key)

        consumer = TransactionalConsumer(handle, name_servers=deployed.name_servers, offset_commit_interval_seconds=0.5)
        self._stack.enter_context(consumer)

    def _produce(self, producer: TransactionalProducer, stop: threading.Event) -> None:
        while not stop.wait(PRODUCERS / self._per_second):
            every = LOSE_EVERY_IN_AN_ACCIDENT if self.is_accident else LOSE_EVERY
            lose = next(self._numbers) % every == 0
            try:
                (key,) = self.deployed.commit(1, lose=lose, producer=producer)
            except (ReconcilerError, sa.exc.OperationalError, sqlite3.OperationalError) as error:
                self.log.failed.append(error)
                continue
            self.log.note_committed(key, lose=lose)
