"""Deployments on a private redis-server and the embedded broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.deployment import Deployment
from tests.acceptance.leak_watch import (  # noqa: F401 - fixtures and a hook
    nothing_written_holds_a_secret,
    process_lists,
    pytest_runtest_makereport,
)
from tests.acceptance.marked_secrets import (
    marked,
    redis_options,
    require_no_secret_in_files,
    require_unmarked,
    with_login,
)
from tests.services import postgres
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import RedisFactory
from tests.services.redis_server import RedisServer, missing
from tests.services.requirements import require

DeploymentFactory = Callable[..., Deployment]


@pytest.fixture
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker of family 5.x as a process of the test's own."""
    with EmbeddedBroker() as broker:
        yield broker
        require_no_secret_in_files(broker.log.parent)


@pytest.fixture(name="redis_server")
def _redis_server(new_redis_server: RedisFactory, tmp_path: Path) -> RedisServer:
    """One redis-server of the test's own, with a marked login beside the one without a password."""
    return new_redis_server(options=redis_options(tmp_path))


@pytest.fixture
def own_postgres() -> Iterator[postgres.PostgresServer]:
    """A PostgreSQL server of the test's own, with a marked password. A deployment on it comes later in the list."""
    require(postgres.missing())
    with postgres.PostgresServer(password=marked("postgres")) as server:
        yield server
        require_unmarked(server.log.read_text())


@pytest.fixture
def new_deployment(
    tmp_path: Path, redis_server: RedisServer, embedded_broker: EmbeddedBroker
) -> Iterator[DeploymentFactory]:
    """Makes deployments: `new_deployment(settings="...", redis_url=..., name_servers=...)`."""
    with ExitStack() as stack:
        count = 0

        def make(**arguments: object) -> Deployment:
            nonlocal count
            count += 1
            values = {
                "redis_url": with_login(redis_server.url),
                "name_servers": embedded_broker.name_servers,
                "has_marked_secrets": True,
                **arguments,
            }
            return stack.enter_context(Deployment(tmp_path / f"deployment-{count}", **values))  # type: ignore[arg-type]  # passed on

        yield make


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """URL of a redis-server and address of an embedded broker that parks a half after one unanswered question."""
    require(missing())
    folder = tmp_path_factory.mktemp("redis")
    with (
        RedisServer(folder, options=redis_options(folder)) as redis,
        EmbeddedBroker(properties={"transactionCheckMax": "1", "transactionCheckInterval": "1000"}) as broker,
    ):
        yield with_login(redis.url), broker.name_servers
        require_no_secret_in_files(folder)
        require_no_secret_in_files(broker.log.parent)


@pytest.fixture
def deployed(tmp_path: Path, services: tuple[str, str]) -> Iterator[Deployment]:
    """A deployment of the test's own."""
    with Deployment(tmp_path, redis_url=services[0], name_servers=services[1], has_marked_secrets=True) as deployment:
        yield deployment
