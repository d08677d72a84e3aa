"""Every kind of URL leads to the primary; a cluster runs the same round; unsafe servers are named."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.cluster import RedisCluster

from checkback_consumers.recorder import CommitRecorder
from reconciler.commands.safety import require_safe
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.least_rights import RECONCILER
from reconciler.contract.unique_key import member_of
from reconciler.errors import ConfigurationError, RedisAway
from reconciler.policy.ports.rounds import KeyPlaces
from reconciler.shards.access import translated_errors
from reconciler.shards.checks import RedisFinding, Severity, check_redis, require_room
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.key_places import places_of
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_capture import RedisRoundCapture
from reconciler.shards.round_leases import RedisRoundLeases
from tests.contract.ledger.rows import key, shard
from tests.polling import eventually
from tests.services.gate import Gate
from tests.services.ports import free_port
from tests.services.processes import Child
from tests.services.redis_server import RedisServer
from tests.services.requirements import require, sentinel_missing

pytestmark = pytest.mark.redis

OF = shard("urls")
Start = Callable[..., RedisServer]


def runs_a_round(rounds: RoundRedis) -> None:
    memory = RedisShardMemory(rounds)
    epoch = memory.begin_epoch(OF)
    rounds.client.sadd(ShardKeys(OF).half, member_of(key(1)))
    done = memory.take_round(OF, epoch=epoch)
    assert done is not None
    assert done.counts.pending_added == 1
    rounds.client.sadd(ShardKeys(OF).commit, member_of(key(1)))
    again = memory.take_round(OF, epoch=epoch)
    assert again is not None
    assert again.counts.pending_matched == 1
    third = memory.take_round(OF, epoch=epoch)
    assert third is not None
    assert third.generation == 3
    assert memory.pending_size(OF) == (0, None)
    leases = RedisRoundLeases(rounds.client)
    assert leases.take(OF, token="a", lease_seconds=30)
    assert leases.take(OF, token="a", lease_seconds=30)
    assert not leases.take(OF, token="b", lease_seconds=30)
    leases.release(OF, token="a")


@contextlib.contextmanager
def opened(url: str) -> Iterator[RoundRedis]:
    rounds = open_redis(url, timeout_seconds=60)
    try:
        yield rounds
    finally:
        rounds.close()


def by_name(findings: list[RedisFinding]) -> dict[str, Severity]:
    return {finding.about: finding.severity for finding in findings}


def test_a_unix_socket(new_redis_server: Start) -> None:
    with opened(new_redis_server(unix_socket=True).url) as rounds:
        runs_a_round(rounds)


def test_tls(new_redis_server: Start, tmp_path: Path) -> None:
    require(None if shutil.which("openssl") else "openssl is missing: apt-get install openssl (Debian, Ubuntu)")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    port = free_port()
    new_redis_server(
        options={
            "tls-port": str(port),
            "tls-cert-file": str(tmp_path / "cert.pem"),
            "tls-key-file": str(tmp_path / "key.pem"),
            "tls-auth-clients": "no",
        }
    )
    with opened(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/cert.pem") as rounds:
        runs_a_round(rounds)
    with opened(f"rediss://127.0.0.1:{port}/0") as rounds, pytest.raises(RedisAway, match=r"(?i)certificate"):
        RedisShardMemory(rounds).state(OF)


def test_a_replica_is_refused(new_redis_server: Start) -> None:
    primary = new_redis_server()
    replica = new_redis_server()
    with redis.Redis.from_url(replica.url) as client:
        client.replicaof("127.0.0.1", primary.port)
        with opened(replica.url) as rounds, pytest.raises(RedisAway, match="not the primary"):
            RedisShardMemory(rounds).state(OF)
        findings = check_redis(client, environment="urls")
    assert by_name(findings)["role"] is Severity.REFUSED


def test_a_primary_that_is_made_a_replica_behind_its_name_is_left_at_the_first_write(new_redis_server: Start) -> None:
    """It keeps its connections: a hosted Redis moves the name and ends none of them."""
    former, later = new_redis_server(), new_redis_server()
    with Gate(former.port) as name, contextlib.ExitStack() as stack:
        url = f"redis://127.0.0.1:{name.port}/0"
        rounds = stack.enter_context(opened(url))
        recorder = stack.enter_context(
            CommitRecorder.open(url, environment="urls", group="billing", shards=4, timeout_seconds=30, wait_seconds=30)
        )
        runs_a_round(rounds)
        assert recorder.record("ORDERS", key(1))
        at_former, at_later = (stack.enter_context(redis.Redis.from_url(one.url)) for one in (former, later))
        at_later.replicaof("127.0.0.1", former.port)
        eventually(lambda: at_later.info("replication")["master_link_status"] == "up", within_seconds=60)
        at_later.replicaof("NO", "ONE")
        at_former.replicaof("127.0.0.1", later.port)
        name.lead_to(later.port)
        leases = RedisRoundLeases(rounds.client)

        def goes_on() -> bool:
            with contextlib.suppress(RedisAway):
                return leases.take(OF, token="c", lease_seconds=30)
            return False

        eventually(goes_on, within_seconds=60, message="a lease")
        eventually(lambda: recorder.record("ORDERS", key(2)), within_seconds=60, message="a consumed key")
        memory = RedisShardMemory(rounds)
        assert memory.take_round(OF, epoch=memory.begin_epoch(OF)) is not None


def test_a_replica_that_refuses_a_write_inside_a_script_of_redis_6_is_left(new_redis_server: Start) -> None:
    said = "ERR Error running script (call to f_1): @user_script:5: -READONLY You can't write against a replica."
    with opened(new_redis_server().url) as rounds:
        before = rounds.client.client_id()
        with pytest.raises(RedisAway, match="not the primary any more"), translated_errors():
            rounds.client.eval(f'return redis.error_reply("{said}")', 0)
        assert rounds.client.client_id() != before


@pytest.fixture
def sentinel_url(new_redis_server: Start, tmp_path: Path) -> Iterator[str]:
    """One Sentinel that never finds its primary away."""
    require(sentinel_missing())
    primary, port = new_redis_server(), free_port()
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor shards 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds shards 600000\n"
    )
    sentinel = Child(["redis-sentinel", str(configuration)], log=tmp_path / "sentinel.log")
    try:
        with redis.Redis(port=port) as client:

            def answers() -> bool:
                with contextlib.suppress(redis.RedisError):
                    return bool(client.sentinel_master("shards"))
                return False

            eventually(answers, within_seconds=60)
        yield f"redis+sentinel://127.0.0.1:{port}/shards"
    finally:
        sentinel.stop()


def test_a_connection_that_sentinels_named_is_left_where_redis_6_refuses_a_write_inside_a_script(
    sentinel_url: str,
) -> None:
    said = "ERR Error running script (call to f_1): @user_script:5: -READONLY You can't write against a replica."
    with opened(sentinel_url) as rounds:
        before = rounds.client.client_id()
        with pytest.raises(RedisAway, match="not the primary any more"), translated_errors():
            rounds.client.eval(f'return redis.error_reply("{said}")', 0)
        assert rounds.client.client_id() != before


@pytest.mark.parametrize("said", ["READONLY You can't write", "ERR Error running script: -READONLY You can't write"])
def test_a_replica_that_refuses_a_write_inside_a_transaction_is_left(new_redis_server: Start, said: str) -> None:
    """A round is a script in a MULTI, which is queued everywhere and refused when it runs."""
    with opened(new_redis_server().url) as rounds:
        before = rounds.client.client_id()
        with rounds.client.pipeline(transaction=True) as pipe, translated_errors():
            pipe.get("any")
            pipe.eval(f'return redis.error_reply("{said}")', 0)
            with pytest.raises(redis.ConnectionError, match="not the primary any more"):
                pipe.execute(raise_on_error=False)
        assert rounds.client.client_id() != before


def test_a_wrong_password_is_away(new_redis_server: Start) -> None:
    server = new_redis_server(options={"requirepass": "right"})
    with opened(server.url.replace("redis://", "redis://:right@")) as rounds:
        runs_a_round(rounds)
    with opened(server.url.replace("redis://", "redis://:wrong@")) as rounds, pytest.raises(RedisAway):
        RedisShardMemory(rounds).state(OF)


def test_sentinel_leads_to_the_new_primary_after_a_failover(new_redis_server: Start, tmp_path: Path) -> None:
    require(sentinel_missing())
    primary, replica = new_redis_server(), new_redis_server()
    with redis.Redis.from_url(replica.url) as client:
        client.replicaof("127.0.0.1", primary.port)
        eventually(lambda: client.info("replication")["master_link_status"] == "up", within_seconds=60)
    port = free_port()
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n"
        f"sentinel monitor shards 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds shards 60000\nsentinel failover-timeout shards 3000\n"
    )
    sentinel = Child(["redis-sentinel", str(configuration)], log=tmp_path / "sentinel.log")
    try:
        with redis.Redis(port=port) as client:

            def knows_the_replica() -> bool:
                try:
                    return bool(client.sentinel_slaves("shards"))
                except redis.RedisError:
                    return False

            eventually(knows_the_replica, within_seconds=60)
        with opened(f"redis+sentinel://127.0.0.1:{port}/shards") as rounds:
            runs_a_round(rounds)
            with redis.Redis(port=port) as client:  # not before: a primary that is only slow would be left
                client.sentinel_set("shards", "down-after-milliseconds", 500)
            primary.kill()

            def runs_again() -> bool:
                try:
                    return RedisShardMemory(rounds).state(OF).generation >= 0
                except RedisAway:
                    return False

            eventually(runs_again, within_seconds=60)
            with redis.Redis.from_url(replica.url) as client:
                assert client.info("replication")["role"] == "master"
    finally:
        sentinel.stop()


@pytest.fixture
def cluster_url(new_redis_server: Start) -> str:
    """Three masters that share the slots."""
    servers = [
        new_redis_server(options={"cluster-enabled": "yes", "cluster-port": str(free_port()), "appendonly": "no"})
        for _ in range(3)
    ]
    slots = [(0, 5460), (5461, 10922), (10923, 16383)]
    rounds: list[Any] = [redis.Redis.from_url(server.url) for server in servers]
    for client, (first, last) in zip(rounds, slots, strict=True):
        client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
    for server in servers[1:]:
        bus = server.options["cluster-port"]
        rounds[0].execute_command("CLUSTER MEET", "127.0.0.1", server.port, bus)

    def agree() -> bool:
        states = [client.execute_command("CLUSTER INFO") for client in rounds]
        return all(state["cluster_state"] == "ok" and state["cluster_known_nodes"] == "3" for state in states)

    eventually(agree, within_seconds=60)
    for client in rounds:
        client.close()
    return f"redis+cluster://127.0.0.1:{servers[0].port},127.0.0.1:{servers[1].port}"


def test_a_cluster_runs_rounds_in_every_slot(cluster_url: str) -> None:
    with opened(cluster_url) as rounds:
        runs_a_round(rounds)
        memory = RedisShardMemory(rounds, history_generations=2)
        captures = RedisRoundCapture(rounds)
        nodes = set()
        for number in range(24):
            of = shard("cluster", number)
            assert isinstance(rounds.client, RedisCluster)
            node: Any = rounds.client.get_node_from_key(ShardKeys(of).half)  # type: ignore[no-untyped-call]  # redis-py
            nodes.add(node.name)
            rounds.client.sadd(ShardKeys(of).half, *(member_of(key(n)) for n in range(30)))
            rounds.client.sadd(ShardKeys(of).commit, *(member_of(key(n)) for n in range(10)))
            epoch = memory.begin_epoch(of)
            done = memory.take_round(of, epoch=epoch)
            assert done is not None
            assert (done.counts.matched, done.counts.pending_after) == (10, 20)
            page = memory.due(of, first_seen_until_ms=done.at_ms, limit=7)
            rest = memory.due(of, first_seen_until_ms=done.at_ms, limit=100, after=page[-1])
            assert [one.unique_key for one in page + rest] == [key(n) for n in range(10, 30)]
            found = places_of(rounds.client, of, key(12), commit_generations=2)
            assert found == KeyPlaces(is_announced=False, first_seen_ms=done.at_ms, is_consumed=False)
            assert memory.forget(of, [key(n) for n in range(5, 15)]) == 5
            rounds.client.sadd(ShardKeys(of).commit, *(member_of(key(n)) for n in range(15, 20)))
            again = memory.take_round(of, epoch=epoch)
            assert again is not None
            assert (again.generation, again.counts.pending_matched, again.counts.pending_after) == (2, 5, 10)
            first, second = captures.capture(of, after=None).rounds
            assert (len(first.announced), len(first.consumed), len(first.left_matched)) == (30, 10, 0)
            assert (len(second.announced), len(second.consumed), len(second.left_matched)) == (0, 5, 5)
            assert sum(len(page_of) for page_of in captures.snapshot(of).pages) == 10
        assert len(nodes) == 3
        findings = check_redis(rounds.client, environment="cluster")
        assert {finding.severity for finding in findings} == {Severity.OK, Severity.ADVICE}
        assert len({finding.node for finding in findings}) == 3


def test_a_full_node_of_a_cluster_is_named(cluster_url: str) -> None:
    with opened(cluster_url) as rounds:
        assert isinstance(rounds.client, RedisCluster)
        require_room(rounds.client)
        name = rounds.client.get_primaries()[1].name  # type: ignore[no-untyped-call]  # redis-py has no annotation
        with redis.Redis.from_url(f"redis://{name}") as node:
            node.config_set("maxmemory", "1")
            with pytest.raises(RedisAway, match=f"^{name} is full"):
                require_room(rounds.client)
            node.config_set("maxmemory", "0")


def test_a_cluster_that_does_not_answer_is_away() -> None:
    with pytest.raises(RedisAway):
        open_redis(f"redis+cluster://127.0.0.1:{free_port()}", timeout_seconds=0.5)


# ---- safety checks


def test_a_safe_server_is_accepted_and_nothing_is_written(new_redis_server: Start) -> None:
    server = new_redis_server(options={"lazyfree-lazy-server-del": "yes"})
    with redis.Redis.from_url(server.url) as client:
        findings = check_redis(client, environment="urls")
        assert client.dbsize() == 0
    require_safe(findings)
    assert by_name(findings) == dict.fromkeys(
        ["role", "version", "eviction", "persistence", "permissions"], Severity.OK
    )


def test_without_persistence_and_lazy_freeing_there_is_advice_only(new_redis_server: Start) -> None:
    server = new_redis_server(options={"appendonly": "no"})
    with redis.Redis.from_url(server.url) as client:
        findings = check_redis(client, environment="urls")
        require_safe(findings)
        assert by_name(findings)["persistence"] is Severity.ADVICE
        assert by_name(findings)["lazy-free"] is Severity.ADVICE
        client.config_set("maxmemory", str(int(client.info("memory")["used_memory"] * 1.3)))
        assert by_name(check_redis(client, environment="urls"))["memory"] is Severity.ADVICE


def test_a_full_server_answers_and_is_away(new_redis_server: Start) -> None:
    with redis.Redis.from_url(new_redis_server().url) as client:
        require_room(client)
        client.config_set("maxmemory", "1")
        assert client.ping()
        with pytest.raises(RedisAway, match=r"is full, .* bytes of maxmemory 1: raise maxmemory"):
            require_room(client)
        client.config_set("maxmemory", str(2 * int(client.info("memory")["used_memory"])))
        require_room(client)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
@pytest.mark.parametrize("accept_unverified", [False, True])
def test_an_evicting_server_is_refused_whatever_the_settings_accept(
    new_redis_server: Start, policy: str, accept_unverified: bool
) -> None:
    server = new_redis_server(options={"maxmemory-policy": policy})
    with redis.Redis.from_url(server.url) as client:
        findings = check_redis(client, environment="urls", accept_unverified=accept_unverified)
    with pytest.raises(ConfigurationError, match="noeviction"):
        require_safe(findings)


def test_the_documented_permissions_suffice_and_a_missing_one_is_named(new_redis_server: Start) -> None:
    server = new_redis_server()
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "reconciler", *RECONCILER.rules(environment="urls", password="secret"))
        client.execute_command("ACL", "SETUSER", "filler", "on", ">secret", "~*", "-@all", "+sadd", "+role")
        with opened(server.url.replace("redis://", "redis://reconciler:secret@")) as rounds:
            require_safe(check_redis(rounds.client, environment="urls"))
            memory = RedisShardMemory(rounds)
            epoch = memory.begin_epoch(OF)
            client.sadd(ShardKeys(OF).half, member_of(key(1)), member_of(key(2)))
            done = memory.take_round(OF, epoch=epoch)
            assert done is not None
            page = memory.due(OF, first_seen_until_ms=done.at_ms, limit=1)
            assert len(memory.due(OF, first_seen_until_ms=done.at_ms, limit=5, after=page[0])) == 1
            assert memory.forget(OF, [key(1)]) == 1
            assert memory.pending_size(OF)[0] == 1
            leases = RedisRoundLeases(rounds.client)
            assert leases.take(OF, token="a", lease_seconds=1)
            assert leases.take(OF, token="a", lease_seconds=1)
            leases.release(OF, token="a")

            findings = check_redis(rounds.client, environment="production")
            assert by_name(findings)["permissions"] is Severity.REFUSED, "keys of another environment"

        client.execute_command("ACL", "SETUSER", "reconciler", "-rename")
        with opened(server.url.replace("redis://", "redis://reconciler:secret@")) as rounds:
            findings = check_redis(rounds.client, environment="urls")
            with pytest.raises(ConfigurationError, match="RENAME"):
                require_safe(findings)
        assert client.keys("reconciler:v1:{urls:doctor*") == []


def test_what_cannot_be_asked_is_refused_unless_accepted(new_redis_server: Start) -> None:
    server = new_redis_server(options={"rename-command": "INFO hidden-info"})
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-config")
        with pytest.raises(ConfigurationError, match="accept_unverified"):
            require_safe(check_redis(client, environment="urls"))
        require_room(client)  # who may not ask waits for the first write
        accepted = check_redis(client, environment="urls", accept_unverified=True)
        require_safe(accepted)
        assert by_name(accepted)["eviction"] is Severity.ADVICE
