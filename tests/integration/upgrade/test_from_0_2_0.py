"""The last release's tables, Redis keys and history under this one: nothing that it left is lost, doubled, or told in
another way."""

from __future__ import annotations

import json
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis

from checkback_consumers.handler import transactional_handler
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from checkback_consumers.replay_worker import ReplayWorker
from reconciler.cli.app import run
from reconciler.commands.once import run_once
from reconciler.commands.sweep import run_sweeper
from reconciler.contract.tables import CandidateState, HoldKind, JobState, OutboxState, PostState, RepairState, Rung
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from tests.audit.audit_process import audit
from tests.engines import disposed
from tests.integration.upgrade.recorded_world import FOLDER, OLD_MS, TREES, RecordedWorld
from tests.polling import PATIENCE, eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import RedisFactory

SHARDS = 4
#: Every setting was one of 0.2.0.
SETTINGS = """environment = "production"
[rocketmq]
name_servers = "{name_servers}"
[unique_key_topic]
name = "RECONCILER_UNIQUE_KEY"
queues = 4
[redis]
url = "{redis_url}"
[ledger]
url = "{ledger}"
[[producers]]
group = "order-service"
topics = ["ORDERS"]
outbox_url = "{outbox}"
[[subscriptions]]
topic = "ORDERS"
group = "billing"
inbox_url = "{inbox}"
grace_period_seconds = 2.0
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5
[repairs]
check_back_wait_seconds = 0
[sweep]
interval_seconds = 0.5
sweep_after_seconds = 1.0
settle_after_seconds = 1.0
"""
Told = Callable[..., dict[str, Any]]


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.nightly),
        pytest.param("postgresql", marks=pytest.mark.sql("postgres")),
        pytest.param("mysql", marks=[pytest.mark.sql("mariadb"), pytest.mark.nightly]),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedWorld:
    """Tables and rows as 0.2.0 left them."""
    urls = files(tmp_path)
    if request.param != "sqlite":
        server = request.getfixturevalue("postgres_server" if request.param == "postgresql" else "mariadb_server")
        urls = {tree: server.create_database(tree) for tree in TREES}
    world = RecordedWorld(urls=urls)
    world.load_tables()
    return world


def files(folder: Path) -> dict[str, str]:
    return {tree: f"sqlite:///{folder / tree}.db" for tree in TREES}


class Upgraded:
    """This release over what was left."""

    def __init__(self, world: RecordedWorld, config: Path, name_servers: str, redis_url: str) -> None:
        self.world = world
        self.config = config
        self.name_servers = name_servers
        self.redis_url = redis_url
        self.settings = load_settings(config, {})
        #: Keys whose handler ran, once a run.
        self.effects: list[str] = []

    def consume(self, stack: ExitStack) -> None:
        """A member of the group with this release's plug-in, and a worker for what is handed over to it."""
        engine = open_engine(self.world.urls["inbox"])
        stack.callback(engine.dispose)
        recorder = CommitRecorder.open(
            self.redis_url, environment="production", group="billing", shards=SHARDS, timeout_seconds=5
        )
        stack.callback(recorder.close)

        @transactional_handler(engine, group="billing", topics="ORDERS", recorder=recorder)
        def handle(message: Any, connection: sa.Connection) -> None:
            self.effects.append(message.unique_key)

        stack.enter_context(TransactionalConsumer(handle, name_servers=self.name_servers))
        worker = ReplayWorker(
            handle,
            environment="production",
            topics="ORDERS",
            ledger_url=self.world.urls["ledger"],
            poll_seconds=0.2,
        )
        stack.callback(worker.close)
        _until_left(stack, worker.run)

    def sweep(self, stack: ExitStack) -> None:
        """The sweeper, until the stack is left."""
        _until_left(stack, lambda stop: run_sweeper(self.settings, stop))

    def copies(self) -> Counter[str | None]:
        """Key -> how often the topic has it."""
        found: Counter[str | None] = Counter()
        with ClientInstance(self.name_servers) as instance:
            masters = instance.routes.masters("ORDERS")
            for queue in instance.routes.read_queues("ORDERS"):
                offset, end = 0, Offsets(instance.client).maximum(masters[queue.broker_name], queue)
                while offset < end:
                    request = PullRequest(queue=queue, offset=offset, group="copies")
                    page = pull(instance.client, masters[queue.broker_name], request)
                    found.update(record.unique_key for record in page.records)
                    offset = max(offset + 1, page.next_offset)
        return found


def _until_left(stack: ExitStack, work: Callable[[threading.Event], object]) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    stack.callback(thread.join)
    stack.callback(stop.set)


