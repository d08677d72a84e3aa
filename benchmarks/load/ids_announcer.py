"""Announces ids at the job's rate: `python -m benchmarks.load.ids_announcer JOB.json ANNOUNCED.json`.

The plug-in's Announcer sends what became due, as the sweeper does; ids of another tag, where the job has some, beside
the others. A lost id goes the whole way of a producer without an outbox: half, END_TRANSACTION and check-backs dropped
in this process' transport, announcement.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load.job import Job
from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import RemotingAnnouncements, open_producer
from reconciler.contract.announcement import AnnouncedKey
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message

#: Between two looks at what is due.
EVERY_SECONDS = 0.1
_DECISIVE = {RequestCode.END_TRANSACTION, RequestCode.CHECK_TRANSACTION_STATE}


def _drop(_address: str, command: Command) -> Command | None:
    return None if command.code in _DECISIVE else command


class IdAnnouncer:
    """Used by one thread."""

    def __init__(self, job: Job, announcer: Announcer, producer: TransactionalProducer) -> None:
        self._job = job
        self._announcer = announcer
        self._producer = producer
        #: Key of each lost message -> wall clock before its half was sent, milliseconds.
        self.lost_at_ms: dict[str, int] = {}
        self.sent = 0
        self.foreign_sent = 0
        #: The longest time that an id was announced after it was due.
        self.late_seconds_max = 0.0
        self.failures: list[str] = []

    def run(self, stop: threading.Event) -> None:
        """All ids; returns early on a stop."""
        job = self._job
        while self.sent < job.ids and not stop.is_set():
            passed = time.time() - job.start_at_seconds
            due = min(job.ids, int(passed * job.rate))
            if due > self.sent:
                self.late_seconds_max = max(self.late_seconds_max, passed - self.sent / job.rate)
                self._announce(range(self.sent, due))
                self.sent = due
                self._announce_foreign(due * job.foreign_rate // job.rate)
            ends_at = job.start_at_seconds + passed + EVERY_SECONDS
            stop.wait(max(0.0, ends_at - time.time()))

    def _announce(self, numbers: range) -> None:
        now_ms = int(time.time() * 1_000)
        keys: list[AnnouncedKey] = []
        for number in numbers:
            key = self._job.key(number)
            if self._job.is_lost(number):
                self._lose(key)
            else:
                keys.append(AnnouncedKey(unique_key=key, tag=self._job.tag, committed_at_ms=now_ms))
        self._send(keys)

    def _announce_foreign(self, due: int) -> None:
        now_ms = int(time.time() * 1_000)
        self._send(
            [
                AnnouncedKey(unique_key=self._job.foreign_key(number), tag="foreign", committed_at_ms=now_ms)
                for number in range(self.foreign_sent, due)
            ]
        )
        self.foreign_sent = due

    def _send(self, keys: list[AnnouncedKey]) -> None:
        if not keys:
            return
        announced = self._announcer.announce(self._job.topic, self._job.producer_group, keys)
        if announced.error is not None or len(announced.unique_keys) != len(keys):
            self.failures.append(f"{len(keys) - len(announced.unique_keys)} keys: {announced.error}")

    def _lose(self, key: str) -> None:
        self.lost_at_ms[key] = int(time.time() * 1_000)
        lost = Message(topic=self._job.topic, body=b"lost", unique_key=key, tags=self._job.tag)
        with self._producer.transaction(lost) as transaction:
            pass
        if not transaction.is_announced:
            self.failures.append(f"{key} was not announced")


def main(job_path: str, out: str) -> int:
    """Announces, then stays as a member of its group until SIGTERM: a living producer that never answers."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    job = Job.read(job_path)
    with ExitStack() as stack:
        client = stack.enter_context(RemotingClient(outgoing=_drop, incoming=_drop))
        instance = stack.enter_context(ClientInstance(job.name_servers, client=client))
        route = AnnouncementRoute(environment=job.environment, unique_key_topic=job.unique_key_topic, queues=job.shards)
        producer = stack.enter_context(
            open_producer(
                group=job.producer_group,
                environment=job.environment,
                instance=instance,
                without_outbox=True,
                announcements=route,
            )
        )
        one = IdAnnouncer(job, Announcer(RemotingAnnouncements(job.producer_group, instance), route), producer)
        one.run(stop)
        document = {
            "announced": one.sent,
            "foreign": one.foreign_sent,
            "seconds": time.time() - job.start_at_seconds,
            "late_seconds_max": one.late_seconds_max,
            "failures": one.failures[:20],
            "lost_at_ms": one.lost_at_ms,
        }
        part = Path(out).with_suffix(".part")
        part.write_text(json.dumps(document))
        part.rename(out)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
