"""Random histories of the announcement consumer on a real Redis that loses replies, its tail, or everything."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from reconciler.announcing.port import StepKind
from reconciler.contract.keyspace import ShardKeys, offsets_field
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import key_of
from reconciler.errors import RedisAway
from reconciler.policy.ports.announcing import Admission, AnnouncementQueue, KnownRecords
from reconciler.shards.sets import RedisHalfSets
from tests.examples import examples
from tests.services.redis_server import RedisServer
from tests.unit.announcing.announcement_world import QUEUE, SUBSCRIPTION, World, announcement
from tests.unit.consumers.messages import new_key

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SHARD = Shard(subscription=SUBSCRIPTION, number=QUEUE.queue_id)
KEYS = ShardKeys(SHARD)
DATABASE = 9
FIELD = offsets_field(QUEUE.broker, QUEUE.queue_id)


class LossyHalfSets(RedisHalfSets):
    """The product's adapter on a line that loses answers after the server has run the command, and requests."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client)
        self.lost_replies = 0
        self.lost_requests = 0
        self.crashes = False

    def admit(
        self,
        shard: Shard,
        queue: AnnouncementQueue,
        *,
        expected: int | None,
        following: int,
        unique_keys: Sequence[str],
        apart: Sequence[str] = (),
        **kept: Any,
    ) -> Admission:
        if self.lost_requests:
            self.lost_requests -= 1
            raise RedisAway("request lost")
        answer = super().admit(
            shard, queue, expected=expected, following=following, unique_keys=unique_keys, apart=apart, **kept
        )
        if self.crashes:
            self.crashes = False
            raise Crash
        if self.lost_replies:
            self.lost_replies -= 1
            raise RedisAway("reply lost")
        return answer

    def take_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str, lease_seconds: float) -> bool:
        # Leases save work and prove nothing: correctness must not need them.
        return True


class Crash(BaseException):
    """The process dies."""


