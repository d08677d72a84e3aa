"""A small deployment of the test's own: broker, Redis, four SQLite databases, settings; services as processes.

with Deployment(tmp_path, redis_url=..., name_servers=...) as deployed:
    deployed.run("run")                      # a service process, stopped at the end
    keys = deployed.commit(5, lose=True)     # committed messages whose END_TRANSACTION is dropped
    deployed.consume()                       # a consumer of the group `billing`, in this process
    eventually(lambda: deployed.effects() == set(keys), within_seconds=60)
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder, OnMissed
from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import open_producer
from reconciler.clock import SystemClock
from reconciler.errors import ReconcilerError
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.producer.ending import EndDecision
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator
from reconciler.sql import schema
from reconciler.sql.database_time import now_ms
from reconciler.sql.engines import open_engine
from tests.acceptance.command import reconciler
from tests.acceptance.marked_secrets import FOLDER as SECRETS_FOLDER
from tests.acceptance.marked_secrets import marked, require_no_secret_in_tables, require_unmarked
from tests.acceptance.warm_commands import WarmProcess
from tests.ended import Ended
from tests.engines import disposed
from tests.polling import PATIENCE
from tests.services.patient_instance import TIMEOUT_SECONDS, patient_client, patient_instance

SHARDS = 2
#: Not unique: one that happens twice shows.
EFFECTS = sa.Table(
    "effects",
    sa.MetaData(),
    sa.Column("unique_key", sa.String(255), nullable=False),
    sa.Column("applied_at_ms", sa.BigInteger, nullable=False),
)
ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("unique_key", sa.String(255), nullable=False))


class Service:
    """A `reconciler ...` process; its output goes to a file."""

    def __init__(
        self,
        log: Path,
        arguments: Iterable[str],
        *,
        program: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`variables`: of the product; what the test process has is not passed on."""
        self.log = log
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RECONCILER_")} | dict(variables or {})
        with log.open("ab") as output:
            self.process: subprocess.Popen[bytes] | WarmProcess
            if program is None:
                self.process = WarmProcess([*arguments], output=output.fileno(), variables=environment)
            else:
                self.process = subprocess.Popen(
                    [program, *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment
                )

    def end(self, number: signal.Signals = signal.SIGTERM, *, within_seconds: float = 40) -> int:
        """Sends a signal and waits; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(within_seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    @property
    def takes_signals(self) -> bool:
        """Whether a service handles SIGTERM by now: until then a signal ends it at once."""
        return "service_started" in self.output

    @property
    def output(self) -> str:
        """Everything it wrote."""
        return self.log.read_text(errors="replace")

    @property
    def records(self) -> list[dict[str, Any]]:
        """What it has logged, in its order; of a line that is being written, nothing."""
        lines = self.output.splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]


class Load:
    """A producer at work until the end of the block. `committed` and `lost` are read when it has ended."""

    def __init__(
        self, deployed: Deployment, producer: TransactionalProducer, *, pause_seconds: float, lose_every: int
    ) -> None:
        self.committed: list[str] = []
        #: Of those: the keys whose END_TRANSACTION and check-backs never arrived.
        self.lost: list[str] = []
        #: Blocks that raised: their keys are not committed.
        self.failed: list[BaseException] = []
        self._deployed = deployed
        self._producer = producer
        self._pause_seconds = pause_seconds
        self._lose_every = lose_every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._pause_seconds):
            number += 1
            lose = number % self._lose_every == 0
            try:
                keys = self._deployed.commit(1, lose=lose, producer=self._producer)
            except (ReconcilerError, sa.exc.OperationalError) as error:
                self.failed.append(error)
                continue
            self.committed += keys
            if lose:
                self.lost += keys

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


class Deployment:
    """Confined to one test; ends every process and closes every connection at the end of the block."""

    def __init__(
        self,
        folder: Path,
        *,
        redis_url: str,
        name_servers: str,
        settings: str = "",
        subscription: str = "",
        shards: int = SHARDS,
        grace_period_seconds: float = 2.0,
        ledger_url: str | None = None,
        outbox_url: str | None = None,
        inbox_url: str | None = None,
        acl: AclCredentials | None = None,
        tls: TlsSettings | None = None,
        has_marked_secrets: bool = False,
    ) -> None:
        """`settings` is TOML that is appended: sections [rounds], [repairs], [sweep] and their like. Lines of
        `subscription` are of [[subscriptions]].

        `outbox_url` and `inbox_url`: fresh databases of the services; without them each is a file.
        `acl` and `tls` are for all that connects to brokers.
        `has_marked_secrets`: announcements and requests are signed with them.
        """
        self.folder = folder
        self.run_name = uuid4().hex[:8]
        self.topic = f"ORDERS_{self.run_name}"
        self.group = f"billing-{self.run_name}"
        self.producer_group = f"orders-{self.run_name}"
        self.environment = f"test-{self.run_name}"
        self.unique_key_topic = f"KEYS_{self.run_name}"
        self.shards = shards
        self.redis_url = redis_url
        self.name_servers = name_servers
        self.ledger_url = ledger_url or f"sqlite:///{folder / 'ledger.db'}"
        self._outbox_url, self._inbox_url = outbox_url, inbox_url
        self.config = folder / "reconciler.toml"
        self.acl = acl
        self.tls = tls
        self._extra = settings
        self._subscription = subscription
        names = ("signature_secret", "secret_key", "key_password") if has_marked_secrets else ()
        self._secrets = {name: marked(name) for name in names} | {"redis": redis_url}
        if acl is not None:
            self._secrets["secret_key"] = str(acl.secret_key)
        if ledger_url is not None:
            self._secrets["ledger"] = ledger_url
        self._grace_period_seconds = grace_period_seconds
        self._stack = ExitStack()
        self._dropped: set[str] = set()
        self._rolled_back: set[str] = set()
        self._keys = UniqueKeyGenerator(SystemClock())
        self.services: list[Service] = []

    @property
    def is_marked(self) -> bool:
        """Whether it has marked secrets."""
        return "signature_secret" in self._secrets

    @property
    def outbox_url(self) -> str:
        """Where the producer's tables are."""
        return self._outbox_url or f"sqlite:///{self.outbox}"

    @property
    def inbox_url(self) -> str:
        """Where the consumer's tables are."""
        return self._inbox_url or f"sqlite:///{self.inbox}"

    @property
    def outbox(self) -> Path:
        """The producer's database, unless outbox_url names another."""
        return self.folder / "orders.db"

    @property
    def inbox(self) -> Path:
        """The consumer's database, unless inbox_url names another."""
        return self.folder / "billing.db"

    @property
    def ledger(self) -> Path:
        """The ledger, unless ledger_url names another."""
        return self.folder / "ledger.db"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / SECRETS_FOLDER).mkdir(exist_ok=True)
        for name, secret in self._secrets.items():
            self.file_of(name).write_text(secret)
        self.config.write_text(self._toml())
        for tree, url in (
            ("outbox", self.outbox_url),
            ("inbox", self.inbox_url),
            ("ledger", self.ledger_url),
        ):
            schema.upgrade(url, tree)
        for url, table in ((self.inbox_url, EFFECTS), (self.outbox_url, ORDERS)):
            with disposed(open_engine(url)) as engine:
                table.create(engine)
        with patient_instance(self.name_servers, acl=self.acl, tls=self.tls) as instance:
            for address in instance.cluster_addresses():
                Admin(instance.client).create_topic(address, self.topic, queues=4)
        created = self.command("topics", "create")
        assert created.exit_code == 0, created.stderr
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in self.services:
            if service.process.poll() is None:
                service.process.kill()
                service.process.wait(60)
        self._stack.close()
        if kind is None and "ledger" in self._secrets:
            require_no_secret_in_tables(self.ledger_url)

    def file_of(self, secret: str) -> Path:
        """The file that holds it."""
        return self.folder / SECRETS_FOLDER / secret

    def _source_of(self, secret: str, setting: str = "") -> str:
        """A line of the settings, the name of the setting unless it is the secret's; none without the secret."""
        return f'{setting or secret}_file = "{self.file_of(secret)}"' if secret in self._secrets else ""

    def take_group(self, group: str) -> None:
        """From now on the settings, and members that start, have this name of the group."""
        self.config.write_text(self.config.read_text().replace(f'"{self.group}"', f'"{group}"'))
        self.group = group

    # ----------------------------------------------------------------- the product's processes

    def command(self, *arguments: str, timeout_seconds: float = 120) -> Ended:
        """Runs `reconciler ... --config` and waits for its end."""
        return reconciler(*arguments, "--config", self.config, timeout_seconds=timeout_seconds)

    def run(self, *arguments: str, variables: Mapping[str, str] | None = None) -> Service:
        """Starts `reconciler ... --config` as a process; `variables` beat the file."""
        require_unmarked(*arguments)  # no list of processes shows them: WarmProcess
        name = f"{arguments[0]}-{len(self.services)}"
        log, config = self.folder / f"{name}.log", str(self.config)
        service = Service(log, [*arguments, "--config", config], variables=variables)
        self.services.append(service)
        return service

    # ----------------------------------------------------------------- the users' services, in this process

    def producer(self) -> TransactionalProducer:
        """A started producer whose END_TRANSACTION and check-backs are dropped for keys in `lose`; one a deployment."""
        client = patient_client(outgoing=self._pass, incoming=self._pass, acl=self.acl, tls=self.tls)
        instance = ClientInstance(self.name_servers, client=client)
        producer = open_producer(
            group=self.producer_group,
            environment=self.environment,
            instance=instance,
            outbox_url=self.outbox_url,
            announcements=AnnouncementRoute(
                environment=self.environment,
                unique_key_topic=self.unique_key_topic,
                queues=self.shards,
                signature_secret=self._secrets["signature_secret"].encode() if self.is_marked else None,
            ),
            send_timeout_seconds=TIMEOUT_SECONDS,
            end_timeout_seconds=TIMEOUT_SECONDS,
            announce_every_seconds=None,  # a test may stop brokers, or look, right after a block
        )
        self._stack.callback(client.close)
        self._stack.callback(instance.close)
        return self._stack.enter_context(producer)

    def commit(
        self,
        count: int,
        *,
        lose: bool = False,
        roll_back: bool = False,
        before: Callable[[list[str]], object] | None = None,
        producer: TransactionalProducer | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Commits so many messages, with these properties of the user's; returns their keys, which `before` gets first.

        `lose` drops END and check-backs; `roll_back` says ROLLBACK to the broker, as a service that looks in a wrong
        database does.
        """
        sender = producer or self.producer()
        engine = open_engine(self.outbox_url, lock_timeout_seconds=30)
        keys = [self._keys.next_key() for _ in range(count)]
        if lose:
            self._dropped.update(keys)
        if roll_back:
            self._rolled_back.update(keys)
        if before is not None:
            before(keys)
        try:
            for key in keys:
                message = Message(
                    topic=self.topic, body=key.encode(), unique_key=key, properties=dict(properties or {})
                )
                with sender.transaction(message) as tx, engine.connect() as connection, connection.begin():
                    tx.record(connection)
                    connection.execute(sa.insert(ORDERS).values(unique_key=key))
        finally:
            engine.dispose()
        return keys

    def consume(
        self,
        before: Callable[[Any], None] | None = None,
        *,
        after: Callable[[Any, sa.Connection], None] | None = None,
        on_missed: OnMissed | None = None,
        settings: PushSettings | None = None,
        topics: Iterable[str] = (),
    ) -> TransactionalConsumer:
        """Starts a member of the group; `before` sees each message before its effect, `after` with the connection of
        the effect, `on_missed` each failed SADD.

        `topics`: those that it takes; none: the topic."""
        engine = open_engine(self.inbox_url, lock_timeout_seconds=30, must_exist=True)
        self._stack.callback(engine.dispose)
        recorder = CommitRecorder.open(
            self.redis_url,
            environment=self.environment,
            group=self.group,
            shards=self.shards,
            timeout_seconds=0.5,
            on_missed=on_missed,
        )
        self._stack.callback(recorder.close)

        @transactional_handler(engine, group=self.group, topics=tuple(topics) or self.topic, recorder=recorder)
        def handle(message: Any, connection: sa.Connection) -> None:
            if before is not None:
                before(message)
            connection.execute(
                sa.insert(EFFECTS).values(unique_key=message.unique_key, applied_at_ms=now_ms(engine.dialect.name))
            )
            if after is not None:
                after(message, connection)

        consumer = TransactionalConsumer(
            handle,
            name_servers=self.name_servers,
            acl=self.acl,
            tls=self.tls,
            settings=settings,
            offset_commit_interval_seconds=0.5,
        )
        return self._stack.enter_context(consumer)

    def load(self, producer: TransactionalProducer, *, per_second: float = 20.0, lose_every: int = 10) -> Load:
        """Commits messages in a thread of its own, each `lose_every`th without END and check-backs."""
        return Load(self, producer, pause_seconds=1 / per_second, lose_every=lose_every)

    def _pass(self, _address: str, command: Command) -> Command | None:
        if command.code not in {RequestCode.END_TRANSACTION, RequestCode.CHECK_TRANSACTION_STATE}:
            return command
        key = command.fields.get("msgId")
        if key in self._dropped:
            return None
        if key in self._rolled_back and command.code == RequestCode.END_TRANSACTION:
            return replace(command, fields={**command.fields, "commitOrRollback": str(int(EndDecision.ROLLBACK))})
        return command

    # ----------------------------------------------------------------- looking

    def effects(self) -> list[str]:
        """Keys that took effect, once an effect."""
        return self.select(self.inbox_url, "SELECT unique_key FROM effects ORDER BY unique_key")

    def verdicts(self) -> dict[str, str]:
        """Key -> latest verdict."""
        with closing(sqlite3.connect(self.ledger)) as db:
            return dict(db.execute("SELECT unique_key, verdict FROM reconciler_candidate").fetchall())

    def note_verdict(self, key: str, verdict: str, *, state: str = "QUARANTINED") -> None:
        """Writes the row of a round that has judged the key."""
        columns = "environment, topic, consumer_group, unique_key, state, verdict"
        others = "shard, evidence, attempts, first_seen_ms, next_at_ms, updated_at_ms"
        with closing(sqlite3.connect(self.ledger)) as db, db:
            db.execute(
                f"INSERT INTO reconciler_candidate ({columns}, {others})"
                " VALUES (?, ?, ?, ?, ?, ?, 0, '{}', 1, 1, 1, 1)",
                (self.environment, self.topic, self.group, key, state, verdict),
            )

    def repairs(self) -> dict[str, str]:
        """Key -> state of its repair for every group."""
        with closing(sqlite3.connect(self.ledger)) as db:
            return dict(db.execute("SELECT unique_key, state FROM reconciler_repair WHERE scope = '*'").fetchall())

    def copies(self) -> Counter[str]:
        """Key -> how often the topic holds it: more than one is a repair that was not needed."""
        found: Counter[str] = Counter()
        with patient_instance(self.name_servers, acl=self.acl, tls=self.tls) as instance:
            offsets, masters = Offsets(instance.client), instance.routes.masters(self.topic)
            for queue in instance.routes.read_queues(self.topic):
                address = masters[queue.broker_name]
                offset, end = offsets.minimum(address, queue), offsets.maximum(address, queue)
                while offset < end:
                    page = pull(instance.client, address, PullRequest(queue=queue, offset=offset, group="copies"))
                    found.update(record.unique_key or "" for record in page.records)
                    offset = max(offset + 1, page.next_offset)
        return found

    @staticmethod
    def select(url: str, sql: str) -> list[Any]:
        """First column of a query to a database of any kind."""
        with disposed(sa.create_engine(url)) as engine, engine.connect() as connection:
            return list(connection.scalars(sa.text(sql)))

    @staticmethod
    def rows(database: Path, sql: str) -> list[Any]:
        """First column of a query."""
        with closing(sqlite3.connect(database)) as db:
            return [row[0] for row in db.execute(sql)]

    def _security(self) -> str:
        lines = []
        if self.acl is not None:
            keys = f'access_key = "{self.acl.access_key}"\n{self._source_of("secret_key")}'
            lines.append(f"\n[rocketmq.acl]\n{keys}\n")
        if self.tls is not None:
            lines.append("\n[rocketmq.tls]\nenabled = true\n")
            files = {
                "ca_file": self.tls.ca_file,
                "certificate_file": self.tls.certificate_file,
                "key_file": self.tls.key_file,
            }
            lines += [f'{name} = "{path}"\n' for name, path in files.items() if path is not None]
        return "".join(lines)

    def _toml(self) -> str:
        return f"""environment = "{self.environment}"

[rocketmq]
name_servers = "{self.name_servers}"
probe_topic = "PROBE_{self.run_name}"
{self._security() or (self._brokers() if self.is_marked else "")}
[unique_key_topic]
{self._source_of("signature_secret")}
name = "{self.unique_key_topic}"
queues = {self.shards}

[redis]
{self._source_of("redis", "url")}

[ledger]
{self._source_of("ledger", "url") or f'url = "{self.ledger_url}"'}

[[producers]]
group = "{self.producer_group}"
topics = ["{self.topic}"]
outbox_url = "{self.outbox_url}"

[[subscriptions]]
topic = "{self.topic}"
group = "{self.group}"
inbox_url = "{self.inbox_url}"
grace_period_seconds = {self._grace_period_seconds}
{self._subscription}

[logging]
format = "json"
{self._extra or QUICK}
"""

    def _brokers(self) -> str:
        """A key for brokers that ask for none, and the password of a certificate that is not shown."""
        acl = f'[rocketmq.acl]\naccess_key = "deployed"\n{self._source_of("secret_key")}\n'
        return f"\n{acl}[rocketmq.tls]\n{self._source_of('key_password')}\n"


QUICK = """
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5

[repairs]
check_back_wait_seconds = 0

[sweep]
interval_seconds = 0.5
sweep_after_seconds = 2.0
settle_after_seconds = 3.0
"""
