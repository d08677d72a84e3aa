"""Passwords change while writers are at work: nothing is lost, and nothing is started again."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
import redis
import sqlalchemy as sa

from reconciler.contract.least_rights import RECONCILER
from reconciler.contract.secret import SecretText
from reconciler.contract.secret_sources import secret_from_command, secret_from_file
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import ConfigurationError, DatabaseAway, RedisAway
from reconciler.shards.access import RedisClient, open_client
from reconciler.shards.client import open_redis
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.sql.changing_login import secret_of
from reconciler.sql.engines import open_engine, reading, writing
from tests.engines import disposed
from tests.polling import eventually
from tests.services import redis_sentinel
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.redis_sentinel import RedisSentinelServers
from tests.services.redis_server import RedisServer
from tests.services.requirements import require

#: Leases that writers take in turn.
SHARDS = 1_000
ROTATIONS = 3
WRITERS = 3
LOGIN = "rotated"
NUMBERS = sa.Table("numbers", sa.MetaData(), sa.Column("n", sa.BigInteger, primary_key=True, autoincrement=False))

#: Password -> the server takes it from now on, and has closed every session of the login.
Rotate = Callable[[str], None]


class Writers:
    """Threads that write one number after the other, each until it is written."""

    def __init__(self, write: Callable[[int], object], refused: type[Exception]) -> None:
        self.written: list[int] = []
        self.failures: list[Exception] = []
        self._write = write
        self._refused = refused
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(WRITERS)]

    def _run(self, number: int) -> None:
        while not self._stop.is_set():
            try:
                self._write(number)
            except self._refused as error:
                self.failures.append(error)
                self._stop.wait(0.02)
                continue
            self.written.append(number)
            number += WRITERS

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def go_on(self) -> None:
        """Returns when every writer has written again since the call."""
        before = len(self.written)
        eventually(lambda: len(self.written) > before + 5 * WRITERS, within_seconds=20)


def replace(file: Path, text: str) -> None:
    """As an operator, or Kubernetes, does: in one step."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def a_secret(source: str, file: Path) -> SecretText:
    if source == "file":
        return secret_from_file(file)
    return secret_from_command([sys.executable, "-S", "-c", f"print(open({str(file)!r}).read())"])


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ]
)
def database(request: pytest.FixtureRequest) -> Iterator[tuple[sa.URL, Rotate]]:
    """URL of the login without its password, and how its password is changed."""
    server: PostgresServer | MariaDBServer = request.getfixturevalue(f"{request.param}_server")
    with ExitStack() as stack:
        owner = open_engine(server.create_database())
        stack.callback(owner.dispose)
        NUMBERS.metadata.create_all(owner)
        rotate = of_postgres(owner, server) if isinstance(server, PostgresServer) else of_mariadb(owner)
        if isinstance(server, PostgresServer):
            stack.callback(run_all, owner, f"DROP OWNED BY {LOGIN}", f"DROP ROLE {LOGIN}")
        yield owner.url.set(username=LOGIN, password=None), rotate


def run_all(owner: sa.Engine, *statements: str) -> None:
    with owner.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def of_postgres(owner: sa.Engine, server: PostgresServer) -> Rotate:
    asks = f"host all {LOGIN} 127.0.0.1/32 scram-sha-256\n"
    rules = server.folder / "data" / "pg_hba.conf"
    if not rules.read_text().startswith(asks):
        rules.write_text(asks + rules.read_text())
    create = f"CREATE ROLE {LOGIN} LOGIN"
    run_all(owner, "SELECT pg_reload_conf()", create, f"GRANT SELECT, INSERT ON numbers TO {LOGIN}")

    def rotate(password: str) -> None:
        with owner.begin() as connection:
            connection.exec_driver_sql(f"ALTER ROLE {LOGIN} PASSWORD '{password}'")
        with owner.begin() as connection:
            connection.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{LOGIN}'"
            )

    return rotate


def of_mariadb(owner: sa.Engine) -> Rotate:
    who = f"'{LOGIN}'@'127.0.0.1'"

    def rotate(password: str) -> None:
        with owner.begin() as connection:
            connection.exec_driver_sql(f"CREATE USER IF NOT EXISTS {who}")
            connection.exec_driver_sql(f"ALTER USER {who} IDENTIFIED BY '{password}'")
            connection.exec_driver_sql(f"GRANT SELECT, INSERT ON numbers TO {who}")
            connection.exec_driver_sql(f"KILL USER {LOGIN}")

    return rotate


