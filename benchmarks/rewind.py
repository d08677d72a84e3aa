"""Announcements are read again although everything was consumed long ago: how fast rounds find out.

    python -m benchmarks.rewind [--keys 20000] [--repeat 3] [--profile]

So it is after Redis came back with an old copy, and after recorders were away: every key waits in pending, is not in
the commit set, and is in the inbox. Measured is the round from due to gone, whole: pending pages, ledger, inbox, the
written verdict, ZREM; ledger and inbox in PostgreSQL with fsync, Redis real. `bare` is the least that could be done:
one statement on the inbox, one INSERT of finished ledger rows and one ZREM, 500 keys at a time. Both take turns. Prints
one JSON line: keys a second, this process's processor milliseconds a key, and the ratio.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import redis

from benchmarks.load.job import Job
from benchmarks.load.postgres import connect
from benchmarks.load.world import Timing, World, until
from reconciler.clock import SystemClock
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Subscription
from reconciler.contract.unique_key import member_of
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import RoundAssembly

TIMING = Timing(interval_seconds=0.5, skew_margin_seconds=0.0, grace_period_seconds=0.5)
PAGE = 500


def consumed(url: str, job: Job, keys: Sequence[str]) -> None:
    """Inbox rows, as a consumer leaves them."""
    with connect(url) as connection:
        at_ms = round(time.time() * 1000)
        with connection.cursor().copy(
            "COPY reconciler_inbox (unique_key, topic, consumer_group, source, applied_at_ms) FROM STDIN"
        ) as copy:
            for key in keys:
                copy.write_row((key, job.topic, job.consumer_group, "consumer", at_ms))
        connection.execute("ANALYZE reconciler_inbox")


class Rewound:
    """Pending keys that were consumed, and who finds out."""

    def __init__(self, world: World, job: Job, url: str) -> None:
        self.job, self.url = job, url
        self.connections = Connections(load_settings(world.config, {}), clock=SystemClock())
        self.assembly = RoundAssembly(self.connections)
        (self.topic,) = self.assembly.plans
        (self.plan,) = self.topic.subscriptions
        self.rounds = self.assembly.rounds_of(self.topic)
        self.client: Any = redis.Redis.from_url(world.redis.url)
        self.numbers = 0

    @property
    def subscription(self) -> Subscription:
        """The only one."""
        return self.plan.subscription

    def announce_again(self, keys: int) -> list[str]:
        """Consumed long ago, and in pending for longer than the grace period."""
        made = [self.job.key(self.numbers + number) for number in range(keys)]
        self.numbers += keys
        consumed(self.url, self.job, made)
        shards = self.topic.shards_of(self.subscription)
        for start in range(0, keys, 10_000):
            with self.client.pipeline() as pipe:
                for key in made[start : start + 10_000]:
                    pipe.sadd(ShardKeys(shards[self.topic.shard_of(key)]).half, member_of(key))
                pipe.execute()
        self.rounds.run(self.subscription)
        time.sleep(TIMING.grace_period_seconds)  # they grow old: nothing else happens
        return made

    def pending(self) -> int:
        """Keys of all shards."""
        return sum(self.client.zcard(ShardKeys(shard).pending) for shard in self.topic.shards_of(self.subscription))

    def by_rounds(self) -> None:
        """The product."""
        while self.pending():
            self.rounds.run(self.subscription)

    def bare(self, made: Sequence[str]) -> None:
        """The least, without a question whether another process was faster."""
        shards = self.topic.shards_of(self.subscription)
        with (
            connect(self.url) as inbox,
            connect(self.assembly.settings.ledger.url.reveal()) as ledger,
        ):
            for start in range(0, len(made), PAGE):
                page = made[start : start + PAGE]
                found = inbox.execute(
                    "SELECT unique_key, applied_at_ms FROM reconciler_inbox"
                    " WHERE consumer_group = %s AND topic = %s AND unique_key = ANY(%s)",
                    (self.job.consumer_group, self.job.topic, page),
                ).fetchall()
                ledger.execute(
                    "INSERT INTO reconciler_candidate (environment, topic, consumer_group, unique_key, shard, state,"
                    " verdict, evidence, attempts, first_seen_ms, next_at_ms, updated_at_ms)"
                    " SELECT %s, %s, %s, key, 0, 'SETTLED', 'CONSUMED', '{}', 1, 0, 0, 0"
                    " FROM unnest(%s::text[]) AS key",
                    (self.job.environment, self.job.topic, self.job.consumer_group, [key for key, _ in found]),
                )
                ledger.commit()
                with self.client.pipeline() as pipe:
                    for key in page:
                        pipe.zrem(ShardKeys(shards[self.topic.shard_of(key)]).pending, member_of(key))
                    pipe.execute()
        if self.pending():
            raise SystemExit(f"{self.pending()} keys are left")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Turns of both."""
    took: dict[str, list[tuple[float, float]]] = {"rounds": [], "bare": []}
    profile = cProfile.Profile()
    with World(postgres=True) as world:
        assert world.postgres is not None
        url, ledger = world.postgres.create_database("inbox"), world.postgres.create_database("ledger")
        job = Job(
            folder=str(world.folder), name_servers=world.name_servers, redis_url=world.redis.url, inbox_url=url,
            run=world.run,
        )  # fmt: skip
        world.configure(job, TIMING, ledger_url=ledger)
        rewound = Rewound(world, job, url)
        with rewound.connections:
            rewound.rounds.run(rewound.subscription)  # no epoch yet: an outage opens
            until(
                lambda: (
                    rewound.assembly.recovery().run(job.environment) is None
                    or rewound.rounds.run(rewound.subscription).suspended is None
                ),
                within_seconds=60,
                what="rounds",
            )
            for turn in range(options.repeat + 1):
                for way in ("rounds", "bare"):
                    made = rewound.announce_again(options.keys)
                    processor, wall = time.process_time(), time.perf_counter()
                    if way == "rounds":
                        if options.profile and turn:
                            profile.enable()
                        rewound.by_rounds()
                        profile.disable()
                    else:
                        rewound.bare(made)
                    if turn:  # the first one warms
                        took[way].append((time.perf_counter() - wall, time.process_time() - processor))
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        pstats.Stats(profile).sort_stats("cumtime").print_stats(60)
    return {
        "keys": options.keys,
        "turns": options.repeat,
        "keys_per_second": {
            way: round(options.keys / statistics.median(wall for wall, _ in of)) for way, of in took.items()
        },
        "processor_ms_per_key": {
            way: round(statistics.median(cpu for _, cpu in of) * 1000 / options.keys, 3) for way, of in took.items()
        },
        "to_bare": round(statistics.median(a[0] / b[0] for a, b in zip(took["rounds"], took["bare"], strict=True)), 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    print(json.dumps(measure(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
