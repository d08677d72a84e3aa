"""Pulls and offsets on every broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing

import pytest

from reconciler.announcing.consumer import AnnouncementConsumer
from reconciler.announcing.looking import AnnouncementLook
from reconciler.announcing.outage_watch import OutageWatch
from reconciler.announcing.port import StepKind
from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import SystemClock
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import BrokerRefused
from reconciler.evidence.queue_scan import scan
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.consumer.pulling import PullStatus
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from tests.conformance.steps import Steps
from tests.polling import eventually
from tests.unit.consumers.messages import new_key


def test_every_status_of_a_pull(steps: Steps) -> None:
    topic = steps.target.new_topic("pull")
    empty = steps.pull(topic)
    assert (empty.status, empty.records) == (PullStatus.NO_NEW, [])
    for number in range(5):
        steps.send(topic, f"{number}".encode(), tags="Even" if number % 2 == 0 else "Odd")
    steps.until_delivered(topic, 5)
    found = steps.pull(topic, 1)
    assert found.status is PullStatus.FOUND
    assert [record.body for record in found.records] == [b"1", b"2", b"3", b"4"]
    assert (found.next_offset, found.min_offset, found.max_offset) == (5, 0, 5)
    at_the_end = steps.pull(topic, 5)
    assert at_the_end.status is PullStatus.NO_NEW
    assert at_the_end.next_offset == 5
    beyond = steps.pull(topic, 99)
    assert beyond.status is PullStatus.OFFSET_MOVED
    assert beyond.next_offset in {0, 5}  # up to 4.4 a pull far beyond the end starts over
    assert found.suggested_broker_id == 0


def test_tags_are_filtered_and_what_did_not_match_is_passed(steps: Steps) -> None:
    topic = steps.target.new_topic("tags")
    for tag in ("A", "B", "C", "A"):
        steps.send(topic, tag.encode(), tags=tag)
    steps.until_delivered(topic, 4)
    both = steps.pull(topic, subscription="A || B")
    assert [record.body for record in both.records] == [b"A", b"B", b"A"]
    none = steps.pull(topic, subscription="Z")
    assert none.status is PullStatus.NO_MATCH
    assert none.next_offset == 4


def test_a_held_pull_is_released_by_a_message(steps: Steps) -> None:
    topic = steps.target.new_topic("hold")
    found: list[str] = []

    def pull_until_found() -> None:
        """Old brokers may wake a pull a moment before the message can be read: consumers pull again."""
        while not found:
            found.extend(record.unique_key for record in steps.pull(topic, suspend_seconds=60.0).records)

    puller = threading.Thread(target=pull_until_found, name="held-pull")
    began = time.monotonic()
    puller.start()
    sent = steps.send(topic, b"wake")
    puller.join(120)
    assert found == [sent.unique_key]
    assert time.monotonic() - began < 50  # not because the time was over


def test_announcements_are_handed_out_to_all_subscriptions_by_one_held_pull_a_queue(steps: Steps) -> None:
    unique_key_topic, clock = steps.target.new_topic("held-for-all", queues=2), SystemClock()
    memory, ledger = MemoryShards(clock), MemoryLedger(clock).announcements
    pulls: Counter[str] = Counter()

    def count(_address: str, command: Command) -> Command:
        if command.code == RequestCode.PULL_MESSAGE:
            is_held = command.fields["suspendTimeoutMillis"] != "0"
            pulls["held" if is_held else command.fields["subscription"]] += 1
        return command

    with closing(RemotingClient(request_timeout_seconds=60.0, outgoing=count)) as client:
        source = RemotingAnnouncementSource(client, steps.instance.routes)
        readers = [
            AnnouncementStep(
                Subscription(environment="test", topic=topic, group=group), unique_key_topic=unique_key_topic, shards=2,
                half_sets=memory, ledger=ledger, source=source, token="one", clock=clock, lease_seconds=600,
                rules=AnnouncementRules(environment="test", topic=topic),
            )
            for topic, group in (("ORDERS", "billing"), ("ORDERS", "points"), ("REFUNDS", "billing"))
        ]  # fmt: skip
        look = AnnouncementLook(readers, memory, OutageWatch(ledger, "test", clock=clock), clock=clock)
        consumer = AnnouncementConsumer(readers, source, look, clock=clock)

        def announced(topic: str, queue: int) -> str:
            key = new_key()
            keys = (AnnouncedKey(unique_key=key, tag=None, committed_at_ms=1),)
            body = encode_announcement(
                Announcement(environment="test", topic=topic, producer_group="order-service", keys=keys)
            )
            steps.send(unique_key_topic, body, queue=queue, tags=topic)
            return key

        def halves() -> list[set[str]]:
            shards = [[Shard(subscription=one.subscription, number=number) for number in range(2)] for one in readers]
            return [{key for shard in found for key in memory._memory(shard).half} for found in shards]

        def joined() -> bool:
            return sum(1 for one in readers for _ in one.joined(clock.monotonic_seconds())) == 6

        consumer.start()
        try:
            before = {announced("ORDERS", queue) for queue in range(2)}
            eventually(joined, within_seconds=120)
            pulls.clear()
            orders = before | {announced("ORDERS", queue) for queue in (0, 1, 1)}
            refunds = {announced("REFUNDS", 0)}
            announced("OTHERS", 1)
            eventually(lambda: halves() == [orders, orders, refunds], within_seconds=120)
            eventually(lambda: pulls["held"] >= 4, within_seconds=120)
            assert pulls["ORDERS"] == pulls["REFUNDS"] == 0
            assert {state.kind for state in consumer.states()} <= {StepKind.IDLE, StepKind.MOVED_ON}
        finally:
            assert consumer.stop(timeout_seconds=60)


def test_a_queue_or_topic_that_does_not_exist_is_refused(steps: Steps) -> None:
    topic = steps.target.new_topic("range", queues=1)
    with pytest.raises(BrokerRefused) as range_error:
        steps.pull(topic, queue=7)
    assert range_error.value.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER}
    with pytest.raises(BrokerRefused) as topic_error:
        steps.pull("no_such_topic")
    assert topic_error.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_offsets_of_a_queue(steps: Steps) -> None:
    topic, address = steps.target.new_topic("offsets"), steps.target.broker
    offsets, queue = steps.instance.offsets, steps.queue(topic)
    assert (offsets.maximum(address, queue), offsets.minimum(address, queue)) == (0, 0)
    for number in range(3):
        steps.send(topic, f"{number}".encode())
    records = steps.until_delivered(topic, 3)
    assert (offsets.maximum(address, queue), offsets.minimum(address, queue)) == (3, 0)
    first, last = records[0].store_timestamp_ms, records[-1].store_timestamp_ms
    assert offsets.at_time(address, queue, first - 60_000) == 0
    assert offsets.at_time(address, queue, last + 60_000) in {2, 3}
    fields = {"topic": topic, "queueId": str(queue.queue_id)}
    answer = steps.instance.client.request(address, Command(code=RequestCode.GET_EARLIEST_MSG_STORETIME, fields=fields))
    assert int(answer.fields["timestamp"]) == first


def test_a_groups_offset_is_kept_by_the_broker(steps: Steps) -> None:
    topic, address = steps.target.new_topic("stored"), steps.target.broker
    offsets, queue, group = steps.instance.offsets, steps.queue(topic), f"CG_{topic}"
    steps.send(topic, b"first")
    steps.until_delivered(topic, 1)
    steps.admin.create_group(address, group)
    expected = None if steps.expect.checks_offset_topics else 0
    assert offsets.of_group(address, queue, group) == expected
    offsets.store(address, queue, group, 1)
    assert offsets.of_group(address, queue, group) == 1
    offsets.store(address, queue, group, 0, is_oneway=True)
    eventually(lambda: offsets.of_group(address, queue, group) == 0, within_seconds=60)


def test_an_offset_for_what_nobody_knows_is_refused_by_5_x(steps: Steps) -> None:
    topic, address = steps.target.new_topic("unknown"), steps.target.broker
    offsets, group = steps.instance.offsets, f"CG_{topic}"
    refusals = {}
    for what, queue in (("group", steps.queue(topic)), ("topic", steps.queue("no_such_topic"))):
        try:
            offsets.store(address, queue, group, 0)
        except BrokerRefused as error:
            refusals[what] = error.code
        steps.admin.create_group(address, group)
    expected = {}
    if steps.expect.checks_offset_groups:
        expected["group"] = int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
    if steps.expect.checks_offset_topics:
        expected["topic"] = int(ResponseCode.TOPIC_NOT_EXIST)
    assert refusals == expected


def test_a_scan_reads_a_stretch_of_a_queue_once(steps: Steps) -> None:
    topic = steps.target.new_topic("scan")
    for number in range(100):
        steps.send(topic, f"{number}".encode())
    steps.until_delivered(topic, 100)
    found = scan(steps.client, steps.target.broker, steps.queue(topic), begin_offset=10, end_offset=90)
    assert [record.body for record in found] == [f"{number}".encode() for number in range(10, 90)]
