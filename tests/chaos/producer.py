"""A producing service under chaos, a process: sends until it is told to stop."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import open_producer
from reconciler.clock import SystemClock
from reconciler.contract.least_rights import ANNOUNCING_SERVICE
from reconciler.errors import ReconcilerError
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator
from tests.chaos import failpoints
from tests.chaos.job import PRODUCER_GROUPS, ChaosJob
from tests.chaos.truth import WRITE_ATTEMPT, WRITE_ORDER, Intent, digest_of

#: Many, since a thread whose END gets lost waits for its answer as a service would.
THREADS = 24
#: Shorter than the default: ENDs get lost all the time, and a thread that waits sends nothing.
END_TIMEOUT_SECONDS = 1.0
#: What a thread writes down of its intentions in one transaction before it begins with them.
PLANNED = 16
ROLL_BACKS = 0.02
BODY_BYTES = 200


class OnPurpose(Exception):
    """The business changes its mind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A message that is meant, and written down, before anything of it is sent."""

    key: str
    body: bytes
    intent: Intent


class Business:
    """Sends messages at a rate, in one thread with a connection of its own, as the driver gives it.

    A failure of any kind costs that message only, as in a service.
    """

    def __init__(self, job: ChaosJob, producer: TransactionalProducer, seed: str) -> None:
        self._job = job
        self._producer = producer
        self._connection: psycopg.Connection[Any] | None = None
        self._dice = random.Random(seed)
        self._clock = SystemClock()
        self._keys = UniqueKeyGenerator(self._clock)
        self._planned: list[Planned] = []

    def run(self, messages_per_second: float) -> None:
        """Until the job says stop; it is behind its rate after a fault and does not catch up by a storm."""
        due = self._clock.monotonic_seconds()
        while not self._job.stop_sending.exists():
            with suppress(ReconcilerError, psycopg.Error, OnPurpose):
                self._send()
            now = self._clock.monotonic_seconds()
            due = max(due + 1 / messages_per_second, now - 1.0)
            self._clock.sleep(due - now)

    def _send(self) -> None:
        if not self._planned:
            self._planned = self._plan()
        planned = self._planned.pop()
        key = planned.key
        message = Message(
            topic=self._job.topic, body=planned.body, tags="t", keys=(f"order-{key[-8:]}",), unique_key=key
        )
        with self._producer.transaction(message) as tx, self._local_transaction() as connection:
            tx.record(connection)
            connection.execute(WRITE_ORDER, (key,))
            if planned.intent is Intent.ROLL_BACK:
                raise OnPurpose

    def _plan(self) -> list[Planned]:
        planned = [
            Planned(
                key=self._keys.next_key(),
                body=self._dice.randbytes(BODY_BYTES),
                intent=Intent.ROLL_BACK if self._dice.random() < ROLL_BACKS else Intent.COMMIT,
            )
            for _ in range(PLANNED)
        ]
        with self._local_transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(WRITE_ATTEMPT, [(p.key, p.intent.value, digest_of(p.body)) for p in planned])
        return planned

    @contextmanager
    def _local_transaction(self) -> Iterator[psycopg.Connection[Any]]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._job.driver_url, prepare_threshold=None)  # a pooler is between
        connection = self._connection
        try:
            yield connection
            connection.commit()
        except BaseException:
            with suppress(psycopg.Error):
                connection.rollback()
            raise


def main(job_path: str, producer_number: str) -> int:
    """0 when it was told to stop."""
    failpoints.install("producer")
    job, number = ChaosJob.read(Path(job_path)), int(producer_number)
    route = AnnouncementRoute(environment=job.environment, unique_key_topic=job.unique_key_topic, queues=job.shards)
    producer = open_producer(
        group=PRODUCER_GROUPS[number],
        environment=job.environment,
        name_servers=job.name_servers,
        acl=job.acl(ANNOUNCING_SERVICE),
        tls=job.tls,
        outbox_url=job.database_url,
        announcements=route,
        local_transaction_timeout_seconds=5.0,
        end_timeout_seconds=END_TIMEOUT_SECONDS,
        pool_size=THREADS,  # fewer would overflow, and an overflow connection lives for one statement
    )
    share = job.rate_per_second / len(PRODUCER_GROUPS) / THREADS
    with producer:
        businesses = [Business(job, producer, f"{job.seed}-{number}-{n}") for n in range(THREADS)]
        threads = [threading.Thread(target=one.run, args=(share,), daemon=True) for one in businesses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return 0
