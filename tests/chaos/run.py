"""One chaos run from start to judgement."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.chaos.checker import Judgement, QuietWindow, flows, judge, missing_effects, unfinished
from tests.chaos.copies import write_copies
from tests.chaos.faults import FAULTS, SLOW_SECONDS, SLOW_TO_HEAL, Deck, Fault, fill_a_disk
from tests.chaos.in_vain import Blow
from tests.chaos.job import L1_BOUND_SECONDS, LEASE_SECONDS, PRODUCER_GROUPS
from tests.chaos.recovery import pending_keys, still_recovering
from tests.chaos.service_logs import noted
from tests.chaos.truth import NOW_MS
from tests.chaos.world import LIFE_SECONDS_MAX, World
from tests.polling import PATIENCE
from tests.services.processes import ServiceFailed

#: Until the first messages have their effects.
START_SECONDS = 180.0
#: A short run is no longer than so many of the longest lives of sentenced processes.
LIVES = 8
#: Between two faults, seconds.
CALM = (0.6, 2.0)
#: One minute of chaos is followed by a quiet phase in which latencies are measured.
CHAOS_SECONDS = 60.0
#: A quiet phase begins when nothing has been left to recover for so long; leases of the dead have run out by then.
RECOVERED_SECONDS = LEASE_SECONDS
#: If that does not come about within this there is no quiet phase, which is told; chaos goes on.
RECOVERY_SECONDS_MAX = 60.0
#: ENDs get lost for so long; chaos goes on when all of these losses have their effects, or when patience ends.
WINDOW_SECONDS = 0.8
AFTERWARDS_SECONDS = 3 * L1_BOUND_SECONDS
#: Everything must have come to rest within this after the last fault.
HEAL_SECONDS = 240.0 * PATIENCE


class ChaosRun:
    """Makes faults until the time is over, heals, waits for rest, judges."""

    def __init__(self, world: World, *, seed: int, tell: Callable[[str], None]) -> None:
        self._world = world
        self._dice = random.Random(f"faults-{seed}")
        self._deck = Deck(self._dice)
        self._tell = tell
        self.faults: Counter[str] = Counter()
        self.quiet: list[QuietWindow] = []
        #: Seconds that each quiet phase had to be waited for, and what was never whole where there was none.
        self.recovered_after: list[float] = []
        self.not_recovered: list[str] = []
        self._blows: list[Blow] = []

    def run(self, seconds: float) -> dict[str, Any]:
        """The run's figures; `rest` is empty if all came to rest."""
        world = self._world
        self._until_it_flows()
        started = time.monotonic()
        deadline = started + seconds
        while time.monotonic() < deadline:
            world.keep_redis_data()
            self._chaos(min(deadline, time.monotonic() + CHAOS_SECONDS))
            if deadline - time.monotonic() > L1_BOUND_SECONDS:
                self._quiet_phase()
        return self._end(load_seconds=time.monotonic() - started)

    def take_course(self, course: Callable[[World, ChaosRun], object]) -> dict[str, Any]:
        """A run whose events are not drawn: what `course` does, and nothing else."""
        self._until_it_flows()
        started = time.monotonic()
        course(self._world, self)
        return self._end(load_seconds=time.monotonic() - started)

    def _end(self, *, load_seconds: float) -> dict[str, Any]:
        world = self._world
        rest = self._heal()
        write_copies(world.database, world.cluster.instance(), world.job.topic)
        self._write_lost_ends()
        judgement = judge(world.database, self.quiet, self._blows)
        for story in judgement.in_vain.stories:
            self._tell(story)
        for way, story in judgement.slowest:
            logged = noted(world.folder, since_ms=way.committed_ms, until_ms=way.effect_ms)
            self._tell("\n".join(["slow quiet loss", story, *logged]))
        quiet = {
            "phases": len(self.quiet),
            "recovered_after_seconds": self.recovered_after,
            "not_recovered": self.not_recovered,
        }
        figures = {"load_seconds": round(load_seconds, 1), "quiet": quiet}
        return {**self._injected(), **figures, **_judged(judgement), "rest": rest}

    def _until_it_flows(self) -> None:
        """Raises ServiceFailed if not every group has effects in time; the dead are revived meanwhile."""
        deadline = time.monotonic() + START_SECONDS
        while not flows(self._world.database):
            if time.monotonic() > deadline:
                raise ServiceFailed(f"no effects in every group within {START_SECONDS:g} s")
            self._world.pause(0.5)

    def _injected(self) -> dict[str, Any]:
        world = self._world
        processes = dict(sorted(world.counts.items()))
        at_steps = sum(world.steps_died_at.values())
        faults = {kind.__name__: self.faults[kind.__name__] for kind in FAULTS} | {"kill_at_a_named_step": at_steps}
        return {
            "faults": dict(sorted(faults.items())),
            "faults_total": sum(faults.values()),
            "impossible": sorted(world.impossible),
            "clock_steps_reach": world.clock,
            "lost_ends": sum(len(proxy.lost_ends) for proxy in world.proxies.values()),
            "processes": processes,
            "kills": sum(n for what, n in processes.items() if what.startswith("killed")),
            "steps_died_at": len(world.steps_died_at),
        }

    def _chaos(self, until: float) -> None:
        while time.monotonic() < until:
            fault = self._deck.deal(self._fits(seconds_left=until - time.monotonic()))
            if fault is not None:
                self._make(fault)
            self._world.pause(self._dice.uniform(*CALM))

    def _fits(self, *, seconds_left: float) -> Callable[[Fault], bool]:
        unfit = {kind for kind in FAULTS if kind.__name__ in self._world.impossible}
        if seconds_left < SLOW_SECONDS:
            unfit |= set(SLOW_TO_HEAL)
        if not self._world.cluster.watching_their_disks():
            unfit.add(fill_a_disk)
        return lambda kind: kind not in unfit

    def _make(self, fault: Fault) -> None:
        since_ms = self._database_now_ms()
        came_about = fault(self._world, self._dice) is not False
        self._blows.append(Blow(name=fault.__name__, since_ms=since_ms, until_ms=self._database_now_ms()))
        self._tell(fault.__name__ if came_about else f"{fault.__name__} did not come about")
        self.faults[fault.__name__] += came_about
        if not came_about:
            self._deck.put_back(fault)

    def _quiet_phase(self) -> None:
        """ENDs of the group that has one process get lost, and it stays dead until the phase is over."""
        self._tell("recovery")
        world = self._world
        world.deadly = False
        for actor in world.living():  # those with a sentence make place for others without
            if actor.sentence:
                world.kill(actor)
        if self._recovers():
            self.window_of_losses()
        world.deadly = True

    def _recovers(self) -> bool:
        world = self._world
        since = whole_since = time.monotonic()
        wrong = ""
        while (now := time.monotonic()) - since < RECOVERY_SECONDS_MAX:
            world.pause(0.5)
            before, wrong = wrong, still_recovering(world.database, world.redis_client, world.job)
            if wrong and _words(wrong) != _words(before):
                self._tell(f"recovering: {wrong}")
            if wrong:
                whole_since = time.monotonic()
            elif now - whole_since > RECOVERED_SECONDS:
                self.recovered_after.append(round(now - since, 1))
                self._tell(f"quiet phase, {now - since:.1f} s after the last fault")
                return True
        self._tell(f"no quiet phase: {wrong}")
        self.not_recovered.append(wrong)
        return False

    def window_of_losses(self, *, seconds: float = WINDOW_SECONDS) -> None:
        """ENDs get lost for so long, then a producer group dies; back when all these messages have their effects."""
        world = self._world
        since = self._database_now_ms()
        for proxy in world.proxies.values():
            proxy.lose_end = 1.0
        world.pause(seconds)
        solo = len(PRODUCER_GROUPS) - 1
        world.stays_dead.add(f"producer-{solo}")
        for actor in world.living("producer"):
            if actor.name in world.stays_dead:
                world.kill(actor)
        until = self._database_now_ms()
        for proxy in world.proxies.values():
            proxy.lose_end = 0.0
        window = QuietWindow(producer_group=PRODUCER_GROUPS[solo], since_ms=since, until_ms=until)
        self.quiet.append(window)
        deadline = time.monotonic() + AFTERWARDS_SECONDS
        while missing_effects(world.database, window) and time.monotonic() < deadline:
            world.pause(0.2)
        self._tell("all losses of the quiet phase have their effects")
        world.stays_dead.clear()

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
            if not left and (pending := pending_keys(world.redis_client)):
                left = f"{pending} keys pending"
            self._tell(f"healing: {left or 'at rest'}")
            if left:
                calm_since = None
            elif calm_since is None:
                calm_since = time.monotonic()
            elif time.monotonic() - calm_since > 5.0:
                return ""
        return left or "not at rest for long enough"

    def _write_lost_ends(self) -> None:
        """The proxies' diary."""
        lost = [{"key": key} for proxy in self._world.proxies.values() for key in proxy.lost_ends]
        if lost:
            with self._world.database.begin() as connection:
                connection.execute(sa.text("INSERT INTO lost_ends VALUES (:key)"), lost)


