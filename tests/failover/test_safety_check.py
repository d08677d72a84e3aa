"""After a fail-over the service asks whether Redis is safe: it must ask the new primary, not the one it remembers."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from reconciler.commands.safety import require_safe
from reconciler.errors import RedisAway
from reconciler.shards.access import RedisClient
from reconciler.shards.checks import check_redis
from reconciler.shards.client import open_redis
from tests.failover.accidents import cluster_or_sentinel
from tests.polling import eventually
from tests.services import redis_cluster, redis_sentinel
from tests.services.redis_cluster import WHOLE_SECONDS, RedisClusterServers, ask
from tests.services.requirements import require

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

MISSING = {"cluster": redis_cluster.missing, "sentinel": redis_sentinel.missing}


@pytest.mark.parametrize("kind", sorted(MISSING))
def test_a_fail_over_is_not_taken_for_an_unsafe_redis_for_ever(kind: str, tmp_path: Path) -> None:
    """Rounds stood still until the next fail-over: the old primary, now a replica, answers every question."""
    require(MISSING[kind]())
    with (
        cluster_or_sentinel(kind)(tmp_path) as servers,
        closing(open_redis(servers.url)) as rounds,
    ):
        require_safe(check_redis(rounds.client, environment="safety"))
        primary = servers.server_of("any")
        assert primary is not None
        servers.fail_over(primary)
        # Asked at once: some may not have heard of the fail-over, which is Redis away, never a setting to mend.
        eventually(partial(_is_safe, rounds.client), within_seconds=WHOLE_SECONDS)
        eventually(lambda: servers.server_of("any") not in {None, primary}, within_seconds=WHOLE_SECONDS)
        eventually(servers.is_whole, within_seconds=WHOLE_SECONDS)

        require_safe(check_redis(rounds.client, environment="safety"))


def _is_safe(client: RedisClient) -> bool:
    """Raises ConfigurationError where a setting would be blamed."""
    try:
        check_redis(client, environment="safety", judge=require_safe)
    except RedisAway:
        return False
    return True


def test_a_cluster_that_is_down_for_want_of_a_primary_is_away_and_lacks_no_permission(tmp_path: Path) -> None:
    """`run` that started then ended with exit code 2: each primary that answers refuses every command on a key."""
    require(redis_cluster.missing())
    with (
        RedisClusterServers(tmp_path, primaries=3, replicas=0) as servers,
        closing(open_redis(servers.url)) as rounds,
    ):
        check_redis(rounds.client, environment="safety", judge=require_safe)
        servers.servers[0].kill()
        others = servers.servers[1:]
        down = b"cluster_state:fail"
        eventually(lambda: all(down in (ask(one, "CLUSTER", "INFO") or b"") for one in others), within_seconds=60)
        with pytest.raises(RedisAway, match="start the nodes of the cluster that are down") as caught:
            check_redis(rounds.client, environment="safety", judge=require_safe)
        assert caught.value.remedy.startswith("start the nodes of the cluster that are down")
        servers.servers[0].start()
        eventually(partial(_is_safe, rounds.client), within_seconds=WHOLE_SECONDS)
