"""Every state that rounds, announcements, repair and their accidents can reach, and the accidents of lesser designs.

`make model` searches the whole of it; docs/explanation/how-it-is-tested.md says how much that is.
"""

from __future__ import annotations

import pytest

from tests.model import stories
from tests.model.actions import steps
from tests.model.mapping import places_of
from tests.model.search import TooManyStates, search
from tests.model.state import Bounds, Rules, State, first_state, packed
from tests.named_code import exists

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Of the whole (2 messages, 2 groups, 2 crashes, 1 loss, 2 lost ENDs) one dimension is cut in each.
PARTS = {
    "one group": Bounds(groups=1),
    "one message": Bounds(messages=1),
    "one message, Redis falls back": Bounds(messages=1, groups=1, falls_back=True),
    "one message, Redis falls back and comes back": Bounds(
        messages=1, groups=1, redis_losses=3, falls_back=True, comes_back=True
    ),
    "no crash": Bounds(crashes=0, lost_ends=1),
    "no loss of Redis": Bounds(crashes=1, redis_losses=0, lost_ends=0),
}
#: More than half of the states.
BY_NIGHT = {"no loss of Redis"}


@pytest.mark.promise("G1", "G2", "G4", "G5", "L1")
@pytest.mark.parametrize(
    "bounds",
    [pytest.param(of, id=name, marks=pytest.mark.nightly if name in BY_NIGHT else ()) for name, of in PARTS.items()],
)
def test_no_reachable_state_breaks_a_promise(bounds: Bounds) -> None:
    found = search(bounds, Rules())
    assert found.violation is None
    assert found.states > 1_000


@pytest.mark.promise("G1", "G5")
@pytest.mark.parametrize("weakened", stories.WEAKENED, ids=lambda weakened: weakened.title)
def test_without_one_mechanism_an_accident_is_found(weakened: stories.Weakened) -> None:
    end, way = stories.shortest(weakened)
    assert 2 <= len(way) <= 8
    assert ("twice" in end) == (weakened.kind == "DOUBLE")
    # With the mechanism the same circumstances do no harm.
    assert search(weakened.bounds, Rules()).violation is None


def test_the_page_of_stories_is_what_the_search_finds() -> None:
    assert stories.PAGE.read_text(encoding="utf-8") == stories.page()


@pytest.mark.parametrize("weakened", stories.WEAKENED, ids=lambda weakened: weakened.title)
def test_a_bigger_world_finds_the_accident_too(weakened: stories.Weakened) -> None:
    found = search(Bounds(messages=2, groups=1, crashes=1, redis_losses=1, lost_ends=1), weakened.rules)
    assert found.violation is not None
    assert found.violation.kind in {weakened.kind, "LOST", "UNACCOUNTED", "PHANTOM"}


@pytest.mark.nightly
def test_states_that_are_taken_for_one_lead_to_the_same_result() -> None:
    """Dead fields forgotten, announcements taken late: fewer states, no other result."""
    small = Bounds(messages=2, groups=1, crashes=1, redis_losses=1, lost_ends=1)
    early = Bounds(messages=2, groups=1, crashes=1, redis_losses=1, lost_ends=1, takes_early=True)
    all_of_them = [search(small, Rules()), search(small, Rules(), forgets=False), search(early, Rules(), forgets=False)]
    assert [found.violation for found in all_of_them] == [None, None, None]
    assert all_of_them[0].states < all_of_them[1].states < all_of_them[2].states


def test_a_search_that_would_not_end_says_so() -> None:
    with pytest.raises(TooManyStates):
        search(Bounds(), Rules(), states_max=1_000)


def test_every_action_stands_for_product_code_thatexists() -> None:
    names = _names(Rules(), Bounds(messages=1, groups=1, falls_back=True, takes_early=True))
    names |= _names(Rules(is_original=True), Bounds(messages=1, groups=1, takes_early=True))
    assert len(names) > 20
    for name in sorted(names - {"Redis' disk is up to date here"}):  # a circumstance, not an action of the product
        for path, dotted in places_of(name):
            assert exists(path, dotted), f"{name}: {path} has no {dotted}"


def _names(rules: Rules, bounds: Bounds) -> set[str]:
    names: set[str] = set()
    seen: set[int] = set()
    frontier: list[State] = [first_state(bounds)]
    while frontier:
        state = frontier.pop()
        for name, _message, _group, after in steps(state, rules, bounds):
            names.add(name)
            if packed(after) not in seen:
                seen.add(packed(after))
                frontier.append(after)
    return names
