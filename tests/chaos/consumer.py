"""A receiving service under chaos: `python -m tests.chaos.consumer JOB.json GROUP`. Consumes until SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from consumers.handler import transactional_handler
from consumers.push import TransactionalConsumer
from consumers.recorder import CommitRecorder
from tests.chaos import failpoints
from tests.chaos.job import ChaosJob
from tests.chaos.truth import WRITE_EFFECT, digest_of


def main(job_path: str, group: str) -> int:
    """0 after SIGTERM."""
    failpoints.install("consumer")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = ChaosJob.read(Path(job_path))
    engine = sa.create_engine(job.database_url, pool_size=20, pool_pre_ping=True)
    with CommitRecorder.open(
        job.redis_url, environment=job.environment, group=group, shards=job.shards, timeout_seconds=1.0
    ) as recorder:

        @transactional_handler(engine, group=group, topics=job.topic, recorder=recorder)
        def apply(message: Any, connection: sa.Connection) -> None:
            values = {"group": group, "key": message.unique_key, "digest": digest_of(message.body)}
            connection.execute(WRITE_EFFECT, values)

        with TransactionalConsumer(apply, name_servers=job.name_servers, offset_commit_interval_seconds=1.0):
            stop.wait()
    engine.dispose()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
