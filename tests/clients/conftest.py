from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.deployment import Deployment
from tests.clients.clients import Client
from tests.clients.foreign_client import ForeignClient
from tests.clients.shop import Shop
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_server import RedisServer
from tests.services.requirements import downloaded, require


@pytest.fixture(name="broker")
def broker_fixture() -> Iterator[EmbeddedBroker]:
    """Asks once about a half, and gives it up then."""
    with EmbeddedBroker(properties={"transactionCheckMax": "1", "transactionCheckInterval": "1000"}) as started:
        yield started


@pytest.fixture
def new_shop(redis_server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    """Makes one: `new_shop(client, name_servers=..., address=..., repair_order=[...])`; `address` is the client's."""
    with ExitStack() as stack:

        def make(client: Client, *, name_servers: str, address: str | None = None, subscription: str = "") -> Shop:
            require(client.missing())
            command = downloaded(client.command)
            deployed = Deployment(
                tmp_path / "deployed", redis_url=redis_server.url, name_servers=name_servers, subscription=subscription
            )
            stack.enter_context(deployed)

            def start(*arguments: str, folder: Path) -> ForeignClient:
                return stack.enter_context(ForeignClient(command, address or name_servers, *arguments, folder=folder))

            return Shop(deployed, start)

        yield make
