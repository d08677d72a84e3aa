"""Clocks of databases that are set, both ways, by minutes, hours and days."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reconciler.contract.tables import EVERY_GROUP
from reconciler.policy.ports.ledger import Repair
from tests.simulation.kernel import BASE_MS, Kernel, ServerClock

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How far a clock is off after it was set: some minutes, hours, forty days. Seconds.
OFF_SECONDS = (600.0, 36_000.0, 3_456_000.0)
#: An outbox that is days behind writes rows that look older than brokers keep messages: they are for a person.
OUTBOX_BACK_SECONDS_MAX = 36_000.0


def step(kernel: Kernel, clock: ServerClock, name: str) -> None:
    """Sets a clock back or forward, or right again."""
    off = kernel.dice.choice(OFF_SECONDS) * kernel.dice.choice((-1, 0, 1)) * kernel.dice.random()
    skew_ms = round(1000 * (max(off, -OUTBOX_BACK_SECONDS_MAX) if name == "outbox" else off))
    if skew_ms != clock.skew_ms:
        kernel.saw(f"{name}'s clock was set {'back' if skew_ms < clock.skew_ms else 'forward'}", f"{off:.0f} s off")
    clock.skew_ms = skew_ms


def set_back_over_a_claim(world: World) -> None:
    """The next claim on a repair is put out of reach: its owner dies, and the ledger's clock is set back by hours."""
    repairs, kernel = world.ledger.repairs, world.kernel
    claim = repairs.claim
    taken: list[Repair] = []

    def set_back(token: str) -> None:
        off = 3_600 * (1 + 9 * kernel.dice.random())
        world.ledger_clock.skew_ms -= round(1000 * off)
        kernel.saw("ledger's clock was set back over a claim", f"{off:.0f} s")
        for process in world.processes:
            if token.startswith(f"{process.name}/"):
                process.die()

    def watched(repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        found = claim(repair, token=token, lease_seconds=lease_seconds)
        if found is not None and found.scope == EVERY_GROUP and not taken:
            taken.append(found)
            kernel.after(0.0, partial(set_back, token))
        return found

    setattr(repairs, "claim", watched)  # noqa: B010 - a method


def set_right(world: World) -> None:
    """Clocks that are ahead are set right when all troubles end; those that are behind stay so. But a replica proves
    what it has by the time of its primary's sweeps, which must be right."""
    margin_ms = world.swarm.skew_margin * 1000 / 2
    read_by_time = [database.clock for database in world.outboxes if database.reading.is_from_replica]
    for clock in (world.ledger_clock, *(database.clock for database in world.databases)):
        if clock.skew_ms > margin_ms or (clock in read_by_time and clock.skew_ms < -margin_ms):
            clock.skew_ms = 0


def waits_for_a_clock(world: World, key: str) -> bool:
    """The repair of a key has a time that the ledger, or every other clock, has not reached: what orders evidence is
    unknown until a clock has caught up, and rows say so meanwhile."""
    right_ms = BASE_MS + int(world.kernel.now * 1000)
    reached_ms = min(right_ms, world.ledger_clock.now_ms()) + world.swarm.skew_margin * 1000
    repair = world.ledger.rows.repairs.get((world.plan.environment, world.plan.topic, EVERY_GROUP, key))
    return repair is not None and max(repair.created_at_ms, repair.sent_at_ms or 0) > reached_ms
