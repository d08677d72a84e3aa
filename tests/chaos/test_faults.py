"""The order of faults: no kind is left out of a run because the dice did not name it."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.chaos.faults import FAULTS, SLOW_TO_HEAL, Deck, Fault, fill_a_disk, grow_the_topic


def anything(_fault: Fault) -> bool:
    return True


@pytest.mark.parametrize("seed", range(20))
def test_no_kind_of_fault_comes_again_before_each_has_come(seed: int) -> None:
    deck = Deck(random.Random(seed))
    assert {deck.deal(anything) for _ in FAULTS} == set(FAULTS)
    assert Counter(deck.deal(anything) for _ in range(sum(FAULTS.values()))) == Counter(FAULTS)


def test_what_may_not_come_now_is_dealt_later_and_is_not_lost() -> None:
    deck = Deck(random.Random(1))
    quick = [deck.deal(lambda fault: fault not in SLOW_TO_HEAL) for _ in range(len(FAULTS) - len(SLOW_TO_HEAL))]
    assert set(quick) == set(FAULTS) - set(SLOW_TO_HEAL)
    assert {deck.deal(anything) for _ in SLOW_TO_HEAL} == set(SLOW_TO_HEAL)


def test_what_did_not_come_about_is_tried_again_before_the_next_deck() -> None:
    deck = Deck(random.Random(1))
    assert deck.deal(lambda fault: fault is fill_a_disk) is fill_a_disk
    deck.put_back(fill_a_disk)
    assert fill_a_disk in [deck.deal(anything) for _ in FAULTS]


def test_a_run_goes_on_where_only_one_kind_is_left_and_never_comes_about() -> None:
    deck = Deck(random.Random(1))
    for _ in range(500):
        fault = deck.deal(lambda fault: fault is grow_the_topic)
        assert fault is grow_the_topic
        deck.put_back(fault)
    assert deck.deal(lambda _fault: False) is None
