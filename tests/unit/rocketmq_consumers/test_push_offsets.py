"""Where a queue starts: LAST must skip what is older than the group, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from checkback_consumers.handler import transactional_handler
from checkback_consumers.push import TransactionalConsumer
from reconciler.clock import ManualClock
from reconciler.errors import ReconcilerError
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.heartbeat import ConsumeFrom
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer import queue_offsets as push_offsets
from reconciler.rocketmq.consumer.queue_offsets import GroupOffsets
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from tests.polling import eventually
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster


class Kept:
    """What a scripted broker keeps of the topic's queues."""

    def __init__(self, broker: ScriptedBroker, bounds: dict[int, tuple[int, int]]) -> None:
        self._broker = broker
        self.bounds = bounds
        self.stored: dict[int, int] = {}
        self.refuses_to_store = False
        broker.on(RequestCode.GET_MIN_OFFSET, lambda request: self._offset(request, self._bounds(request)[0]))
        broker.on(RequestCode.GET_MAX_OFFSET, lambda request: self._offset(request, self._bounds(request)[1]))
        broker.on(RequestCode.QUERY_CONSUMER_OFFSET, self._query)
        broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, self._update)

    def _bounds(self, request: Command) -> tuple[int, int]:
        return self.bounds[int(request.fields["queueId"])]

    def _offset(self, request: Command, offset: int) -> Command:
        return self._broker.success(request, {"offset": str(offset)})

    def _query(self, request: Command) -> Command:
        offset = self.stored.get(int(request.fields["queueId"]))
        if offset is None:
            return self._broker.refuse(request, ResponseCode.QUERY_NOT_FOUND)
        return self._offset(request, offset)

    def _update(self, request: Command) -> Command:
        if self.refuses_to_store:
            return self._broker.refuse(request, ResponseCode.SYSTEM_ERROR)
        self.stored[int(request.fields["queueId"])] = int(request.fields["commitOffset"])
        return self._broker.success(request)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster(versions=(497, 497), clock=ManualClock()) as made:
        made.name_server.routes.clear()
        yield made


def _kept(cluster: ScriptedCluster, bounds: dict[int, tuple[int, int]], *, at: int = 0) -> Kept:
    cluster.name_server.place("Orders", cluster.brokers[at], queues=len(bounds))
    return Kept(cluster.brokers[at], bounds)


def _member(cluster: ScriptedCluster, consume_from: ConsumeFrom = ConsumeFrom.LAST) -> GroupOffsets:
    settings = PushSettings(consume_from=consume_from)
    return GroupOffsets(Offsets(cluster.client), cluster.routes, group="CG", settings=settings)


def _queue(queue_id: int, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic="Orders", broker_name=broker, queue_id=queue_id)


def _add_queue(cluster: ScriptedCluster, kept: Kept, bounds: tuple[int, int]) -> MessageQueue:
    kept.bounds[len(kept.bounds)] = bounds
    cluster.name_server.place("Orders", cluster.broker, queues=len(kept.bounds))
    return _queue(len(kept.bounds) - 1)


def test_messages_of_a_queue_that_is_added_are_not_skipped_by_a_member_that_runs(cluster: ScriptedCluster) -> None:
    kept = _kept(cluster, {0: (3, 7)})
    member = _member(cluster)
    assert member.start_of(_queue(0)) == 7
    added = _add_queue(cluster, kept, (0, 2))
    assert member.start_of(added) == 0
    assert kept.stored == {0: 7, 1: 0}


@pytest.mark.parametrize("stored", [7, 0])
def test_messages_of_a_queue_that_is_added_are_not_skipped_by_a_new_member(
    cluster: ScriptedCluster, stored: int
) -> None:
    kept = _kept(cluster, {0: (0, 7)})
    kept.stored[0] = stored
    added = _add_queue(cluster, kept, (0, 2))
    assert _member(cluster).start_of(added) == 0


def test_a_new_group_that_dies_before_its_first_commit_does_not_skip(cluster: ScriptedCluster) -> None:
    kept = _kept(cluster, {0: (3, 7)})
    assert _member(cluster).start_of(_queue(0)) == 7
    kept.bounds[0] = (3, 10)
    assert _member(cluster).start_of(_queue(0)) == 7


def test_members_of_a_new_group_do_not_read_old_messages_because_another_was_first(cluster: ScriptedCluster) -> None:
    kept = _kept(cluster, {0: (3, 7), 1: (0, 9)})
    assert _member(cluster).start_of(_queue(0)) == 7
    assert _member(cluster).start_of(_queue(1)) == 9
    assert kept.stored == {0: 7, 1: 9}


def test_a_start_that_another_member_stored_meanwhile_stands_also_where_it_is_zero(cluster: ScriptedCluster) -> None:
    kept = _kept(cluster, {0: (0, 7)})

    def another_is_first(request: Command) -> Command:
        kept.stored[0] = 0
        cluster.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, kept._update)
        return cluster.broker.refuse(request, ResponseCode.SYSTEM_ERROR)

    cluster.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, another_is_first)
    assert _member(cluster).start_of(_queue(0)) == 0
    assert kept.stored == {0: 0}


