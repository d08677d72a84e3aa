"""The group, as fast as it can: `python -m benchmarks.load.lag_consumer JOB.json COUNT`.

The push consumer with large batches: inbox rows in one transaction, then the recorder, then the acknowledgement, the
order of TransactionalHandler without its statement a message. COUNT has the number of messages so far. Ends by SIGTERM.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load.job import Job
from checkback_consumers.recorder import CommitRecorder
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.push_consumer import (
    CacheLimits,
    ConsumeFrom,
    PushConsumer,
    PushSettings,
    ReceivedMessage,
)

BATCH = 512
_INSERT = (
    "INSERT OR IGNORE INTO reconciler_inbox (consumer_group, unique_key, topic, source, applied_at_ms) "
    "VALUES (?, ?, ?, 'consumer', ?)"
)


class Group:
    """A listener for one thread."""

    def __init__(self, job: Job, recorder: CommitRecorder, count: Path) -> None:
        self._job = job
        self._recorder = recorder
        self._count = count
        path = (job.inbox_url or "").removeprefix("sqlite:///")
        self._db = sqlite3.connect(path, timeout=60, check_same_thread=False)
        self._db.execute("PRAGMA synchronous = NORMAL")
        self.consumed = 0
        self._told_at = 0.0

    def listen(self, messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        """Effects, record, acknowledge."""
        job, now_ms = self._job, int(time.time() * 1_000)
        keys = [message.unique_key for message in messages]
        with self._db:
            self._db.executemany(_INSERT, [(job.consumer_group, key, job.topic, now_ms) for key in keys])
        self._recorder.record_many(job.topic, keys, wait=True)
        self.consumed += len(keys)
        if time.monotonic() - self._told_at > 0.2:
            self.tell()
        return ConsumeStatus.CONSUME_SUCCESS

    def tell(self) -> None:
        """Writes down how far it is."""
        self._count.write_text(str(self.consumed))
        self._told_at = time.monotonic()


def main(job_path: str, count: str) -> int:
    """Consumes until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = Job.read(job_path)
    settings = PushSettings(
        consume_from=ConsumeFrom.FIRST,
        threads=1,
        batch_size=BATCH,
        pull_batch_size=BATCH,
        limits=CacheLimits(messages=4 * BATCH, span=8 * BATCH),
        offset_commit_interval_seconds=1.0,
    )
    with CommitRecorder.open(
        job.redis_url, environment=job.environment, group=job.consumer_group, topics=[job.topic], shards=job.shards
    ) as recorder:
        group = Group(job, recorder, Path(count))
        consumer = PushConsumer(job.consumer_group, name_servers=job.name_servers, settings=settings)
        consumer.subscribe(job.topic).register_listener(group.listen)
        with consumer:
            while not stop.wait(0.2):
                group.tell()
        recorder.flush(timeout_seconds=10)
        group.tell()
        missed = recorder.state().missed
    sys.stdout.write(f"missed {missed}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
