"""Redis URLs and what redis-py's errors mean."""

from __future__ import annotations

import os
import socket
from contextlib import closing

import pytest
import redis
from redis import exceptions
from redis.sentinel import SentinelConnectionPool

from reconciler.errors import ConfigurationError, InvalidValue, InvariantViolation, ReconcilerError, RedisAway
from reconciler.shards.access import is_of_state, open_client, translate, translated_errors


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ConnectionError("refused"), RedisAway),
        (exceptions.TimeoutError("late"), RedisAway),
        (exceptions.AuthenticationError("WRONGPASS"), RedisAway),
        (exceptions.NoPermissionError("no permissions to run 'unknown command'"), RedisAway),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), RedisAway),
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), RedisAway),
        (exceptions.BusyLoadingError("loading"), RedisAway),
        (exceptions.TryAgainError("TRYAGAIN Multiple keys"), RedisAway),
        (exceptions.ClusterDownError("CLUSTERDOWN"), RedisAway),
        (exceptions.RedisClusterException("no node"), RedisAway),
        (exceptions.ResponseError("MISCONF errors writing to the AOF file"), RedisAway),
        (OSError("reset"), RedisAway),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), InvariantViolation),
        (exceptions.ResponseError("value is not an integer or out of range"), InvariantViolation),
        (exceptions.DataError("bad input"), InvariantViolation),
        (exceptions.ResponseError("unknown command 'ZDIFFSTORE', with args"), ConfigurationError),
    ],
)
def test_every_driver_error_has_one_meaning_and_keeps_its_cause(error: Exception, kind: type[ReconcilerError]) -> None:
    assert type(translate(error)) is kind
    with pytest.raises(kind) as caught, translated_errors():
        raise error
    assert caught.value.__cause__ is error


def test_a_certificate_without_what_python_3_13_demands_is_no_unknown_authority() -> None:
    said = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {} (_ssl.c:1028)"
    found = translate(exceptions.ConnectionError(said.format("Missing Authority Key Identifier")))
    assert isinstance(found, RedisAway)
    assert found.remedy.startswith("Python 3.13 and newer demand that extension")
    for word in ("certificate has expired", "certificate is not yet valid"):
        found = translate(exceptions.ConnectionError(said.format(word)))
        assert isinstance(found, RedisAway)
        assert found.remedy.startswith("renew the certificate at the server")
    found = translate(exceptions.ConnectionError(said.format("unable to get local issuer certificate")))
    assert isinstance(found, RedisAway)
    assert found.remedy.startswith("give the certificate of its authority")


def test_a_certificate_of_the_client_that_has_ended_or_is_missing_is_named() -> None:
    said = "Error while reading from h:1 : (1, '[SSL: SSLV3_ALERT_CERTIFICATE] {} (_ssl.c:2546)')"
    found = translate(exceptions.ConnectionError(said.format("sslv3 alert certificate expired")))
    assert found.remedy.startswith("renew the certificate of this client")
    found = translate(exceptions.ConnectionError(said.format("tlsv13 alert certificate required")))
    assert found.remedy.startswith("the server takes clients with a certificate only")


def test_a_database_that_the_server_does_not_have_is_no_server_that_is_away() -> None:
    found = translate(exceptions.ResponseError("DB index is out of range"))
    assert isinstance(found, RedisAway)
    assert found.remedy.startswith("correct the number of the database")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
            "raise maxmemory of Redis",
        ),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left"), "make room on the disk"),
        (exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "make room on the disk"),
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "wait until Redis has loaded"),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), "name the primary"),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."), "start the replicas of Redis"),
        (exceptions.ConnectionError("max number of clients reached"), "raise maxclients"),
        (exceptions.ClusterDownError("The cluster is down"), "start the nodes of the cluster that are down"),
        (exceptions.ClusterDownError("Hash slot not served"), "start the nodes of the cluster that are down"),
        (exceptions.MasterDownError("Link with MASTER is down and replica-serve"), "name the primary"),
        (exceptions.TryAgainError("Multiple keys request during rehashing of slot"), "wait until the cluster"),
        (exceptions.ResponseError("BUSY Redis is busy running a script."), "end the script that keeps Redis busy"),
    ],
)
def test_a_server_that_answers_is_not_to_be_started(error: Exception, remedy: str) -> None:
    assert is_of_state(error)
    found = translate(error)
    assert isinstance(found, RedisAway)
    assert found.remedy.startswith(remedy)
    assert ".;" not in str(found)


