"""Three fail-overs each of a real Redis Cluster and of real Sentinels in every CI run; `make failover` for fifty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failover.accidents import ACCIDENTS
from tests.failover.run import failover, is_right
from tests.services import redis_cluster, redis_sentinel
from tests.services.requirements import require

pytestmark = [pytest.mark.redis, pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]

#: The three that lose acknowledged writes or leave a primary that hangs; `make failover` has the others, too.
WORST = {"cluster": ("stale", "frozen", "hung"), "sentinel": ("killed", "stale", "hung")}
MISSING = {"cluster": redis_cluster.missing, "sentinel": redis_sentinel.missing}


@pytest.mark.parametrize("kind", sorted(WORST))
def test_fail_overs_to_stale_replicas_and_hung_primaries_lose_no_announced_key(kind: str, tmp_path: Path) -> None:
    require(MISSING[kind]())
    told: list[str] = []

    result = failover(tmp_path, kind=kind, failovers=3, seed=7, tell=told.append, kinds=WORST[kind])

    assert is_right(result), (result, told)
    assert result["failovers_by_kind"] == dict.fromkeys(WORST[kind], 1)
    # Else the load was none, or the accidents were none.
    assert result["ids"] > 200
    assert result["never_consumed"] >= 3
    assert result["unrecorded"] > 0


def test_a_kind_of_accident_that_nobody_asks_for_would_never_happen() -> None:
    assert {kind for kinds in WORST.values() for kind in kinds} < set(ACCIDENTS)
