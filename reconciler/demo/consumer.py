"""A consumer process of the demo. `main` runs in a forked process.

The process runs a transactional handler on the push consumer, like a service. Two things are special. Some processes
kill themselves between effect and acknowledgement. The lagging group stops until it is released.
"""

from __future__ import annotations

import signal
import threading
from contextlib import closing
from pathlib import Path

from checkback_consumers.effect import SqlInbox
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from reconciler.clock import SystemClock
from reconciler.demo.effect import apply_effect, die
from reconciler.demo.job import DemoJob
from reconciler.demo.plan import consumer_kills
from reconciler.demo.truth import LAGGING, connect
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.sql.engines import open_engine

#: Effects of the lagging group before it stops.
LAG_AFTER = 5


class DemoRecorder:
    """Records as a service does, but kills the process before the first record of each planned message. So an effect
    without an acknowledgement exists."""

    def __init__(self, recorder: CommitRecorder, inbox: Path, truth: Path, kills: frozenset[int]) -> None:
        self._recorder = recorder
        self._inbox = inbox
        self._truth = truth
        self._kills = kills

    def record(self, topic: str, unique_key: str) -> bool:
        """Returns True if the key is in Redis."""
        if self._kills:
            with closing(connect(self._inbox)) as db:
                row = db.execute("SELECT number FROM effects WHERE key = ?", (unique_key,)).fetchone()
            if row is not None and row[0] in self._kills and self._first_time(f"killed after {row[0]}"):
                die()
        return self._recorder.record(topic, unique_key)

    def _first_time(self, mark: str) -> bool:
        with closing(connect(self._truth)) as db:
            db.execute("BEGIN IMMEDIATE")
            known = db.execute("SELECT 1 FROM marks WHERE name = ?", (mark,)).fetchone()
            if known is None:
                db.execute("INSERT INTO marks VALUES (?, 0)", (mark,))
            db.execute("COMMIT")
        return known is None


class LaggingHandler(TransactionalHandler):
    """Passes a few messages on, then holds every message back until the group is released."""

    #: File whose existence releases the group.
    released: Path
    stop: threading.Event
    _passed = 0

    def __call__(self, message: ConsumedMessage) -> ConsumeStatus:
        """Waits before the transaction begins, so the waiting holds no locks."""
        self._passed += 1
        clock = SystemClock()
        while self._passed > LAG_AFTER and not self.released.exists():
            if clock.wait(self.stop, 0.2):
                return ConsumeStatus.RECONSUME_LATER
        return super().__call__(message)


def main(job_path: str, group: str, number: str) -> int:
    """Consumes until SIGTERM. Returns 0."""
    del number  # the number only names the process
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = DemoJob.read(Path(job_path))
    inbox = job.files.inbox(group)
    engine = open_engine(f"sqlite:///{inbox}", lock_timeout_seconds=30)
    name = job.consumer_group(group)
    with CommitRecorder.open(
        job.redis_url, environment=job.environment, group=name, shards=job.shards, timeout_seconds=1.0
    ) as recorder:
        if group == LAGGING:
            lagging = LaggingHandler(apply_effect, SqlInbox(engine), group=name, topics=[job.topic], recorder=recorder)
            lagging.released, lagging.stop = job.files.released, stop
            handler: TransactionalHandler = lagging
        else:
            deadly = DemoRecorder(recorder, inbox, job.files.truth, consumer_kills(job.messages, job.seed))
            handler = transactional_handler(engine, group=name, topics=job.topic, recorder=deadly)(apply_effect)
        consumer = TransactionalConsumer(handler, name_servers=job.name_servers, offset_commit_interval_seconds=0.5)
        with consumer:
            while not stop.wait(1):  # the limit is needed because a signal just before the wait does not end the wait
                pass
    engine.dispose()
    return 0
