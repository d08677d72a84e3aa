"""One round of one shard in Redis: the stored, fenced difference against the original design's MULTI.

    python -m benchmarks.round [--keys 20000] [--pending 200] [--repeat 5] [--redis-url redis://...]

Every set has that many keys, as after a busy interval: announced, consumed (all but one in a hundred) and two older
generations; pending has its own number, because the round rewrites it whole: a group that lags makes it long.
Prints one JSON line with milliseconds; `stall` is the longest answer that another client waited for meanwhile.
Without a URL it starts a redis-server of its own. The machine's noise is in the figures: quote ratios of one run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import redis

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.ledger.redis_client import open_redis
from reconciler.ledger.shard_memory import RedisShardMemory
from tests.services.redis_server import RedisServer

SHARD = Shard(subscription=Subscription(environment="benchmark", topic="ORDERS", group="billing"), number=0)
NAMES = ShardKeys(SHARD)


def fill(client: redis.Redis, count: int, waiting: int) -> None:
    """Puts the sets as they are before a round."""
    client.flushall()
    announced = [secrets.token_bytes(16) for _ in range(count)]
    consumed = announced[count // 100 :] + [secrets.token_bytes(16) for _ in range(count // 100)]
    sets = {NAMES.half: announced, NAMES.commit: consumed}
    for number in (1, 2):
        sets[NAMES.commit_generation(number)] = [secrets.token_bytes(16) for _ in range(count)]
    for name, members in sets.items():
        for start in range(0, count, 1_000):
            client.sadd(name, *members[start : start + 1_000])
    pending = [secrets.token_bytes(16) for _ in range(waiting)]
    for start in range(0, waiting, 1_000):
        client.zadd(NAMES.pending, dict.fromkeys(pending[start : start + 1_000], 1_700_000_000_000))


def ours(client: redis.Redis, url: str) -> Callable[[], int]:
    """Fence, types and MULTI, as the daemon runs it."""
    clients = open_redis(url)
    memory = RedisShardMemory(clients)
    del client

    def run() -> int:
        done = memory.take_round(SHARD, epoch=memory.begin_epoch(SHARD))
        if done is None:
            raise SystemExit("the round did not run")
        return done.counts.pending_added

    return run


def original(client: redis.Redis, _url: str) -> Callable[[], int]:
    """The original design: difference and both sets to the client, then DEL, in one MULTI."""

    def run() -> int:
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
        with redis.Redis.from_url(url) as client:
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


def measure(
    url: str, count: int, waiting: int, repeat: int, make: Callable[[redis.Redis, str], Callable[[], int]]
) -> dict[str, float]:
    """Best time of several runs without a watcher, then the stall that a watcher sees."""
    times: list[float] = []
    with redis.Redis.from_url(url, socket_timeout=120) as client:
        run = make(client, url)
        for _ in range(repeat):
            fill(client, count, waiting)
            start = time.perf_counter()
            found = run()
            times.append((time.perf_counter() - start) * 1_000)
        fill(client, count, waiting)
        client.config_resetstat()
        with watched(url) as longest:
            run()
        busy_us = client.info("commandstats").get("cmdstat_exec", {}).get("usec", 0)
    return {
        "best_ms": round(min(times), 1),
        "median_ms": round(sorted(times)[len(times) // 2], 1),
        "stall_ms": round(longest[0], 1),
        "exec_ms": round(busy_us / 1_000, 1),
        "different": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--pending", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--redis-url")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.redis_url
        if url is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-benchmark-"))
            server = RedisServer(Path(folder), options={"appendonly": "no", "lazyfree-lazy-server-del": "yes"})
            url = stack.enter_context(server).url
        figures = {"round": ours, "original": original}
        results = {
            name: measure(url, options.keys, options.pending, options.repeat, make) for name, make in figures.items()
        }
    sys.stdout.write(
        json.dumps({"benchmark": "round", "keys": options.keys, "pending": options.pending, **results}) + "\n"
    )


if __name__ == "__main__":
    main()
