"""One round of one shard in Redis, in three ways: as it is, as it was, and the original design's.

    python -m benchmarks.round [--keys 20000] [--pending 20000 200000 1000000] [--unmatched 0.01] [--late 200]
                               [--repeat 5] [--redis-url redis://...]

- `round`: fence, types and one script that changes pending key by key (reconciler/shards/round.lua);
  `kept` is the same with the sets of two rounds kept for the history.
- `rewriting`: the MULTI of before, whose ZUNIONSTORE and ZDIFFSTORE write all of pending anew.
- `original`: the original design: difference and both sets to the client, then DEL. It has no pending set.

Every set has `keys` members, as after a busy interval: announced, consumed and two older generations. `unmatched` is
the share of the announced whose consumption is not there yet, `late` the number of pending keys that were consumed.
Prints one JSON line a size of pending with milliseconds; `stall_ms` is the longest answer that another client waited
for, in the worst of the runs; `cpu_ms` is processor time of Redis' main thread, pings included: the stall on a machine
that has a core for Redis. Without a URL it starts a redis-server of its own. The machine's noise is in the figures:
quote ratios of one run.

Measured with 20 000 keys on two cores under a load of 15, Redis 7.0.15, loopback; cpu_ms (median stall in ms):

| pending | unmatched | late | `round` | `kept` | `rewriting` |
|---|---|---|---|---|---|
| 200 | 200 | 200 | 8.5 (28) | 11 (40) | 11 (37) |
| 20 000 | 200 | 200 | 12 (41) | 11 (28) | 52 (172) |
| 200 000 | 200 | 200 | 12 (32) | 14 (45) | 692 (3 164) |
| 1 000 000 | 200 | 200 | 17 (54) | 17 (64) | 5 629 (19 194) |
| 200 | all | 0 | 34 (92) | 35 (96) | 51 (143) |
| 20 000 | all | 0 | 58 (150) | 52 (141) | 93 (312) |
| 200 000 | all | 0 | 71 (268) | 63 (216) | 776 (3 210) |
| 20 000 | 200 | 20 000 | 34 (112) | 37 (128) | 38 (166) |
| 200 000 | 200 | 20 000 | 87 (257) | 88 (169) | 804 (3 656) |
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import redis

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.shards.client import open_redis
from reconciler.shards.memory import RedisShardMemory
from tests.services.redis_server import RedisServer

SHARD = Shard(subscription=Subscription(environment="benchmark", topic="ORDERS", group="billing"), number=0)
NAMES = ShardKeys(SHARD)


Round = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a shard holds before a round."""

    keys: int
    pending: int
    unmatched: int
    late: int


def fill(client: redis.Redis, load: Load) -> None:
    """Puts the sets as they are before a round."""
    client.flushall()
    announced, pending, strangers = (
        [secrets.token_bytes(16) for _ in range(count)] for count in (load.keys, load.pending, load.unmatched)
    )
    consumed = announced[load.unmatched :] + pending[: load.late] + strangers
    sets = {NAMES.half: announced, NAMES.commit: consumed}
    for number in (1, 2):
        for name in (NAMES.commit_generation(number), NAMES.half_generation(number)):
            sets[name] = [secrets.token_bytes(16) for _ in range(load.keys)]
    for name, members in sets.items():
        for start in range(0, len(members), 1_000):
            client.sadd(name, *members[start : start + 1_000])
    for start in range(0, len(pending), 1_000):
        client.zadd(NAMES.pending, dict.fromkeys(pending[start : start + 1_000], 1_700_000_000_000))


def ours(url: str, history_generations: int = 0) -> Round:
    """As the daemon runs it."""
    memory = RedisShardMemory(open_redis(url), history_generations=history_generations)

    def run() -> object:
        done = memory.take_round(SHARD, epoch=memory.begin_epoch(SHARD))
        if done is None:
            raise SystemExit("the round did not run")
        return [done.counts.pending_added, done.counts.pending_matched]

    return run


def keeping(url: str) -> Round:
    """As the daemon runs it with a history."""
    return ours(url, history_generations=2)


