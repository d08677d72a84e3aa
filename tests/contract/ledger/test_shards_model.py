"""Random histories of one shard against a plain model: nothing is lost, counts add up, the floor is safe.

Announcements come from a log by the stored offset, as the announcement consumer reads them; Redis may lose a suffix
of its writes or everything, or come back with what it had lost; replies of rounds get lost; the daemon restarts; owners
settle keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import fakeredis
import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from reconciler.clock import ManualClock
from reconciler.policy.ports.rounds import RoundDone, ShardMemory
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from tests.contract.ledger.rows import key, shard
from tests.contract.ledger.shards import QUEUE, InMemory, InRedis, Shards
from tests.examples import examples
from tests.services.redis_server import RedisServer

OF = shard("model")


@dataclass(slots=True)
class Model:
    """What Redis should hold. Copied where Redis saves, put back where it falls back."""

    half: set[str] = field(default_factory=set)
    commits: list[set[str]] = field(default_factory=lambda: [set()])
    pending: set[str] = field(default_factory=set)
    position: int | None = None
    generation: int = 0
    #: For conservation, since the last wipe.
    added: int = 0
    matched_late: int = 0
    settled: int = 0

    def copy(self) -> Model:
        return Model(
            half=set(self.half),
            commits=[set(one) for one in self.commits],
            pending=set(self.pending),
            position=self.position,
            generation=self.generation,
            added=self.added,
            matched_late=self.matched_late,
            settled=self.settled,
        )

    def round(self) -> tuple[int, int, int, int, int, int]:
        consumed: set[str] = set().union(*self.commits)
        announced, before = len(self.half), len(self.pending)
        new = self.half - consumed
        united = self.pending | new
        self.pending = united - consumed
        self.half = set()
        self.commits = [set(), *self.commits[:2]]
        self.generation += 1
        added, late = len(united) - before, len(united) - len(self.pending)
        self.added += added
        self.matched_late += late
        return announced, announced - len(new), before, added, late, len(self.pending)


class Histories(RuleBasedStateMachine):
    """Set `shards` in a subclass."""

    @staticmethod
    def make() -> Shards:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.shards = self.make()
        self.shards.wipe()
        self.memory: ShardMemory = self.shards.memory
        self.ledger = MemoryLedger(ManualClock())
        self.model = Model()
        #: What Redis may come back with: saved by it, or undone by an earlier fall-back.
        self.disks: list[tuple[object, Model]] = []
        self.log: list[str] = []
        #: Durable truth outside Redis: inbox rows, and settled rows of the ledger.
        self.consumed: set[str] = set()
        self.settled: set[str] = set()

    # ---- the other users

    @rule(count=st.integers(1, 5))
    def commit_messages(self, count: int) -> None:
        self.log += [key(len(self.log) + number) for number in range(count)]

    @rule(limit=st.integers(0, 6))
    def announce(self, limit: int) -> None:
        start = self.shards.position(OF)
        assert start == self.model.position
        if start is None:
            found = self.ledger.announcements.floor(OF.subscription, QUEUE)
            start = 0 if found is None else found.queue_offset
        batch = self.log[start : start + limit]
        self.shards.announce(OF, batch, following=start + len(batch))
        self.model.half.update(batch)
        self.model.position = start + len(batch)

    @rule(data=st.data(), is_recorded=st.booleans())
    @precondition(lambda self: self.log)
    def consume(self, data: Any, is_recorded: bool) -> None:
        some = data.draw(st.lists(st.sampled_from(self.log), min_size=1, max_size=4))
        self.consumed.update(some)
        if is_recorded:
            self.shards.consume(OF, some)
            self.model.commits[0].update(some)

    # ---- Redis

    @rule()
    def save(self) -> None:
        self.disks = [*self.disks[-3:], (self.shards.snapshot(), self.model.copy())]

    @rule(data=st.data(), comes_back=st.booleans())
    @precondition(lambda self: self.disks)
    def fall_back(self, data: Any, comes_back: bool) -> None:
        """To any disk; `comes_back`: what is undone now may be Redis' memory once more (failed over, failed back)."""
        snapshot, model = data.draw(st.sampled_from(self.disks))
        if comes_back:
            self.save()
        self.shards.restore(snapshot)
        self.model = model.copy()

    @rule()
    def wipe(self) -> None:
        self.shards.wipe()
        self.model = Model()
        self.disks = []

    # ---- the daemon

    @rule()
    def restart_the_daemon(self) -> None:
        self.memory = self.shards.memory

    @rule(is_reply_lost=st.booleans(), dies_before_storing=st.booleans(), ahead_seconds=st.sampled_from((0, 0, 0, 90)))
    def round(self, is_reply_lost: bool, dies_before_storing: bool, ahead_seconds: int = 0) -> None:
        """`ahead_seconds`: Redis' clock has run ahead of what it is now."""
        epoch = self.memory.state(OF).epoch or self.memory.begin_epoch(OF)
        state = self.memory.state(OF)
        assert state.generation == self.model.generation
        rounds = self.ledger.rounds
        rounds.void_after(OF, epoch=epoch, generation=state.generation, at_ms=state.round_at_ms)
        last = rounds.last(OF)
        ahead_ms = state.now_ms + ahead_seconds * 1000 if ahead_seconds else 0
        done = self.memory.take_round(OF, epoch=epoch, not_before_ms=max(ahead_ms, last.at_ms + 1 if last else 0))
        expected = self.model.round()
        assert done is not None
        if is_reply_lost:
            return  # what take_round does then is tested with a real lost reply
        self.check(done, expected)
        if not dies_before_storing:
            rounds.store(done)
            rounds.raise_floor(OF.subscription, done.floor)

    def check(self, done: RoundDone, expected: tuple[int, ...]) -> None:
        c = done.counts
        counted = (c.announced, c.matched, c.pending_before, c.pending_added, c.pending_matched, c.pending_after)
        assert counted == expected
        assert done.generation == self.model.generation
        assert done.offsets.get("broker-a/3") == self.model.position

    @rule(data=st.data())
    @precondition(lambda self: self.model.pending)
    def settle(self, data: Any) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.model.pending)), min_size=1, max_size=3, unique=True))
        self.settled.update(some)  # the ledger row first
        assert self.memory.forget(OF, some) == len(some)
        self.model.pending -= set(some)
        self.model.settled += len(some)

    # ---- what must hold at any time

    @invariant()
    def redis_holds_what_the_model_holds(self) -> None:
        assert set(self.shards.pending(OF)) == self.model.pending
        assert self.shards.half(OF) == self.model.half

    @invariant()
    def counts_are_conserved(self) -> None:
        assert self.model.added == self.model.matched_late + self.model.settled + len(self.model.pending)

    @invariant()
    def no_announced_key_vanishes(self) -> None:
        read = set(self.log[: self.model.position or 0])
        found = self.ledger.announcements.floor(OF.subscription, QUEUE)
        start = 0 if found is None else found.queue_offset
        assert set(self.log[:start]) <= self.consumed | self.settled, "the floor passed an unsettled key"
        assert read - self.model.half - self.model.pending <= self.consumed | self.settled

    def teardown(self) -> None:
        for _ in range(len(self.log) + 1):
            self.announce(limit=100)
        self.round(is_reply_lost=False, dies_before_storing=False)
        assert set(self.log) - self.consumed - self.settled <= set(self.shards.pending(OF))
        assert set(self.shards.pending(OF)) <= set(self.log)


def run(make: Callable[[], Shards], *, tries: int, steps: int) -> None:
    machine = type("Machine", (Histories,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(tries),
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_histories_in_memory() -> None:
    clock = ManualClock()
    run(lambda: InMemory(MemoryShards(clock), clock), tries=150, steps=40)


@pytest.mark.unmeasured
def test_histories_in_fakeredis() -> None:
    with fakeredis.FakeRedis() as client:
        run(lambda: InRedis(client, RoundRedis(client=client)), tries=25, steps=40)


@pytest.mark.promise("G4")
@pytest.mark.unmeasured
@pytest.mark.redis
def test_histories_in_redis(redis_server: RedisServer) -> None:
    rounds = open_redis(redis_server.url, timeout_seconds=60)
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("appendfsync", "no")
        run(lambda: InRedis(client, rounds), tries=100, steps=50)
    rounds.close()
