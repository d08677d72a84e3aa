"""Economies change nothing but the time: a history tells the same story with and without them."""

from __future__ import annotations

import dataclasses

import pytest

from reconciler.contract.subscription import Subscription
from tests.simulation.economies import AS_IT_IS_EVERY, in_turn, spared
from tests.simulation.history import run_history
from tests.simulation.swarm import draw


def _story(seed: int) -> list[str]:
    story: list[str] = []
    judgement = run_history(draw(seed), story=story)
    return [*story, repr(judgement)]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seeds", [range(1, 4), pytest.param(range(4, 13), marks=pytest.mark.nightly)])
def test_a_history_that_is_spared_is_the_same_history(seeds: range) -> None:
    as_it_is = [_story(seed) for seed in seeds]
    with spared():
        assert [_story(seed) for seed in seeds] == as_it_is


def test_product_values_are_frozen_again_after_an_economy() -> None:
    def change() -> None:
        subscription = Subscription(environment="e", topic="t", group="g")
        subscription.group = "h"  # type: ignore[misc]

    with spared():
        change()
    with pytest.raises(dataclasses.FrozenInstanceError):
        change()


def test_every_tenth_history_is_run_as_it_is() -> None:
    def change() -> bool:
        subscription = Subscription(environment="e", topic="t", group="g")
        try:
            subscription.group = "h"  # type: ignore[misc]
        except dataclasses.FrozenInstanceError:
            return False
        return True

    seeds = range(5, 37)
    is_spared = {seed: change() for seed in in_turn(seeds)}
    assert list(is_spared) == list(seeds)
    assert [seed for seed in seeds if not is_spared[seed]] == [s for s in seeds if s % AS_IT_IS_EVERY == 0]
