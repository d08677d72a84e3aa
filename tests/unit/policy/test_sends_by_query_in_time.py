"""Sends that rest on a row of the business: what is looked at between a claim and its byte takes time, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from reconciler.contract.tables import RepairState
from reconciler.policy.evidence import ProducerLook, StoredMessage
from tests.unit.policy.test_sends_by_query import lost, sent, the_repair
from tests.unit.policy.world import World

Found = TypeVar("Found")

#: Longer than the lease of a claim.
_SLOW_SECONDS = 100.0


@pytest.fixture
def world() -> World:
    made = World()
    made.with_query()
    made.topic = replace(made.topic, sends_by_query=True)
    made.broker.put_back_after_seconds = 30.0
    return made


class _Looks:
    """The looks right before a byte, in their order."""

    def __init__(self, world: World, unique_key: str, *, slow: str = "") -> None:
        """`slow`: the look that takes so long, once."""
        self.seen: list[str] = []
        self._world, self._unique_key, self._slow = world, unique_key, slow
        self._newest, self._producers = world.reading.is_newest, world.broker.producers_of
        world.reading.is_newest = self._is_newest  # type: ignore[method-assign]
        world.broker.producers_of = self._producers_of  # type: ignore[method-assign]

    def _is_newest(self, half: StoredMessage) -> bool | None:
        return self._look("newest", lambda: self._newest(half))

    def _producers_of(self, half: StoredMessage) -> ProducerLook:
        return self._look("producers", lambda: self._producers(half))

    def _look(self, name: str, ask: Callable[[], Found]) -> Found:
        if the_repair(self._world, self._unique_key).state is RepairState.SENDING:
            if name == self._slow and name not in self.seen:
                self._world.clock.advance(_SLOW_SECONDS)
            self.seen.append(name)
        return ask()


@pytest.mark.parametrize("slow", ["newest", "producers"])
def test_looks_that_outlast_the_claim_leave_the_send_to_a_later_one(world: World, slow: str) -> None:
    """Another process may have claimed and sent it meanwhile."""
    one = lost(world)
    looks, process = _Looks(world, one, slow=slow), world.process()
    while not looks.seen:
        world.rounds(process, 1)
    assert (sent(world), looks.seen) == ([], ["newest", "producers"])
    world.rounds(process, 60)
    assert (sent(world), world.deliveries) == ([one], [("billing", one)])
    assert the_repair(world, one).state is RepairState.DONE


def test_nothing_lies_between_the_look_for_producers_and_the_byte(world: World) -> None:
    one = lost(world)
    looks = _Looks(world, one)
    world.rounds(world.process(), 40)
    assert (sent(world), looks.seen) == ([one], ["newest", "producers"])
