"""The original's job as a process: `python -m reconciler.demo.classic.process JOB.json END`.

The process reads the announcements, runs one difference, and prints the numbers of keys as one JSON line. END is
"lives", or "dies" to kill the process after EXEC, before any look-up.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

from checkback_consumers.handler import transactional_handler
from checkback_consumers.message import HandedOverMessage
from checkback_consumers.recorder import CommitRecorder
from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.contract.subscription import Subscription
from reconciler.demo.classic.announcements import GroupOffsetAnnouncements
from reconciler.demo.classic.round import ClassicReport, ClassicRound
from reconciler.demo.classic.sets import RedisClassicSets, open_classic_client
from reconciler.demo.effect import apply_effect, die
from reconciler.demo.job import DemoJob
from reconciler.demo.truth import REFERENCE
from reconciler.evidence.lookup import Lookups
from reconciler.instrumentation.console import say
from reconciler.policy.evidence import Lookup, StoredMessage
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.sql.engines import open_engine

DIES = "dies"
LIVES = "lives"


def run_job(job: DemoJob, *, dies: bool) -> ClassicReport:
    """Runs one turn of the original's job, and hands messages over to the group's business code in this process."""
    group = job.consumer_group(REFERENCE)
    subscription = Subscription(environment=job.environment, topic=job.topic, group=group)
    with ExitStack() as stack:
        client = open_classic_client(job.redis_url)
        stack.callback(client.close)
        instance = stack.enter_context(ClientInstance(job.name_servers))
        engine = open_engine(f"sqlite:///{job.files.inbox(REFERENCE)}", lock_timeout_seconds=30)
        stack.callback(engine.dispose)
        recorder = stack.enter_context(
            CommitRecorder.open(job.redis_url, environment=job.environment, group=group, shards=job.shards)
        )
        business = transactional_handler(engine, group=group, topics=job.topic, recorder=recorder)(apply_effect)
        lookups = Lookups(instance.client, instance.routes, instance.families)

        def view_message(topic: str, unique_key: str) -> Lookup[StoredMessage]:
            if dies:
                die()
            return lookups.find(topic, unique_key)()

        def hand_over(_subscription: Subscription, message: StoredMessage) -> None:
            business.apply(HandedOverMessage.of(message))

        original = ClassicRound(
            announcements=GroupOffsetAnnouncements(
                RemotingAnnouncementSource(instance.client, instance.routes),
                routes=instance.routes,
                offsets=instance.offsets,
                unique_key_topics={subscription: job.unique_key_topic},
                rules={subscription: AnnouncementRules(environment=job.environment, topic=job.topic)},
            ),
            sets=RedisClassicSets(client),
            view_message=view_message,
            hand_over=hand_over,
        )
        original.consume_announcements(subscription)
        return original.run(subscription)


def main(job_path: str, end: str) -> int:
    """Runs one turn, then returns 0."""
    report = run_job(DemoJob.read(Path(job_path)), dies=end == DIES)
    answer = {"missing": report.missing, "handed_over": report.handed_over, "not_found": len(report.not_found)}
    say(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
