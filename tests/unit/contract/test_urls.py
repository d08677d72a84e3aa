"""URLs: read in one way or refused, shown as far as they locate a service, with parameters that drivers know."""

from __future__ import annotations

import inspect

import pymysql
import pytest
from psycopg import pq
from redis.connection import Connection, SSLConnection
from sqlalchemy.engine import make_url

from reconciler.contract import urls
from reconciler.contract.urls import (
    blotted,
    holds_password,
    read_database_url,
    read_redis_url,
    read_url,
    shown_url,
    shown_value,
)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql+psycopg2://app:s3cret@db.example:5432/orders?sslmode=require",
            "postgresql://db.example:5432/orders",
        ),
        (
            "postgresql://app@/orders?host=/run/postgresql&port=5433",
            "postgresql:///orders?host=/run/postgresql&port=5433",
        ),
        ("postgresql:///orders?host=a:5432&host=b:5432", "postgresql:///orders?host=a:5432&host=b:5432"),
        ("mysql://app:a:b@[::1]:3306/orders", "mysql://[::1]:3306/orders"),
        ("sqlite:////var/lib/a b@c#d.db?mode=rw&uri=true", "sqlite:////var/lib/a b@c#d.db"),
        ("redis+sentinel://:s3cret@h1:26379,h2/orders/3?ssl=true", "redis+sentinel://h1:26379,h2/orders/3"),
        ("unix://:s3cret@/run/redis.sock?db=3", "unix:///run/redis.sock?db=3"),
        ("redis://s3cret@h:6379/0?client_name=s3cret", "redis://h:6379/0"),
        ("http://app:s3cret@h:9876", "http://h:9876"),
    ],
)
def test_what_tells_people_which_service_it_is_is_shown_and_nothing_else(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert repr(read_url(url)) == f"<{shown}>"


@pytest.mark.parametrize(
    "url",
    ["postgresql://app:12/3@h/orders", "postgresql://app:12?3@h/orders", "redis://app:12#3@h/0", "redis://h/0?x=a@b",
     "mysql://app:a@b@h/orders", "mysql://app:a[b@h/orders", "redis://h:0", "redis://h/0#3", "redis:/h/0", "h:6379",
     "jdbc:mysql://h/orders?password=x", "Redis://h/0", "redis://h/0\n", 5, None, ["redis://h/0"]],
)  # fmt: skip
def test_what_two_drivers_could_read_in_two_ways_is_refused_and_hidden(url: object) -> None:
    with pytest.raises(ValueError, match=r"expected|percent-encode|a port is"):
        read_url(url)  # type: ignore[arg-type]  # settings and callers may hold anything
    assert shown_url(url) == "(hidden)"


def test_what_is_accepted_is_read_as_sqlalchemy_reads_it() -> None:
    for text in (
        "postgresql://app:a:b%40c@h:5432/orders?sslmode=require",
        "mysql://app@[::1]/orders",
        "sqlite:////a@b",
    ):
        ours, theirs = read_database_url(text), make_url(text)
        hosts = [] if theirs.host is None else [(theirs.host.strip("[]"), theirs.port)]
        assert [(host.strip("[]"), port) for host, port in ours.hosts] == hosts
        assert ours.path.removeprefix("/") == theirs.database
        assert dict(ours.parameters) == theirs.query


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://h/orders?foo=bar", "unknown parameter 'foo'"),
        ("postgresql://h/orders?a%20secret=bar", r"unknown parameter \(hidden\)"),
        ("postgresql://h/orders?sslmode=always", "sslmode has a wrong value; expected one that fits disable"),
        ("postgresql://h/orders?sslrootcert=", "sslrootcert has a wrong value; expected not empty"),
        ("postgresql://h/orders?passwd=x", "put the password before the host"),
        ("postgresql+asyncpg://h/orders", "asyncpg is asynchronous; write postgresql://, which is reached by psycopg"),
        ("mysql+aiomysql://h/orders", "aiomysql is asynchronous; write mysql://, which is reached by pymysql"),
        ("postgresql+psycop://h/orders", "unknown driver; write postgresql://"),
        ("sqlite+pysqlcipher:////a.db", "unknown driver; write sqlite://"),
        ("postgres://h/orders", "expected a SQLAlchemy URL of sqlite, postgresql"),
        ("postgresql://h1,h2/orders", r"\?host=a:5432&host=b:5432"),
        ("postgresql://h", "names no database"),
        ("sqlite://h/a.db", "a file has no host"),
        ("sqlite:///:memory:", "cannot be shared"),
        ("sqlite:///file:x?mode=memory&uri=true", "cannot be shared"),
        ("mysql://h/orders?local_infile=1", "unknown parameter 'local_infile'"),
    ],
)
def test_a_database_url_that_cannot_work_says_what_to_write(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_database_url(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h/zero", "the number of a database behind the host: redis://host:6379/0"),
        ("rediss://h/0/1", "the number of a database behind the host: rediss://host:6379/0"),
        ("redis://h/0?db=zero", "db has a wrong value"),
        ("redis://h/0?foo=bar", "unknown parameter 'foo'"),
        ("redis://h/0?decode_responses=true", "unknown parameter 'decode_responses'"),
        ("redis://h/0?retry_on_timeout=true", "unknown parameter 'retry_on_timeout'"),
        ("redis://h/0?ssl_ca_certs=/ca.pem", "unknown parameter 'ssl_ca_certs'"),
        ("redis+cluster://h?ssl_ca_certs=/ca.pem", "need ssl=true"),
        ("redis+cluster://h/1", "the database 0 only"),
        ("redis+sentinel://h:26379", "name-of-the-service"),
        ("redis://h1,h2/0", r"several hosts are redis\+sentinel"),
        ("redis:///0", "and a host"),
        ("unix://h/run/redis.sock", "expected unix:///path"),
        ("rediss+x://h", "begins with"),
        ("redis+typo://h", "begins with"),
    ],
)
def test_a_redis_url_that_cannot_work_says_what_to_write(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_redis_url(url)


def test_parameters_are_those_that_the_drivers_know() -> None:
    """A wrong name is told at config check because of these lists; the driver would raise in the middle of a start."""
    libpq = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    ours = {"password", "dbname", "replication", "scram_client_key", "scram_server_key", "sslkeylogfile", "servicefile"}
    oauth = {name for name in libpq if name.startswith("oauth_")}
    newer = {"sslnegotiation", "min_protocol_version", "max_protocol_version"}
    assert libpq - ours - oauth <= urls._POSTGRESQL.keys() <= libpq | newer
    mysql = set(inspect.signature(pymysql.connections.Connection.__init__).parameters)
    assert urls._MYSQL.keys() - {"ssl_capath", "ssl_cipher", "ssl_check_hostname"} <= mysql  # SQLAlchemy's own three
    connection = {name for kind in SSLConnection.__mro__ for name in inspect.signature(kind.__init__).parameters}  # type: ignore[misc]  # of classes
    assert urls._TLS.keys() | urls._LOGIN.keys() | urls._DB.keys() <= connection
    assert not urls._TLS.keys() & set(inspect.signature(Connection.__init__).parameters)


def test_a_drivers_words_lose_what_the_url_keeps_secret_and_keep_what_it_shows() -> None:
    url = "postgresql://app:p%40ssw0rd@h/orders?sslpassword=k3yk3y&connect_timeout=5"
    said = 'FATAL: h 5 orders "app" p@ssw0rd p%40ssw0rd k3yk3y'
    assert blotted(said, url) == 'FATAL: h 5 orders "app" *** *** ***'
    assert blotted('user "orders" of orders', "mysql://orders:orders@h/orders") == 'user "orders" of orders'
    assert blotted("oracle", "oracle://a@b@c") == "oracle"


def test_a_value_at_the_wrong_place_is_shown_unless_it_may_hold_a_secret() -> None:
    assert shown_value("soon") == "'soon'"
    assert shown_value(5) == "5"
    assert shown_value("redis://:s3cret@h/0") == "redis://h/0"
    assert shown_value("app:s3cret@h") == "(hidden)"
    assert len(shown_value("x" * 1_000)) == 120


def test_a_password_is_seen_wherever_it_stands() -> None:
    assert holds_password("redis://:s3cret@h/0")
    assert holds_password("redis://h/0?password=s3cret")
    assert not holds_password("redis://app@h/0")
    assert not holds_password("@/run/secrets/url")
