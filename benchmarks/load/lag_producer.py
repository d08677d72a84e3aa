"""Sends and announces a range of ids as fast as it can: `python -m benchmarks.load.lag_producer JOB.json FIRST LAST`.

Messages go in batches, as ordinary messages with the ids as their unique keys: what consumers and look-ups see of a
committed transactional message. Each key is announced after its message is stored.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from benchmarks.load.job import Job
from benchmarks.load.world import BUSINESS_QUEUES
from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.remoting import RemotingAnnouncements
from reconciler.contract.announcement import AnnouncedKey
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.message import Message
from tests.brokers.batches import send_batch

#: Messages of one batch, and keys of one call of the Announcer: some hundred a shard.
BATCH = 500
ANNOUNCED_TOGETHER = 4_000


def queues_of(instance: ClientInstance, topic: str) -> Sequence[MessageQueue]:
    """All queues of the business topic; every one gets messages."""
    queues = instance.routes.refresh(topic).writable_queues
    if len(queues) != BUSINESS_QUEUES:
        raise SystemExit(f"{topic} has {len(queues)} queues")
    return queues


def main(job_path: str, first: int, last: int) -> int:
    """Ids first .. last - 1."""
    job = Job.read(job_path)
    with ClientInstance(job.name_servers) as instance:
        route = AnnouncementRoute(environment=job.environment, unique_key_topic=job.unique_key_topic, queues=job.shards)
        announcer = Announcer(RemotingAnnouncements(job.producer_group, instance), route)
        queues = queues_of(instance, job.topic)
        for start in range(first, last, ANNOUNCED_TOGETHER):
            keys = [job.key(number) for number in range(start, min(last, start + ANNOUNCED_TOGETHER))]
            # A small run spreads over all queues, too: the watermark needs an offset for each.
            size = min(BATCH, max(1, len(keys) // len(queues)))
            for number, at in enumerate(range(0, len(keys), size)):
                batch = [Message(topic=job.topic, body=b"order", unique_key=key) for key in keys[at : at + size]]
                send_batch(instance, batch, queue=queues[number % len(queues)], timeout_seconds=30)
            now_ms = int(time.time() * 1_000)
            known = [AnnouncedKey(unique_key=key, tag=None, committed_at_ms=now_ms) for key in keys]
            announced = announcer.announce(job.topic, job.producer_group, known)
            if announced.error is not None:
                raise SystemExit(f"announcing failed: {announced.error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
