"""What status says about damaged values, refused announcements, and recorders that write no valid keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.keyspace import is_half_queue
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import fault_of_member
from reconciler.errors import InvariantViolation, RedisAway
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.rocketmq.wire.codes import HALF_TOPIC
from reconciler.telling.ports.reports import LedgerReports, RepairCount, StoredRound, VerdictCount

DAMAGED_VERDICTS = Code("status.damaged-verdicts", subscription=Field.NAME, number=Field.COUNT, damage=Field.TEXT)
DAMAGED_REPAIRS = Code("status.damaged-repairs", topic=Field.NAME, number=Field.COUNT, damage=Field.TEXT)
MISSHAPEN_MEMBERS = Code(
    "status.misshapen-members",
    subscription=Field.NAME,
    wrong=Field.NUMBER,
    seen=Field.NUMBER,
    shard=Field.NUMBER,
    member=Field.TEXT,
    fault=Field.TEXT,
)
REFUSED_ANNOUNCEMENTS = Code(
    "status.refused-announcements", number=Field.NUMBER, topic=Field.NAME, reason=Field.NAME, why=Field.TEXT
)

#: Number of the newest announcements of each queue in which refusals are looked for. Refusals that are older than
#: REFUSED_SECONDS are left out. A producer with a wrong environment or secret is refused at each announcement.
ANNOUNCEMENTS_LOOKED_AT = 100
REFUSED_SECONDS = 3600.0


def damaged_rows(verdicts: Iterable[VerdictCount], repairs: Iterable[RepairCount]) -> list[Fact]:
    """Returns facts about ledger rows whose state is unreadable."""
    found = [
        DAMAGED_VERDICTS(subscription=str(v.subscription), number=v.count, damage=v.damage)
        for v in verdicts
        if v.damage is not None
    ]
    return found + [DAMAGED_REPAIRS(topic=r.topic, number=r.count, damage=r.damage) for r in repairs if r.damage]


def misshapen_members(topic: TopicPlan, sample: Callable[[Subscription], Iterable[tuple[Shard, bytes]]]) -> list[Fact]:
    """Returns one line for each subscription whose recorder writes members that no announced key equals.

    `sample`: returns a few members of a subscription's commit sets.
    """
    lines = []
    for plan in topic.subscriptions:
        seen = 0
        wrong: list[tuple[Shard, bytes, str]] = []
        with suppress(RedisAway, InvariantViolation):  # Redis away and stopped shards have their own lines
            for shard, member in sample(plan.subscription):
                seen += 1
                fault = fault_of_member(member)
                wrong += [(shard, member, fault)] if fault is not None else []
        if wrong:
            shard, member, fault = wrong[0]
            lines.append(
                MISSHAPEN_MEMBERS(
                    subscription=str(plan.subscription),
                    wrong=len(wrong),
                    seen=seen,
                    shard=shard.number,
                    member=ascii(member[:64])[1:],
                    fault=fault,
                )
            )
    return lines


def refused_announcements(
    reports: LedgerReports, environment: str, unique_key_topic: str, rounds: Iterable[StoredRound], *, now_ms: int
) -> Iterator[Fact]:
    """Yields one line if announcements were refused lately: nobody notices the commits of refused announcements.

    `rounds`: the newest round of every shard of a topic's subscriptions. Raises DatabaseAway.
    """
    ends: dict[AnnouncementQueue, int] = {}
    for stored in rounds:
        for name, offset in stored.done.offsets.items():
            broker, _, number = name.rpartition("/")
            if number == str(stored.done.shard.number):
                topic = HALF_TOPIC if is_half_queue(broker) else unique_key_topic
                queue = AnnouncementQueue(unique_key_topic=topic, broker=broker, queue_id=int(number))
                ends[queue] = max(offset, ends.get(queue, 0))
    found = [
        kept
        for queue, end in ends.items()
        for kept in reports.refused_of(
            environment, queue, from_offset=end - ANNOUNCEMENTS_LOOKED_AT, limit=ANNOUNCEMENTS_LOOKED_AT
        )
        if now_ms - kept.seen_at_ms < REFUSED_SECONDS * 1000
    ]
    if found:
        newest = max(found, key=lambda kept: kept.seen_at_ms).refused
        yield REFUSED_ANNOUNCEMENTS(
            number=len(found), topic=newest.queue.unique_key_topic, reason=str(newest.reason), why=newest.detail[:200]
        )
