"""Two clusters with one environment are refused; nothing that one cluster does in its life is."""

from __future__ import annotations

import itertools

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.row_rules import BROKERS_MAX
from reconciler.errors import InvalidValue, RedisAway
from reconciler.policy.environment import ADDRESS_SECONDS, RENEW_SECONDS, EnvironmentGuard, conflict, told_redis
from reconciler.policy.ports.environment import USE_SECONDS, EnvironmentUse

ENVIRONMENT = "production"
HERE = "DefaultCluster/broker-a at 10.0.0.5:10911"
MOVED = "DefaultCluster/broker-a at 10.0.0.9:10911"
SECOND = "DefaultCluster/broker-b at 10.0.0.6:10911"
THERE = "DefaultCluster/broker-a at 10.8.0.5:10911"


class Place:
    """A place in memory."""

    def __init__(self, place: str, clock: ManualClock) -> None:
        self.place = place
        self.is_away = False
        self._clock = clock
        self._use: EnvironmentUse | None = None
        self._at = 0.0
        self._renewals = 0

    def current(self, environment: str) -> EnvironmentUse | None:
        assert environment == ENVIRONMENT
        if self.is_away:
            raise RedisAway(f"{self.place} is away")
        age = self._clock.monotonic_seconds() - self._at
        return self._use if age <= USE_SECONDS else None

    def forget(self) -> None:
        self._use = None

    def renew(self, environment: str, brokers: frozenset[str], *, by: str, redis: str = "") -> None:
        assert environment == ENVIRONMENT
        if self.is_away:
            raise RedisAway(f"{self.place} is away")
        self._renewals += 1
        self._use = EnvironmentUse(brokers=brokers, redis=redis, by=by, renewal=str(self._renewals))
        self._at = self._clock.monotonic_seconds()


class Redis(Place):
    """Redis in memory: a place with an identity."""

    _numbers = itertools.count(1)
    _identity = ""

    def identity(self, environment: str) -> str:
        assert environment == ENVIRONMENT
        if self.is_away:
            raise RedisAway(f"{self.place} is away")
        return self._identity

    def keep_identity(self, environment: str) -> str:
        self._identity = self.identity(environment) or str(next(self._numbers))
        return self._identity

    def lose_memory(self) -> None:
        self.forget()
        self._identity = ""


class Process:
    """A process; `told` is what its name servers tell."""

    def __init__(self, name: str, world: World, *told: str) -> None:
        self.told = set(told)
        self.guard = EnvironmentGuard(
            world.places,
            lambda: frozenset(self.told),
            world.redis,
            redis_at="redis://of-" + name,
            environment=ENVIRONMENT,
            by=name,
            clock=world.clock,
        )

    @property
    def doubts(self) -> bool:
        """Looks once. Raises InvalidValue if it is refused."""
        return self.guard.look() is not None


