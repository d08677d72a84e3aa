from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.deployment import Deployment
from tests.brokers.addresses import REAL
from tests.brokers.jars import broker_jars
from tests.brokers.popping_group import QUICK
from tests.clients.clients import Client
from tests.clients.foreign_client import ForeignClient
from tests.clients.shop import Shop
from tests.services import rocketmq
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_server import RedisServer
from tests.services.requirements import downloaded, require
from tests.services.rocketmq import RocketMQCluster
from tests.services.rocketmq_proxy import Proxy


@pytest.fixture(name="broker")
def broker_fixture() -> Iterator[EmbeddedBroker]:
    """Asks once about a half, and gives it up then."""
    with EmbeddedBroker(properties={"transactionCheckMax": "1", "transactionCheckInterval": "1000"}) as started:
        yield started


@pytest.fixture
def new_shop(redis_server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    """Makes one: `new_shop(client, name_servers=..., address=..., repair_order=[...])`; `address` is the client's."""
    with ExitStack() as stack:

        def make(
            client: Client,
            *,
            name_servers: str,
            address: str | None = None,
            subscription: str = "",
            message_type: str = "MIXED",
        ) -> Shop:
            require(client.missing())
            command = downloaded(client.command)
            deployed = Deployment(
                tmp_path / "deployed", redis_url=redis_server.url, name_servers=name_servers, subscription=subscription
            )
            if client.is_grpc:
                deployed.producer_group = deployed.topic  # a proxy writes it so into each half
            stack.enter_context(deployed)

            def start(*arguments: str, folder: Path) -> ForeignClient:
                return stack.enter_context(ForeignClient(command, address or name_servers, *arguments, folder=folder))

            return Shop(deployed, start, message_type=message_type)

        yield make


@pytest.fixture(scope="module")
def real_name_servers() -> Iterator[str]:
    """Those of a real cluster that gRPC clients can pop from; its topics may have ordinary messages beside halves."""
    require(rocketmq.missing())
    downloaded(lambda: broker_jars(REAL))
    # As often as by default: a proxy names a topic's producers to brokers 20 s after they have connected.
    properties = QUICK | {"enableMixedMessageType": "true", "transactionCheckMax": "15"}
    with RocketMQCluster(REAL, properties=properties) as cluster:
        yield cluster.name_servers


@pytest.fixture(scope="module")
def proxy(real_name_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy before it."""
    folder = tmp_path_factory.mktemp("proxy") / "proxy"
    started = Proxy(version=REAL, folder=folder, name_servers=real_name_servers)
    try:
        yield started.start()
    finally:
        started.kill()
