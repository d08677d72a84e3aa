"""Processes share subscriptions evenly, by leases and their entries alone; what one leaves another goes on with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.errors import DatabaseAway, RedisAway
from reconciler.policy.round import ReconcileRound
from reconciler.policy.sharing import MOVED_AT_ONCE_SHARE, share_of
from reconciler.policy.turn import Turn
from tests.unit.policy.world import ENVIRONMENT, LEASE_SECONDS, World, key

TURN_SECONDS = 4.0
#: 30 subscriptions have moved to where they belong.
SETTLED_SECONDS = 140.0
GROUPS = tuple(f"g{number}" for number in range(30))


class PartOfLedger:
    """A part of the ledger as one process sees it: away while its name is among those that are cut off."""

    def __init__(self, part: object, name: str, cut: Collection[str]) -> None:
        self._part = part
        self._name = name
        self._cut = cut

    def __getattr__(self, name: str) -> Any:
        if self._name in self._cut:
            raise DatabaseAway("no")
        return getattr(self._part, name)


def turn_of(world: World, process: ReconcileRound, name: str, cut: Collection[str]) -> Turn:
    """As the process begins its turns."""
    ledger = world.ledger
    seen: list[Any] = [
        PartOfLedger(part, name, cut) for part in (ledger.outages, ledger.holds, ledger.candidates, ledger.repairs)
    ]
    outages, holds, candidates, repairs = seen
    return Turn(
        [world.topic],
        shards=process.shards,
        outages=outages,
        holds=holds,
        candidates=candidates,
        repairs=repairs,
        clock=world.clock,
    )


class Processes:
    """Processes that take their turns one after the other, and who has had rounds of what in the last one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive: dict[str, ReconcileRound] = {}
        #: Subscription -> process that had a round of it in the last turn.
        self.had: dict[Subscription, str] = {}

    def start(self, name: str, *, is_shared: bool = True) -> None:
        self.alive[name] = self.world.process(owner=name, is_shared=is_shared)

    def stop(self, name: str) -> None:
        self.world.sharing(name).leave()
        self.alive.pop(name).release()

    def turns(self, seconds: float) -> list[dict[Subscription, str]]:
        """Turns for so long: who had each subscription in each of them."""
        found = []
        for _ in range(round(seconds / TURN_SECONDS)):
            self.world.clock.advance(TURN_SECONDS)
            self.had = {}
            for name, process in list(self.alive.items()):
                self.world.look(process)
                for subscription in self.world.subscriptions:
                    shards = self.world.topic.shards_of(subscription)
                    if any(process.shards.run(shard).is_ours for shard in shards):
                        assert subscription not in self.had, "two processes at once"
                        self.had[subscription] = name
            found.append(self.had)
        return found

    def loads(self) -> Counter[str]:
        return Counter(self.had.values())


def processes(*names: str) -> Processes:
    """So many, each of which begins while those before it have what they want."""
    found = Processes(World(shards=1, groups=GROUPS))
    for name in names:
        found.start(name)
        found.turns(TURN_SECONDS)
    return found


