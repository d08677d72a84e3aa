"""A receiving service under chaos, a process: consumes until SIGTERM."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from reconciler.contract.least_rights import BUSINESS, CONSUMING_SERVICE
from reconciler.rocketmq.consumer.settings import PushSettings
from tests.chaos import failpoints
from tests.chaos.job import ChaosJob
from tests.chaos.truth import WRITE_EFFECT, digest_of

THREADS = 8
#: Messages of a queue that share one transaction; the other groups' messages have one each.
BATCHES = {"stock": 16}
#: The watermark follows the committed offsets, and a topic whose queues grow is noticed by the rebalancing.
SETTINGS = PushSettings(threads=THREADS, offset_commit_interval_seconds=0.5, rebalance_interval_seconds=5.0)


def main(job_path: str, group: str) -> int:
    """0 after SIGTERM."""
    failpoints.install("consumer")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = ChaosJob.read(Path(job_path))
    batch = BATCHES.get(group, 1)
    # Behind a pooler a statement's name may be another client's.
    engine = sa.create_engine(job.database_url, pool_size=THREADS, connect_args={"prepare_threshold": None})
    with CommitRecorder.open(
        job.redis_url_of(BUSINESS), environment=job.environment, group=group, shards=job.shards, timeout_seconds=1.0
    ) as recorder:
        # The driver's own connections, as many services use them: they cost half of SQLAlchemy's.
        @transactional_handler(
            engine.raw_connection, group=group, topics=job.topic, recorder=recorder, is_batched=batch > 1
        )
        def apply(message: Any, connection: Any) -> None:
            with connection.cursor() as cursor:
                cursor.execute(WRITE_EFFECT, (group, message.unique_key, digest_of(message.body)))

        with TransactionalConsumer(
            apply,
            name_servers=job.name_servers,
            acl=job.acl(CONSUMING_SERVICE),
            tls=job.tls,
            settings=replace(SETTINGS, batch_size=batch),
        ):
            while not stop.wait(1):  # without a time, a signal that comes just before the wait does not end it
                pass
    engine.dispose()
    return 0
