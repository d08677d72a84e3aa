"""An earlier release and this one side by side while messages get lost: upgraded one by one, and back."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.chaos import earlier_release
from tests.chaos.hosts import ROOT, Host
from tests.chaos.job import PRODUCER_GROUPS
from tests.chaos.producer import THREADS
from tests.chaos.run import START_SECONDS, ChaosRun
from tests.chaos.truth import NOW_MS
from tests.chaos.world import World
from tests.services import postgres, redis_server, rocketmq
from tests.services.requirements import require

pytestmark = [
    pytest.mark.broker,
    pytest.mark.redis,
    pytest.mark.sql,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("chaos"),
]

SERVICE = ("run", "sweep")
PLUG_INS = ("consumer", "producer")
RATE_PER_SECOND = 40.0
#: Every thread of every producer sends in it.
WINDOW_SECONDS = 1.2 * THREADS * len(PRODUCER_GROUPS) / RATE_PER_SECOND
#: Between two processes that are replaced.
STEP_SECONDS = 0.5


class Upgrade:
    """Old plug-ins with old, mixed and new daemons; mixed and new plug-ins with new; new plug-ins with old and new."""

    def __init__(self) -> None:
        #: Losses that had been proved when each stage ended.
        self.proved: list[int] = []

    def __call__(self, world: World, run: ChaosRun) -> None:
        old = {actor.name: actor.host for actor in world.actors}
        renewed = {host: world.add_host(f"{host.name}-new", nice=host.nice, release=ROOT) for host in [*world.hosts]}
        new = {name: renewed[host] for name, host in old.items()}
        self._stage(world, run)
        world.upgrade_tables(ROOT)
        self._stage(world, run)
        for number in range(2):  # each `run` and each sweeper of one release works beside those of the other
            self._replace(world, [f"run-{number}", f"sweep-{number}"], new)
            self._stage(world, run)
        for role in PLUG_INS:
            self._replace(world, _names(world, [role]), new)
            self._stage(world, run)
        for hosts in (old, new):
            self._replace(world, _names(world, SERVICE), hosts)
            self._stage(world, run)

    def _stage(self, world: World, run: ChaosRun) -> None:
        begun_ms = _count(world, f"SELECT {NOW_MS}")
        solo = "SELECT count(*) FROM reconciler_outbox WHERE producer_group = 'solo' AND created_at_ms > "
        deadline = time.monotonic() + START_SECONDS
        while not _count(world, f"{solo}{begun_ms}"):  # it was dead in the stage before
            assert time.monotonic() < deadline, "the group that dies in each stage does not come back"
            world.pause(0.2)
        run.window_of_losses(seconds=WINDOW_SECONDS)
        self.proved.append(_count(world, "SELECT count(*) FROM reconciler_candidate WHERE loss_verdict IS NOT NULL"))

    @staticmethod
    def _replace(world: World, names: Collection[str], hosts: Mapping[str, Host]) -> None:
        for name in names:
            world.move(name, hosts[name])
            world.pause(STEP_SECONDS)


def _count(world: World, sql: str) -> int:
    with world.database.connect() as connection:
        return int(connection.execute(sa.text(sql)).scalar_one())


def _names(world: World, roles: Collection[str]) -> list[str]:
    return [actor.name for actor in world.actors if actor.role in roles]


@pytest.mark.set_up("two releases side by side during an upgrade, and back")
@pytest.mark.nightly
def test_no_accident_while_plug_ins_and_daemons_of_two_releases_work_side_by_side(tmp_path: Path) -> None:
    for missing in (postgres.missing(), redis_server.missing(), rocketmq.missing(), earlier_release.missing()):
        require(missing)
    release = earlier_release.check_out(tmp_path / "earlier")
    told: list[str] = []
    upgrade = Upgrade()

    with World(
        tmp_path, seed=1, rate_per_second=RATE_PER_SECOND, deadly=False, release=release, has_plain_database=True
    ) as world:
        result = ChaosRun(world, seed=1, tell=told.append).take_course(upgrade)
        crashes = {name: count for name, count in world.counts.items() if name.startswith("ended by itself")}

    assert result["rest"] == "", told[-3:]
    accidents = ("lost", "double", "phantom", "body_differs", "unaccounted")
    assert {name: result[name] for name in accidents} == dict.fromkeys(accidents, 0)
    assert result["unnecessary_repairs"] == 0
    assert crashes == {}
    assert len(set(upgrade.proved)) == len(upgrade.proved), "a stage without a loss that was proved"
