"""What goes wrong, one function a kind. Each returns when the fault is over or has been made; healing is the run's.

False: it did not come about, and does not count.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.chaos.cluster import SERVICE_NOT_AVAILABLE, SYSTEM_BUSY
from tests.chaos.job import LEASE_SECONDS
from tests.chaos.world import World

Fault = Callable[[World, random.Random], bool | None]


def kill_an_actor(world: World, dice: random.Random) -> None:
    """kill -9 of any process of ours, wherever it is; first of one that no sentence waits for."""
    living = world.living()
    if living:
        world.kill(dice.choice([actor for actor in living if not actor.sentence] or living))


def lose_ends(world: World, dice: random.Random) -> None:
    """END_TRANSACTION gets lost on its way to both brokers."""
    _for_a_while(world, "lose_end", dice.choice((0.3, 1.0)), dice.uniform(0.3, 1.0))


def delay_requests(world: World, dice: random.Random) -> None:
    """Every request to the brokers is late."""
    _for_a_while(world, "delay_seconds", dice.uniform(0.05, 0.3), dice.uniform(0.5, 2.0))


def reset_connections(world: World, dice: random.Random) -> None:
    """RST on all connections of a broker."""
    dice.choice(list(world.proxies.values())).reset()


def half_close_connections(world: World, dice: random.Random) -> None:
    """The brokers' side of all connections ends; requests still arrive, answers do not."""
    dice.choice(list(world.proxies.values())).half_close()


def freeze_a_reconciler(world: World, dice: random.Random) -> None:
    """SIGSTOP for longer than every lease: it wakes up as a zombie."""
    living = world.living("run")
    if living:
        world.freeze(dice.choice(living))
        world.pause(2 * LEASE_SECONDS + dice.uniform(0.5, 2.0))
        world.thaw()


def freeze_a_consumer(world: World, dice: random.Random) -> None:
    """SIGSTOP of a member of a consumer group."""
    living = world.living("consumer")
    if living:
        world.freeze(dice.choice(living))
        world.pause(dice.uniform(1.0, 4.0))
        world.thaw()


def flush_redis(world: World, dice: random.Random) -> None:
    """FLUSHALL."""
    world.redis_client.flushall()


def kill_redis(world: World, dice: random.Random) -> None:
    """kill -9 of Redis, which comes back with what it had written."""
    world.redis.kill()
    world.pause(dice.uniform(0.0, 2.0))
    world.redis.start()


def freeze_redis(world: World, dice: random.Random) -> None:
    """Redis keeps its connections and answers nothing."""
    world.redis.freeze()
    world.pause(dice.uniform(0.5, 3.0))
    world.redis.thaw()


def old_redis_data(world: World, dice: random.Random) -> None:
    """Redis comes back as it was when its last backup was made, at the beginning of this minute of chaos."""
    world.restore_redis_data()


def kill_a_broker(world: World, dice: random.Random) -> None:
    """kill -9 of a master; the other one goes on alone for a while."""
    broker = dice.choice(list(world.cluster.brokers.values()))
    broker.kill()
    world.pause(dice.uniform(0.0, 2.0))
    world.meanwhile(lambda: world.cluster.start_again(broker))


def step_a_clock(world: World, dice: random.Random) -> None:
    """A host steps its wall clock, by less than the skew margin or far more, and back."""
    host = dice.choice(world.hosts)
    host.set_clock(dice.choice((-3600.0, -5.0, -0.5, 0.5, 5.0, 3600.0)))
    world.pause(dice.uniform(1.5, 4.0))
    host.set_clock(0.0)


def pause_the_standby(world: World, dice: random.Random) -> None:
    """Where `run` reads the outboxes nothing new arrives for a while."""
    world.standby.pause()
    try:
        world.pause(dice.uniform(0.5, 6.0))
    finally:
        world.standby.resume()


def restart_the_pooler(world: World, dice: random.Random) -> None:
    """All clients of the database lose their connections, in the middle of transactions too."""
    world.pooler.stop()
    world.pause(dice.uniform(0.0, 1.0))
    world.pooler.start()


def fill_a_disk(world: World, dice: random.Random) -> bool:
    """A broker's disk is nearly full: it answers sends with SERVICE_NOT_AVAILABLE."""
    watching = world.cluster.watching_their_disks()
    if not watching:
        return False
    broker = dice.choice(watching)
    disk = world.cluster.disks[broker.name]
    disk.fill()
    try:
        if not world.cluster.answers_sends_with(broker, SERVICE_NOT_AVAILABLE, within_seconds=3.0):
            return False
        world.pause(dice.uniform(0.5, 2.5))
    finally:
        disk.free()
    return True


def make_a_broker_busy(world: World, dice: random.Random) -> bool:
    """A broker answers every send with SYSTEM_BUSY."""
    broker = dice.choice(list(world.cluster.brokers.values()))
    world.cluster.make_busy(broker, is_busy=True)
    try:
        if not world.cluster.answers_sends_with(broker, SYSTEM_BUSY, within_seconds=1.0):
            return False
        world.pause(dice.uniform(0.5, 2.5))
    finally:
        world.cluster.make_busy(broker, is_busy=False)
    return True


def grow_the_topic(world: World, dice: random.Random) -> bool:
    """The business topic gets one queue more on every broker."""
    return world.cluster.grow_topic()


def change_the_route(world: World, dice: random.Random) -> None:
    """A living master is missing at the name server for a while."""
    broker = dice.choice(list(world.cluster.brokers.values()))
    world.cluster.leave_route(broker)
    world.pause(dice.uniform(1.0, 4.0))
    world.cluster.join_route(broker)


#: Kind -> how often in one deck.
FAULTS: dict[Fault, int] = {
    kill_an_actor: 30,
    lose_ends: 25,
    delay_requests: 8,
    reset_connections: 8,
    half_close_connections: 4,
    freeze_a_reconciler: 3,
    freeze_a_consumer: 5,
    flush_redis: 3,
    kill_redis: 3,
    freeze_redis: 3,
    old_redis_data: 3,
    kill_a_broker: 2,
    step_a_clock: 5,
    pause_the_standby: 4,
    restart_the_pooler: 2,
    fill_a_disk: 3,
    make_a_broker_busy: 4,
    grow_the_topic: 2,
    change_the_route: 2,
}
#: Clients keep a route for 30 s: these are not made in the last so many seconds before a quiet phase.
SLOW_TO_HEAL = (kill_a_broker, change_the_route, grow_the_topic)
SLOW_SECONDS = 30.0


class Deck:
    """Which fault comes next: first each kind once, then as often as FAULTS says; shuffled each time."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._cards = self._shuffled(list(FAULTS))

    def deal(self, fits: Callable[[Fault], bool]) -> Fault | None:
        """The first one that fits now; those before it wait. None: no kind fits."""
        if not any(fits(kind) for kind in FAULTS):
            return None
        if not any(fits(card) for card in self._cards):
            self._cards += self._shuffled([kind for kind, times in FAULTS.items() for _ in range(times)])
        return self._cards.pop(next(number for number, card in enumerate(self._cards) if fits(card)))

    def put_back(self, fault: Fault) -> None:
        """It did not come about: once more after the others, unless it is the last one."""
        if self._cards:
            self._cards.append(fault)

    def _shuffled(self, cards: list[Fault]) -> list[Fault]:
        self._dice.shuffle(cards)
        return cards


def _for_a_while(world: World, name: str, value: float, seconds: float) -> None:
    for proxy in world.proxies.values():
        setattr(proxy, name, value)
    world.pause(seconds)
    for proxy in world.proxies.values():
        setattr(proxy, name, 0.0)