def test_one_process_has_all_at_once() -> None:
    found = processes("a")
    assert found.loads() == {"a": 30}


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_processes_that_come_one_after_the_other_end_with_as_many_each(names: str) -> None:
    found = processes(*names)
    found.turns(SETTLED_SECONDS)
    assert sorted(found.loads().values()) == [30 // len(names)] * len(names)
    before = found.had
    assert all(turn == before for turn in found.turns(120)), "nothing moves any more"


def test_what_moves_moves_a_few_at_a_time_and_is_free_for_a_turn_at_most() -> None:
    found = processes("a", "b")
    turns = found.turns(200)
    moved = [sum(of.get(one) != "b" and now.get(one) == "b" for one in now) for of, now in pairwise(turns)]
    assert sum(moved) == 15
    assert max(moved) <= max(1, MOVED_AT_ONCE_SHARE * 30 + 1)
    for before, now in pairwise(turns):
        assert not (set(found.world.subscriptions) - before.keys() - now.keys()), "two turns without a round"


def test_one_of_three_that_is_killed_is_replaced_within_two_leases() -> None:
    found = processes("a", "b", "c")
    found.turns(SETTLED_SECONDS)
    del found.alive["b"]
    found.turns(2 * LEASE_SECONDS)
    assert found.loads() == {"a": 15, "c": 15}


def test_the_subscriptions_of_a_process_that_is_stopped_are_taken_over_before_its_leases_would_be_over() -> None:
    found = processes("a", "b", "c")
    found.turns(SETTLED_SECONDS)
    found.stop("b")
    found.turns(LEASE_SECONDS / 3 + TURN_SECONDS)
    assert found.had.keys() == set(found.world.subscriptions)
    found.turns(SETTLED_SECONDS)
    assert found.loads() == {"a": 15, "c": 15}


def test_a_member_that_takes_none_of_its_share_is_not_waited_for() -> None:
    """It is there, and its rounds stand still."""
    found = processes("a")
    hung = found.world.sharing("hung")
    for _ in range(60):
        hung.renew(found.world.subscriptions)
        found.turns(TURN_SECONDS)
    for _ in range(10):
        hung.renew(found.world.subscriptions)
        found.turns(TURN_SECONDS)
        assert found.loads() == {"a": 30}, "it keeps what it has adopted"


def test_a_process_that_has_other_subscriptions_takes_no_share_of_these() -> None:
    found = processes("a")
    other = found.world.sharing("other")
    for _ in range(20):
        other.renew(found.world.subscriptions[:3])
        found.turns(LEASE_SECONDS / 3)
    assert found.loads() == {"a": 30}


def test_what_0_2_0_has_is_left_to_it_and_what_it_leaves_is_taken() -> None:
    """It takes whatever is free, and has no entry."""
    found = Processes(World(shards=1, groups=GROUPS))
    found.start("0.2.0", is_shared=False)
    found.turns(TURN_SECONDS)
    found.start("new")
    found.turns(120)
    assert found.loads() == {"0.2.0": 30}
    del found.alive["0.2.0"]
    found.turns(LEASE_SECONDS + TURN_SECONDS)
    assert found.loads() == {"new": 30}


def test_processes_go_on_with_what_they_have_while_nobody_can_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    found = processes("a", "b")
    found.turns(SETTLED_SECONDS)
    before = found.had

    def away(*_: object, **__: object) -> None:
        raise RedisAway("no")

    monkeypatch.setattr(found.world.shards, "enter", away)
    assert all(turn == before for turn in found.turns(5 * LEASE_SECONDS))


def test_a_process_that_reaches_redis_and_not_the_ledger_leaves_its_share_to_the_others() -> None:
    """Its password was changed, or its way there is cut. It takes a part again once the ledger answers."""
    world = World(shards=1, groups=GROUPS)
    cut: set[str] = set()
    alive = {name: world.process(owner=name, is_shared=True) for name in "ab"}
    turns = {name: turn_of(world, process, name, cut) for name, process in alive.items()}

    def run(seconds: float) -> Counter[str]:
        """Turns for so long; of how many subscriptions each process had the shards in the last one."""
        had = Counter[str]()
        for _ in range(round(seconds / TURN_SECONDS)):
            world.clock.advance(TURN_SECONDS)
            had.clear()
            for name, process in alive.items():
                with suppress(DatabaseAway):
                    turns[name].begin()
                    shards = [shard for one in world.subscriptions for shard in world.topic.shards_of(one)]
                    had[name] = sum(process.shards.run(shard).is_ours for shard in shards)
        return had

    assert run(SETTLED_SECONDS) == {"a": 15, "b": 15}
    cut.add("a")
    assert run(2 * LEASE_SECONDS + TURN_SECONDS) == {"b": 30}
    cut.clear()
    assert run(SETTLED_SECONDS) == {"a": 15, "b": 15}


def test_a_message_that_is_lost_while_its_subscription_moves_is_repaired_once() -> None:
    world = World(shards=2, groups=("billing", "stock"))
    names = ("a", "b")
    alive: dict[str, ReconcileRound] = {}
    for number in range(60):
        if number in (0, 5):
            name = names[len(alive)]
            alive[name] = world.process(owner=name, is_shared=True)
        if number == 7:
            world.lose(1)
        world.clock.advance(5)
        world.consume()
        for process in alive.values():
            world.look(process)
            for subscription in world.subscriptions:
                process.run(subscription)
    owners = {
        name
        for name, process in alive.items()
        for shard in world.topic.shards_of(world.subscriptions[0])
        if process.shards.run(shard).is_ours
    }
    assert len(owners) == 1
    assert len(world.broker.ends) == 1
    assert {group for group, unique_key in world.deliveries if unique_key == key(1)} == {"billing", "stock"}


# ---- the share


def subscriptions(number: int) -> list[Subscription]:
    return [Subscription(environment=ENVIRONMENT, topic=f"T{n}", group="g") for n in range(number)]


def shares(sharers: Sequence[str], number: int) -> dict[Subscription, str]:
    of = {sharer: share_of(sharer, sharers, subscriptions(number)) for sharer in sharers}
    found = {one: sharer for sharer, share in of.items() for one in share}
    assert sum(map(len, of.values())) == number, "each in one share"
    return found


@pytest.mark.parametrize("number", [1, 20, 500])
@pytest.mark.parametrize("sharers", ["a", "ab", "abc", "abcd"])
def test_shares_are_even(sharers: str, number: int) -> None:
    loads = Counter(shares(sharers, number).values())
    assert max(loads.values()) <= -(-number // len(sharers))
    assert sum(loads.values()) - max(loads.values()) >= number - -(-number // len(sharers))


def test_few_move_but_those_of_a_member_that_has_gone() -> None:
    before, after = shares("abc", 500), shares("ac", 500)
    moved = sum(before[one] != "b" and before[one] != after[one] for one in before)
    assert moved <= 50
