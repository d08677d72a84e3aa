from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
import redis
import sqlalchemy

from tests.services.fixtures import RedisFactory
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.redis_server import RedisServer, is_running


@pytest.mark.redis
def test_redis_keeps_what_it_acknowledged_over_kill_and_loses_it_when_erased(
    redis_server: RedisServer,
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set("key", "value")
        pid = redis_server.pid
        redis_server.kill()
        assert not is_running(pid)
        redis_server.start()
        assert client.get("key") == b"value"
        redis_server.restart()
        assert client.get("key") == b"value"
        redis_server.restart(empty=True)
        assert client.get("key") is None


@pytest.mark.redis
def test_redis_listens_on_a_unix_socket_only_and_takes_options(new_redis_server: RedisFactory) -> None:
    server = new_redis_server(unix_socket=True, options={"maxmemory-policy": "allkeys-lru"})
    with redis.Redis.from_url(server.url) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
        assert client.config_get("port") == {"port": "0"}


@pytest.mark.redis
def test_a_frozen_redis_keeps_connections_and_answers_nothing(redis_server: RedisServer) -> None:
    redis_server.freeze()
    assert not redis_server.answers()
    redis_server.thaw()
    assert redis_server.answers()


def test_two_databases_share_nothing(new_database_url: Callable[[], str]) -> None:
    engines = [sqlalchemy.create_engine(new_database_url()) for _ in range(2)]
    with engines[0].begin() as connection:
        connection.execute(sqlalchemy.text("create table t (n int)"))
    assert sqlalchemy.inspect(engines[0]).has_table("t")
    assert not sqlalchemy.inspect(engines[1]).has_table("t")
    for engine in engines:
        engine.dispose()


@pytest.mark.sql("mariadb")
def test_mariadb_comes_back_after_kill() -> None:
    with MariaDBServer() as server:
        server.create_database("kept")
        server.kill()
        server.start()
        connection = pymysql.connect(unix_socket=str(server.unix_socket), user="root")
        with connection.cursor() as cursor:
            assert cursor.execute("show databases like 'kept%'") == 1
        connection.close()


@pytest.mark.sql("mariadb")
def test_a_mariadb_that_starts_leaves_the_temporary_tables_of_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes those it finds; the installation of another server failed for it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    of_another = tmp_path / "#sql-temptable-4b9f-1-8.MAI"
    of_another.touch()
    with MariaDBServer() as server:
        server.create_database("any")
    assert of_another.exists()


@pytest.mark.sql("postgres")
def test_postgres_comes_back_after_kill() -> None:
    with PostgresServer() as server:
        url = server.create_database("kept")
        server.kill()
        server.start()
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            assert connection.execute(sqlalchemy.text("select 1")).scalar() == 1
        engine.dispose()