def _words(told: str) -> str:
    return "".join(letter for letter in told if not letter.isdigit())


def _judged(judgement: Judgement) -> dict[str, Any]:
    """`l1_holds` is None without a loss in a quiet window: nothing was measured."""
    quiet_p99 = judgement.latency_seconds["quiet_repaired"].get("p99")
    return {
        **judgement.figures,
        **judgement.accidents,
        "accidents": sum(judgement.accidents.values()),
        "unnecessary_repairs": judgement.in_vain.unnecessary,
        "raced_repairs": judgement.in_vain.raced,
        "latency_seconds": judgement.latency_seconds,
        "quiet_legs_seconds": judgement.legs_seconds,
        "l1_bound_seconds": L1_BOUND_SECONDS,
        "quiet_p99_seconds": quiet_p99,
        "l1_holds": None if quiet_p99 is None else quiet_p99 <= L1_BOUND_SECONDS,
    }


def chaos(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    rate_per_second: float,
    tell: Callable[[str], None],
    is_secured: bool = False,
) -> dict[str, Any]:
    """Starts everything, runs, and returns the figures."""
    life_seconds = min(LIFE_SECONDS_MAX, seconds / LIVES)
    with World(
        folder, seed=seed, rate_per_second=rate_per_second, life_seconds_max=life_seconds, is_secured=is_secured
    ) as world:
        return {"seed": seed, **ChaosRun(world, seed=seed, tell=tell).run(seconds)}
