"""Records ids as consumed at the job's rate: `python -m benchmarks.load.ids_consumer JOB.json CONSUMED.json`.

Threads call CommitRecorder.record id by id, as the listeners of a service do. A consumer of the group takes the
messages that are there for real, those whose END_TRANSACTION was repaired, with an inbox row each.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.load.job import Job
from consumers.handler import transactional_handler
from consumers.push import TransactionalConsumer
from consumers.recorder import CommitRecorder
from reconciler.sql.engines import open_engine

#: PushConsumer's own number.
THREADS = 20


class IdConsumer:
    """`run` is called by several threads, each with ids of its own."""

    def __init__(self, job: Job, recorder: CommitRecorder) -> None:
        self._job = job
        self._recorder = recorder
        #: By thread.
        self.late_seconds_max = [0.0] * THREADS
        #: Ids whose acknowledgement would have gone out before Redis had answered.
        self.unconfirmed = [0] * THREADS
        self.repaired: list[str] = []

    def run(self, thread: int, stop: threading.Event) -> None:
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
            self.unconfirmed[thread] += not self._recorder.record(job.topic, job.key(number))

    def apply(self, message: Any, _connection: sa.Connection) -> None:
        """The effect of a repaired message."""
        self.repaired.append(message.unique_key)


def main(job_path: str, out: str) -> int:
    """Consumes until SIGTERM, then tells."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = Job.read(job_path)
    engine = open_engine(job.inbox_url or "", lock_timeout_seconds=30)
    with CommitRecorder.open(
        job.redis_url, environment=job.environment, group=job.consumer_group, topics=[job.topic], shards=job.shards
    ) as recorder:
        one = IdConsumer(job, recorder)
        handler = transactional_handler(engine, group=job.consumer_group, topics=job.topic, recorder=recorder)
        with TransactionalConsumer(handler(one.apply), name_servers=job.name_servers):
            threads = [threading.Thread(target=one.run, args=(number, stop)) for number in range(THREADS)]
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
