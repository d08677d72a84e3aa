"""A producing service that dies between its commits and their END_TRANSACTION:

    python -m benchmarks.load.dead_producer JOB.json NUMBER

Each thread commits one message; then the process, alone in its producer group, is killed by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import sqlalchemy as sa

from benchmarks.load.job import Job
from benchmarks.load.sql_producer import BODY, INSERT_ORDER
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import open_producer
from reconciler.rocketmq.wire.message import Message

#: Until every thread has committed.
COMMITS_SECONDS = 60.0


def group_of(job: Job, number: int) -> str:
    """The producer group of one process."""
    return f"{job.producer_group}-{number}"


def commit_and_wait(job: Job, producer: TransactionalProducer, engine: sa.Engine, committed: threading.Barrier) -> None:
    """One message up to its commit; the block never ends."""
    with producer.transaction(Message(topic=job.topic, body=BODY, tags="paid")) as transaction:
        with engine.connect() as connection, connection.begin():
            transaction.record(connection)
            connection.execute(INSERT_ORDER, {"unique_key": transaction.unique_key, "amount": 100})
        committed.wait(COMMITS_SECONDS)
        threading.Event().wait()


def main(job_path: str, number: int) -> int:
    """Never returns 0."""
    job = Job.read(job_path)
    engine = sa.create_engine(job.outbox_url or "", pool_size=job.threads, max_overflow=0)
    producer = open_producer(
        group=group_of(job, number), environment=job.environment, name_servers=job.name_servers,
        outbox_url=job.outbox_url,
    )  # fmt: skip
    producer.start()
    committed = threading.Barrier(job.threads + 1)
    for _ in range(job.threads):
        threading.Thread(target=commit_and_wait, args=(job, producer, engine, committed), daemon=True).start()
    committed.wait(COMMITS_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
