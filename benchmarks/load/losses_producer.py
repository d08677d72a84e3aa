"""A producing service that dies with many transactions committed and none ended:

    python -m benchmarks.load.losses_producer JOB.json

Its threads commit `ids` messages of the job, half and outbox row each; no block ends, so that there is neither
END_TRANSACTION nor announcement. It answers no check-back either, as one that is dead. Then it is killed by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import sqlalchemy as sa

from benchmarks.load.job import Job
from benchmarks.load.sql_producer import BODY
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import open_producer
from checkback_producers.transaction import Transaction
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.producer.check_back import CheckBack
from reconciler.rocketmq.wire.message import Message

#: Messages that share one transaction of the database.
PAGE = 50


def commit_page(job: Job, producer: TransactionalProducer, engine: sa.Engine, number: int) -> list[Transaction]:
    """Blocks that are never left."""
    blocks = []
    for _ in range(number):
        blocks.append(producer.transaction(Message(topic=job.topic, body=BODY, tags="paid")))
        blocks[-1].send()
    with closing(engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        for block in blocks:
            block.record(connection)
        cursor.executemany("INSERT INTO orders VALUES (%s, 100)", [(block.unique_key,) for block in blocks])
        connection.commit()
    return blocks


def main(job_path: str) -> int:
    """Never returns 0."""
    job = Job.read(job_path)
    engine = sa.create_engine(job.outbox_url or "", pool_size=job.threads, max_overflow=0)
    instance = ClientInstance(job.name_servers)
    producer = open_producer(
        group=job.producer_group, environment=job.environment, instance=instance, outbox_url=job.outbox_url
    )
    producer.start()
    instance.shared(CheckBack).unregister(job.producer_group)
    pages = [min(PAGE, job.ids - first) for first in range(0, job.ids, PAGE)]
    with ThreadPoolExecutor(job.threads) as threads:
        blocks = list(threads.map(partial(commit_page, job, producer, engine), pages))
    if sum(map(len, blocks)) != job.ids:
        return 1
    os.kill(os.getpid(), signal.SIGKILL)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
