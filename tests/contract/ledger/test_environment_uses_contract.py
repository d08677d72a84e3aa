"""ports.EnvironmentUses in every database and in Redis."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import sqlalchemy as sa

from reconciler.contract.keyspace import identity_key, use_key
from reconciler.policy.ports.environment import USE_SECONDS
from reconciler.shards.environment_uses import RedisEnvironmentUses
from reconciler.sql.tables import environment_row
from tests.contract.ledger.conftest import DatabaseWorld
from tests.contract.ledger.rows import new_environment
from tests.services.redis_server import RedisServer

BROKERS = frozenset({"DefaultCluster/broker-a at 10.0.0.5:10911", "Ost/brök\x00er 'b' at [::1]:10911"})
REDIS = "0123456789abcdef at redis://10.0.0.7:6379/0"


def test_a_use_is_read_as_it_was_written_and_each_renewal_shows(database_world: DatabaseWorld) -> None:
    uses, environment = database_world.ledger.environment_uses, database_world.environment
    assert uses.current(environment) is None
    uses.renew(environment, BROKERS, by="host:1", redis=REDIS)
    first = uses.current(environment)
    assert first is not None
    assert (first.brokers, first.redis, first.by) == (BROKERS, REDIS, "host:1")
    assert uses.current(environment) == first
    database_world.clock.advance(0.001)
    uses.renew(environment, BROKERS, by="host:1")
    second = uses.current(environment)
    assert second is not None
    assert second.renewal != first.renewal
    assert (second.brokers, second.redis) == (BROKERS, "")
    assert uses.current(new_environment()) is None


def test_a_use_ends_by_database_time(database_world: DatabaseWorld) -> None:
    uses, environment = database_world.ledger.environment_uses, database_world.environment
    uses.renew(environment, BROKERS, by="host:1")
    database_world.clock.advance(USE_SECONDS)
    assert uses.current(environment) is not None
    database_world.clock.advance(0.001)
    assert uses.current(environment) is None
    uses.renew(environment, BROKERS, by="host:2")
    found = uses.current(environment)
    assert found is not None
    assert found.by == "host:2"


def test_a_clock_that_was_set_back_holds_no_environment_for_as_long(database_world: DatabaseWorld) -> None:
    uses, environment = database_world.ledger.environment_uses, database_world.environment
    uses.renew(environment, BROKERS, by="host:1")
    database_world.clock.step_wall(-3600)
    assert uses.current(environment) is None


@pytest.mark.parametrize("brokers", ["", "{", "{}", "[1]", "[[]]", "null", "[" * 100_000])
def test_a_damaged_list_knows_no_broker(database_world: DatabaseWorld, brokers: str) -> None:
    uses, environment = database_world.ledger.environment_uses, database_world.environment
    uses.renew(environment, BROKERS, by="host:1")
    with database_world.ledger.database.writing() as connection:
        connection.execute(
            sa.update(environment_row).where(environment_row.c.environment == environment).values(brokers=brokers)
        )
    found = uses.current(environment)
    assert found is not None
    assert not found.brokers


def test_the_use_in_redis_is_read_as_it_was_written_and_expires(redis_server: RedisServer) -> None:
    environment = new_environment()
    with redis.Redis.from_url(redis_server.url) as client:
        uses = RedisEnvironmentUses(client)
        assert uses.current(environment) is None
        uses.renew(environment, BROKERS, by="host:1", redis=REDIS)
        first = uses.current(environment)
        assert first is not None
        assert (first.brokers, first.redis, first.by) == (BROKERS, REDIS, "host:1")
        uses.renew(environment, BROKERS, by="host:1")
        second = uses.current(environment)
        assert second is not None
        assert second.renewal != first.renewal
        assert 0 < client.pttl(use_key(environment)) <= USE_SECONDS * 1000
        assert uses.current(new_environment()) is None


def another_program_writes(client: redis.Redis, name: str, value: bytes | dict[Any, Any]) -> None:
    if isinstance(value, bytes):
        client.set(name, value)
    else:
        client.hset(name, mapping=value)


@pytest.mark.parametrize(
    "value", [b"", b"\xff\n\xff\n\xff", b"a\nb", b"a\nb\n{}", b"a\nb\n[1]", {"a": "hash"}], ids=repr
)
def test_what_another_program_wrote_in_redis_knows_no_broker_and_is_replaced(
    redis_server: RedisServer, value: bytes | dict[str, str]
) -> None:
    environment = new_environment()
    with redis.Redis.from_url(redis_server.url) as client:
        another_program_writes(client, use_key(environment), value)
        uses = RedisEnvironmentUses(client)
        damaged = uses.current(environment)
        assert damaged is not None
        assert not damaged.brokers
        uses.renew(environment, BROKERS, by="host:1")
        found = uses.current(environment)
        assert found is not None
        assert found.brokers == BROKERS


def test_the_identity_of_a_redis_stays_whoever_asks_and_goes_with_its_memory_only(redis_server: RedisServer) -> None:
    environment = new_environment()
    with redis.Redis.from_url(redis_server.url) as client:
        uses = RedisEnvironmentUses(client)
        assert uses.identity(environment) == ""
        first = uses.keep_identity(environment)
        assert first
        assert {uses.keep_identity(environment), RedisEnvironmentUses(client).keep_identity(environment)} == {first}
        assert uses.identity(environment) == first
        assert client.ttl(identity_key(environment)) == -1
        client.unlink(identity_key(environment))
        assert uses.keep_identity(environment) not in ("", first)


@pytest.mark.parametrize("value", [b"", b"x\ny at z", {"a": "hash"}], ids=repr)
def test_what_another_program_wrote_as_the_identity_is_none(
    redis_server: RedisServer, value: bytes | dict[str, str]
) -> None:
    environment = new_environment()
    with redis.Redis.from_url(redis_server.url) as client:
        another_program_writes(client, identity_key(environment), value)
        uses = RedisEnvironmentUses(client)
        assert (uses.identity(environment), uses.keep_identity(environment)) == ("", "")
