"""Redis, databases and brokers at their worst: the daemon recovers without a restart, and nothing is lost.

Each test keeps one daemon through all its faults. While a fault lasts messages are committed, some with their
END_TRANSACTION lost; in the end each of them has exactly one effect, and only the lost ones were repaired.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis

from checkback_producers.errors import HalfNotSafe
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import shard_of
from reconciler.errors import BrokerRefused, InvalidValue
from reconciler.rocketmq.producer.transaction_producer import TransactionsRejected
from reconciler.rocketmq.wire.message import MAXIMUM_BODY_BYTES, Message
from reconciler.sql.engines import open_engine, writing
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS, Deployment
from tests.acceptance.marked_secrets import REDIS_LOGIN, REDIS_PASSWORD
from tests.acceptance.work import Work, repairs, rounds_go_on, rounds_run
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]


@contextmanager
def admin_of(url: str) -> Iterator[redis.Redis]:
    """A connection of the operator's own."""
    with redis.Redis.from_url(url) as client:
        yield client


# ----------------------------------------------------------------------------------- Redis


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """A replica of a primary that is not there."""
    with admin_of(url) as client:
        client.config_set("replica-serve-stale-data", "yes")
        client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))  # type: ignore[no-untyped-call]
        yield
        client.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]


@contextmanager
def out_of_memory(url: str) -> Iterator[None]:
    """Every write that needs memory is refused."""
    with admin_of(url) as client:
        client.config_set("maxmemory", "1mb")
        yield
        client.config_set("maxmemory", "0")


@contextmanager
def wrong_password(url: str) -> Iterator[None]:
    """The password was changed; all sessions have to log in again."""
    with admin_of(url) as client:
        client.execute_command("ACL", "SETUSER", REDIS_LOGIN, "resetpass", ">changed")  # type: ignore[no-untyped-call]
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]
        yield
        client.execute_command("ACL", "SETUSER", REDIS_LOGIN, f">{REDIS_PASSWORD}")  # type: ignore[no-untyped-call]


def test_redis_that_refuses_pauses_the_daemon_until_it_takes_part_again(
    new_deployment: DeploymentFactory, redis_server: RedisServer
) -> None:
    work = Work(new_deployment())
    eventually(lambda: rounds_run(work.deployed) >= SHARDS, within_seconds=60)
    faults: list[tuple[tuple[str, ...], Callable[[str], object]]] = [
        # The one that looks first: a round that writes, or the check of the role.
        (("ReadOnly", "this server is a slave", "is not the primary"), read_only),
        (("OutOfMemory",), out_of_memory),
        # The one that comes first: a log-in, or a command that was under way when its session was ended.
        (("Authentication", "ConnectionError"), wrong_password),
    ]
    for reasons, fault in faults:
        mark = work.mark()
        with fault(redis_server.url):  # type: ignore[attr-defined]
            work.tells(mark, "outage_opened")
            assert any(reason in work.service.output[mark:] for reason in reasons)
            work.commit()
        work.tells(mark, "outage_closed", within_seconds=60)
    work.is_whole()
    assert work.service.end() == 0


def shard_keys(deployed: Deployment, number: int) -> ShardKeys:
    """The Redis keys of a shard of the deployment."""
    subscription = Subscription(environment=deployed.environment, topic=deployed.topic, group=deployed.group)
    return ShardKeys(Shard(subscription=subscription, number=number))


def test_flushed_redis_and_a_key_of_a_wrong_type_cost_time_only(
    new_deployment: DeploymentFactory, redis_server: RedisServer
) -> None:
    work = Work(new_deployment())
    deployed = work.deployed
    eventually(lambda: rounds_run(deployed) >= SHARDS, within_seconds=60)

    # FLUSHALL right after a commit: the announcements are read again.
    mark = work.mark()
    work.commit()
    with admin_of(redis_server.url) as client:
        client.flushall()
        work.commit()
        work.tells(mark, "MEMORY_LOST")
        work.tells(mark, "outage_closed", within_seconds=60)
        work.is_whole()
        assert client.exists(shard_keys(deployed, 0).epoch)

        # A shard whose pending set is damaged stops and tells; the other shards go on.
        keys = shard_keys(deployed, 0)
        eventually(lambda: client.exists(keys.pending) == 0, within_seconds=60)
        mark = work.mark()
        client.set(keys.pending, "somebody wrote here")
        work.tells(mark, "shard_stopped", keys.pending)
        work.commit(good=12, lost=12)
        while len({shard_of(key, SHARDS) for key in work.lost[-12:]}) < SHARDS:  # a key's shard is a matter of luck
            work.commit(good=1, lost=1)
        stopped = [key for key in work.lost if shard_of(key, SHARDS) == 0 and key not in repairs(deployed)]
        others = [key for key in work.lost if shard_of(key, SHARDS) != 0]
        assert stopped
        eventually(lambda: set(others) <= set(deployed.effects()), within_seconds=60, message="other shards go on")
        assert not set(stopped) & set(deployed.effects())
        # What its line says starts it again.
        names = re.findall(r"then DEL (\S+ \S+): ", work.service.output[mark:])[0]
        assert names.split() == [keys.pending, keys.epoch]
        client.delete(*names.split())
    work.is_whole()
    assert work.service.end() == 0


