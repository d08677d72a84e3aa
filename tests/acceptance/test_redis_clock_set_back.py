"""Redis' wall clock is set back by an hour under a running service, and forward again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.deployment import Deployment
from tests.acceptance.marked_secrets import redis_options, with_login
from tests.chaos.hosts import CLOCK_FILE, PRELOADED, build_clock, set_clock_file
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_server import RedisServer, missing
from tests.services.requirements import require

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def test_losses_are_found_as_soon_as_ever_while_redis_is_an_hour_behind(
    tmp_path: Path, embedded_broker: EmbeddedBroker
) -> None:
    require(missing())
    library, clock = build_clock(tmp_path), tmp_path / "clock"
    require(None if library is not None else "no C compiler: apt-get install gcc libc6-dev")
    set_clock_file(clock, 0.0)
    stepped = {PRELOADED: str(library), CLOCK_FILE: str(clock)}
    with (
        RedisServer(tmp_path / "redis", options=redis_options(tmp_path), environment=stepped) as redis,
        Deployment(
            tmp_path / "job",
            redis_url=with_login(redis.url),
            name_servers=embedded_broker.name_servers,
            has_marked_secrets=True,
        ) as deployed,
    ):
        service = deployed.run("run")
        deployed.consume()
        producer = deployed.producer()
        committed: list[str] = []

        def all_took_effect() -> bool:
            return deployed.effects() == sorted(committed)

        for wrong_by_seconds in (0.0, -3_600.0, -3_600.0, 0.0):
            set_clock_file(clock, wrong_by_seconds)
            committed += deployed.commit(2, lose=True, producer=producer)
            eventually(all_took_effect, within_seconds=100)
        told = [line for line in service.records if line["event"] == "round_finished"]
        assert max(line["clock_behind_seconds"] for line in told) > 3_000
        assert not any(line["problems"] for line in told)
        # One look at all clocks tells which of them is wrong.
        set_clock_file(clock, -3_600.0)
        document = deployed.command("doctor", "--output", "json").document
        wrong = [finding for finding in document["findings"] if finding["check"].startswith("clock of")]
        assert {finding["level"] for finding in wrong} == {"fail"}
        assert any("ahead of Redis" in finding["found"] for finding in wrong)
        assert service.end() == 0
