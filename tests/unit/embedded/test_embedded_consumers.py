"""Pulling, waiting, rebalancing, locking, retrying: what consumers rely on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.clock import ManualClock
from reconciler.embedded.queues import ConsumeQueue
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from tests.polling import eventually
from tests.unit.embedded.raw_client import (
    TOPIC,
    RawClient,
    body_of,
    consumer_heartbeat,
    pull_fields,
    records,
    send_fields,
)

GROUP = "CG_A"
NOTIFY = 40
SUBSCRIBED, SUSPEND, COMMIT = 4, 2, 1
WAITING: dict[str, Any] = {"sysFlag": SUBSCRIBED | SUSPEND, "suspendTimeoutMillis": 20_000}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        settings=BrokerSettings(delay_levels="10ms 20ms 30ms", suspend_scan_interval_seconds=0.05)
    ) as one:
        yield one


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.address) as connected:
        yield connected


def join(client: RawClient, name: str, expression: str = "*", **more: Any) -> None:
    heartbeat = consumer_heartbeat(name, GROUP, expression=expression, **more)
    assert client.call(34, json.dumps(heartbeat).encode()).code == 0


def start_pull(client: RawClient, offset: int, **changes: object) -> int:
    fields = pull_fields(TOPIC, 0, offset) | changes
    return client.send(11, {name: str(value) for name, value in fields.items()})


# -- pulls -------------------------------------------------------------------------------------------


def test_a_waiting_pull_times_out_with_not_found(client: RawClient) -> None:
    client.send_message()
    answer = client.answer(start_pull(client, 1, **WAITING | {"suspendTimeoutMillis": 100}), 5)
    assert answer is not None
    assert (answer.code, answer.fields["nextBeginOffset"]) == (19, "1")


def test_a_waiting_pull_is_told_and_goes_with_its_connection(broker: EmbeddedBroker, client: RawClient) -> None:
    def held() -> object:
        return body_of(client.call(28))["table"]["heldPulls"]

    assert held() == "0"
    with RawClient(broker.address) as consumer:
        consumer.send_message()
        start_pull(consumer, 1, **WAITING)
        eventually(lambda: held() == "1", within_seconds=30)
    eventually(lambda: held() == "0", within_seconds=15)  # the pull itself waits for 20 s


def test_a_waiting_pull_ignores_other_tags_until_the_scan(client: RawClient) -> None:
    client.send_message(TAGS="A")
    opaque = start_pull(client, 1, **WAITING | {"subscription": "A || B"})
    client.send_message(TAGS="C")
    skipped = client.answer(opaque, 5)  # the scan moves it on
    assert skipped is not None
    assert (skipped.code, skipped.fields["nextBeginOffset"]) == (20, "2")
    opaque = start_pull(client, 2, **WAITING | {"subscription": "A || B"})
    client.send_message(TAGS="B")
    found = client.answer(opaque, 5)
    assert found is not None
    assert (found.code, found.fields["nextBeginOffset"]) == (0, "3")


def test_pull_answers_each_offset_as_brokers_do(client: RawClient) -> None:
    for number in range(3):
        client.send_message(TAGS=f"T{number}")
    assert [client.pull(offset=offset).code for offset in (0, 3, 4, 99, -1)] == [0, 19, 21, 21, 21]
    assert client.pull(offset=99).fields["nextBeginOffset"] == "3"
    assert client.pull(queue_id=1).code == 19
    assert client.pull(queue_id=1, offset=5).code == 21
    assert client.pull(queue_id=99).code == 29
    assert client.pull("Unknown").code == 17
    assert client.pull(subscription="T9").code == 20
    only = client.pull(subscription="T1")
    assert [message.properties["TAGS"] for message in records(only.body)] == ["T1"]
    assert only.fields["nextBeginOffset"] == "3"
    assert len(records(client.pull(maxMsgNums=2).body)) == 2
    assert client.pull(expressionType="SQL92", subscription="a > 1").code == 1


def test_a_pull_without_subscription_needs_the_heartbeats(client: RawClient) -> None:
    client.send_message(TAGS="A")
    client.send_message(TAGS="B")
    assert client.pull(sysFlag=0).code == 24
    join(client, "1@1", "B")
    assert client.pull(sysFlag=0, subVersion=2).code == 25
    assert [m.properties["TAGS"] for m in records(client.pull(sysFlag=0, subVersion=1).body)] == ["B"]
    join(client, "1@1", "a > 1", expressionType="SQL92", subVersion=2)
    assert client.pull(sysFlag=0, subVersion=2).code == 1
    answer = body_of(client.call(345, group=GROUP, topic=TOPIC))
    assert (answer["group"], answer["topic"], answer["subscriptionData"]["subString"]) == (GROUP, TOPIC, "a > 1")


def test_a_pull_is_never_larger_than_a_brokers(client: RawClient) -> None:
    for _ in range(40):
        client.send_message(body=b"x")
    for _ in range(3):
        client.send_message(body=b"y" * 200_000, queue_id=1)
    assert len(records(client.pull(maxMsgNums=1000).body)) == 32
    assert len(records(client.pull(queue_id=1).body)) == 1


# -- offsets -----------------------------------------------------------------------------------------
def test_offsets_are_kept_per_group_and_pulls_carry_them(client: RawClient) -> None:
    client.send_message()
    where: dict[str, Any] = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert client.call(14, **where).fields["offset"] == "0"  # the quirk: 0 while the queue begins at 0
    assert client.call(14, setZeroIfNotFound="false", **where).code == 22
    assert client.call(15, commitOffset=1, **where).code == 26
    assert client.pull().code == 0  # makes the group
    assert client.call(15, commitOffset=1, **where).code == 0
    assert client.call(14, **where).fields["offset"] == "1"
    client.pull(offset=1, sysFlag=SUBSCRIBED | COMMIT, commitOffset=7)
    assert client.call(14, **where).fields["offset"] == "7"
    assert client.call(15, commitOffset=1, **where | {"topic": "Unknown"}).code == 17
    assert client.call(30, topic=TOPIC, queueId=0).fields["offset"] == "1"
    assert client.call(31, topic=TOPIC, queueId=0).fields["offset"] == "0"
    assert client.call(32, topic=TOPIC, queueId=1).fields["timestamp"] == "-1"
    assert int(client.call(32, topic=TOPIC, queueId=0).fields["timestamp"]) > 0


def test_offsets_are_found_by_time() -> None:
    clock = ManualClock(now_ms=1_000_000)
    with EmbeddedBroker(family="5.x", clock=clock) as broker, RawClient(broker.address) as client:
        for _ in range(3):
            client.send_message()
            clock.advance(10.0)

        def at(timestamp_ms: int, **more: Any) -> str:
            return client.call(29, topic=TOPIC, queueId=0, timestamp=timestamp_ms, **more).fields["offset"]

        assert [at(ms) for ms in (0, 1_000_000, 1_000_001, 1_010_000, 1_020_001)] == ["0", "0", "1", "1", "3"]
        assert at(1_010_500, boundaryType="UPPER") == "1"


def test_older_brokers_answer_the_nearest_message() -> None:
    queue = ConsumeQueue()
    for offset in range(3):
        queue.append(offset * 100, 100, 0)
    times = {0: 1000, 100: 2000, 200: 3000}
    found = [queue.offset_by_time(ms, times.__getitem__, nearest=True) for ms in (0, 1400, 1600, 2000, 9999)]
    assert found == [0, 0, 1, 1, 2]


# -- membership --------------------------------------------------------------------------------------
def test_members_hear_of_each_other(broker: EmbeddedBroker, client: RawClient) -> None:
    join(client, "1@1")
    client.await_push(NOTIFY)
    with RawClient(broker.address) as second:
        join(second, "1@2")
        assert client.await_push(NOTIFY).fields["consumerGroup"] == GROUP
        assert body_of(client.call(38, consumerGroup=GROUP)) == {"consumerIdList": ["1@1", "1@2"]}
        join(second, "1@2")  # a further heartbeat changes nothing
        assert client.call(203, consumerGroup=GROUP).code == 0
        assert client.pushed == []
    assert client.await_push(NOTIFY).fields["consumerGroup"] == GROUP  # gone with its connection
    assert body_of(client.call(38, consumerGroup=GROUP)) == {"consumerIdList": ["1@1"]}
    assert client.call(35, clientID="1@1", consumerGroup=GROUP).code == 0
    assert client.call(38, consumerGroup=GROUP).code == 1
    assert client.call(203, consumerGroup=GROUP).code == 206


def test_a_heartbeat_makes_the_retry_topic(client: RawClient) -> None:
    assert client.call(105, topic=f"%RETRY%{GROUP}").code == 17
    join(client, "1@1")
    assert client.call(105, topic=f"%RETRY%{GROUP}").code == 0


def test_a_silent_member_is_forgotten() -> None:
    clock = ManualClock()
    with EmbeddedBroker(clock=clock) as broker, RawClient(broker.address) as client:
        join(client, "1@1")
        clock.advance(130.0)
        eventually(lambda: client.call(38, consumerGroup=GROUP).code == 1, within_seconds=60)


def test_queues_are_locked_for_one_member_until_the_lease_ends() -> None:
    clock = ManualClock()
    queue = {"topic": TOPIC, "brokerName": "embedded", "queueId": 0}

    def lock(client: RawClient, name: str, code: int = 41) -> list[Any]:
        body = {"consumerGroup": GROUP, "clientId": name, "mqSet": [queue]}
        answer = client.call(code, json.dumps(body).encode())
        return list(body_of(answer)["lockOKMQSet"]) if code == 41 else []

    with EmbeddedBroker(clock=clock) as broker, RawClient(broker.address) as client:
        assert lock(client, "1@1") == [queue]
        assert lock(client, "1@2") == []
        lock(client, "1@2", 42)
        clock.advance(59.0)
        assert lock(client, "1@1") == [queue]  # renewed
        clock.advance(59.0)
        assert lock(client, "1@2") == []
        clock.advance(2.0)
        assert lock(client, "1@2") == [queue]
        lock(client, "1@2", 42)
        assert lock(client, "1@1") == [queue]


# -- retry, dead letters, delay ----------------------------------------------------------------------
def refuse(client: RawClient, physical_offset: int, level: int = 0, maximum: int = 16) -> int:
    return client.call(
        36,
        offset=physical_offset,
        group=GROUP,
        delayLevel=level,
        originMsgId="",
        originTopic=TOPIC,
        maxReconsumeTimes=maximum,
    ).code


def test_a_refused_message_comes_back_until_it_is_a_dead_letter(broker: EmbeddedBroker, client: RawClient) -> None:
    client.send_message(UNIQ_KEY="K1")
    (first,) = broker.stored(TOPIC)
    assert refuse(client, first.physical_offset) == 0
    (again,) = eventually(lambda: broker.stored(f"%RETRY%{GROUP}"), within_seconds=60)
    assert again.reconsume_times == 1
    assert again.properties["RETRY_TOPIC"] == TOPIC
    assert again.properties["UNIQ_KEY"] == "K1"
    assert again.properties["DELAY"] == "3"
    assert again.properties["ORIGIN_MESSAGE_ID"][-16:] == f"{first.physical_offset:016X}"
    assert refuse(client, again.physical_offset, maximum=1) == 0
    (dead,) = broker.stored(f"%DLQ%{GROUP}")
    assert dead.properties["RETRY_TOPIC"] == TOPIC
    assert refuse(client, first.physical_offset, level=-1) == 0
    assert len(broker.stored(f"%DLQ%{GROUP}")) == 2
    assert refuse(client, 10**9) == 1


def test_delayed_messages_come_late_and_in_their_topic(broker: EmbeddedBroker, client: RawClient) -> None:
    client.send_message(queue_id=1)
    opaque = start_pull(client, 0, **WAITING)
    client.send_message(body=b"later", queue_id=0, DELAY="2", UNIQ_KEY="K1")
    answer = client.answer(opaque, 5)
    assert answer is not None
    (message,) = records(answer.body)
    assert (message.topic, message.queue_id, message.body) == (TOPIC, 0, b"later")
    waiting = broker.stored("SCHEDULE_TOPIC_XXXX")
    assert [held.queue_id for held in waiting] == [1]
    assert message.store_timestamp_ms - waiting[0].store_timestamp_ms >= 20


def test_a_batch_is_stored_message_by_message(broker: EmbeddedBroker, client: RawClient) -> None:
    def part(body: bytes, props: bytes) -> bytes:
        size = 20 + len(body) + 2 + len(props)
        ints = b"".join(number.to_bytes(4, "big") for number in (size, 0, 0, 7, len(body)))
        return ints + body + len(props).to_bytes(2, "big") + props

    body = part(b"one", b"UNIQ_KEY\x01K1\x02") + part(b"two", b"UNIQ_KEY\x01K2\x02TAGS\x01A\x02")
    fields = send_fields(TOPIC, 0, 0, {}) | {"m": "true"}
    for code in (310, 320):  # the field alone says that it is a batch, too
        reply = client.call(code, body, **fields)
        assert reply.code == 0
        assert len(reply.fields["msgId"].split(",")) == 2
    stored = [(b"one", 7, "K1"), (b"two", 7, "K2")]
    assert [(m.body, m.flag, m.properties["UNIQ_KEY"]) for m in broker.stored(TOPIC)] == stored * 2
    assert client.call(320, body[:-3], **fields).code == 1
    assert len(client.found(TOPIC, "K2")) == 2