def test_a_start_that_could_not_be_stored_is_not_a_later_one_the_next_time(cluster: ScriptedCluster) -> None:
    kept = _kept(cluster, {0: (3, 7), 1: (3, 7)})
    kept.refuses_to_store = True
    member = _member(cluster)
    with pytest.raises(ReconcilerError):
        member.start_of(_queue(0))
    kept.refuses_to_store = False
    kept.bounds = {0: (3, 10), 1: (3, 11)}
    assert [member.start_of(_queue(0)), member.start_of(_queue(1))] == [7, 7]
    assert kept.stored == {0: 7, 1: 7}


def test_while_a_broker_does_not_answer_no_group_is_taken_for_a_new_one(cluster: ScriptedCluster) -> None:
    here, there = _kept(cluster, {0: (0, 2)}), _kept(cluster, {0: (0, 9)}, at=1)
    there.stored[0] = 5
    answers = cluster.brokers[1].handlers.pop(RequestCode.QUERY_CONSUMER_OFFSET)
    member = _member(cluster)
    with pytest.raises(ReconcilerError):
        member.start_of(_queue(0))
    assert here.stored == {}
    cluster.brokers[1].on(RequestCode.QUERY_CONSUMER_OFFSET, answers)
    assert member.start_of(_queue(0)) == 0


def test_the_zero_of_an_old_broker_for_a_group_it_never_heard_of_does_not_replay_old_queues(
    cluster: ScriptedCluster,
) -> None:
    kept = _kept(cluster, {0: (0, 0), 1: (5, 9)})
    kept.stored[0] = 0
    assert _member(cluster).start_of(_queue(1)) == 9


def test_a_broker_that_hangs_costs_one_time_out_and_not_one_for_each_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_offsets, "LAST_COMMIT_SECONDS", 5.0)
    with ScriptedCluster(versions=(497, 497)) as cluster:
        silent, kept = cluster.brokers[0], _kept(cluster, {0: (0, 9)}, at=1)
        cluster.name_server.place("Orders", silent, queues=40)
        silent.on(RequestCode.UPDATE_CONSUMER_OFFSET, lambda _request: None)
        began = time.monotonic()
        offsets = [*((_queue(number), 5) for number in range(40)), (_queue(0, "broker-b"), 7)]
        assert _member(cluster).commit(offsets, is_last=True) == 1
        assert time.monotonic() - began < 100  # a time-out for each would be 200 s
        assert kept.stored == {0: 7}


def test_old_messages_are_skipped_only_where_that_was_asked_for(cluster: ScriptedCluster) -> None:
    _kept(cluster, {0: (3, 7)})
    assert PushSettings(threads=8).consume_from is ConsumeFrom.FIRST
    assert _member(cluster, PushSettings().consume_from).start_of(_queue(0)) == 3


def test_threads_of_a_transactional_consumer_do_not_decide_where_it_starts() -> None:
    def no_database() -> object:
        raise AssertionError("nothing is consumed")

    @transactional_handler(no_database, group="CG", topics="Orders")
    def handle(_message: object, _connection: object) -> None: ...

    with ClientInstance("127.0.0.1:1") as instance:
        consumer = TransactionalConsumer(handle, instance=instance, settings=PushSettings(threads=8))
        assert consumer.consumer.settings.consume_from is ConsumeFrom.FIRST


