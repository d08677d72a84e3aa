"""The documented Redis users on a Redis Cluster: what they need there in addition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.contract.least_rights import IN_A_CLUSTER, RedisUser
from reconciler.errors import ReconcilerError
from tests.integration.test_redis_users import ENVIRONMENT, ROLES, Work
from tests.services.redis_cluster import RedisClusterServers, ask, missing
from tests.services.requirements import require

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClusterServers]:
    """Three primaries."""
    require(missing())
    with RedisClusterServers(tmp_path_factory.mktemp("cluster"), replicas=0) as servers:
        yield servers


def allow(cluster: RedisClusterServers, role: RedisUser, *additional: str) -> str:
    """The URL of a login that may do this on every node; the data of the case before is gone."""
    rules = role.rules(environment=ENVIRONMENT, password="pw")
    for server in cluster.servers:
        assert ask(server, "FLUSHALL")
        assert ask(server, "ACL", "SETUSER", role.name, "reset", *rules, *(f"+{name}" for name in additional))
    return cluster.url.replace("://", f"://{role.name}:pw@")


@pytest.mark.parametrize(("role", "work"), ROLES, ids=[role.name for role, _ in ROLES])
def test_a_documented_login_that_works_on_one_server_only_would_stop_at_a_cluster(
    cluster: RedisClusterServers, role: RedisUser, work: Work
) -> None:
    work(allow(cluster, role, *IN_A_CLUSTER))
    for name in ("cluster|slots", "command"):
        with pytest.raises(ReconcilerError):
            work(allow(cluster, role, *(other for other in IN_A_CLUSTER if other != name)))
