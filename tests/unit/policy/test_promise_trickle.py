"""While the gate is shut: one QUERY_MESSAGE a second and subscription over all brokers, those of probes included."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.unit.policy.world import World

SECONDS = 200
BURST = 10


@pytest.mark.promise("L2")
@pytest.mark.unmeasured
def test_probes_of_the_index_count_as_look_ups_of_the_trickle() -> None:
    world = World()
    world.deliver(0)
    world.consume()
    for number in range(1, 400):
        world.deliver(number)
    process = world.process()
    with mock.patch.object(world.broker, "horizon", wraps=world.broker.horizon) as probed:
        world.rounds(process, SECONDS // 5, consume=False)
    asked = len(world.broker.look_ups) + probed.call_count
    assert SECONDS // 2 < asked <= SECONDS + BURST
