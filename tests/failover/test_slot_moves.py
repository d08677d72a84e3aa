"""Hole H32: a slot is moved during rounds. TRYAGAIN, ASK and MIGRATE cost turns, never a key."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis.crc import key_slot

from reconciler.contract.keyspace import ShardKeys
from reconciler.errors import RedisAway
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.shards.access import open_client
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.shards.sets import RedisCommitSets, RedisHalfSets
from tests.contract.ledger.rows import key, shard
from tests.failover.slot_mover import move_slot
from tests.polling import eventually
from tests.services.redis_cluster import RedisClusterServers, missing
from tests.services.requirements import require

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

MOVES = 6
BATCH = 20
#: Of each batch so many keys are never consumed.
KEPT = 2
QUEUE = AnnouncementQueue(unique_key_topic="MOVING_KEYS", broker="a", queue_id=0)


class Actor:
    """One turn again and again in a thread, until the end of the block. A turn that Redis refuses is counted."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.turns = 0
        self.refused = 0
        self.failure: BaseException | None = None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except RedisAway:
                self.refused += 1
            except BaseException as error:
                self.failure = error
                return
            finally:
                self.turns += 1

    def __enter__(self) -> Actor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Work:
    """Announcements, recorder and rounds of one shard, with a log of what was acknowledged."""

    def __init__(self, rounds: RoundRedis, half_sets: RedisHalfSets, commit_sets: RedisCommitSets) -> None:
        self.of = shard("moving", 0)
        self.memory = RedisShardMemory(rounds, history_generations=2)
        self._leases = RedisRoundLeases(rounds.client)
        self._half_sets, self._commit_sets = half_sets, commit_sets
        self.epoch = self.memory.begin_epoch(self.of)
        self.announced = 0
        self.consumed = 0
        self.rounds = 0
        self.rounds_that_did_not_run = 0
        self.generation = 0

    def announce(self) -> None:
        """One batch; the stored offset says whether a batch whose answer was lost had arrived."""
        stored = self._half_sets.position(self.of, QUEUE)
        batch = 0 if stored is None else stored
        assert batch in {self.announced, self.announced + 1}, "an offset went back"
        self.announced = batch
        keys = [key(number) for number in range(batch * BATCH, (batch + 1) * BATCH)]
        admission = self._half_sets.admit(self.of, QUEUE, expected=stored, following=batch + 1, unique_keys=keys)
        assert admission.admitted
        self.announced = batch + 1

    def consume(self) -> None:
        """The next batch, until it is acknowledged."""
        if self.consumed >= self.announced:
            return
        numbers = range(self.consumed * BATCH + KEPT, (self.consumed + 1) * BATCH)
        self._commit_sets.record(self.of.subscription, [key(n) for n in numbers], shards=1)
        self.consumed += 1

    def round(self) -> None:
        """As the service does it: lease, state, the atomic step."""
        if not self._leases.take(self.of, token="me", lease_seconds=30):
            self.rounds_that_did_not_run += 1  # MIGRATE took the watched lease between its look and its renewal
            return
        state = self.memory.state(self.of)
        assert state.epoch == self.epoch, "a moved slot looks like lost memory"
        assert state.generation >= self.generation, "the fence went back"
        self.generation = state.generation
        done = self.memory.take_round(self.of, epoch=self.epoch)
        if done is None:
            self.rounds_that_did_not_run += 1
        else:
            self.rounds += 1

    def pending(self) -> set[str]:
        """All of it."""
        page = self.memory.due(self.of, first_seen_until_ms=2**52, limit=1_000_000)
        return {one.unique_key for one in page}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisClusterServers]:
    require(missing())
    with RedisClusterServers(tmp_path, replicas=0) as servers:
        yield servers


def test_a_slot_that_moves_during_rounds_loses_no_key(cluster: RedisClusterServers) -> None:
    with (
        closing(open_redis(cluster.url)) as redis_of_rounds,
        closing(open_client(cluster.url)) as announcer,
        closing(open_client(cluster.url)) as recorder,
    ):
        work = Work(redis_of_rounds, RedisHalfSets(announcer), RedisCommitSets(recorder))
        slot = key_slot(ShardKeys(work.of).pending.encode())
        moved = 0
        with Actor(work.round) as rounds, Actor(work.announce) as announcing, Actor(work.consume) as recording:
            actors = (rounds, announcing, recording)

            def everybody_had_a_turn() -> None:
                # The turn in hand may have begun before, the one after it did not.
                targets = [actor.turns + 2 for actor in actors]
                eventually(
                    lambda: all(a.turns >= t or a.failure is not None for a, t in zip(actors, targets, strict=True)),
                    within_seconds=30,
                )

            for _, target in zip(range(MOVES), itertools.cycle(cluster.servers), strict=False):
                if cluster.server_of_slot(slot) is not target:
                    moved += move_slot(cluster, slot, target, when_half_moved=everybody_had_a_turn)
                before = work.rounds
                eventually(lambda b=before: work.rounds > b or rounds.failure, within_seconds=30)  # type: ignore[misc]
        assert [actor.failure for actor in actors] == [None, None, None]
        while work.consumed < work.announced:
            work.consume()
        for _ in range(2):
            assert work.memory.take_round(work.of, epoch=work.epoch) is not None

        numbers = range(work.announced * BATCH)
        assert work.pending() == {key(n) for n in numbers if n % BATCH < KEPT}
        # Else no slot was moved under anybody's feet.
        assert moved >= MOVES * 3
        assert rounds.refused + work.rounds_that_did_not_run >= MOVES
        assert work.announced > MOVES
