"""Fixtures for the services; loaded by tests/conftest.py.

Servers that start slowly are shared by the tests of one pytest worker and hand out fresh databases; the ones
that tests stop or fill are started for each test.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.brokers.jars import broker_jars
from tests.services import mariadb, pgbouncer, postgres, redis_server, rocketmq
from tests.services.requirements import downloaded, require

ClusterFactory = Callable[..., rocketmq.RocketMQCluster]
RedisFactory = Callable[..., redis_server.RedisServer]


@pytest.fixture
def new_redis_server(tmp_path: Path) -> Iterator[RedisFactory]:
    """Makes started redis-servers of the test's own: `new_redis_server(options={...}, unix_socket=False)`."""
    require(redis_server.missing())
    with contextlib.ExitStack() as stack:
        count = 0

        def start(*, options: dict[str, str] | None = None, unix_socket: bool = False) -> redis_server.RedisServer:
            nonlocal count
            count += 1
            folder = tmp_path / f"redis-{count}"
            if unix_socket:  # a socket's path has at most 107 bytes, pytest's folders are longer
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-redis-")))
            server = redis_server.RedisServer(folder, options=options, unix_socket=unix_socket)
            return stack.enter_context(server)

        yield start


@pytest.fixture(name="redis_server")
def _redis_server(new_redis_server: RedisFactory) -> redis_server.RedisServer:
    """One redis-server of the test's own: append-only, noeviction."""
    return new_redis_server()


@pytest.fixture(scope="session")
def shared_redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.RedisServer]:
    """One redis-server of the worker, without persistence; use an environment name of your own in it."""
    require(redis_server.missing())
    with redis_server.RedisServer(
        tmp_path_factory.mktemp("redis"), options={"appendonly": "no", "databases": "64"}
    ) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    """One PostgreSQL server of the worker: call `create_database()` for a database of your own."""
    require(postgres.missing())
    with postgres.PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[mariadb.MariaDBServer]:
    """One MariaDB server of the worker: call `create_database()` for a database of your own."""
    require(mariadb.missing())
    with mariadb.MariaDBServer() as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer_server(postgres_server: postgres.PostgresServer) -> Iterator[pgbouncer.PgBouncer]:
    """One pgbouncer of the worker before its PostgreSQL server: call `create_database()` as there."""
    require(pgbouncer.missing())
    with pgbouncer.PgBouncer(postgres_server) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: postgres.PostgresServer) -> str:
    """SQLAlchemy URL of a fresh PostgreSQL database."""
    return postgres_server.create_database()


@pytest.fixture
def mariadb_url(mariadb_server: mariadb.MariaDBServer) -> str:
    """SQLAlchemy URL of a fresh MariaDB database."""
    return mariadb_server.create_database()


DATABASES = (
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.sql("postgres")),
    pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `pooled` get their fresh databases through pgbouncer, too; `pooled("nightly")`: by night."""
    if "new_database_url" in metafunc.fixturenames:
        found = metafunc.definition.get_closest_marker("pooled")
        marks = [pytest.mark.sql("pgbouncer"), *(getattr(pytest.mark, name) for name in (found.args if found else ()))]
        more = (pytest.param("pgbouncer", marks=marks),) if found else ()
        metafunc.parametrize("new_database_url", (*DATABASES, *more), indirect=True)


@pytest.fixture
def new_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes fresh databases, of each kind in turn: SQLite always, the others where they are installed."""
    if request.param == "sqlite":
        numbers = itertools.count(1)
        return lambda: f"sqlite:///{tmp_path}/database-{next(numbers)}.db"
    server = request.getfixturevalue(f"{request.param}_server")
    return lambda: str(server.create_database())


@pytest.fixture
def database_url(new_database_url: Callable[[], str]) -> str:
    """A fresh database of each kind in turn."""
    return new_database_url()


class SharedClusters:
    """One started cluster a version for all tests of a pytest worker; tests use topics of their own."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._running: dict[str, rocketmq.RocketMQCluster] = {}

    def get(self, version: str) -> rocketmq.RocketMQCluster:
        """The cluster of a version, started at the first call: one broker, quick check-backs and retries."""
        require(rocketmq.missing())
        if version not in self._running:
            downloaded(lambda: broker_jars(version))
            self._running[version] = self._stack.enter_context(rocketmq.RocketMQCluster(version))
        return self._running[version]

    def close(self) -> None:
        """Stops them all."""
        self._running.clear()
        self._stack.close()


_CLUSTERS = pytest.StashKey[SharedClusters]()


@pytest.fixture(scope="session")
def shared_clusters(request: pytest.FixtureRequest) -> Iterator[SharedClusters]:
    """Brokers shared by the tests of a worker; give the test the marks of `rocketmq.marks(version)`."""
    clusters = request.config.stash[_CLUSTERS] = SharedClusters()
    yield clusters
    clusters.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """A group of tests is on one worker, in one piece: its brokers, which are never idle, end with its last test."""
    try:
        return (yield)
    finally:
        groups = [one.nodeid.rpartition("@")[2] if one is not None else None for one in (item, nextitem)]
        if getattr(item.config.option, "loadgroup", False) and groups[0] != groups[1]:
            item.config.stash.get(_CLUSTERS, SharedClusters()).close()


@pytest.fixture
def new_rocketmq_cluster() -> Iterator[ClusterFactory]:
    """Makes started clusters of the test's own: `new_rocketmq_cluster("5.3.3", brokers=2, properties={})`."""
    require(rocketmq.missing())
    with contextlib.ExitStack() as stack:

        def start(
            version: str,
            *,
            brokers: int = 1,
            properties: dict[str, str] | None = None,
            broker_class: type[rocketmq.RealBroker] = rocketmq.RealBroker,
        ) -> rocketmq.RocketMQCluster:
            downloaded(lambda: broker_jars(version))
            cluster = rocketmq.RocketMQCluster(
                version, brokers=brokers, properties=properties, broker_class=broker_class
            )
            return stack.enter_context(cluster)

        yield start