class AnnouncementMachine(RuleBasedStateMachine):
    client: redis.Redis
    adapter: type[LossyHalfSets] = LossyHalfSets
    is_shared = False

    @initialize(floor_first=st.booleans())
    def begin(self, floor_first: bool) -> None:
        self.client.flushdb()
        self.sets = self.adapter(self.client)
        self.world = World(half_sets=self.sets)
        self.world.is_shared = self.is_shared
        self.steps = [self.world.step("one"), self.world.step("two")]
        self.announced: dict[str, int] = {}
        self.ever: set[str] = set()
        self.settled: set[str] = set()
        self.snapshot: dict[bytes, bytes] = {}
        if floor_first:
            self.world.set_floor(0)

    @rule(count=st.integers(1, 4), in_one=st.booleans())
    def announce(self, count: int, in_one: bool) -> None:
        keys = [new_key() for _ in range(count)]
        for group in [keys] if in_one else [[key] for key in keys]:
            offset = self.world.topic.send(announcement(*group))
            self.announced |= dict.fromkeys(group, offset)
            self.ever |= set(group)

    @rule()
    def announce_garbage(self) -> None:
        self.world.topic.send(b"garbage")

    @rule(who=st.integers(0, 1), times=st.integers(1, 5))
    def consume(self, who: int, times: int) -> None:
        for _ in range(times):
            try:
                outcome = self.world.turn(self.steps[who])
            except Crash:
                self.steps[who] = self.world.step(f"born again {random.random()}")
                return
            self.world.clock.advance(min(outcome.wait_seconds, 1.0))

    @rule(who=st.integers(0, 1))
    def restart(self, who: int) -> None:
        self.steps[who] = self.world.step("born again")

    @rule(seconds=st.sampled_from([0.5, 1.5, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule(kind=st.sampled_from(["reply", "request", "crash"]))
    def lose_something(self, kind: str) -> None:
        if kind == "reply":
            self.sets.lost_replies = 1
        elif kind == "request":
            self.sets.lost_requests = 1
        else:
            self.sets.crashes = True

    @rule()
    def ledger_goes_away_for_a_moment(self) -> None:
        self.world.ledger.is_away = not self.world.ledger.is_away

    @rule()
    def wipe(self) -> None:
        self.client.flushdb()

    @rule()
    def remember(self) -> None:
        self.snapshot = {key: self.client.dump(key) for key in self.client.keys("*")}  # type: ignore[misc]

    @rule()
    def fall_back(self) -> None:
        """Redis restarts from what it had saved."""
        self.client.flushdb()
        for key, value in self.snapshot.items():
            self.client.restore(key, 0, value)

    @rule()
    def round_runs(self) -> None:
        """Step 7, shortened: half goes into pending, in Redis, so that both are lost together."""
        with self.client.pipeline(transaction=True) as pipeline:
            pipeline.sunionstore(KEYS.pending, [KEYS.pending, KEYS.half])
            pipeline.unlink(KEYS.half)
            pipeline.execute()

    @rule()
    def everything_pending_settles(self) -> None:
        """Verdicts are written, keys leave pending, and the floor rises to where the round stood."""
        self.round_runs()
        offset = self.sets.position(SHARD, QUEUE)
        pending = self.members(KEYS.pending)
        self.settled |= pending
        self.client.unlink(KEYS.pending)
        if offset is not None:
            proof = self.sets.known_records(SHARD, QUEUE).proof
            proofs = {} if proof is None or proof.following != offset else {FIELD: proof}
            self.world.rows.rounds.raise_floor(SUBSCRIPTION, {FIELD: offset}, proofs)

    @rule()
    def daemon_scans_an_outage(self) -> None:
        if self.world.rows.outages.current("test") is not None:
            self.world.scan_outage()
            self.world.close_outage()

    def members(self, key: str) -> set[str]:
        found: Any = self.client.smembers(key)
        return {key_of(member) for member in found}

    def teardown(self) -> None:
        if not hasattr(self, "sets"):
            return
        self.sets.lost_replies = self.sets.lost_requests = 0
        self.sets.crashes = self.world.ledger.is_away = False
        for _ in range(400):
            kinds = set()
            for step in self.steps:
                outcome = self.world.turn(step)
                kinds.add(outcome.kind)
            self.world.clock.advance(1.1)
            self.daemon_scans_an_outage()
            if kinds == {StepKind.IDLE} and self.sets.position(SHARD, QUEUE) == len(self.world.topic.stored[QUEUE]):
                break
        else:
            raise AssertionError(f"never at rest: {[step.states() for step in self.steps]}")
        known = self.settled | self.members(KEYS.half) | self.members(KEYS.pending)
        lost = {key: offset for key, offset in self.announced.items() if key not in known}
        assert not lost, lost
        assert known <= self.ever
        garbage = [m.queue_offset for m in self.world.topic.stored[QUEUE] if m.body == b"garbage"]
        found = self.world.rows.announcements.floor(SUBSCRIPTION, QUEUE)
        floor = 0 if found is None else found.queue_offset
        kept = {row.refused.queue_offset for row in self.world.rows.reports.quarantined("test", limit=1_000).rows}
        assert {offset for offset in garbage if offset >= floor} <= kept


class BrokerMachine(AnnouncementMachine):
    """The broker has accidents, too."""

    @rule(lost=st.integers(1, 6), stored=st.integers(0, 9))
    def broker_comes_back_without_its_tail(self, lost: int, stored: int) -> None:
        """What was announced there is announced again by the outbox; what comes next gets the same offsets."""
        self.world.topic.lose_tail(min(lost, len(self.world.topic.stored[QUEUE])))
        self.go_on(stored)

    @rule(stored=st.integers(0, 9))
    def topic_is_created_again(self, stored: int) -> None:
        self.world.topic.create_again()
        self.go_on(stored)

    @rule(minutes=st.sampled_from([1, 70]))
    def brokers_time_passes(self, minutes: int) -> None:
        """So that the trail of records grows."""
        self.world.topic.now_ms += minutes * 60_000

    def go_on(self, stored: int) -> None:
        end = len(self.world.topic.stored[QUEUE])
        self.announced = {key: offset for key, offset in self.announced.items() if offset < end}
        if stored:
            self.announce(stored, in_one=False)


class SharedMachine(BrokerMachine):
    """The queue is read by common readers, one a process, and other topics are announced there, too."""

    is_shared = True

    @rule(count=st.integers(1, 3))
    def announce_another_topic(self, count: int) -> None:
        for _ in range(count):
            self.world.topic.send(b"", tag="OTHERS")


#: Far more than it takes to find a wrong adapter, whatever the profile: some 130, and one time in ten more than 300.
TO_FIND = 3_000


def run_histories(machine: type[RuleBasedStateMachine], *, number: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=number,
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.promise("G5")
@pytest.mark.unmeasured
@pytest.mark.parametrize(
    ("machine", "number"), [(AnnouncementMachine, 300), (BrokerMachine, 150), (SharedMachine, 150)]
)
def test_no_announced_key_is_lost_whatever_redis_forgets(
    shared_redis_server: RedisServer, machine: type[AnnouncementMachine], number: int
) -> None:
    """Of the last two, the broker forgets, too."""
    client = redis.Redis.from_url(shared_redis_server.url.replace("/0", f"/{DATABASE}"))
    try:
        run_histories(type("Machine", (machine,), {"client": client}), number=examples(number))
    finally:
        client.flushdb()
        client.close()


class OverwritingHalfSets(LossyHalfSets):
    """A wrong adapter: it does not compare."""

    def admit(
        self,
        shard: Shard,
        queue: AnnouncementQueue,
        *,
        expected: int | None,
        following: int,
        unique_keys: Sequence[str],
        apart: Sequence[str] = (),
        **kept: Any,
    ) -> Admission:
        stored = self.position(shard, queue)
        return super().admit(
            shard, queue, expected=stored, following=following, unique_keys=unique_keys, apart=apart, **kept
        )


def require_found(server: RedisServer, machine: type[AnnouncementMachine], adapter: type[LossyHalfSets]) -> None:
    """The histories of the machine fail with a wrong adapter."""
    client = redis.Redis.from_url(server.url.replace("/0", f"/{DATABASE}"))
    try:
        wrong = type("Machine", (machine,), {"client": client, "adapter": adapter})
        with pytest.raises(AssertionError):
            run_histories(wrong, number=TO_FIND)
    finally:
        client.flushdb()
        client.close()


class ForgetfulHalfSets(LossyHalfSets):
    """A wrong adapter: it keeps no proofs."""

    def known_records(self, shard: Shard, queue: AnnouncementQueue) -> KnownRecords:
        return KnownRecords()


@pytest.mark.unmeasured
def test_the_histories_find_an_adapter_that_forgets_what_it_has_seen(shared_redis_server: RedisServer) -> None:
    require_found(shared_redis_server, BrokerMachine, ForgetfulHalfSets)


@pytest.mark.unmeasured
def test_the_histories_find_an_adapter_that_does_not_compare(shared_redis_server: RedisServer) -> None:
    """A generator that cannot fail proves nothing."""
    require_found(shared_redis_server, AnnouncementMachine, OverwritingHalfSets)
