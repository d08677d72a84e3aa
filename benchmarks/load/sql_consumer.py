"""A member of the group with inbox and effect in one PostgreSQL transaction:

    python -m benchmarks.load.sql_consumer JOB.json THREADS

Ends by SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import closing
from typing import Any

import sqlalchemy as sa

from benchmarks.load.job import Job
from checkback_consumers.handler import transactional_handler
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from reconciler.rocketmq.consumer.settings import PushSettings

#: Written once: to put a statement together costs as much as to execute it.
INSERT_EFFECT = sa.insert(sa.table("effects", sa.column("unique_key"), sa.column("amount")))


def main(job_path: str, threads: int) -> int:
    """Consumes until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = Job.read(job_path)
    engine = sa.create_engine(job.inbox_url or "", pool_size=threads, max_overflow=0)
    settings = PushSettings(
        threads=threads,
        batch_size=job.batch,
        pull_interval_seconds=job.pull_interval_seconds,
    )
    with CommitRecorder.open(
        job.redis_url, environment=job.environment, group=job.consumer_group, topics=[job.topic], shards=job.shards
    ) as recorder:
        database = engine.raw_connection if job.plain_driver else engine

        @transactional_handler(
            database, group=job.consumer_group, topics=job.topic, recorder=recorder, is_batched=job.batch > 1
        )
        def handle(message: Any, connection: Any) -> None:
            if job.plain_driver:
                with closing(connection.cursor()) as cursor:
                    cursor.execute("INSERT INTO effects VALUES (%s, %s)", (message.unique_key, 100))
            else:
                connection.execute(INSERT_EFFECT, {"unique_key": message.unique_key, "amount": 100})

        with TransactionalConsumer(handle, name_servers=job.name_servers, settings=settings):
            stop.wait()
        state = recorder.state()
    engine.dispose()
    counts = handle.counts
    sys.stdout.write(
        f"applied {counts.applied} duplicates {counts.duplicates} failed {counts.failed} missed {state.missed}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