@pytest.mark.parametrize("source", ["file", "command"])
def test_database_password_changes_under_load_and_every_number_is_there(
    source: str, database: tuple[sa.URL, Rotate], tmp_path: Path
) -> None:
    url, rotate = database

    def url_with(password: str) -> str:
        return url.set(password=password).render_as_string(hide_password=False)

    file = tmp_path / "url"
    file.write_text(url_with("first-0"))
    rotate("first-0")
    engine = open_engine(a_secret(source, file), pool_size=WRITERS)

    def write(number: int) -> None:
        with writing(engine) as connection:
            if connection.execute(sa.select(NUMBERS.c.n).where(NUMBERS.c.n == number)).first() is None:
                connection.execute(sa.insert(NUMBERS).values(n=number))

    with disposed(engine), Writers(write, DatabaseAway) as writers:
        writers.go_on()
        for number in range(ROTATIONS):
            rotate(f"pass word-{number}")
            replace(file, url_with(f"pass word-{number}"))
            writers.go_on()
        old = open_engine(url_with("first-0"))
        with disposed(old), pytest.raises(DatabaseAway, match="correct user and password"), reading(old):
            pass
    assert not [error for error in writers.failures if "word-" in str(error) or "first-" in str(error)]
    new = open_engine(url_with(f"pass word-{ROTATIONS - 1}"))
    with disposed(new), reading(new) as connection:
        lost = set(writers.written) - set(connection.execute(sa.select(NUMBERS.c.n)).scalars())
    assert not lost


@pytest.mark.sql("postgres")
def test_secret_that_names_another_database_is_refused_and_a_half_written_one_is_not_taken(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    file = tmp_path / "url"
    file.write_text(postgres_server.create_database())
    engine = open_engine(secret_from_file(file))
    with disposed(engine):
        for text, is_taken in (("postgresql://reconci", True), (postgres_server.create_database(), False)):
            engine.dispose()
            replace(file, text)
            eventually(partial(shows, engine, text), within_seconds=30)
            if is_taken:
                with reading(engine) as connection:
                    assert connection.execute(sa.text("SELECT 1")).scalar() == 1
            else:
                with pytest.raises(ConfigurationError, match="another place"), reading(engine):
                    pass


def shows(engine: sa.Engine, text: str) -> bool:
    secret = secret_of(engine)
    return secret is not None and secret.reveal() == text


@pytest.mark.redis
def test_password_at_sentinels_changes_and_the_primary_is_found_without_a_restart(tmp_path: Path) -> None:
    require(redis_sentinel.missing())
    file = tmp_path / "url"
    with RedisSentinelServers(tmp_path / "servers", replicas=0) as servers:

        def rotate(password: str) -> None:
            for port in servers.sentinel_ports:
                assert servers.ask_sentinel(port, "ACL", "SETUSER", LOGIN, "reset", "on", f">{password}", "+@all", "~*")
                servers.ask_sentinel(port, "CLIENT", "KILL", "USER", LOGIN)

        def url_with(password: str) -> str:
            return f"{servers.url}?sentinel_username={LOGIN}&sentinel_password={password}"

        rotate("first-0")
        file.write_text(url_with("first-0"))
        with closing(open_client(a_secret("command", file), timeout_seconds=60)) as client:
            assert client.ping()
            for number in range(ROTATIONS):
                rotate(f"word-{number}")
                replace(file, url_with(f"word-{number}"))
                client.close()  # the next command connects again
                assert eventually(lambda: pings(client), within_seconds=20)
        with closing(open_client(url_with("first-0"))) as old:
            assert not pings(old)


def pings(client: RedisClient) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.mark.redis
@pytest.mark.parametrize("source", ["file", "command"])
def test_redis_password_changes_under_load_and_rounds_go_on(
    source: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    environment = "rotated"
    of = Subscription(environment=environment, topic="ORDERS", group="billing")
    file = tmp_path / "url"

    def rotate(password: str) -> None:
        with redis.Redis.from_url(redis_server.url) as admin:
            rules = RECONCILER.rules(environment=environment, password=password)
            admin.execute_command("ACL", "SETUSER", LOGIN, "resetpass", *rules)
            admin.execute_command("CLIENT", "KILL", "USER", LOGIN)

    def url_with(password: str) -> str:
        return redis_server.url.replace("://", f"://{LOGIN}:{password}@")

    rotate("first-0")
    file.write_text(url_with("first-0"))
    with closing(open_redis(a_secret(source, file), timeout_seconds=60)) as rounds:
        leases = RedisRoundLeases(rounds.client)

        def write(number: int) -> None:
            assert leases.take(Shard(subscription=of, number=number % SHARDS), token="a", lease_seconds=600)

        with Writers(write, RedisAway) as writers:
            writers.go_on()
            for number in range(ROTATIONS):
                rotate(f"password-{number}")
                replace(file, url_with(f"password-{number}"))
                writers.go_on()
    assert not [error for error in writers.failures if "word-" in str(error) or "first-" in str(error)]
    taken = {number % SHARDS for number in writers.written}
    with redis.Redis.from_url(redis_server.url) as admin:
        assert len(set(admin.scan_iter(f"*{environment}*round_lease", count=1000))) >= len(taken)
    with redis.Redis.from_url(url_with("first-0")) as old, pytest.raises(redis.AuthenticationError):
        old.ping()
