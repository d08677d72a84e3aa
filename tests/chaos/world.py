"""Everything that runs: services, proxies and actors. Actors that die are started again with the next sentence."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import redis
import sqlalchemy as sa

from tests.chaos import failpoints, security
from tests.chaos.cluster import Cluster
from tests.chaos.hosts import ROOT, Actor, Host, build_clock, environment_of
from tests.chaos.job import ENVIRONMENT, GROUPS, PRODUCER_GROUPS, ChaosJob
from tests.chaos.truth import make_tables
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import USER, PostgresServer, PostgresStandby
from tests.services.redis_server import RedisServer
from tests.services.stacked import Stacked

POSTGRES_OPTIONS = {"max_connections": "400", "shared_buffers": "256MB", "max_wal_size": "4GB"}
#: Fewer sessions than clients with a transaction, so that each gets those of others.
POOLER_OPTIONS = {"default_pool_size": "20", "max_client_conn": "1000"}
#: A sentence waits for a step at most so often; whoever never comes there is killed by the run's dice.
TIMES_MAX = 20
#: Whoever is sentenced lives for so long at most; at least 0, which is in the middle of its start.
LIFE_SECONDS_MAX = 40.0
#: Faults that are made by who reads the bytes between clients and brokers, or asks brokers without a user.
NEED_A_PROXY = {
    *("lose_ends", "delay_requests", "reset_connections", "half_close_connections"),
    *("fill_a_disk", "make_a_broker_busy", "change_the_route"),
}


class World(Stacked):
    """Confined to the thread that runs the chaos."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        rate_per_second: float,
        deadly: bool = True,
        life_seconds_max: float = LIFE_SECONDS_MAX,
        release: Path = ROOT,
        has_plain_database: bool = False,
        is_secured: bool = False,
    ) -> None:
        """`release`: the checkout whose code makes the tables and is run, until actors are moved to another one.

        `has_plain_database`: nobody is behind a pooler, and `run` reads the outboxes from the primary.
        `is_secured`: brokers and Redis with users and TLS; no fault between them and their clients can be made.
        """
        super().__init__()
        self.folder = folder
        self._release = release
        self._is_secured = is_secured
        self._has_plain_database = has_plain_database
        self.counts: Counter[str] = Counter()
        self.steps_died_at: Counter[str] = Counter()
        self._dice = random.Random(f"world-{seed}")
        self._life_seconds_max = life_seconds_max
        self._seed, self._rate = seed, rate_per_second
        self._sentences = {role: self._order(role) for role in failpoints.CLASSES}
        #: False: actors get no sentences (a quiet phase, the end).
        self.deadly = deadly
        self.actors: list[Actor] = []
        #: Kinds of faults that this machine does not allow.
        self.impossible: set[str] = set()
        #: Names of actors that are not revived for now.
        self.stays_dead: set[str] = set()

    def _order(self, role: str) -> itertools.cycle[str]:
        steps = failpoints.steps_of(role)
        self._dice.shuffle(steps)
        return itertools.cycle(steps)

    # ----------------------------------------------------------------- start and end

    def _start(self) -> None:
        self.postgres = self._stack.enter_context(PostgresServer(options=POSTGRES_OPTIONS))
        name = self.postgres.create_database("chaos").rpartition("/")[2]
        url = f"postgresql+psycopg://{USER}@/{name}?host={self.postgres.folder}&port={self.postgres.port}"
        self.database = sa.create_engine(url, pool_pre_ping=True)
        self._stack.callback(self.database.dispose)
        url, outboxes_url = self._way_to_database(url, name)
        self.upgrade_tables(self._release, url)
        make_tables(self.database)
        tls = security.make_certificates(self.folder) if self._is_secured else None
        options = security.redis_options(self.folder, ENVIRONMENT) if self._is_secured else {}
        self.redis = self._stack.enter_context(
            RedisServer(self.folder / "redis", options={"appendfsync": "everysec", **options})
        )
        self._redis_backup = self.folder / "redis-backup"
        self._start_hosts()
        self.cluster = Cluster(self.folder, self._stack, seed=self._seed, tls=tls)
        if not all(disk.is_mounted for disk in self.cluster.disks.values()):
            self.impossible.add("fill_a_disk")
        self.proxies = self.cluster.proxies
        self.job = ChaosJob(
            folder=str(self.folder),
            seed=self._seed,
            name_servers=self.cluster.seen_name_servers,
            redis_url=self.redis.url,
            database_url=url,
            rate_per_second=self._rate,
        )
        self.job.write(outboxes_url=outboxes_url)
        self.redis_client = self._stack.enter_context(redis.Redis.from_url(self.job.redis_url_of(security.TESTER)))
        if self._is_secured:
            self.impossible |= NEED_A_PROXY
            security.make_users([broker.address for broker in self.cluster.brokers.values()], self.job, self.job.tls)
        self.cluster.make_topics(
            self.job.topic,
            unique_key_topic=self.job.unique_key_topic,
            shards=self.job.shards,
            probe_topic=self.job.probe_topic,
        )
        path = str(self.job.path)
        for number in range(len(PRODUCER_GROUPS)):
            self._spawn("producer", f"producer-{number}", self.producer_host, [path, str(number)])
        for group in GROUPS:
            for number in range(2):
                self._spawn("consumer", f"{group}-{number}", self.consumer_host, [path, group])
        for number, host in enumerate(self.reconciler_hosts):
            self._spawn("run", f"run-{number}", host, [path, "run"])
            self._spawn("sweep", f"sweep-{number}", host, [path, "sweep"])

    def _way_to_database(self, url: str, name: str) -> tuple[str, str]:
        """How services reach the database, and where `run` reads their outboxes: through a pooler, on a standby."""
        if self._has_plain_database:
            self.impossible |= {"pause_the_standby", "restart_the_pooler"}
            return url, url
        self.pooler = self._stack.enter_context(PgBouncer(self.postgres, options=POOLER_OPTIONS))
        self.standby = PostgresStandby(self.postgres)
        self.standby.options |= POSTGRES_OPTIONS
        self._stack.enter_context(self.standby)
        return self.pooler.through(self.postgres.url(name)), self.standby.url(name)

    def _start_hosts(self) -> None:
        self._clock_library = build_clock(self.folder)
        #: What a step of a clock reaches.
        self.clock = "the product's own clock" if self._clock_library is None else "every clock of the process"
        self.hosts: list[Host] = []
        # Elsewhere they have machines of their own; here consumers take what reconcilers leave, and the load the rest.
        self.producer_host = self.add_host("producers", nice=8)
        self.consumer_host = self.add_host("consumers", nice=4)
        #: Each has a clock of its own.
        self.reconciler_hosts = [self.add_host(f"reconciler-{number}") for number in range(2)]

    def add_host(self, name: str, *, nice: int = 0, release: Path | None = None) -> Host:
        """A host whose actors run the code of a checkout, this run's first one unless another is given."""
        host = Host(name, self.folder, clock=self._clock_library, nice=nice, release=release or self._release)
        self._stack.callback(host.close)
        self.hosts.append(host)
        return host

    def upgrade_tables(self, release: Path, url: str = "") -> None:
        """Migrates all three trees of tables, as a deployment does it: in a process of the release.

        The load goes on meanwhile and takes the processors, so the time-out is the bound of a hang.
        """
        for tree in ("outbox", "inbox", "ledger"):
            command = [sys.executable, "-m", "reconciler", "db", "upgrade", tree, "--url", url or self.job.database_url]
            subprocess.run(
                command, cwd=release, env=environment_of(release), check=True, capture_output=True, timeout=300
            )

    # ----------------------------------------------------------------- actors

    def _spawn(self, role: str, name: str, host: Host, arguments: list[str]) -> None:
        sentence = ""
        if self.deadly:
            times, seconds = self._dice.randint(1, TIMES_MAX), self._dice.uniform(0, self._life_seconds_max)
            sentence = f"{next(self._sentences[role])}:{times}:{seconds:.1f}"
        actor = host.spawn(role, name, arguments, log=self.folder / f"{name}.log", sentence=sentence)
        self.actors = [a for a in self.actors if a.name != name] + [actor]

    def revive(self) -> None:
        """Starts dead actors again; a producer that has ended because it was told to stays away."""
        for actor in list(self.actors):
            code = actor.exit_code
            if code is None or (code == 0 and actor.role == "producer") or actor.name in self.stays_dead:
                continue
            if code == -signal.SIGKILL:
                self.counts[f"killed {actor.role}"] += 1
                if actor.sentence:
                    self.steps_died_at[actor.sentence.rsplit(":", 2)[0]] += 1
            else:
                self.counts[f"ended by itself: {actor.role} {code}"] += 1
            self._spawn(actor.role, actor.name, actor.host, actor.arguments)

    def pause(self, seconds: float) -> None:
        """Lets time pass; the dead are revived meanwhile."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.revive()
            time.sleep(min(0.2, left))

    def meanwhile(self, work: Callable[[], object]) -> None:
        """Does something slow while the dead are revived; raises what it raised."""
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(work)
            while not done.done():
                self.pause(0.1)
            done.result()

    def move(self, name: str, host: Host) -> None:
        """An actor is asked to stop, as a deployment does it, and begins again on another host."""
        (actor,) = (a for a in self.actors if a.name == name)  # pause() puts others in the place of the dead
        actor.stop()
        self._spawn(actor.role, actor.name, host, actor.arguments)

    def kill(self, actor: Actor) -> None:
        """kill -9 of a process wherever it is; not a named step."""
        actor.sentence = ""
        actor.kill()

    def freeze(self, actor: Actor) -> None:
        """SIGSTOP; a frozen process counts as alive."""
        actor.send_signal(signal.SIGSTOP)
        actor.frozen = True

    def thaw(self) -> None:
        """SIGCONT for all processes."""
        for actor in self.actors:
            if actor.frozen:
                actor.send_signal(signal.SIGCONT)
                actor.frozen = False

    def living(self, role: str | None = None) -> list[Actor]:
        """Actors that run and are not frozen."""
        return [a for a in self.actors if a.exit_code is None and not a.frozen and (role is None or a.role == role)]

    # ----------------------------------------------------------------- Redis' data

    def keep_redis_data(self) -> None:
        """A backup of Redis' files as they are now, made while it is stopped."""
        self.redis.stop()
        shutil.rmtree(self._redis_backup, ignore_errors=True)
        shutil.copytree(self.redis.folder, self._redis_backup, ignore=shutil.ignore_patterns("*.sock", "*.log"))
        self.redis.start()

    def restore_redis_data(self) -> None:
        """Redis comes back with its backup."""
        self.redis.kill()
        kept = {path.name for path in self._redis_backup.iterdir()}
        for path in self.redis.folder.iterdir():
            if path.name in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self._redis_backup, self.redis.folder, dirs_exist_ok=True)
        self.redis.start()

    def end_load(self, *, within_seconds: float) -> None:
        """Producers are told to stop, and no process is sentenced any more."""
        self.deadly = False
        self.job.stop_sending.touch()
        self.thaw()
        for host in self.hosts:
            host.set_clock(0.0)
        deadline = time.monotonic() + within_seconds
        while self.living("producer") and time.monotonic() < deadline:
            self.revive()
            time.sleep(0.2)
        for actor in self.living("producer"):
            self.kill(actor)
        self.actors = [a for a in self.actors if a.role != "producer"]
        for actor in self.living():  # without sentences from now on
            actor.sentence = ""
