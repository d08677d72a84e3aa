"""One chaos run from start to judgement."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reconciler.rocketmq.client_instance import ClientInstance
from reconciler.rocketmq.offsets import Offsets
from reconciler.rocketmq.pulling import PullRequest, pull
from tests.chaos.checker import QuietWindow, judge, unfinished
from tests.chaos.faults import next_fault
from tests.chaos.job import PRODUCER_GROUPS
from tests.chaos.truth import NOW_MS
from tests.chaos.world import World

#: Between two faults, seconds.
CALM = (0.3, 1.5)
#: One minute of chaos is followed by a quiet phase in which latencies are measured.
CHAOS_SECONDS = 60.0
QUIET_SECONDS = 25.0
#: Everything must have come to rest within this after the last fault.
HEAL_SECONDS = 240.0
VIEW_GROUP = "chaos-view"


class ChaosRun:
    """Makes faults until the time is over, heals, waits for rest, judges."""

    def __init__(self, world: World, *, seed: int, tell: Callable[[str], None]) -> None:
        self._world = world
        self._dice = random.Random(f"faults-{seed}")
        self._tell = tell
        self.faults: Counter[str] = Counter()
        self.quiet: list[QuietWindow] = []

    def run(self, seconds: float) -> dict[str, Any]:
        """The run's figures; `rest` is empty if all came to rest."""
        started = time.monotonic()
        deadline = started + seconds
        while time.monotonic() < deadline:
            self._chaos(min(deadline, time.monotonic() + CHAOS_SECONDS))
            if deadline - time.monotonic() > QUIET_SECONDS:
                self._quiet_phase()
        load_seconds = time.monotonic() - started
        rest = self._heal()
        self._write_copies()
        judgement = judge(self._world.database, self.quiet)
        kills = dict(sorted(self._world.counts.items()))
        return {
            "faults": dict(sorted(self.faults.items())),
            "faults_total": sum(self.faults.values()),
            "lost_ends": sum(proxy.counts["END lost"] for proxy in self._world.proxies.values()),
            "processes": kills,
            "kills": sum(n for what, n in kills.items() if what.startswith("killed")),
            "steps_died_at": len(self._world.steps_died_at),
            "load_seconds": round(load_seconds, 1),
            **judgement.figures,
            **judgement.accidents,
            "accidents": sum(judgement.accidents.values()),
            "latency_seconds": judgement.latency_seconds,
            "rest": rest,
        }

    def _chaos(self, until: float) -> None:
        while time.monotonic() < until:
            fault = next_fault(self._dice)
            self._tell(fault.__name__)
            self.faults[fault.__name__] += 1
            fault(self._world, self._dice)
            self._world.pause(self._dice.uniform(*CALM))

    def _quiet_phase(self) -> None:
        """ENDs of the group that has one process get lost, and it stays dead until the phase is over."""
        self._tell("quiet phase")
        world = self._world
        world.deadly = False
        for actor in world.living():  # those with a sentence make place for others without
            if actor.sentence:
                world.kill(actor)
        world.pause(8.0)
        since = self._database_now_ms()
        for proxy in world.proxies.values():
            proxy.lose_end = 1.0
        world.pause(1.0)
        solo = len(PRODUCER_GROUPS) - 1
        world.stays_dead.add(f"producer-{solo}")
        for actor in world.living("producer"):
            if actor.name in world.stays_dead:
                world.kill(actor)
        self.quiet.append(
            QuietWindow(producer_group=PRODUCER_GROUPS[solo], since_ms=since, until_ms=self._database_now_ms())
        )
        for proxy in world.proxies.values():
            proxy.lose_end = 0.0
        world.pause(QUIET_SECONDS - 9.0)
        world.stays_dead.clear()
        world.deadly = True

    def _database_now_ms(self) -> int:
        with self._world.database.connect() as connection:
            return int(connection.execute(sa.text(f"SELECT {NOW_MS}")).scalar_one())

    def _heal(self) -> str:
        """Ends load and faults; returns what was still unfinished when patience ended."""
        world = self._world
        world.end_load(within_seconds=30)
        deadline = time.monotonic() + HEAL_SECONDS
        calm_since: float | None = None
        left = ""
        while time.monotonic() < deadline:
            world.pause(1.0)
            left = unfinished(world.database)
            self._tell(f"healing: {left or 'at rest'}")
            if left:
                calm_since = None
            elif calm_since is None:
                calm_since = time.monotonic()
            elif time.monotonic() - calm_since > 5.0:
                return ""
        return left or "not at rest for long enough"

    def _write_copies(self) -> None:
        """Every copy of a message that consumers can see, by a PULL of the whole topic from both brokers."""
        world, insert = self._world, sa.text("INSERT INTO copies VALUES (:key, :broker, :queue, :offset)")
        with ClientInstance(world.name_servers) as instance, world.database.begin() as connection:
            offsets, topic = Offsets(instance.client), world.job.topic
            masters = instance.routes.masters(topic)
            for queue in instance.routes.read_queues(topic):
                address = masters[queue.broker_name]
                offset, end = max(0, offsets.minimum(address, queue)), offsets.maximum(address, queue)
                while offset < end:
                    page = pull(instance.client, address, PullRequest(queue=queue, offset=offset, group=VIEW_GROUP))
                    rows = [
                        {
                            "key": record.unique_key or "",
                            "broker": queue.broker_name,
                            "queue": queue.queue_id,
                            "offset": record.queue_offset,
                        }
                        for record in page.records
                    ]
                    if rows:
                        connection.execute(insert, rows)
                    if page.next_offset <= offset:
                        break
                    offset = page.next_offset


def chaos(
    folder: Path, *, seconds: float, seed: int, rate_per_second: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Starts everything, runs, and returns the figures."""
    with World(folder, seed=seed, rate_per_second=rate_per_second) as world:
        return {"seed": seed, **ChaosRun(world, seed=seed, tell=tell).run(seconds)}