@pytest.fixture
def upgraded(world: RecordedWorld, new_redis_server: RedisFactory, tmp_path: Path) -> Iterator[Upgraded]:
    """Redis and broker with what was left, tables upgraded by the command."""
    server = new_redis_server()
    with EmbeddedBroker() as broker, Redis.from_url(server.url) as client:
        world.load_redis(client)
        world.load_broker(broker.name_servers)
        config = tmp_path / "reconciler.toml"
        config.write_text(SETTINGS.format(name_servers=broker.name_servers, redis_url=server.url, **world.urls))
        for tree in TREES:
            assert schema.current(world.urls[tree], tree) == schema.base(tree)
            assert run(["db", "upgrade", tree, "--config", str(config)]) == 0
        assert run(["topics", "create", "--config", str(config)]) == 0
        yield Upgraded(world, config, broker.name_servers, server.url)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """What a command says in JSON, and its exit code."""

    def ask(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        code = run([*arguments, "--output", "json"])
        said = capsys.readouterr()
        assert said.out, said.err
        return {"exit code": code, **json.loads(said.out)}

    return ask


def test_what_was_recorded_has_rows_in_every_state() -> None:
    rows = json.loads((FOLDER / "rows.json").read_text())
    assert json.loads((FOLDER / "world.json").read_text())["revision"].startswith("56d7d70a")

    def words(tree: str, table: str, column: str = "state") -> set[str]:
        return {row[column] for row in rows[tree][f"reconciler_{table}"]}

    assert words("outbox", "outbox") == set(OutboxState)
    assert words("inbox", "inbox", "source") == {"consumer", "hand-over"}
    assert words("ledger", "candidate") == set(CandidateState)
    assert words("ledger", "repair") == set(RepairState)
    assert words("ledger", "repair", "rung") == set(Rung) - {Rung.REPUBLISH}
    assert words("ledger", "hold", "kind") == set(HoldKind)
    assert words("ledger", "job") == set(JobState)
    assert words("ledger", "idempotency_key") == set(PostState)
    assert [name for found in rows.values() for name, some in found.items() if not some] == []


@pytest.mark.parametrize("tree", TREES)
def test_tables_of_0_2_0_that_are_upgraded_are_those_that_this_release_makes(
    new_database_url: Callable[[], str], tree: str
) -> None:
    recorded, made = new_database_url(), new_database_url()
    RecordedWorld(urls={tree: recorded}).load_tables([tree])
    assert schema.current(recorded, tree) == schema.base(tree)
    assert schema.upgrade(recorded, tree) == schema.upgrade(made, tree)
    assert _described(recorded) == _described(made)


def _described(url: str) -> dict[str, Any]:
    with disposed(open_engine(url)) as engine, engine.connect() as connection:
        inspector = sa.inspect(connection)
        return {
            table: (
                [{**column, "type": str(column["type"])} for column in inspector.get_columns(table)],
                inspector.get_pk_constraint(table)["constrained_columns"],
                sorted(map(_index, inspector.get_indexes(table))),
            )
            for table in inspector.get_table_names()
        }


def _index(index: Any) -> tuple[str, str, str]:
    options = sorted((name, str(value)) for name, value in index.get("dialect_options", {}).items())
    return index["name"], str((index["column_names"], index["unique"])), str(options)


def test_rows_that_0_2_0_left_are_deleted_once_they_are_old_where_it_would_delete_them_and_no_others(
    tmp_path: Path,
) -> None:
    world = RecordedWorld(urls=files(tmp_path), age_ms=OLD_MS)
    world.load_tables()
    schema.upgrade(world.urls["ledger"], "ledger")
    engine = open_engine(world.urls["ledger"])
    SqlRetention(SqlLedger(engine).database, keep_days=30, notifiers=["night-shift"]).delete_old("production")
    assert {name: len(world.rows("ledger", f"SELECT * FROM {name}")) for name in world.answers["kept"]} == {
        name: len(rows) for name, rows in world.answers["kept"].items()
    }
    for table, columns in (
        ("candidate", "unique_key, shard"),
        ("repair", "scope, unique_key"),
        ("job", "job_id, kind"),
    ):
        kept = set(world.rows("ledger", f"SELECT {columns} FROM reconciler_{table}"))
        assert kept == set(map(tuple, world.answers["kept"][f"reconciler_{table}"])), table
    engine.dispose()


def test_an_audit_of_what_0_2_0_left_finds_what_its_own_audit_found(tmp_path: Path) -> None:
    world = RecordedWorld(urls=files(tmp_path), age_ms=None)
    world.load_tables()
    with tarfile.open(FOLDER / "history.tar.gz") as archive:
        # Python 3.14 takes this filter by itself; early releases of 3.11 have none.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _folder: member)
        archive.extractall(tmp_path)
    config = tmp_path / "reconciler.toml"
    config.write_text(SETTINGS.format(name_servers="127.0.0.1:1", redis_url="redis://127.0.0.1:1", **world.urls))
    theirs = world.answers["audit"]
    asked = ["--window", "/".join(theirs["window"]), "--subscriptions", str(config), "--from-configuration"]
    places = ["--history", str(tmp_path / "history"), "--out", str(tmp_path / "out"), "--engine", "here"]
    done = audit("audit", *asked, *places, "--output", "json")
    ours = {"exit code": done.exit_code, **json.loads(done.stdout)}
    same = ("exit code", "verdict", "reason", "violations", "not_judged", "rows")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    # 0.2.0 was asked in the minute after the window. A day later no round can come that closes it: one gap more.
    assert ours["gaps"] == theirs["gaps"] + 1
    assert ours["classes"] == theirs["classes"] | {"EFFECT_INCOMPLETE": 0}
    told = json.loads((tmp_path / "out" / "result.json").read_text())["not_checked"]
    assert "EFFECT_INCOMPLETE" in {one["class_name"] for one in told}, "their inboxes have no column for it"


@pytest.mark.redis
@pytest.mark.timeout(180)
def test_every_key_that_0_2_0_left_is_settled_and_repaired_once(upgraded: Upgraded, told: Told) -> None:
    world, config = upgraded.world, str(upgraded.config)
    finished = "SELECT * FROM reconciler_repair WHERE state = 'DONE' ORDER BY unique_key, scope"
    had_finished, had_rounds = world.rows("ledger", finished), world.rows("ledger", ROUNDS)
    applied = {row[0] for row in world.rows("inbox", "SELECT unique_key FROM reconciler_inbox")}
    _are_shown_as_they_were(upgraded, told)
    dismissed = world.keys_of("dismissed")

    with ExitStack() as stack:
        upgraded.consume(stack)
        upgraded.sweep(stack)
        announced = f"SELECT count(*) FROM reconciler_outbox WHERE state = '{OutboxState.NEW}'"
        eventually(lambda: world.rows("outbox", announced) == [(0,)], within_seconds=60, message="all are announced")
        for held_by in ([], ["--breaker"]):
            assert run(["resume", "ORDERS", *held_by, "--config", config]) == 0
        for key in world.keys_of("given up", "refused by its handler"):
            assert run(["repair", key, "--yes", "--config", config]) in {0, 4}  # it did its part, or waits for proof
        assert run_once(upgraded.settings, threading.Event(), wait_seconds=60 * PATIENCE).exit_code == 0
        committed = set(world.keys_of()) - set(world.keys_of("never committed", "rolled back")) - set(dismissed)
        inbox = "SELECT unique_key FROM reconciler_inbox ORDER BY unique_key"
        eventually(
            lambda: [row[0] for row in world.rows("inbox", inbox)] == sorted(committed),
            within_seconds=60,
            message="every committed key has its effect",
        )
        is_left = f"state NOT IN ('{OutboxState.SETTLED}', 'ROLLED_BACK')"
        left = f"SELECT unique_key FROM reconciler_outbox WHERE {is_left}"
        eventually(
            lambda: {row[0] for row in world.rows("outbox", left)} <= set(dismissed),
            within_seconds=60,
            message="all rows are settled",
        )

    handed_over = set(world.keys_of("handed over", "refused by its handler", "waits for its handler"))
    assert upgraded.copies() == dict.fromkeys(committed - handed_over, 1), "a repair that was not needed, or none"
    assert Counter(upgraded.effects) == Counter(committed - applied), "an effect twice, or none"
    with Redis.from_url(upgraded.redis_url) as client:
        assert list(client.scan_iter("*:pending")) == []
    assert world.rows("ledger", "SELECT unique_key, state FROM reconciler_repair WHERE state <> 'DONE'") == []
    kept = world.rows("ledger", finished)
    assert {row[: len(had_finished[0])] for row in kept} >= set(had_finished)
    assert set(had_rounds) <= set(world.rows("ledger", ROUNDS))


ROUNDS = "SELECT consumer_group, shard, epoch, generation, announced, matched FROM reconciler_round"


def _are_shown_as_they_were(upgraded: Upgraded, told: Told) -> None:
    """In the words of 0.2.0, beside which this release may say more."""
    world, config = upgraded.world, ("--config", str(upgraded.config))
    for listing, theirs in world.answers.items():
        if listing.startswith("list "):
            (name,) = (name for name, rows in theirs.items() if isinstance(rows, list) and name != "notes")
            ours = told(*listing.split(), "--limit", "20", *config)
            assert (ours["exit code"], ours["has_more"]) == (theirs["exit code"], theirs["has_more"])
            assert _as_theirs(ours[name], theirs[name]) == [world.moved(row) for row in theirs[name]], listing
    theirs, ours = world.answers["status"], told("status", *config)
    assert ours["needs_a_person"] is theirs["needs_a_person"] is True
    for name in ("verdicts", "repairs", "holds"):
        assert _as_theirs(ours[name], theirs[name]) == [world.moved(row) for row in theirs[name]], name
    for key in world.keys_of("consumed", "handed over", "refused by its handler", "held", "given up", "dismissed"):
        theirs, ours = world.answers[f"explain {key}"], told("explain", key, *config)
        assert ours["known"] is True
        seen = [one for one in theirs["events"] if one["witness"] in {"inbox", "outbox", "ledger", "operator"}]
        wanted = {(one["at_ms"] + world.later_ms, one["witness"]) for one in seen}
        assert {(one["at_ms"], one["witness"]) for one in ours["events"]} >= wanted, key


def _as_theirs(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in theirs[0]} for row in ours]
