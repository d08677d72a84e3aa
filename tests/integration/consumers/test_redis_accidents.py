"""The consumer plug-in on a real redis-server that is stopped, frozen, full, read-only or guarded."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.recorder import REDIS_TIMEOUT_SECONDS, WAIT_SECONDS, CommitRecorder
from reconciler.announcing.port import StepKind
from reconciler.contract.keyspace import ShardKeys, meta_key
from reconciler.contract.least_rights import ANNOUNCER, BUSINESS, RedisUser
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import key_of
from reconciler.errors import InvalidValue, InvariantViolation, RedisAway
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.shards.access import open_client
from reconciler.shards.sets import RedisCommitSets, RedisHalfSets
from tests.polling import eventually
from tests.services.ports import free_port
from tests.services.redis_server import RedisServer
from tests.unit.announcing.announcement_world import QUEUE, SUBSCRIPTION, World, announcement
from tests.unit.consumers.messages import effect_count, inbox_engine, message, new_key, pay, sqlite_url

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.redis

Start = Callable[..., RedisServer]
SHARD = Shard(subscription=SUBSCRIPTION, number=QUEUE.queue_id)


@pytest.fixture
def clients() -> Iterator[Callable[..., redis.Redis]]:
    opened: list[redis.Redis] = []

    def connect(server: RedisServer, *, login: str = "", timeout_seconds: float = 30.0) -> redis.Redis:
        client = open_client(server.url.replace("://", f"://{login}"), timeout_seconds=timeout_seconds)
        assert isinstance(client, redis.Redis)
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        yield opened


def commit_members(client: redis.Redis, shards: int = 4) -> set[str]:
    found: set[str] = set()
    for number in range(shards):
        members: Any = client.smembers(ShardKeys(Shard(subscription=SUBSCRIPTION, number=number)).commit)
        found |= {key_of(member) for member in members}
    return found


def user(role: RedisUser) -> str:
    return role.line(environment="test", password="pw").removeprefix("user ")


def recorder_of(server: RedisServer, **options: Any) -> CommitRecorder:
    # The product's 50 ms are too short for a test on a busy machine, unless that is what it tests.
    patience = {"timeout_seconds": 30.0, "wait_seconds": 30.0}
    return CommitRecorder.open(server.url, environment="test", group="billing", shards=4, **(patience | options))


@pytest.mark.parametrize("accident", ["stopped", "frozen"])
def test_business_goes_on_without_redis_and_is_recorded_again_afterwards(
    new_redis_server: Start, clients: Callable[..., redis.Redis], engine: sa.Engine, accident: str
) -> None:
    server = new_redis_server()
    missed: list[str] = []
    budget = {"timeout_seconds": REDIS_TIMEOUT_SECONDS, "wait_seconds": WAIT_SECONDS, "keep_seconds": 0.0}
    with recorder_of(server, on_missed=lambda topic, keys: missed.extend(keys), **budget) as recorder:
        wrapped = transactional_handler(engine, group="billing", recorder=recorder)(pay)
        before = message()
        # On a busy machine 50 ms may be too short even now: a redelivery records it, and the next key finds Redis back.
        eventually(lambda: wrapped(before) and commit_members(clients(server)), within_seconds=60)
        eventually(lambda: recorder.record("ORDERS", new_key()) and not recorder.state().is_away, within_seconds=60)
        assert recorder.flush(timeout_seconds=60)
        missed.clear()
        server.stop() if accident == "stopped" else server.freeze()
        during = [message() for _ in range(40)]
        started = time.monotonic()
        assert {wrapped(each) for each in during} == {ConsumeStatus.CONSUME_SUCCESS}
        assert time.monotonic() - started < 60
        assert effect_count(engine) == 41
        assert recorder.flush(timeout_seconds=60)
        assert missed == [each.unique_key for each in during]
        server.start() if accident == "stopped" else server.thaw()
        # A redelivery records what the outage swallowed: the duplicate path does the SADD too.
        eventually(lambda: recorder.record("ORDERS", new_key()) and not recorder.state().is_away, within_seconds=60)
        wanted = {each.unique_key for each in during}

        def redelivered() -> bool:
            assert {wrapped(each) for each in during} == {ConsumeStatus.CONSUME_SUCCESS}
            return wanted < commit_members(clients(server))

        eventually(redelivered, within_seconds=60)
        assert effect_count(engine) == 41


def test_a_recorder_that_starts_without_redis_does_not_stop_the_service(new_redis_server: Start) -> None:
    server = new_redis_server()
    server.stop()
    with recorder_of(server, topics=["ORDERS"]) as recorder:
        assert recorder.record("ORDERS", new_key()) is False
        server.start()
        eventually(lambda: recorder.record("ORDERS", new_key()), within_seconds=60)


def test_a_recorder_with_another_number_of_shards_is_refused(
    new_redis_server: Start, clients: Callable[..., redis.Redis]
) -> None:
    server = new_redis_server()
    clients(server).hset(meta_key(SUBSCRIPTION), mapping={"shards": 16})
    with pytest.raises(InvalidValue, match="shards=16"):
        recorder_of(server, topics=["ORDERS"])


def test_the_business_login_may_only_sadd_and_the_recorder_manages_with_that(
    new_redis_server: Start, clients: Callable[..., redis.Redis]
) -> None:
    server = new_redis_server(options={"user": user(BUSINESS)})
    admin = clients(server)
    admin.hset(meta_key(SUBSCRIPTION), mapping={"shards": 4})
    restricted = clients(server, login="business:pw@")
    recorder = CommitRecorder(
        RedisCommitSets(restricted), environment="test", group="billing", shards=4, wait_seconds=30.0
    )
    with recorder:
        recorder.check_shards("ORDERS")  # may not read the meta hash: not checked, not refused
        keys = [new_key() for _ in range(300)]
        assert recorder.record_many("ORDERS", keys, wait=True)
        assert recorder.record("ORDERS", keys[0])
        assert commit_members(admin) == set(keys)
        with pytest.raises(redis.exceptions.NoPermissionError):
            restricted.smembers(ShardKeys(SHARD).commit)


def test_the_announcement_login_is_enough_for_the_announcement_consumer(
    new_redis_server: Start, clients: Callable[..., redis.Redis]
) -> None:
    server = new_redis_server(options={"user": user(ANNOUNCER)})
    world = World(half_sets=RedisHalfSets(clients(server, login="announcer:pw@")))
    keys = [new_key() for _ in range(20)]
    world.topic.send(announcement(*keys))
    step = world.step()
    assert world.run(step).kind is StepKind.IDLE
    step.release(QUEUE)
    assert RedisHalfSets(clients(server)).size(SHARD) == 20


def test_scripts_are_loaded_again_after_a_restart_without_persistence(
    new_redis_server: Start, clients: Callable[..., redis.Redis]
) -> None:
    server = new_redis_server(options={"appendonly": "no"})
    world = World(half_sets=RedisHalfSets(clients(server)))
    step = world.step()
    keys = [new_key(), new_key()]
    world.topic.send(announcement(keys[0]))
    assert world.run(step).kind is StepKind.IDLE
    server.kill()
    world.run_seconds(step, 10)
    assert step.states()[0].kind is StepKind.SUSPENDED
    server.start()
    world.topic.send(announcement(keys[1]))
    world.run_seconds(step, 20)
    assert world.rows.outages.current("test") is not None
    world.scan_outage()
    world.run_seconds(step, 10)
    assert RedisHalfSets(clients(server)).size(SHARD) == 2


def set_read_only(admin: redis.Redis) -> Callable[[], object]:
    admin.replicaof("127.0.0.1", "1")
    return lambda: admin.replicaof("NO", "ONE")


def fill(admin: redis.Redis) -> Callable[[], object]:
    admin.config_set("maxmemory", "1")
    return lambda: admin.config_set("maxmemory", "0")


def lock_out(admin: redis.Redis) -> Callable[[], object]:
    admin.config_set("requirepass", "changed")
    for each in admin.client_list():  # sessions that are open would keep their login
        if each["id"] != str(admin.client_id()):
            admin.client_kill_filter(_id=each["id"])
    return lambda: admin.config_set("requirepass", "")


@pytest.mark.parametrize("accident", [set_read_only, fill, lock_out])
def test_a_redis_that_refuses_suspends_announcements_and_they_resume_without_a_restart(
    new_redis_server: Start,
    clients: Callable[..., redis.Redis],
    accident: Callable[[redis.Redis], Callable[[], object]],
) -> None:
    server = new_redis_server()
    world = World(half_sets=RedisHalfSets(clients(server)))
    step = world.step()
    world.topic.send(announcement(new_key()))
    world.run(step)
    undo = accident(clients(server))
    world.topic.send(announcement(new_key()))
    world.run_seconds(step, 30)
    assert step.states()[0].kind is StepKind.SUSPENDED
    assert "Redis" in step.states()[0].detail
    undo()
    world.run_seconds(step, 30)
    assert step.states()[0].kind is StepKind.IDLE
    assert RedisHalfSets(clients(server)).size(SHARD) == 2
    assert world.rows.outages.current("test") is None


@pytest.mark.parametrize("accident", [set_read_only, fill, lock_out])
def test_a_redis_that_refuses_does_not_hold_the_business_up(
    new_redis_server: Start,
    clients: Callable[..., redis.Redis],
    accident: Callable[[redis.Redis], Callable[[], object]],
) -> None:
    server = new_redis_server()
    with recorder_of(server) as recorder:
        assert recorder.record("ORDERS", new_key())
        undo = accident(clients(server))
        assert [recorder.record("ORDERS", new_key()) for _ in range(5)] == [False] * 5
        assert recorder.state().waiting == 5
        undo()
        eventually(lambda: recorder.record("ORDERS", new_key()), within_seconds=60)
        assert recorder.state().missed == 0


def test_a_key_of_another_type_stops_its_queue_and_nothing_moves(
    new_redis_server: Start, clients: Callable[..., redis.Redis]
) -> None:
    server = new_redis_server()
    admin = clients(server)
    sets = RedisHalfSets(admin)
    world = World(half_sets=sets)
    step = world.step()
    world.run(step)
    admin.set(ShardKeys(SHARD).half, "not a set")
    world.topic.send(announcement(new_key()))
    with pytest.raises(InvariantViolation):
        sets.size(SHARD)
    with pytest.raises(InvariantViolation):
        sets.admit(SHARD, QUEUE, expected=0, following=1, unique_keys=[new_key()])
    world.run_seconds(step, 10)
    assert step.states()[0].kind is StepKind.SUSPENDED
    assert "WRONGTYPE" in step.states()[0].detail
    assert sets.position(SHARD, QUEUE) == 0
    admin.delete(ShardKeys(SHARD).half)
    world.run_seconds(step, 10)
    assert sets.size(SHARD) == 1


def test_a_commit_set_of_another_type_does_not_hold_up_the_other_shards(
    new_redis_server: Start, clients: Callable[..., redis.Redis]
) -> None:
    server = new_redis_server()
    admin = clients(server)
    admin.set(ShardKeys(Shard(subscription=SUBSCRIPTION, number=0)).commit, "not a set")
    keys = [new_key() for _ in range(400)]
    with pytest.raises(InvariantViolation):
        RedisCommitSets(admin).record(SUBSCRIPTION, keys, shards=4)
    recorded = 0
    for number in range(1, 4):
        recorded += int(admin.scard(ShardKeys(Shard(subscription=SUBSCRIPTION, number=number)).commit))
    assert recorded > 250


def test_a_wrong_password_is_named_as_what_it_is(new_redis_server: Start, clients: Callable[..., redis.Redis]) -> None:
    server = new_redis_server(options={"requirepass": "right"})
    with pytest.raises(RedisAway, match="AuthenticationError"):
        RedisHalfSets(clients(server)).size(SHARD)
    with pytest.raises(RedisAway, match="AuthenticationError"):
        RedisHalfSets(clients(server, login=":wrong@")).size(SHARD)


def test_many_consumer_threads_lose_no_key(new_redis_server: Start, clients: Callable[..., redis.Redis]) -> None:
    server = new_redis_server()
    keys = [[new_key() for _ in range(100)] for _ in range(16)]
    with recorder_of(server) as recorder:
        recorder.record("ORDERS", keys[0][0])
        threads = [
            threading.Thread(target=lambda mine=mine: [recorder.record("ORDERS", key) for key in mine]) for mine in keys
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert recorder.flush(timeout_seconds=60)
        state = recorder.state()
        assert (state.recorded, state.missed) == (1_601, 0)
        assert state.batches < 1_601
    assert commit_members(clients(server)) == {key for mine in keys for key in mine}


def test_sentinels_and_clusters_that_are_away_are_redis_away() -> None:
    away = "redis+sentinel://user:pw@127.0.0.1:1,127.0.0.1:2/mymaster/3?sentinel_password=x"
    with closing(open_client(away, timeout_seconds=0.2)) as client, pytest.raises(RedisAway):
        RedisHalfSets(client).size(SHARD)
    with pytest.raises(RedisAway):
        open_client("redis+cluster://127.0.0.1:1,127.0.0.1:2", timeout_seconds=0.2)


def test_a_unix_socket_is_enough(new_redis_server: Start) -> None:
    server = new_redis_server(unix_socket=True)
    with closing(open_client(server.url)) as client:
        RedisCommitSets(client).record(SUBSCRIPTION, [new_key()], shards=4)
    with recorder_of(server) as recorder:
        assert recorder.record("ORDERS", new_key())


def test_the_demos_own_redis_is_enough() -> None:
    """fakeredis' TCP server closes a connection after every error reply, NOSCRIPT too."""
    port = free_port()
    fake_url = f"redis://127.0.0.1:{port}/0"
    program = [sys.executable, "-m", "reconciler.demo.fake_redis", str(port)]
    with subprocess.Popen(program, cwd=ROOT) as fake, closing(open_client(fake_url)) as client:
        try:
            eventually(lambda: _answers(client), within_seconds=60)
            _use_redis(client, fake_url)
        finally:
            fake.terminate()


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.RedisError:
        return False


def _use_redis(client: Any, url: str) -> None:
    world = World(half_sets=RedisHalfSets(client))
    step = world.step()
    world.topic.send(announcement(new_key(), new_key()))
    world.run_seconds(step, 5)
    assert RedisHalfSets(client).size(SHARD) == 2
    assert [event.detail for event in world.events] == []
    with CommitRecorder.open(
        url, environment="test", group="billing", shards=4, timeout_seconds=30.0, topics=["ORDERS"]
    ) as recorder:
        assert recorder.record_many("ORDERS", [new_key() for _ in range(3_000)], wait=False)
        assert recorder.flush(timeout_seconds=60)
        assert recorder.state().recorded == 3_000


def test_members_of_one_environment_are_not_seen_in_another(
    new_redis_server: Start, clients: Callable[..., redis.Redis]
) -> None:
    client = clients(new_redis_server())
    other = Subscription(environment="staging", topic="ORDERS", group="billing")
    RedisCommitSets(client).record(other, [new_key()], shards=4)
    assert commit_members(client) == set()
