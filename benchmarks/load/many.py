"""Subscriptions at rest, each of a topic of its own: what they cost `run`, servers and brokers while nothing happens.

`python -m benchmarks.load.many --subscriptions 5 50` runs both, one after the other, and compares them: processor time
of one machine and one hour says little, the ratio of two runs does. Counts are the same on every machine. `run` is as
people run it: with a history, a notifier, metrics that are scraped every 10 s, and a console that one person has open;
with `--bare` it has none of them.

`--processes 2` has so many `run`, bare, which share the subscriptions. At the end one is killed: how long until the
others have what it had.

With `--queries` a commit query and an effect query prove what happened, and half messages announce, of all topics but
the first. Work that grows with topics times groups shows itself from 200 of them on.

`--rate 1`, bare, announces one id per second of each subscription and records it as consumed: what subscriptions cost
that are not at rest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from redis import Redis

from benchmarks.load import service_log
from benchmarks.load.browsers import Browser
from benchmarks.load.figures import Goal, at_most, equal, percentile, report
from benchmarks.load.job import Job
from benchmarks.load.postgres import ask, tell
from benchmarks.load.processes import Meter
from benchmarks.load.world import BUSINESS_QUEUES, RECONCILER, Timing, World, until
from checkback_consumers.recorder import CommitRecorder
from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.remoting import RemotingAnnouncements
from reconciler.commands.metrics import STATUS_SECONDS
from reconciler.contract.announcement import AnnouncedKey
from reconciler.contract.defaults import LEASE_SECONDS
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.policy.shard_rounds import REST_SECONDS_MAX
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.wiring.rounds import LONG_REST, REST_TURNS
from tests.services.ports import free_port

SCRAPED_EVERY_SECONDS, LOOKED_AT_EVERY_SECONDS = 10.0, 2.0
#: Of many subscriptions: the first turn has a round for each of their shards.
FIRST_ROUNDS_SECONDS = 900.0
#: Until several processes have as many subscriptions each, or those of a dead one.
SHARED_SECONDS = 600.0
#: Without these no `status` is possible, and how often both are started.
IMPORTED, ASKED = "import sqlalchemy, pydantic, redis", 5
PULL = "PULL_MESSAGE"
#: What a reading of `status`, which an open console and scrapes share, may ask brokers about one subscription: three
#: offsets of each queue of the topic and its retry topic, the group's connections and filter, and probes of the index.
REQUESTS_A_READING = 40
#: What PostgreSQL's log says of a statement.
_LOGGED = ("statement: ", "execute ")


def topics(job: Job, number: int) -> list[str]:
    """The topic of the job, and others."""
    return [job.topic, *(f"{job.topic}_{n}" for n in range(1, number))]


class Traffic:
    """Ids of every topic, announced and recorded as consumed by a thread of its own."""

    def __init__(self, job: Job, topics: list[str], rate: float) -> None:
        """`rate`: ids per second of each topic."""
        self._job, self._topics, self._rate = job, topics, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self.ids = 0
        self.failures: list[str] = []

    def begin(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def end(self) -> None:
        """Returns when the thread has ended."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        job = self._job
        route = AnnouncementRoute(environment=job.environment, unique_key_topic=job.unique_key_topic, queues=job.shards)
        with ExitStack() as stack:
            instance = stack.enter_context(ClientInstance(job.name_servers))
            announcer = Announcer(RemotingAnnouncements(job.producer_group, instance), route)
            recorder = stack.enter_context(
                CommitRecorder.open(
                    job.redis_url, environment=job.environment, group=job.consumer_group, topics=self._topics,
                    shards=job.shards,
                )
            )  # fmt: skip
            began = time.monotonic()
            while not self._stop.is_set():
                due = int((time.monotonic() - began) * self._rate * len(self._topics))
                for number in range(self.ids, due):
                    self._send(announcer, recorder, self._topics[number % len(self._topics)], job.key(number))
                    self.ids = number + 1
                self._stop.wait(0.05)

    def _send(self, announcer: Announcer, recorder: CommitRecorder, topic: str, key: str) -> None:
        announced = AnnouncedKey(unique_key=key, tag=None, committed_at_ms=int(time.time() * 1_000))
        told = announcer.announce(topic, self._job.producer_group, [announced])
        if told.error is not None:
            self.failures.append(str(told.error))
        recorder.record(topic, key)


