"""A node of a Redis Cluster stands still: its process is stopped, and no replica takes over yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from reconciler.clock import SystemClock
from reconciler.errors import RedisAway
from reconciler.shards.access import RedisClient, RedisSilences, open_client, translated_errors
from reconciler.shards.checks import require_answers, require_room
from reconciler.silence import NEVER
from tests.services.redis_cluster import RedisClusterServers
from tests.services.redis_server import RedisServer, missing
from tests.services.requirements import require

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]

#: Of nodes that answer, too: on a busy machine they need long.
TIMEOUT_SECONDS = 4.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClusterServers]:
    """Three primaries without replicas; a stopped one is not called dead for as long as the tests take."""
    require(missing())
    folder = tmp_path_factory.mktemp("cluster")
    with RedisClusterServers(folder, primaries=3, replicas=0, node_timeout_ms=600_000) as servers:
        yield servers


@pytest.fixture
def first(cluster: RedisClusterServers) -> Iterator[RedisServer]:
    """The node of the first slots, which clients ask first; it goes on after the test."""
    yield cluster.servers[0]
    cluster.servers[0].thaw()


def keys_of(cluster: RedisClusterServers) -> dict[str, RedisServer | None]:
    """One key of each node."""
    found = {key: cluster.server_of(key) for key in map(str, range(40))}
    return {key: server for server, key in {server: key for key, server in found.items()}.items()}


def answers(client: RedisClient, key: str) -> bool:
    try:
        with translated_errors():
            client.set(key, 1)
    except RedisAway:
        return False
    return True


@pytest.mark.parametrize("spares", [True, False])
def test_a_client_begins_and_serves_the_other_nodes_while_the_first_one_stands_still(
    cluster: RedisClusterServers, first: RedisServer, spares: bool
) -> None:
    keys = keys_of(cluster)
    assert len(keys) == 3
    first.freeze()
    silences = RedisSilences(NEVER, SystemClock()) if spares else None
    with closing(open_client(cluster.url, timeout_seconds=TIMEOUT_SECONDS, silences=silences)) as client:
        assert {key for key in keys if not answers(client, key)} == {key for key in keys if keys[key] is first}
        first.thaw()


def test_a_node_that_stands_still_costs_one_deadline_however_often_it_is_asked(
    cluster: RedisClusterServers, first: RedisServer
) -> None:
    (key,) = [key for key, server in keys_of(cluster).items() if server is first]
    first.freeze()
    with closing(
        open_client(cluster.url, timeout_seconds=TIMEOUT_SECONDS, silences=RedisSilences(NEVER, SystemClock()))
    ) as client:
        assert not answers(client, key)
        for _ in range(50):
            with pytest.raises(RedisAway, match="not asked again"), translated_errors():
                client.get(key)


def test_all_nodes_that_stand_still_are_named_at_once(cluster: RedisClusterServers, first: RedisServer) -> None:
    with closing(open_client(cluster.url, timeout_seconds=TIMEOUT_SECONDS)) as client:
        stopped = cluster.servers[:2]
        for server in stopped:
            server.freeze()
        try:
            for ask in (require_answers, require_room):
                with pytest.raises(RedisAway) as caught:
                    ask(client)
                assert all(f"127.0.0.1:{server.port}" in str(caught.value) for server in stopped)
        finally:
            for server in stopped:
                server.thaw()
        require_answers(client)
