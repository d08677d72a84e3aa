"""The scripts known by heart do what their Lua does, on drawn states: damaged, empty, out of memory, far behind."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from redis import exceptions

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.shards.round_commands import ROUND_SCRIPT, round_command
from tests.simulation.kernel import BASE_MS
from tests.simulation.redis_data import RedisData, Scores
from tests.simulation.redis_scripts import run_lua
from tests.simulation.round_twin import round_twin

KEYS = ShardKeys(Shard(subscription=Subscription(environment="e", topic="t", group="g"), number=0))


def _drawn(dice: random.Random) -> tuple[RedisData, list[str], list[Any]]:
    """A shard's memory, and KEYS and ARGV of a round."""
    now_ms = BASE_MS + dice.randrange(1_000_000)
    data = RedisData(lambda: now_ms)
    commits, generation = dice.choice((1, 2, 4)), dice.randrange(50)
    lowest_ms = now_ms + dice.randint(-2_000, dice.choice((500, 5_000)))
    command = round_command(
        KEYS, epoch="e:1", generation=generation, not_before_ms=lowest_ms,
        commit_generations=commits, history_generations=dice.choice((0, 0, 0, 0, 1)),
    )  # fmt: skip
    _, _, count, *words = command
    names, arguments = [str(name) for name in words[:count]], words[count:]
    arguments[7] = dice.choice((arguments[7], 3))  # chunk
    arguments[8] = dice.choice((arguments[8], 4))  # rounds kept for the floor
    members = [dice.randbytes(16) for _ in range(dice.choice((1, 6, 30)))]

    def some() -> list[bytes]:
        return dice.sample(members, dice.randint(0, len(members)))

    ahead = dice.choice((300, 300, 300, 60_000))
    pending = {member: float(now_ms - dice.randint(-ahead, 90_000)) for member in some()}
    if pending and dice.random() < 0.1:
        pending[dice.choice(sorted(pending))] = dice.choice((2.0**53 + 2, 1e300))
    queues = {b"broker/0": b"5", b"broker/1": b"7"}
    if dice.random() < 0.1:
        queues |= {dice.choice((b"a\nb/0", b"broker", b"broker/x")): b"3", b"broker/2": dice.choice((b"-1", b"x"))}
    values: dict[str, Any] = {
        KEYS.epoch: b"e:1", KEYS.generation: b"%d" % generation, KEYS.half: set(some()), KEYS.commit: set(some()),
        KEYS.pending: Scores(pending), KEYS.new: set(some()), KEYS.matched: Scores(dict.fromkeys(some(), 1.0)),
        KEYS.taken: {b"1": b"2"}, KEYS.offsets: queues, KEYS.covered: {}, KEYS.proofs: {},
    }  # fmt: skip
    values |= {KEYS.commit_generation(number): set(some()) for number in range(1, commits + 1)}
    for _ in range(dice.choice((0, 3, 9, 70))):
        values[KEYS.covered][b"%d" % (now_ms - dice.randrange(100_000))] = b"broker/0\n%d" % dice.randrange(9)
    _prove(dice, values)
    if dice.random() < 0.7:
        values[KEYS.covered][b"last"] = b"%d %d" % (generation, now_ms - dice.randint(-5, 9_000))
    for name, value in values.items():
        if value and dice.random() < 0.9:
            data.values[name] = value
    if dice.random() < 0.1:
        data.values[dice.choice(names)] = dice.choice((b"text", {b"a": b"b"}, {b"m"}, Scores({b"m": 1.0})))
    data.is_full = dice.random() < 0.05
    return data, names, arguments


def _prove(dice: random.Random, values: dict[str, Any]) -> None:
    for round_ms in list(values[KEYS.covered]):
        if dice.random() < 0.5:
            # Some are of rounds that an older release forgot.
            field = b"proofs %d" % (int(round_ms) + dice.choice((0, 0, 1)))
            values[KEYS.covered][field] = b"broker/0\n5 4 3 2 A"
    for queue, offset in values[KEYS.offsets].items():
        if dice.random() < 0.7:
            proof = dice.choice((b"%s 4 3 2 A", b"9 %s 3 2 A", b"%s", b"%s 4\n3", b" %s"))
            values[KEYS.proofs][queue] = proof % offset


def _outcome(data: RedisData, run: Any) -> tuple[Any, ...]:
    try:
        answer = run()
    except exceptions.ResponseError as error:
        answer = f"{type(error).__name__}: {error}"
    return answer, data.values, data.expires, data.versions, data.writes


@pytest.mark.timeout(120)
def test_the_round_in_python_does_what_its_lua_does_on_three_thousand_drawn_shards() -> None:
    told: set[bytes | str] = set()
    for seed in range(3_000):
        data, names, arguments = _drawn(random.Random(seed))
        twin = copy.copy(data)
        twin.values, twin.versions, twin.expires = copy.deepcopy(data.values), {}, {}
        twin.commands = {name: getattr(twin, command.__name__) for name, command in data.commands.items()}
        ours = _outcome(twin, lambda twin=twin, a=arguments, n=names: round_twin(twin, n, list(a)))
        if ours[0] is None:
            assert arguments[5]
            continue
        theirs = _outcome(data, lambda data=data, a=arguments, n=names: run_lua(data, ROUND_SCRIPT, n, list(a)))
        assert ours == theirs, f"seed {seed}"
        told.add(ours[0] if isinstance(ours[0], str) else ours[0][0])
    assert {b"ran", b"moved", b"wrong"} <= told
    assert len(told) > 3, "no drawn shard made the script fail"