class Rest:
    """One run of so many subscriptions."""

    def __init__(self, world: World, number: int, options: argparse.Namespace) -> None:
        self._world, self._number, self._options = world, number, options
        self._console, self._metrics = free_port(), free_port()
        assert world.postgres is not None
        self._server = world.postgres
        self._traffic: Traffic | None = None
        self._ledger = world.postgres.create_database("ledger")
        self._job = Job(
            folder=str(world.folder), name_servers=world.name_servers, redis_url=world.redis.url, run=world.run,
            inbox_url=f"sqlite:///{world.folder / 'inbox.db'}",
        )  # fmt: skip

    def begin(self) -> None:
        """Returns when every shard had its first round, and all was calm for a while."""
        with ClientInstance(self._world.name_servers) as instance:
            for address in instance.cluster_addresses():
                for topic in topics(self._job, self._number):
                    Admin(instance.client).create_topic(address, topic, queues=BUSINESS_QUEUES)
        timing = Timing(interval_seconds=self._options.interval)
        self._world.configure(self._job, timing, ledger_url=self._ledger, more=self._sections())
        database = sa.engine.make_url(self._ledger).database
        tell(self._ledger, f"ALTER DATABASE \"{database}\" SET log_statement = 'all'")
        self._runs = {
            name: self._world.reconciler("run", name=name)
            for name in ("run", *(f"run-{n}" for n in range(2, self._options.processes + 1)))
        }
        shards = self._number * self._job.shards
        until(
            lambda: self._begun() >= shards, within_seconds=FIRST_ROUNDS_SECONDS, what="the first rounds of all",
            every_seconds=1.0,
        )  # fmt: skip
        most = -(-self._number // len(self._runs))
        until(
            lambda: len(self.owners()) == len(self._runs) and max(self.owners().values()) <= most,
            within_seconds=SHARED_SECONDS, what="as many subscriptions for each process", every_seconds=1.0,
        )  # fmt: skip
        if self._options.rate:
            self._traffic = Traffic(self._job, topics(self._job, self._number), self._options.rate)
            self._traffic.begin()
        time.sleep(self._options.settle)

    def end(self) -> list[str]:
        """Ends the traffic; what went wrong with it."""
        if self._traffic is None:
            return []
        self._traffic.end()
        return self._traffic.failures

    def owners(self) -> Counter[str]:
        """Subscriptions by the process that has the lease of their first shard."""
        environment, group = self._job.environment, self._job.consumer_group
        of = [Subscription(environment=environment, topic=t, group=group) for t in topics(self._job, self._number)]
        with Redis.from_url(self._world.redis.url) as client, client.pipeline() as pipe:
            for subscription in of:
                pipe.get(ShardKeys(Shard(subscription=subscription, number=0)).round_lease)
            held = [bytes(value).split(b" ")[0].decode() for value in pipe.execute() if value]
        return Counter(held)

    def taken_over_seconds(self) -> float | None:
        """From the death of one of several processes until the others have all subscriptions."""
        if len(self._runs) == 1:
            return None
        name, child = self._runs.popitem()
        pid, began = self._world.pids.pop(name), time.monotonic()
        child.kill()
        until(
            lambda: not any(f":{pid}:" in owner for owner in self.owners())
            and self.owners().total() == self._number,
            within_seconds=SHARED_SECONDS, what="subscriptions of a dead process", every_seconds=0.5,
        )  # fmt: skip
        return round(time.monotonic() - began, 1)

    def figures(self) -> dict[str, Any]:
        """Of the time that is measured."""
        meter, stop = Meter(self._world.pids), threading.Event()
        looking = {} if self._options.bare else self._looking(stop)
        before, skipped, began = self._counts(), self._skipped(), time.monotonic()
        ids = self._traffic.ids if self._traffic else 0
        meter.start()
        time.sleep(self._options.seconds)
        took = time.monotonic() - began
        counted, cores = self._counts() - before, meter.cores(took)
        ids = self._traffic.ids - ids if self._traffic else 0
        stop.set()
        for one in looking.values():
            one.join()
        rows = counted.pop("rows", 0) * 60 / took
        turns = took / self._options.interval
        pulls = counted.pop(PULL, 0) / took
        requests = sum(n for name, n in counted.items() if name.isupper())
        return {
            "subscriptions": self._number,
            "seconds": round(took, 1),
            "ids_a_second_a_subscription": round(ids / took / self._number, 2),
            "cores_by_process": {name: cores[name] for name in (*self._runs, "redis", "broker", "postgres")},
            "subscriptions_by_process": sorted(self.owners().values()),
            "resident_mib": meter.resident_mib["run"],
            "turns_skipped": dict(self._skipped() - skipped),
            "rows_a_minute_a_subscription": round(rows / self._number, 2),
            "statements_a_turn": round(counted["statements"] / turns, 1),
            "write_transactions_a_turn": round(counted["writes"] / turns, 2),
            "redis_exchanges_a_turn": round(counted["exchanges"] / turns, 1),
            "redis_commands_a_turn": round(counted["commands"] / turns, 1),
            "pulls_a_second_a_queue": round(pulls / self._job.shards, 2),
            "other_requests_a_second": round(requests / took, 1),
            "requests": {name: round(n / took, 2) for name, n in counted.most_common() if name.isupper()},
            "answers_ms": {
                page: {"p50": round(percentile(waits, 50), 1), "p95": round(percentile(waits, 95), 1)}
                for page, waits in ((page, sorted(one.waits_ms)) for page, one in looking.items())
            },
            "without_an_answer": [failure for one in looking.values() for failure in one.failures],
            "status": self._status(),
        }

    def _status(self) -> dict[str, float]:
        """Processor time of `reconciler status`, in as many times that of what it cannot do without; medians."""
        imports = [_processor_seconds([sys.executable, "-c", IMPORTED])[0] for _ in range(ASKED)]
        asked = [_processor_seconds([RECONCILER, "status", "--config", self._world.config]) for _ in range(ASKED)]
        processor = statistics.median(seconds for seconds, _ in asked)
        return {
            "processor_seconds": round(processor, 2),
            "of_imports": round(processor / statistics.median(imports), 2),
            "wall_seconds": round(statistics.median(wall for _, wall in asked), 1),
        }

    def _sections(self) -> str:
        """Settings besides those of one subscription."""
        others = topics(self._job, self._number)[1:]
        producer, subscription, repairs = self._by_queries(others) if self._options.queries else ("", "", "")
        subscriptions = "".join(
            f'\n[[producers]]\ngroup = "service-{n}"\ntopics = ["{topic}"]\n{producer}'
            f'\n[[subscriptions]]\ntopic = "{topic}"\ngroup = "{self._job.consumer_group}"\n{subscription}'
            for n, topic in enumerate(others, 1)
        )
        subscriptions += repairs
        if self._options.bare:
            return subscriptions
        return (
            f'{subscriptions}\n[history]\npath = "{self._world.folder / "history"}"\n'
            f'\n[metrics]\nlisten = "127.0.0.1:{self._metrics}"\n\n[web]\nlisten = "127.0.0.1:{self._console}"\n'
            f'\n[[notifiers]]\nname = "on-call"\nkind = "webhook"\nurl = "http://127.0.0.1:9/"\n'
        )

    def _by_queries(self, others: list[str]) -> tuple[str, str, str]:
        """Lines of a producer, of a subscription, and the section of repairs, for topics that queries prove."""
        shop = self._server.create_database("shop")
        tell(shop, "CREATE TABLE orders (number text PRIMARY KEY, status text)")
        commits, effects = self._world.folder / "commits.toml", self._world.folder / "effects.toml"
        asked = (
            f'database_url = "{shop}"\nkey = "KEYS"\n'
            'sql = "SELECT number, status FROM orders WHERE number IN (:keys)"\n'
        )
        commits.write_text(
            "".join(
                f'[[commit_queries]]\ntopic = "{topic}"\n{asked}committed = ["PAID"]\nrolled_back = ["CANCELLED"]\n'
                for topic in others
            )
        )
        group = self._job.consumer_group
        effects.write_text(
            "".join(
                f'[[effect_queries]]\ntopic = "{topic}"\ngroup = "{group}"\n{asked}applied = ["PAID"]\n'
                for topic in others
            )
        )
        announced = 'announcements = "half_topic"\nconsumers_are_idempotent = true\n'
        sent = "".join(f"{topic} = true\n" for topic in others)
        return (
            f'commit_queries = "{commits}"\n',
            f'{announced}effect_query = "{effects}"\n',
            f"\n[repairs.topics]\n{sent}",
        )

    def _looking(self, stop: threading.Event) -> dict[str, Browser]:
        """Who asks `run` meanwhile, by what is asked for."""
        asked = {
            "metrics": (f"http://127.0.0.1:{self._metrics}/metrics", SCRAPED_EVERY_SECONDS),
            "overview": (f"http://127.0.0.1:{self._console}/overview/now", LOOKED_AT_EVERY_SECONDS),
        }
        found = {
            page: Browser(url, first_seconds=0.0, every_seconds=every_seconds, stop=stop)
            for page, (url, every_seconds) in asked.items()
        }
        for one in found.values():
            one.start()
        return found

    def _begun(self) -> int:
        """Shards that had a round."""
        rounds = "SELECT DISTINCT topic, shard FROM reconciler_round"
        return int(ask(self._ledger, f"SELECT count(*) FROM ({rounds}) begun")[0][0])

    def _rows(self) -> int:
        return int(ask(self._ledger, "SELECT count(*) FROM reconciler_round")[0][0])

    def _counts(self) -> Counter[str]:
        """What servers and broker counted so far."""
        lines = self._server.log.read_text(encoding="utf-8", errors="replace").splitlines()
        statements = [line for line in lines if any(kind in line for kind in _LOGGED)]
        writing = ("INSERT ", "UPDATE ", "DELETE ")
        writes, has_written = 0, False
        for line in statements:
            has_written = has_written or any(word in line for word in writing)
            if "COMMIT" in line:
                writes, has_written = writes + has_written, False
        with Redis.from_url(self._world.redis.url) as client:
            info: Any = client.info("stats")
        counted = Counter(json.loads((self._world.folder / "requests.json").read_text()))
        counted["rows"] = self._rows()
        counted["statements"], counted["writes"] = len(statements), writes
        counted["exchanges"], counted["commands"] = info["total_reads_processed"], info["total_commands_processed"]
        return counted

    def _skipped(self) -> Counter[str]:
        """Why -> lines that told of it."""
        return Counter(service_log.rounds(self._world.log("run")).skipped)


def _processor_seconds(command: list[str | Path]) -> tuple[float, float]:
    """Of a process from its start to its end, and how long it took."""
    before, began = os.times(), time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, time.monotonic() - began


def at_rest(number: int, options: argparse.Namespace) -> dict[str, Any]:
    """Figures of so many subscriptions."""
    with World(broker="counted", postgres=True) as world:
        rest = Rest(world, number, options)
        rest.begin()
        try:
            figures = {**rest.figures(), "taken_over_seconds": rest.taken_over_seconds()}
        finally:
            failures = rest.end()
        return {**figures, "failed_announcements": failures[:20]}


def goals_of(runs: list[dict[str, Any]], options: argparse.Namespace) -> list[Goal]:
    """What must hold of all runs, and of the last beside the first. A shard at rest has a round after two thirds of its
    rest, or later; beside a history it has one a minute."""
    rest_seconds = min(REST_SECONDS_MAX, REST_TURNS * options.interval) * (LONG_REST if options.bare else 1)
    few, many = runs[0], runs[-1]
    more = many["subscriptions"] / few["subscriptions"]
    rows = max(run["rows_a_minute_a_subscription"] for run in runs)
    rows_most = 16 * 60 / options.interval if options.rate else 16 * 1.5 * 60 / rest_seconds
    read_a_second = 0.0 if options.bare else REQUESTS_A_READING / STATUS_SECONDS * many["subscriptions"]
    requests_most = max(200.0, read_a_second)
    goals = [
        at_most("rows a minute and subscription", rows, rows_most),
        equal("failed announcements", [failure for run in runs for failure in run["failed_announcements"]], []),
        equal("rounds skipped at rest", [run["turns_skipped"] for run in runs if run["turns_skipped"]], []),
        at_most("pulls a second and queue", max(run["pulls_a_second_a_queue"] for run in runs), 1.0),
        at_most("other requests a second", max(run["other_requests_a_second"] for run in runs), requests_most),
    ]
    if taken := [run["taken_over_seconds"] for run in runs if run["taken_over_seconds"] is not None]:
        goals.append(at_most("seconds until a dead process is replaced", max(taken), 2 * LEASE_SECONDS))
    if more > 1 and not options.rate:
        most = more if options.queries else more / 2
        goals.append(at_most("processor of many, as many times that of few", _times(few, many), most))
        status = many["status"]["processor_seconds"] / few["status"]["processor_seconds"]
        goals.append(at_most("processor of status, as many times that of few", round(status, 2), more))
    return goals


def _times(few: dict[str, Any], many: dict[str, Any]) -> float:
    return round(float(many["cores_by_process"]["run"] / max(0.001, few["cores_by_process"]["run"])), 2)


def main(arguments: list[str] | None = None) -> int:
    """Figures and goals as one JSON document."""
    parser = argparse.ArgumentParser(prog="benchmarks.load.many", description=__doc__)
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[5, 50], help="of each run, ascending")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each run, after its first rounds")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds between the first rounds and the run")
    parser.add_argument("--interval", type=float, default=5.0, help="rounds.interval_seconds")
    parser.add_argument("--bare", action="store_true", help="without history, notifier, metrics and console")
    parser.add_argument("--queries", action="store_true", help="commits and effects are proved by queries")
    parser.add_argument("--out", type=Path, default=None, help="file that keeps the figures")
    parser.add_argument("--processes", type=int, default=1, help="`run` that share the subscriptions, bare")
    parser.add_argument("--rate", type=float, default=0.0, help="ids per second of each subscription; 0: at rest")
    options = parser.parse_args(arguments)
    options.bare = options.bare or options.processes > 1 or options.rate > 0
    runs = []
    for number in options.subscriptions:
        runs.append(at_rest(number, options))
        sys.stderr.write(f"{json.dumps(runs[-1])}\n")
    figures = {"bare": options.bare, "runs": runs, "run_many_by_few": _times(runs[0], runs[-1])}
    return report("load-many", figures, goals_of(runs, options), options.out)


if __name__ == "__main__":
    sys.exit(main())
