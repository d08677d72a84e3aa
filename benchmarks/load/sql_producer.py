"""Transactional messages as fast as the threads can:

    python -m benchmarks.load.sql_producer JOB.json SECONDS OUT.json

Each thread runs the block of the documentation: half, outbox row and order in one PostgreSQL transaction, outcome,
END_TRANSACTION, announcement.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import sqlalchemy as sa

from benchmarks.load.job import Job
from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import open_producer
from checkback_producers.transaction import Transaction
from reconciler.rocketmq.wire.message import Message

#: Written once: to put a statement together costs as much as to execute it.
INSERT_ORDER = sa.insert(sa.table("orders", sa.column("unique_key"), sa.column("amount")))
BODY = b'{"order":"' + b"0" * 480 + b'"}'


def sell(
    job: Job, producer: TransactionalProducer, engine: sa.Engine, stop: threading.Event, told: Counter[str]
) -> None:
    """One thread; `told` is its own."""
    sale = sale_by_driver if job.plain_driver else sale_by_alchemy
    while not stop.is_set():
        try:
            sale(producer.transaction(Message(topic=job.topic, body=BODY, tags="paid")), engine)
            told["committed"] += 1
        except Exception as error:  # noqa: BLE001  # a failed sale is a figure
            told[f"{type(error).__name__}: {error}"[:120]] += 1


def sale_by_alchemy(transaction: Transaction, engine: sa.Engine) -> None:
    """As the documentation has it."""
    with transaction, engine.connect() as connection, connection.begin():
        transaction.record(connection)
        connection.execute(INSERT_ORDER, {"unique_key": transaction.unique_key, "amount": 100})


def sale_by_driver(transaction: Transaction, engine: sa.Engine) -> None:
    """SQLAlchemy lends the connection and nothing else."""
    with transaction, closing(engine.raw_connection()) as connection:
        transaction.record(connection)
        with closing(connection.cursor()) as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s, %s)", (transaction.unique_key, 100))
        connection.commit()


def main(job_path: str, seconds: float, out: str) -> int:
    """Sells for so many seconds from the job's start on, or until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = Job.read(job_path)
    engine = sa.create_engine(job.outbox_url or "", pool_size=job.threads, max_overflow=0)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        producer = stack.enter_context(
            open_producer(
                group=job.producer_group,
                environment=job.environment,
                name_servers=job.name_servers,
                outbox_url=job.outbox_url,
                announcements=AnnouncementRoute(
                    environment=job.environment, unique_key_topic=job.unique_key_topic, queues=job.shards
                ),
                pool_size=job.threads,
            )
        )
        told: list[Counter[str]] = [Counter() for _ in range(job.threads)]
        threads = [threading.Thread(target=sell, args=(job, producer, engine, stop, one)) for one in told]
        stop.wait(max(0.0, job.start_at_seconds - time.time()))
        for thread in threads:
            thread.start()
        stop.wait(seconds)
        stop.set()
        for thread in threads:
            thread.join()
    Path(out).write_text(json.dumps(sum(told, Counter())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
