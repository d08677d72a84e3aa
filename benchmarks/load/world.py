"""The processes of a run: redis-server, a broker, PostgreSQL if wanted, the installed `reconciler`, our workers.

with World(broker="embedded", check_interval_seconds=10) as world:
    world.configure(job, settings)         # settings file, tables, topics
    service = world.reconciler("run")      # a process
    worker = world.worker("announcer", "benchmarks.load.ids_announcer")
"""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import redis

from benchmarks.load.job import Job
from benchmarks.load.processes import command_of, own_children
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.sql import schema
from tests.services.postgres import PostgresServer
from tests.services.processes import Child
from tests.services.redis_server import RedisServer
from tests.services.rocketmq import RocketMQCluster

ROOT = Path(__file__).resolve().parents[2]
RECONCILER = Path(sys.executable).with_name("reconciler")
#: Advised in docs/reference/redis.md; the slow log keeps every command above a millisecond.
REDIS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "slowlog-log-slower-than": "1000",
    "slowlog-max-len": "20000",
}
#: As a real server is set up: durable.
POSTGRES = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "300",
}
#: Index files of the size that brokers have by default: those of the tests are small.
REAL_BROKER = {
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
}
BUSINESS_QUEUES = 8
START_SECONDS = 60.0


def until(reached: Callable[[], bool], *, within_seconds: float, what: str, every_seconds: float = 0.1) -> None:
    """Waits; SystemExit if it takes too long."""
    deadline = time.monotonic() + within_seconds
    while not reached():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {within_seconds:.0f} s not reached: {what}")
        time.sleep(every_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The service's times; the defaults are those of config/reconciler.toml."""

    interval_seconds: float = 5.0
    skew_margin_seconds: float = 10.0
    grace_period_seconds: float = 30.0


class World:
    """Everything of one run, ended and deleted at the end of the block. Used by one thread."""

    def __init__(
        self,
        *,
        broker: str = "embedded",
        check_interval_seconds: float = 60.0,
        postgres: bool = False,
        properties: dict[str, str] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="reconciler-load-"))
        self.run = secrets.token_hex(4).upper()
        self._broker_kind = broker
        self._properties = {
            "transactionCheckInterval": str(round(check_interval_seconds * 1_000)),
            "transactionTimeOut": str(round(min(6.0, check_interval_seconds) * 1_000)),
            "transactionCheckMax": "15",
            **(properties or {}),
        }
        self._wants_postgres = postgres
        self._stack = ExitStack()
        #: Processes of the run: name -> process id.
        self.pids: dict[str, int] = {}
        self.name_servers = ""
        self.config = self.folder / "reconciler.toml"
        self.redis = RedisServer(self.folder / "redis", options=REDIS)
        self.postgres: PostgresServer | None = None

    def __enter__(self) -> Self:
        # A run that is told to end takes its processes along.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        try:
            self._stack.enter_context(self.redis)
            self.pids["redis"] = self.redis.pid
            if self._broker_kind in {"embedded", "counted"}:
                self._embedded()
            else:
                self._real()
            if self._wants_postgres:
                before = own_children()
                self.postgres = self._stack.enter_context(PostgresServer(options=POSTGRES))
                (self.pids["postgres"],) = own_children() - before
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _embedded(self) -> None:
        knobs = [f"{name}={value}" for name, value in self._properties.items()]
        command: list[str | Path] = [RECONCILER, "broker", *(f"--knob={knob}" for knob in knobs)]
        if self._broker_kind == "counted":
            counts = self.folder / "requests.json"
            command = [sys.executable, "-m", "benchmarks.load.counted_broker", counts, *knobs]
        child = self._start("broker", command)
        said = self.log("broker")
        child.until(lambda: '"listen"' in said.read_text(), within_seconds=START_SECONDS, what="the embedded broker")
        first = next(line for line in said.read_text().splitlines() if '"listen"' in line)
        self.name_servers = str(json.loads(first)["listen"])

    def _real(self) -> None:
        cluster = RocketMQCluster(self._broker_kind, properties={**REAL_BROKER, **self._properties})
        before = own_children()
        self._stack.enter_context(cluster)
        self.name_servers = cluster.name_servers
        for pid in own_children() - before:
            self.pids["broker" if "BrokerStartup" in command_of(pid) else "name-server"] = pid

    # ----------------------------------------------------------------- preparing

    def configure(
        self,
        job: Job,
        timing: Timing,
        *,
        ledger_url: str | None = None,
        more: str = "",
        repair_order: Sequence[str] = ("end",),
    ) -> None:
        """Writes settings and job, makes tables and topics."""
        ledger = ledger_url or f"sqlite:///{self.folder / 'ledger.db'}"
        self.config.write_text(settings_toml(job, timing, ledger_url=ledger, more=more, repair_order=repair_order))
        job.write()
        for tree, url in (("ledger", ledger), ("outbox", job.outbox_url), ("inbox", job.inbox_url)):
            if url is not None:
                schema.upgrade(url, tree)
        with ClientInstance(self.name_servers) as instance:
            for address in instance.cluster_addresses():
                Admin(instance.client).create_topic(address, job.topic, queues=BUSINESS_QUEUES)
        child = self.reconciler("topics", "create")
        until(lambda: child.exit_code is not None, within_seconds=START_SECONDS, what="reconciler topics create")
        if child.exit_code != 0:
            raise SystemExit(f"reconciler topics create:\n{self.log('topics').read_text()}")
        del self.pids["topics"]

    # ----------------------------------------------------------------- processes

    def reconciler(self, *arguments: str, name: str = "") -> Child:
        """Starts the installed command; its name is the first argument, unless it is told."""
        return self._start(name or arguments[0], [RECONCILER, *arguments, "--config", self.config])

    def service(self) -> Child:
        """`reconciler run`, after its first round."""
        child = self.reconciler("run")
        self.await_first_round(child)
        return child

    def await_first_round(self, child: Child) -> None:
        """Returns when the service has finished a round."""
        log = self.log("run")
        child.until(lambda: "round_finished" in log.read_text(), within_seconds=START_SECONDS, what="reconciler run")

    def worker(self, name: str, module: str, *arguments: str) -> Child:
        """Starts one of our processes."""
        return self._start(name, [sys.executable, "-m", module, *arguments])

    def _start(self, name: str, command: list[str | Path]) -> Child:
        child = Child(command, log=self.log(name), cwd=ROOT, environment={"PYTHONPATH": str(ROOT)})
        self._stack.callback(child.kill)
        self.pids[name] = child.pid
        return child

    def log(self, name: str) -> Path:
        """Output of a process."""
        return self.folder / f"{name}.log"

    # ----------------------------------------------------------------- looking

    def pending(self, job: Job) -> int:
        """Keys in pending, and announced ones that no round has seen, over all shards."""
        subscription = Subscription(environment=job.environment, topic=job.topic, group=job.consumer_group)
        names = [ShardKeys(Shard(subscription=subscription, number=number)) for number in range(job.shards)]
        with redis.Redis.from_url(self.redis.url, socket_timeout=120) as client, client.pipeline() as pipe:
            for name in names:
                pipe.zcard(name.pending)
                pipe.scard(name.half)
            return sum(int(size) for size in pipe.execute())

    def redis_memory_bytes(self) -> int:
        """used_memory now."""
        with redis.Redis.from_url(self.redis.url, socket_timeout=120) as client:
            return int(client.info("memory")["used_memory"])

    def slowest_commands(self) -> dict[str, Any]:
        """Redis' own slow log (commands above 1 ms, execution alone): how many, and the longest."""
        with redis.Redis.from_url(self.redis.url, socket_timeout=120) as client:
            entries = client.slowlog_get(20_000)
        longest = max(entries, key=lambda entry: int(entry["duration"]), default=None)
        return {
            "over_1_ms": len(entries),
            "over_20_ms": sum(int(entry["duration"]) > 20_000 for entry in entries),
            "longest_ms": 0.0 if longest is None else round(int(longest["duration"]) / 1_000, 1),
            "longest_command": "" if longest is None else bytes(longest["command"])[:40].decode(errors="replace"),
        }


def settings_toml(job: Job, timing: Timing, *, ledger_url: str, more: str, repair_order: Sequence[str]) -> str:
    """The reconciler's settings; everything that does not stand here has its default."""
    outbox = f'outbox_url = "{job.outbox_url}"' if job.outbox_url else ""
    inbox = f'inbox_url = "{job.inbox_url}"' if job.inbox_url else ""
    tags = f'tags = "{job.tag}"' if job.tag else ""
    return f"""environment = "{job.environment}"

[rocketmq]
name_servers = "{job.name_servers}"
probe_topic = "{job.probe_topic}"

[unique_key_topic]
name = "{job.unique_key_topic}"
queues = {job.shards}

[redis]
url = "{job.redis_url}"

[ledger]
url = "{ledger_url}"

[[producers]]
group = "{job.producer_group}"
topics = ["{job.topic}"]
{outbox}

[[subscriptions]]
topic = "{job.topic}"
group = "{job.consumer_group}"
grace_period_seconds = {timing.grace_period_seconds}
repair_order = {json.dumps(list(repair_order))}
{inbox}
{tags}

[rounds]
interval_seconds = {timing.interval_seconds}
skew_margin_seconds = {timing.skew_margin_seconds}

[logging]
format = "json"
{more}"""
