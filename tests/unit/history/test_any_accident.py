"""Any sequence of rounds, failures, kills and lost memories: what is in the history is right, the rest is visible."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.clock import ManualClock
from reconciler.contract.subscription import Shard
from reconciler.history.segment import SegmentWriter
from reconciler.policy.ports.history import CapturedRound
from reconciler.policy.ports.rounds import RoundDone
from tests.examples import examples
from tests.unit.history.house import START_MS, House, ScriptedRounds, shard

ACTIONS = [
    "round",
    "round",
    "round",
    "reply lost",
    "pass",
    "pass",
    "disk full",
    "away",
    "back",
    "seal",
    "kill",
    "memory",
]


class World:
    """A service that is killed and started again, its ledger, and everything that really ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rounds = ScriptedRounds(ManualClock(START_MS))
        self.stored: dict[Shard, RoundDone] = {}
        self.untold: set[tuple[Shard, str, int]] = set()
        self.lives = 0
        #: True: Redis lost its memory and no pass has looked since; whoever dies now takes the knowledge along.
        self.is_fresh_memory = False
        self.house = self.start()

    def start(self) -> House:
        self.lives += 1
        house = House(
            self.folder, rounds=self.rounds, writer=f"writer-{self.lives}", last_stored=lambda of: self.stored.get(of)
        )
        house.recorder.run_pass()  # the catch-up
        return house

    def act(self, action: str, number: int) -> None:
        key = len([r for of in self.rounds.rounds.values() for r in of]).to_bytes(16, "big")
        match action:
            case "round":
                self.stored[shard(number)] = self.house.round(number, announced=[key], consumed=[key[::-1]])
            case "reply lost":
                done = self.rounds.run(shard(number), announced=[key])
                self.untold.add((done.shard, done.epoch, done.generation))
            case "pass":
                self.one_pass()
            case "disk full":
                with patch.object(SegmentWriter, "append", side_effect=OSError(28, "No space left on device")):
                    self.house.recorder.run_pass()
            case "away" | "back":
                self.rounds.is_away = action == "away"
            case "seal":
                self.one_pass()
                self.house.recorder.rotate()
                self.house.maintenance.seal_all(self.house.recorder.spool)
            case "kill" if not self.is_fresh_memory and not self.rounds.is_away:
                self.house.dies()
                self.house = self.start()
            case "memory":
                self.rounds.epoch = f"test:{int((self.rounds.epoch or '').split(':')[1]) + 1:04d}"
                self.is_fresh_memory = True

    def one_pass(self) -> None:
        self.house.recorder._to_capture |= dict.fromkeys([shard(0), shard(1)])
        self.house.recorder.run_pass()
        self.is_fresh_memory = self.is_fresh_memory and self.rounds.is_away


@settings(max_examples=examples(60), deadline=None)
@given(script=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1)), max_size=30))
def test_whatever_happens_rows_are_right_and_what_is_missing_is_visible(script: Sequence[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for action, number in script:
            world.act(action, number)
        world.act("back", 0)
        world.act("seal", 0)
        check(world)
        world.house.dies()


def check(world: World) -> None:
    house = world.house
    announced = {(r["shard"], r["epoch"], r["generation"], r["key"]) for r in house.rows("announced")}
    consumed = {(r["shard"], r["epoch"], r["generation"], r["key"]) for r in house.rows("consumed")}
    captured = {(r["shard"], r["epoch"], r["generation"]) for r in house.rows("round")}
    told = {
        (g["shard"], g["epoch"], generation)
        for g in house.rows("gap")
        for generation in range(g["first_generation"], g["last_generation"] + 1)
    }
    assert not told & captured, "a round that is there is not told as missing"
    ran = [done for of in world.rounds.rounds.values() for done in of]
    for done in ran:
        place = (done.shard.number, done.epoch, done.generation)
        if place in captured:
            assert {key for *where, key in announced if tuple(where) == place} == set(done.announced)
            assert {key for *where, key in consumed if tuple(where) == place} == set(done.consumed)
        else:
            assert place in told or is_hole(place, captured | told) or tail_is_untold(done, world), place
    assert len(announced) == sum(len(d.announced) for d in ran if (d.shard.number, d.epoch, d.generation) in captured)


def is_hole(place: tuple[int, str, int], named: set[tuple[int, str, int]]) -> bool:
    """A later generation of the same memory is there, or told as missing: readers see what is missing before it."""
    return any((s, e) == place[:2] and generation > place[2] for s, e, generation in named)


def tail_is_untold(done: CapturedRound, world: World) -> bool:
    """No process knew of the round before Redis forgot it, too."""
    later = [d for d in world.rounds.rounds[done.shard] if d.epoch == done.epoch and d.generation >= done.generation]
    return all((d.shard, d.epoch, d.generation) in world.untold for d in later)