class Watched(Offsets):
    """Notes what is sent and what was answered by then."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        super().__init__(cluster.client)
        self.seen: list[str] = []

    def store(self, address: str, queue: MessageQueue, group: str, offset: int, *, is_oneway: bool = False) -> None:
        super().store(address, queue, group, offset, is_oneway=is_oneway)
        self.seen.append(f"{'one-way' if is_oneway else 'stored'} {queue.queue_id}")

    def begin_store(
        self, address: str, queue: MessageQueue, group: str, offset: int, *, timeout_seconds: float
    ) -> Callable[[], None]:
        wait = super().begin_store(address, queue, group, offset, timeout_seconds=timeout_seconds)
        self.seen.append(f"sent {queue.queue_id}")

        def waited() -> None:
            wait()
            self.seen.append(f"answered {queue.queue_id}")

        return waited


def _watched(cluster: ScriptedCluster) -> tuple[GroupOffsets, Watched]:
    watched = Watched(cluster)
    settings = PushSettings(consume_from=ConsumeFrom.FIRST)
    return GroupOffsets(watched, cluster.routes, group="CG", settings=settings), watched


@pytest.mark.parametrize(
    "places",
    [
        {("Orders", "a"): (0, 1, 2)},
        {("Orders", "a"): (0, 1, 2), ("Returns", "a"): (3, 4, 5)},
        {("Orders", "a"): (0, 1, 2), ("Orders", "b"): (3, 4, 5)},
    ],
    ids=["one topic", "two topics", "two brokers"],
)
def test_the_first_offset_of_a_topic_is_stored_alone_since_brokers_lose_one_of_two(
    cluster: ScriptedCluster, places: dict[tuple[str, str], tuple[int, ...]]
) -> None:
    """ConsumerOffsetManager.commitOffset: each thread that finds no table of the topic and group makes one."""
    for number in range(2):
        kept = _kept(cluster, dict.fromkeys(range(6), (0, 9)), at=number)
    cluster.name_server.place("Returns", cluster.broker, queues=len(kept.bounds))
    member, watched = _watched(cluster)
    positions = [
        (MessageQueue(topic=topic, broker_name=f"broker-{letter}", queue_id=number), 1)
        for (topic, letter), numbers in places.items()
        for number in numbers
    ]
    firsts = {numbers[0] for numbers in places.values()}
    others = [number for numbers in places.values() for number in numbers[1:]]
    assert member.commit(positions, is_last=True) == len(positions)
    assert set(watched.seen[: 2 * len(firsts)]) == {f"{what} {n}" for n in firsts for what in ("sent", "answered")}
    assert watched.seen[2 * len(firsts) :] == [f"{what} {n}" for what in ("sent", "answered") for n in others]
    watched.seen.clear()
    assert member.commit(positions, is_last=True) == len(positions)
    sent = [f"sent {queue.queue_id}" for queue, _ in positions]
    assert watched.seen[: len(sent)] == sent, "the broker has a table now"


@pytest.mark.parametrize("known", [None, 0], ids=["up from 5.0", "up to 4.9: 0 of groups never heard of"])
def test_a_queue_of_a_new_group_is_taken_over_with_its_offset_stored(
    cluster: ScriptedCluster, known: int | None
) -> None:
    """So that those of all queues, which are sent together every few seconds, find a table."""
    kept = _kept(cluster, dict.fromkeys(range(3), (0, 9)))
    kept.stored = {} if known is None else dict.fromkeys(range(3), known)
    member, watched = _watched(cluster)
    assert [member.start_of(_queue(number)) for number in range(3)] == [0, 0, 0]
    assert watched.seen == ["stored 0"]
    member.commit([(_queue(number), 0) for number in range(3)], is_last=False)
    assert watched.seen[1:] == ["one-way 0", "one-way 1", "one-way 2"]


def test_a_group_that_has_offsets_pays_nothing_for_new_groups(cluster: ScriptedCluster) -> None:
    kept = _kept(cluster, dict.fromkeys(range(2), (0, 9)))
    kept.stored = {0: 4, 1: 5}
    member, watched = _watched(cluster)
    assert [member.start_of(_queue(number)) for number in range(2)] == [4, 5]
    assert watched.seen == []


def test_a_queue_is_not_taken_over_while_its_first_offset_cannot_be_stored(cluster: ScriptedCluster) -> None:
    kept = _kept(cluster, {0: (0, 9)})
    kept.refuses_to_store = True
    member, _ = _watched(cluster)
    with pytest.raises(ReconcilerError):
        member.start_of(_queue(0))
    kept.refuses_to_store = False
    assert member.start_of(_queue(0)) == 0
    assert kept.stored == {0: 0}


def test_a_first_offset_that_was_refused_is_stored_alone_the_next_time_too(cluster: ScriptedCluster) -> None:
    kept = _kept(cluster, dict.fromkeys(range(2), (0, 9)))
    member, watched = _watched(cluster)
    positions = [(_queue(number), 1) for number in range(2)]
    kept.refuses_to_store = True
    assert member.commit(positions, is_last=True) == 0
    kept.refuses_to_store = False
    watched.seen.clear()
    assert member.commit(positions, is_last=True) == 2
    assert watched.seen == ["sent 0", "answered 0", "sent 1", "answered 1"]


@pytest.mark.parametrize("is_last", [False, True])
def test_offsets_that_cannot_be_stored_keep_no_other_ones_from_it(cluster: ScriptedCluster, *, is_last: bool) -> None:
    kept = _kept(cluster, {0: (0, 9)}, at=1)
    cluster.name_server.place("Orders", cluster.broker)
    cluster.broker.close()
    member = _member(cluster, ConsumeFrom.FIRST)
    member.start_of(_queue(0, "broker-b"))
    nowhere = MessageQueue(topic="Nowhere", broker_name="broker-b", queue_id=0)
    offsets = [(nowhere, 1), (_queue(0), 2), (_queue(0, "broker-b"), 7)]
    assert member.commit(offsets, is_last=is_last) == 1
    eventually(lambda: kept.stored == {0: 7}, within_seconds=60)


def test_a_retry_that_was_stored_before_the_group_was_looked_at_is_not_skipped(cluster: ScriptedCluster) -> None:
    _kept(cluster, {0: (3, 7)})
    Kept(cluster.brokers[1], {0: (3, 9)})
    cluster.name_server.place("%RETRY%CG", cluster.brokers[1])
    retries = MessageQueue(topic="%RETRY%CG", broker_name="broker-b", queue_id=0)
    member = _member(cluster)
    assert [member.start_of(_queue(0)), member.start_of(retries)] == [7, 3]
