"""One minute of chaos with real services in every CI run; `make chaos MINUTES=10` for more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import failpoints
from tests.chaos.run import chaos
from tests.services import pgbouncer, postgres, redis_server, rocketmq
from tests.services.requirements import require

pytestmark = [
    pytest.mark.broker,
    pytest.mark.redis,
    pytest.mark.sql,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("chaos"),
]


def test_no_accident_in_a_minute_of_kills_lost_calls_and_lost_memory(tmp_path: Path) -> None:
    for missing in (postgres.missing(), pgbouncer.missing(), redis_server.missing(), rocketmq.missing()):
        require(missing)
    told: list[str] = []

    result = chaos(tmp_path, seconds=60, seed=7, rate_per_second=60, tell=told.append)

    assert result["rest"] == "", told[-3:]
    accidents = ("lost", "double", "phantom", "body_differs", "unaccounted")
    assert {name: result[name] for name in accidents} == dict.fromkeys(accidents, 0)
    assert result["committed"] > 500
    assert result["kills"] >= 2  # few where the machine is slow, some thirty where it is not
    assert result["faults_total"] >= 10


@pytest.mark.parametrize("role", sorted(failpoints.CLASSES))
def test_a_role_whose_steps_were_renamed_would_never_be_killed(role: str) -> None:
    steps = failpoints.steps_of(role)
    assert len(steps) >= 2 * len(failpoints.CLASSES[role])
    assert all(step.endswith((":before", ":after")) for step in steps)
