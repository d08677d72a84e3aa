"""One history: the world that its parameters ask for, run to its verdict."""

from __future__ import annotations

import traceback

from tests.simulation.checkers import Judgement
from tests.simulation.halves_world import HalvesWorld
from tests.simulation.kernel import SimulationBug
from tests.simulation.swarm import Swarm
from tests.simulation.world import World


def world_of(swarm: Swarm) -> type[World]:
    """Services and evidence as the history has them."""
    return HalvesWorld if swarm.of("halves announce") else World


def run_history(swarm: Swarm, *, story: list[str] | None = None) -> Judgement:
    """One history from its parameters."""
    world: World | None = None
    try:
        world = world_of(swarm)(swarm, story=story)
        return world.run()
    except SimulationBug:
        raise
    except Exception as error:  # the product must not raise anything else through its procedures
        judgement = Judgement(seed=swarm.seed)
        judgement.other.append(f"{type(error).__name__}: {error}")
        if story is not None:
            story.append(traceback.format_exc())
        return judgement
    finally:
        if world is not None:
            world.close()