@pytest.mark.parametrize("user", ["READONLY", "LOADING", "MISCONF"])
def test_a_right_that_a_user_lacks_is_no_state_of_the_server_whatever_the_name_of_the_user(user: str) -> None:
    """Redis 7.2 and newer, and Valkey, name the user."""
    assert not is_of_state(exceptions.NoPermissionError(f"User {user} has no permissions to run the 'zadd' command"))


def test_a_watch_error_is_not_translated() -> None:
    with pytest.raises(exceptions.WatchError), translated_errors():
        raise exceptions.WatchError("changed")


def test_sentinel_urls_carry_hosts_service_and_credentials() -> None:
    url = "redis+sentinel://user:pa%40ss@h1,h2:7,[::1]:8/orders?sentinel_password=s&ssl=true&db=0"
    client = open_client(url, timeout_seconds=1)
    assert isinstance(client, redis.Redis)
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "orders"
    assert (pool.connection_kwargs["username"], pool.connection_kwargs["password"]) == ("user", "pa@ss")
    hosts = [
        (one.connection_pool.connection_kwargs["host"], one.connection_pool.connection_kwargs["port"])
        for one in pool.sentinel_manager.sentinels
    ]
    assert hosts == [("h1", 26379), ("h2", 7), ("::1", 8)]
    assert {one.connection_pool.connection_kwargs["password"] for one in pool.sentinel_manager.sentinels} == {"s"}
    client.close()


@pytest.mark.parametrize("database", ["/3", "/?db=3"])
def test_a_database_of_a_sentinel_service_stands_in_path_or_query(database: str) -> None:
    client = open_client(f"redis+sentinel://h1:26379/orders{database}".replace("//?", "/?"), timeout_seconds=1)
    assert isinstance(client, redis.Redis)
    assert client.connection_pool.connection_kwargs["db"] == 3
    client.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "redis://localhost:port/0",
        "redis+sentinel://localhost:26379",
        "redis+sentinel://localhost:26379/a/b",
        "redis+sentinel://localhost:x/service",
        "redis+cluster://:6379",
        "redis+cluster://localhost:99999",
    ],
)
def test_a_url_that_cannot_work_is_named_without_its_password(url: str) -> None:
    with pytest.raises(InvalidValue, match="redis url") as caught:
        open_client(url.replace("://", "://user:secret@"), timeout_seconds=1)
    assert "secret" not in str(caught.value)


def test_a_client_that_may_only_sadd_is_not_made_to_ask_its_role() -> None:
    for url in ("redis://h/0", "redis+sentinel://h:1/service"):
        plain, guarded = open_client(url), open_client(url, primary_only=True)
        assert isinstance(plain, redis.Redis)
        assert isinstance(guarded, redis.Redis)
        assert plain.connection_pool.connection_kwargs.get("redis_connect_func") is None
        assert guarded.connection_pool.connection_kwargs["redis_connect_func"] is not None
        plain.close()
        guarded.close()


@pytest.mark.parametrize(
    "parameter", ["ssl_ca_certs=/no/such.pem", f"ssl_ca_certs={os.devnull}", f"ssl_certfile={os.devnull}"]
)
def test_tls_file_of_a_url_that_cannot_be_used_is_no_redis_that_is_away(parameter: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"rediss://127.0.0.1:{listener.getsockname()[1]}/0?{parameter}"
        with closing(open_client(url)) as client, pytest.raises(RedisAway) as caught, translated_errors():
            client.ping()
    assert caught.value.remedy.endswith("correct ssl_ca_certs, ssl_certfile or ssl_keyfile")


def test_socket_file_that_is_not_there_is_a_redis_that_is_away() -> None:
    with (
        closing(open_client("unix:///no/such.sock")) as client,
        pytest.raises(RedisAway) as caught,
        translated_errors(),
    ):
        client.ping()
    assert "No such file" in str(caught.value)
    assert caught.value.remedy == ""