def rewriting(url: str) -> Round:
    """The MULTI that this round replaced."""
    client = redis.Redis.from_url(url, socket_timeout=120)
    older = [NAMES.commit_generation(1), NAMES.commit_generation(2)]

    def run() -> object:
        with client.pipeline(transaction=True) as pipe:
            pipe.sdiffstore(NAMES.new, [NAMES.half, NAMES.commit, *older])
            pipe.execute_command(
                "ZUNIONSTORE", NAMES.pending, 2, NAMES.pending, NAMES.new, "WEIGHTS", 1, time.time() * 1_000,
                "AGGREGATE", "MIN",
            )  # fmt: skip
            pipe.execute_command("ZDIFFSTORE", NAMES.pending, 4, NAMES.pending, NAMES.commit, *older)
            pipe.unlink(older[1], NAMES.new)
            pipe.rename(older[0], older[1])
            pipe.rename(NAMES.commit, older[0])
            pipe.unlink(NAMES.half)
            pipe.incr(NAMES.generation)
            _, united, after, *_ = pipe.execute()
        return [united, united - after]

    return run


def original(url: str) -> Round:
    """The original design: difference and both sets to the client, then DEL, in one MULTI."""
    client = redis.Redis.from_url(url, socket_timeout=120)

    def run() -> object:
        with client.pipeline(transaction=True) as pipe:
            pipe.sdiff([NAMES.half, NAMES.commit])
            pipe.smembers(NAMES.half)
            pipe.smembers(NAMES.commit)
            pipe.delete(NAMES.half, NAMES.commit)
            return len(pipe.execute()[0])

    return run


@contextlib.contextmanager
def watched(url: str) -> Iterator[list[float]]:
    """Another client that pings all the time; the list gets its longest wait in milliseconds."""
    longest: list[float] = []
    stop, ready = threading.Event(), threading.Event()

    def ping() -> None:
        worst = 0.0
        with redis.Redis.from_url(url, socket_timeout=120) as client:
            client.ping()
            ready.set()
            while not stop.is_set():
                start = time.perf_counter()
                client.ping()
                worst = max(worst, time.perf_counter() - start)
        longest.append(worst * 1_000)

    thread = threading.Thread(target=ping)
    thread.start()
    ready.wait(10)
    yield longest
    stop.set()
    thread.join()


def work_ms(client: redis.Redis) -> float:
    """Processor time of the server's main thread so far: what a busy machine does not change."""
    used = client.info("cpu")
    return 1_000 * float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])


def measure(url: str, load: Load, repeat: int, make: Callable[[str], Round]) -> dict[str, object]:
    """Round and stall of several runs, each on sets that were filled again."""
    times: list[float] = []
    stalls: list[float] = []
    busy: list[float] = []
    run = make(url)
    with redis.Redis.from_url(url, socket_timeout=120) as client:
        fill(client, load)
        run()  # connects
        for _ in range(repeat):
            fill(client, load)
            with watched(url) as longest:
                worked = work_ms(client)
                start = time.perf_counter()
                moved = run()
                times.append((time.perf_counter() - start) * 1_000)
                busy.append(work_ms(client) - worked)
            stalls += longest
    return {
        "median_ms": round(statistics.median(times), 1),
        "cpu_ms": round(statistics.median(busy), 1),
        "stall_median_ms": round(statistics.median(stalls), 1),
        "stall_ms": round(max(stalls), 1),
        "moved": moved,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--pending", type=int, nargs="+", default=[200])
    parser.add_argument("--unmatched", type=float, default=0.01)
    parser.add_argument("--late", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--redis-url")
    options = parser.parse_args()
    ways = {"round": ours, "kept": keeping, "rewriting": rewriting, "original": original}
    with contextlib.ExitStack() as stack:
        url = options.redis_url
        if url is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-benchmark-"))
            server = RedisServer(Path(folder), options={"appendonly": "no", "lazyfree-lazy-server-del": "yes"})
            url = stack.enter_context(server).url
        for pending in options.pending:
            load = Load(
                keys=options.keys,
                pending=pending,
                unmatched=round(options.keys * options.unmatched),
                late=min(options.late, pending),
            )
            results = {name: measure(url, load, options.repeat, make) for name, make in ways.items()}
            sys.stdout.write(json.dumps({"benchmark": "round", **asdict(load), **results}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
