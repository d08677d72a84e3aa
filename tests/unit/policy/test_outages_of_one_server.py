"""Shards lie on several servers, and one of those is away: its shards wait, the others go on, nothing is skipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from reconciler.contract.subscription import Shard
from reconciler.errors import RedisAway
from reconciler.policy.events import OutageClosed, OutageOpened, RoundFinished
from reconciler.policy.ports.rounds import ShardLook, ShardState
from reconciler.policy.round import OUTAGE_OPEN, SHARDS_WAIT, ReconcileRound
from tests.unit.policy.world import ENVIRONMENT, World

#: One of two shards; the other one answers.
SILENT = 1


class Servers(World):
    """Each of the two shards lies on a server of its own."""

    def __init__(self) -> None:
        super().__init__(shards=2)
        self.shards.is_spread = True
        self.away: set[int] = set()
        self.asked: list[int] = []
        ask = self.shards.state

        def state(shard: Shard) -> ShardState:
            self.asked.append(shard.number)
            if shard.number in self.away:
                raise RedisAway(f"no answer from the server of {shard.number}")
            return ask(shard)

        look = self.shards.look

        def look_at(shards: Mapping[Shard, bool], **about: Any) -> Mapping[Shard, ShardLook]:
            return look({of: renews for of, renews in shards.items() if of.number not in self.away}, **about)

        self.shards.state = state  # type: ignore[method-assign]
        self.shards.look = look_at  # type: ignore[method-assign]

    def lose_on(self, number: int) -> str:
        """A lost message whose key lies in the shard."""
        return next(key for n in range(100, 200) if self.shard(key := self.lose(n)).number == number)

    def reason(self) -> str | None:
        """Of the open outage."""
        outage = self.ledger.outages.current(ENVIRONMENT)
        return None if outage is None else outage.reason

    @contextmanager
    def one_away(self, process: ReconcileRound) -> Iterator[None]:
        """The block begins with the turn after the one that met it."""
        self.rounds(process, 1)
        self.away = {SILENT}
        self.rounds(process, 1)
        yield


def test_a_server_that_is_away_costs_its_own_shards_their_rounds_until_the_scan() -> None:
    world, process = Servers(), None
    process = world.process()
    with world.one_away(process):
        assert world.reason() == "AWAY"
        mine, theirs = world.lose_on(1 - SILENT), world.lose_on(SILENT)
        (report,) = world.rounds(process, 8)
        assert (report.suspended, world.verdict(mine)) == (None, "CONSUMED")
        assert world.verdict(theirs) is None
        assert report.event is not None
        assert report.event.problems == (SHARDS_WAIT(waiting=1, shards=2),)
        assert (report.event.shards_run, report.event.shards_skipped) == (1, 1)
        report_of_recovery = world.recovery().run(ENVIRONMENT)
        assert report_of_recovery is not None
        assert not report_of_recovery.is_scanned
        world.away.clear()
        world.asked.clear()
        world.rounds(process, 1)
        assert SILENT not in world.asked  # it waits for the scan
    world.recovery().run(ENVIRONMENT)
    world.rounds(process, 8)
    assert world.verdict(theirs) == "CONSUMED"
    assert world.pending() == []
    assert [e.reason for e in world.events.of(OutageOpened)] == ["AWAY"]
    assert [e.reason for e in world.events.of(OutageClosed)] == ["AWAY"]
    assert len(world.deliveries) == len(set(world.deliveries))


@pytest.mark.parametrize("which", [SILENT, 1 - SILENT])
def test_memory_that_is_lost_while_one_server_is_away_makes_all_wait_for_the_scan(which: int) -> None:
    world = Servers()
    process = world.process()
    with world.one_away(process):
        world.shards._shards.pop(Shard(subscription=world.subscriptions[0], number=which))
        if which == SILENT:
            world.away.clear()
            world.recovery().run(ENVIRONMENT)
        else:
            (report,) = world.rounds(process, 1)
            assert report.suspended is not None
            assert report.suspended.fields["reason"] == "MEMORY_LOST"
            assert world.rounds(process, 1)[0].suspended == OUTAGE_OPEN(reason="MEMORY_LOST")
            world.away.clear()
            world.recovery().run(ENVIRONMENT)
        assert world.reason() == "MEMORY_LOST"
    world.rounds(process, 1)
    assert [e.reason for e in world.events.of(OutageClosed)] == ["MEMORY_LOST"]


def test_a_server_that_goes_away_before_the_end_of_an_outage_lets_its_scan_begin_again() -> None:
    world = Servers()
    process = world.process()
    with world.one_away(process):
        world.away.clear()
        world.recovery().run(ENVIRONMENT)
        world.away = {SILENT}
        world.rounds(process, 1)
        outage = world.ledger.outages.current(ENVIRONMENT)
        assert outage is not None
        assert not outage.is_scanned
    assert world.events.of(OutageClosed) == []


def test_when_no_server_answers_all_shards_wait_for_the_scan() -> None:
    world = Servers()
    process = world.process()
    world.rounds(process, 1)
    world.away = {0, 1}
    (report,) = world.rounds(process, 1)
    assert report.suspended is not None
    assert report.suspended.fields["reason"] == "AWAY"
    world.away.clear()
    world.asked.clear()
    assert world.rounds(process, 2)[0].suspended == OUTAGE_OPEN(reason="AWAY")
    assert world.asked == []


def test_a_shard_whose_rounds_went_on_in_another_process_goes_on_here_too() -> None:
    world = Servers()
    process = world.process()
    with world.one_away(process):
        world.rounds(process, 1)
        process.release()
        (report,) = world.rounds(world.process(owner="reconciler-2"), 1)
        assert report.event is not None
        assert report.event.shards_run == 1


def test_an_unsafe_redis_pauses_the_shards_of_every_server() -> None:
    world = Servers()
    process = world.process()
    world.rounds(process, 1)
    world.ledger.outages.open(ENVIRONMENT, reason="UNSAFE", noticed_by="test")
    assert world.rounds(process, 1)[0].suspended == OUTAGE_OPEN(reason="UNSAFE")


def test_one_server_is_not_asked_for_the_next_shard_after_it_did_not_answer() -> None:
    world = Servers()
    world.shards.is_spread = False
    process = world.process()
    world.rounds(process, 1)
    finished = len(world.events.of(RoundFinished))
    world.away = {0}
    world.asked.clear()
    (report,) = world.rounds(process, 1)
    assert report.suspended is not None
    assert report.suspended.fields["reason"] == "AWAY"
    assert world.asked == [0]
    assert len(world.events.of(RoundFinished)) == finished