def test_redis_that_is_away_at_the_start_is_waited_for_and_one_that_may_evict_is_refused_or_pauses(
    new_deployment: DeploymentFactory, redis_server: RedisServer
) -> None:
    deployed = new_deployment()
    with admin_of(redis_server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        for command in ("run", "once"):
            refused = deployed.command(command)
            assert refused.exit_code == 2
            assert "maxmemory-policy is allkeys-lru" in refused.stderr
            assert "CONFIG SET maxmemory-policy noeviction" in refused.stderr
        doctor = deployed.command("doctor", "-o", "json")
        failed = {one["check"]: one["found"] for one in doctor.document["findings"] if one["level"] == "fail"}
        assert (doctor.exit_code, set(failed)) == (1, {"redis eviction"})
        assert "allkeys-lru" in failed["redis eviction"]

    # Away at the start: services wait.
    redis_server.stop()
    work = Work(deployed)
    work.commit()
    work.tells(0, "start_waits", "Redis")
    redis_server.start()
    eventually(lambda: rounds_run(deployed) >= SHARDS, within_seconds=60)

    # The running Redis is made to evict, and the change is undone.
    mark = work.mark()
    with admin_of(redis_server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        work.tells(mark, "not safe any more", "allkeys-lru", "noeviction")
        before = rounds_run(deployed)
        work.commit(good=20)
        arrived = set(work.committed) - set(work.lost)
        eventually(lambda: arrived <= set(deployed.effects()), within_seconds=60, message="the business goes on")
        assert rounds_run(deployed) <= before + SHARDS, "rounds went on"
        client.config_set("maxmemory-policy", "noeviction")
        work.tells(mark, "outage_closed", within_seconds=60)
    work.is_whole()
    assert work.service.end() == 0


# ----------------------------------------------------------------------------------- databases


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another session's transaction that does not end."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30)) as db:
        db.execute("BEGIN EXCLUSIVE")
        yield
        db.execute("ROLLBACK")


@contextmanager
def moved_away(database: Path) -> Iterator[None]:
    """The database's files are not where they were."""
    files = [path for end in ("", "-wal", "-shm") if (path := Path(f"{database}{end}")).exists()]
    for path in files:
        path.rename(f"{path}.away")
    yield
    assert not database.exists(), "an empty database was made in its place"
    for path in reversed(files):  # the database last: it must not be opened without its WAL
        Path(f"{path}.away").rename(path)


def test_locked_and_missing_databases_are_waited_for(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    work = Work(deployed)
    sweeper = deployed.run("sweep")
    eventually(lambda: rounds_run(deployed) >= SHARDS, within_seconds=60)

    work.commit()  # what the sweeper will want to settle
    mark, sweeper_mark = work.mark(), len(sweeper.output)
    with locked(deployed.ledger), locked(deployed.outbox):
        work.tells(mark, "turn_skipped", "locked")
        eventually(lambda: "locked" in sweeper.output[sweeper_mark:], within_seconds=60, message="the sweeper tells")
    work.commit()
    with locked(deployed.inbox):
        # The consumer waits with its messages in hand.
        held = deployed.commit(3, producer=work.producer)
        work.committed += held
        eventually(lambda: set(held) <= set(deployed.copies()), within_seconds=60)
        assert not set(held) & set(deployed.effects())
    work.is_whole()

    work.commit()
    for database in (deployed.ledger, deployed.inbox):
        with moved_away(database):
            away = deployed.command("once")
            assert away.exit_code == 3, away.stderr
            assert "unable to open database file" in away.stderr
    work.commit()
    work.is_whole()
    assert [work.service.end(), sweeper.end()] == [0, 0]


@pytest.mark.nightly
@pytest.mark.sql
def test_ledger_server_that_stops_and_comes_back_is_waited_for(
    own_postgres: PostgresServer, new_deployment: DeploymentFactory
) -> None:
    deployed = new_deployment(ledger_url=own_postgres.create_database())
    work = Work(deployed)
    work.commit()
    eventually(lambda: repairs(deployed), within_seconds=60)
    mark = work.mark()
    own_postgres.stop()
    work.tells(mark, "turn_skipped", "postgresql")
    assert deployed.command("status").exit_code == 3
    work.commit()
    own_postgres.start()
    work.is_whole()
    assert work.service.end() == 0


@pytest.mark.sql("mariadb")
def test_a_ledger_without_transactions_is_refused_until_it_is_altered_back(
    mariadb_url: str, new_deployment: DeploymentFactory
) -> None:
    deployed = new_deployment(ledger_url=mariadb_url)

    def alter(kind: str) -> None:
        engine = open_engine(mariadb_url)
        with writing(engine) as connection:
            connection.exec_driver_sql(f"ALTER TABLE reconciler_candidate ENGINE={kind}")
        engine.dispose()

    work = Work(deployed)
    work.commit()
    eventually(lambda: repairs(deployed), within_seconds=60)
    mark = work.mark()
    alter("Aria")
    work.tells(mark, "turn_skipped", "reconciler_candidate (Aria); ALTER TABLE")
    status = deployed.command("status")
    assert status.exit_code == 3
    assert "ledger: mysql" in status.stdout
    assert "tables keep rows of transactions that were rolled back: reconciler_candidate (Aria)" in status.stdout
    held = deployed.command("hold", deployed.topic)
    assert held.exit_code == 3
    assert "reconciler_candidate (Aria)" in held.stderr
    work.commit()
    assert work.service.end() == 0
    work.service = deployed.run("run")
    work.tells(0, "start_waits", "reconciler_candidate (Aria)")
    alter("InnoDB")
    work.is_whole()
    assert work.service.end() == 0


# ----------------------------------------------------------------------------------- brokers


@pytest.mark.nightly
def test_broker_gone_in_the_middle_of_rounds_comes_back_with_its_data(
    new_deployment: DeploymentFactory, tmp_path: Path
) -> None:
    with EmbeddedBroker(arguments=["--data", str(tmp_path / "store")]) as broker:
        deployed = new_deployment(name_servers=broker.name_servers)
        work = Work(deployed)
        for stop in (broker.stop, broker.kill):
            # Repairs have just begun, verdicts of the second batch are still to come.
            work.commit(lost=4)
            eventually(lambda: set(work.lost) <= set(repairs(deployed)), within_seconds=60)
            work.commit(lost=4)
            stop()
            rounds_go_on(work, 8)
            assert deployed.command("once").exit_code == 3
            broker.start()
            eventually(work.broker_takes_one, within_seconds=60)
            work.is_whole()
        assert work.service.end() == 0


def test_refused_halves_lose_nothing_and_their_reason_is_named(
    new_deployment: DeploymentFactory, embedded_broker: EmbeddedBroker
) -> None:
    deployed = new_deployment()
    work = Work(deployed)
    work.commit(lost=0)

    def not_entered(message: Message) -> None:
        with work.producer.transaction(message):
            pytest.fail("the block was entered")

    for status in ("FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"):
        embedded_broker.configure({"fault.answer_flush": status})
        with pytest.raises(HalfNotSafe, match=status) as unsafe:
            not_entered(Message(topic=deployed.topic, body=b"not safe"))
        assert unsafe.value.end_answer is not None
        embedded_broker.configure({"fault.clear": ""})

    embedded_broker.configure({"rejectTransactionMessage": "true"})
    with pytest.raises(TransactionsRejected, match="rejectTransactionMessage=true"):
        not_entered(Message(topic=deployed.topic, body=b"no permission"))
    doctor = deployed.command("doctor")
    assert doctor.exit_code == 1
    assert "rejectTransactionMessage=true" in doctor.stdout
    embedded_broker.configure({"rejectTransactionMessage": "false"})

    with pytest.raises(InvalidValue, match="delay"):
        not_entered(Message(topic=deployed.topic, body=b"delayed", delay_level=3))
    with pytest.raises(InvalidValue, match="body"):
        Message(topic=deployed.topic, body=b"x" * (MAXIMUM_BODY_BYTES + 1))
    embedded_broker.configure({"maxMessageSize": "65536"})
    with pytest.raises(BrokerRefused):
        not_entered(Message(topic=deployed.topic, body=os.urandom(100_000)))
    embedded_broker.configure({"maxMessageSize": str(MAXIMUM_BODY_BYTES)})

    work.commit(lost=0)
    work.is_whole()
    # None of the refused ones left a row, a copy or an effect; the halves that were stored were rolled back.
    assert deployed.rows(deployed.outbox, "SELECT count(*) FROM reconciler_outbox") == [len(work.committed)]
    assert sorted(deployed.rows(deployed.outbox, "SELECT unique_key FROM reconciler_outbox")) == deployed.effects()
    assert work.service.end() == 0