class World:
    """Redis and a ledger."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.redis = Redis("Redis", self.clock)
        self.ledger = Place("the ledger", self.clock)

    @property
    def places(self) -> list[Place]:
        """Those of the next process."""
        return [self.redis, self.ledger]

    def run(self, name: str, *told: str) -> Process:
        """A process that has begun its work."""
        process = Process(name, self, *told)
        assert not process.doubts
        return process

    def pass_by(self, *running: Process) -> None:
        """Time until the next renewal, in which they renew."""
        self.clock.advance(RENEW_SECONDS)
        assert not any(process.doubts for process in running)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.set_up("one environment for two clusters, in one Redis or one ledger")
def test_another_cluster_is_refused_although_its_broker_has_the_same_name(world: World) -> None:
    first, other = world.run("first", HERE), Process("other", world, THERE)
    assert other.doubts
    world.pass_by(first)
    with pytest.raises(InvalidValue) as refused:
        other.guard.look()
    assert (refused.value.field, refused.value.value) == ("environment", ENVIRONMENT)
    assert f"in Redis, first knows {HERE}, and this process knows {THERE}" in str(refused.value)
    assert "give each cluster an environment of its own" in refused.value.remedy
    world.pass_by(first)


def test_one_place_in_common_is_enough_to_be_refused(world: World) -> None:
    first = world.run("first", HERE)
    world.redis = Redis("Redis", world.clock)
    other = Process("other", world, THERE)
    assert other.doubts
    assert world.redis.current(ENVIRONMENT) is None, "who is in doubt writes nothing down anywhere"
    world.pass_by(first)
    with pytest.raises(InvalidValue, match="in the ledger, first knows"):
        other.guard.look()


def test_of_two_clusters_that_start_at_once_one_goes_on(world: World) -> None:
    first = world.run("first", HERE)
    places = world.places
    world.redis, world.ledger = Redis("Redis", world.clock), Place("the ledger", world.clock)
    other = world.run("other", THERE)
    for place, written in zip(places, world.places, strict=True):
        place._use, place._at = written._use, written._at  # neither saw the other one's use before it wrote
    other.guard._uses = first.guard._uses
    assert first.doubts
    world.pass_by(other)
    with pytest.raises(InvalidValue):
        first.guard.look()
    world.pass_by(other)


@pytest.mark.set_up("a move to another cluster with its environment, and new addresses of all brokers")
def test_a_process_that_died_keeps_the_next_cluster_waiting_until_its_use_ends_and_refuses_nobody(
    world: World,
) -> None:
    world.run("dead", HERE)
    migrated = Process("migrated", world, THERE)
    for _ in range(int(USE_SECONDS)):
        assert migrated.doubts
        world.clock.advance(1)
    world.clock.advance(1)
    assert not migrated.doubts


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({HERE, SECOND}, {SECOND}),
        ({HERE}, {HERE, SECOND}),
        ({HERE, "DefaultCluster/broker-a at 10.0.0.15:10911"}, {"DefaultCluster/broker-a at 10.0.0.15:10911"}),
    ],
    ids=["a broker is down", "a broker was added", "the master is dead, its slave is there"],
)
def test_processes_of_one_cluster_that_see_different_brokers_run_side_by_side(
    world: World, first: set[str], second: set[str]
) -> None:
    one, other = world.run("one", *first), world.run("other", *second)
    for _ in range(20):
        world.pass_by(one, other)


@pytest.mark.set_up("a move to another cluster with its environment, and new addresses of all brokers")
def test_a_pod_that_got_another_address_is_no_other_cluster(world: World) -> None:
    running, started = world.run("running", HERE), Process("started", world, MOVED)
    assert started.doubts, "the one that runs has not asked its name servers since"
    running.told = {MOVED}
    world.pass_by(running)
    assert not started.doubts


def test_a_name_server_that_still_tells_the_old_address_makes_no_other_cluster(world: World) -> None:
    running = world.run("running", HERE)
    running.told = {MOVED}
    world.pass_by(running)
    late = world.run("late", HERE)
    for _ in range(24):
        world.pass_by(running, late)
    late.told = {MOVED}
    world.clock.advance(ADDRESS_SECONDS)
    world.pass_by(running, late)
    other = Process("other", world, HERE)
    assert other.doubts, "an address is not known for ever"


def test_who_sees_no_broker_is_refused_by_nobody_and_holds_the_environment_against_nobody(world: World) -> None:
    first, blind = world.run("first", HERE), Process("blind", world)
    assert not blind.doubts
    world.pass_by(first)
    assert not blind.doubts
    first.told = set()
    for _ in range(7):
        world.pass_by(first)
    assert world.redis.current(ENVIRONMENT) is None
    other = world.run("other", THERE)
    first.told = {HERE}
    assert first.doubts
    world.pass_by(other)
    with pytest.raises(InvalidValue):
        first.guard.look()


def test_while_one_place_is_away_the_other_one_is_renewed(world: World) -> None:
    first = world.run("first", HERE)
    world.redis.is_away = True
    for _ in range(8):
        world.clock.advance(RENEW_SECONDS)
        with pytest.raises(RedisAway):
            first.guard.look()
    use = world.ledger.current(ENVIRONMENT)
    assert use is not None
    assert use.by == "first"


def test_a_damaged_use_refuses_nobody_and_is_replaced(world: World) -> None:
    world.redis.renew(ENVIRONMENT, frozenset(), by="")
    first = world.run("first", HERE)
    world.pass_by(first)
    use = world.redis.current(ENVIRONMENT)
    assert use is not None
    assert use.brokers == {HERE}


def test_looks_are_as_far_apart_as_renewals(world: World) -> None:
    first = world.run("first", HERE)
    before = world.redis.current(ENVIRONMENT)
    world.clock.advance(RENEW_SECONDS - 1)
    first.guard.keep()
    assert world.redis.current(ENVIRONMENT) == before
    world.clock.advance(1)
    first.guard.keep()
    assert world.redis.current(ENVIRONMENT) != before


def test_hostile_name_servers_do_not_fill_the_memory(world: World) -> None:
    first = world.run("first", HERE)
    for turn in range(3):
        first.told = {HERE} | {f"c/b at {turn}:{number}" for number in range(BROKERS_MAX)}
        world.pass_by(first)
    use = world.redis.current(ENVIRONMENT)
    assert use is not None
    assert len(use.brokers) == BROKERS_MAX


# ----------------------------------------------------------------- one ledger, two Redis


@pytest.mark.set_up("one environment in one ledger with two Redis")
def test_a_process_with_another_redis_is_refused_although_it_is_of_the_same_cluster(world: World) -> None:
    first = world.run("first", HERE)
    world.redis = Redis("Redis", world.clock)
    other = Process("other", world, HERE)
    assert other.doubts
    assert not world.redis.identity(ENVIRONMENT), "who is in doubt writes nothing down anywhere"
    world.pass_by(first)
    with pytest.raises(InvalidValue) as refused:
        other.guard.look()
    assert "in the ledger, first has Redis" in str(refused.value)
    assert "at redis://of-first, and this process has Redis at redis://of-other" in str(refused.value)
    assert "give all processes of the environment one redis.url" in refused.value.remedy
    world.pass_by(first)


@pytest.mark.parametrize(
    ("identity", "address", "is_emptied"),
    [("", "redis://cache/0", True), ("", "redis://other/0", False), ("9f", "redis://cache/0", False)],
)
def test_a_redis_without_an_identity_at_the_same_address_is_told_as_emptied_and_as_no_other_one(
    identity: str, address: str, is_emptied: bool
) -> None:
    use = EnvironmentUse(brokers=frozenset({HERE}), redis=told_redis("5d", "redis://cache/0"), by="dead", renewal="1")
    told = str(conflict("the ledger", ENVIRONMENT, use, frozenset({HERE}), told_redis(identity, address)))
    assert ("Redis was emptied: in the ledger, dead has Redis 5d at redis://cache/0" in told) is is_emptied
    assert ("another Redis is run with it" in told) is not is_emptied
    assert "30 s" in told, "how long a process that died with its Redis keeps others waiting"


def test_of_two_redis_that_are_used_from_the_same_moment_on_one_goes_on(world: World) -> None:
    first = world.run("first", HERE)
    world.ledger.forget()
    world.redis = Redis("Redis", world.clock)
    other = world.run("other", HERE)  # neither saw the other one's use before it wrote
    assert first.doubts
    world.pass_by(other)
    with pytest.raises(InvalidValue, match="in the ledger, other has Redis"):
        first.guard.look()
    world.pass_by(other)


@pytest.mark.set_up("one environment in one ledger with two Redis")
def test_a_redis_that_lost_its_memory_refuses_none_of_its_processes_and_keeps_no_new_one_waiting(world: World) -> None:
    first, second = world.run("first", HERE), world.run("second", HERE)
    world.pass_by(first, second)
    for _ in range(3):
        world.redis.lose_memory()
        started = Process("started", world, HERE)
        assert started.doubts
        world.pass_by(second, first)
        assert started.guard.look() is None
        world.pass_by(started, second, first)


@pytest.mark.set_up("one environment in one ledger with two Redis")
def test_a_move_to_another_redis_waits_for_the_processes_of_the_old_one_and_not_for_a_person(world: World) -> None:
    world.run("dead", HERE)
    world.redis = Redis("Redis", world.clock)
    moved = Process("moved", world, HERE)
    assert moved.doubts
    world.clock.advance(USE_SECONDS + 1)
    assert moved.guard.look() is None
    world.pass_by(moved)


def test_while_its_redis_is_away_a_process_keeps_nobody_from_a_new_one(world: World) -> None:
    stuck, old = world.run("stuck", HERE), world.redis
    old.is_away = True
    world.clock.advance(RENEW_SECONDS)
    with pytest.raises(RedisAway):
        stuck.guard.look()
    world.redis = Redis("Redis", world.clock)
    moved = world.run("moved", HERE)
    world.pass_by(moved)
    with pytest.raises(RedisAway):
        stuck.guard.look()
    old.is_away = False
    assert stuck.guard.look() is None
    assert moved.doubts
    assert stuck.guard.look() is None
    with pytest.raises(InvalidValue, match="stuck has Redis"):  # one of the two, until a person ends the other one
        moved.guard.look()


def test_a_use_of_an_earlier_release_tells_no_redis_and_refuses_nobody(world: World) -> None:
    world.ledger.renew(ENVIRONMENT, frozenset({HERE}), by="earlier")
    first = world.run("first", HERE)
    world.pass_by(first)
