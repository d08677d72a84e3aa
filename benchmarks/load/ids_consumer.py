"""Records ids as consumed at the job's rate: `python -m benchmarks.load.ids_consumer JOB.json CONSUMED.json`.

Threads call CommitRecorder.record id by id, as the listeners of a service do. A consumer of the group takes the
messages that are there for real, those whose END_TRANSACTION was repaired, with an inbox row each. A service has
an inbox row of every message; here those get one that the recorder missed, because Redis did not answer in time.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.load.job import Job
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import SOURCE_CONSUMER
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from reconciler.sql import tables
from reconciler.sql.engines import open_engine

#: PushConsumer's own number.
THREADS = 20


class IdConsumer:
    """`run` is called by several threads, each with ids of its own."""

    def __init__(self, job: Job, engine: sa.Engine) -> None:
        self._job = job
        self._engine = engine
        #: By thread.
        self.late_seconds_max = [0.0] * THREADS
        #: Ids whose acknowledgement would have gone out before Redis had answered.
        self.unconfirmed = [0] * THREADS
        self.repaired: list[str] = []

    def on_missed(self, topic: str, unique_keys: Sequence[str]) -> None:
        """What a service would find in its inbox."""
        now_ms = int(time.time() * 1_000)
        rows = [
            {
                "consumer_group": self._job.consumer_group,
                "unique_key": key,
                "topic": topic,
                "source": SOURCE_CONSUMER,
                "applied_at_ms": now_ms,
            }
            for key in unique_keys
        ]
        with self._engine.begin() as connection:
            connection.execute(sa.insert(tables.inbox), rows)

    def run(self, recorder: CommitRecorder, thread: int, stop: threading.Event) -> None:
        """Every THREADSth id, when it is due."""
        job = self._job
        for number in range(thread, job.ids, THREADS):
            if job.is_lost(number):
                continue
            due = job.start_at_seconds + number / job.rate + job.consume_after_seconds
            wait = due - time.time()
            if wait > 0 and stop.wait(wait):
                return
            self.late_seconds_max[thread] = max(self.late_seconds_max[thread], -wait)
            self.unconfirmed[thread] += not recorder.record(job.topic, job.key(number))

    def apply(self, message: Any, _connection: sa.Connection) -> None:
        """The effect of a repaired message."""
        self.repaired.append(message.unique_key)


def main(job_path: str, out: str) -> int:
    """Consumes until SIGTERM, then tells."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = Job.read(job_path)
    engine = open_engine(job.inbox_url or "", lock_timeout_seconds=30)
    one = IdConsumer(job, engine)
    with CommitRecorder.open(
        job.redis_url,
        environment=job.environment,
        group=job.consumer_group,
        topics=[job.topic],
        shards=job.shards,
        on_missed=one.on_missed,
    ) as recorder:
        handler = transactional_handler(engine, group=job.consumer_group, topics=job.topic, recorder=recorder)
        with TransactionalConsumer(handler(one.apply), name_servers=job.name_servers):
            threads = [threading.Thread(target=one.run, args=(recorder, number, stop)) for number in range(THREADS)]
            for thread in threads:
                thread.start()
            stop.wait()
            for thread in threads:
                thread.join()
        recorder.flush(timeout_seconds=10)
        state = recorder.state()
    engine.dispose()
    document = {
        "recorded": state.recorded,
        "missed": state.missed,
        "batches": state.batches,
        "unconfirmed": sum(one.unconfirmed),
        "late_seconds_max": max(one.late_seconds_max),
        "repaired": one.repaired,
    }
    Path(out).write_text(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
