"""The last release's tables and Redis keys under this one: nothing that it left is lost, doubled or unreadable."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis

from checkback_consumers.handler import transactional_handler
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from reconciler.cli.app import run
from reconciler.commands.once import run_once
from reconciler.commands.sweep import run_sweeper
from reconciler.contract.tables import CandidateState, OutboxState, RepairState
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from tests.integration.upgrade.recorded_world import FOLDER, TREES, RecordedWorld
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import RedisFactory

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180)]

SHARDS = 4
#: Every setting was one of 0.1.0.
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


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.sql("postgres")),
        pytest.param("mysql", marks=pytest.mark.sql("mariadb")),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedWorld:
    """Tables and rows as 0.1.0 left them."""
    urls = {tree: f"sqlite:///{tmp_path / tree}.db" for tree in TREES}
    if request.param != "sqlite":
        server = request.getfixturevalue("postgres_server" if request.param == "postgresql" else "mariadb_server")
        urls = {tree: server.create_database(tree) for tree in TREES}
    world = RecordedWorld(urls=urls)
    world.load_tables()
    return world


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
        """A member of the group, with this release's plug-in."""
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

    def sweep(self, stack: ExitStack) -> None:
        """The sweeper, until the stack is left."""
        stop = threading.Event()
        thread = threading.Thread(target=run_sweeper, args=(self.settings, stop))
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)

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
            assert schema.current(world.urls[tree], tree) == f"0001_{tree}"
            assert run(["db", "upgrade", tree, "--config", str(config)]) == 0
        assert run(["topics", "create", "--config", str(config)]) == 0
        yield Upgraded(world, config, broker.name_servers, server.url)


def test_what_was_recorded_has_rows_in_every_state(world: RecordedWorld) -> None:
    def states(tree: str, table: str) -> set[str]:
        return {row[0] for row in world.rows(tree, f"SELECT state FROM {table}")}

    assert states("outbox", "reconciler_outbox") == set(OutboxState)
    assert states("ledger", "reconciler_candidate") == set(CandidateState)
    assert states("ledger", "reconciler_repair") == set(RepairState)
    for table in ("round", "floor", "outage", "hold", "quarantine"):
        assert world.rows("ledger", f"SELECT * FROM reconciler_{table}")


def test_every_key_that_0_1_0_left_is_settled_and_repaired_once(
    upgraded: Upgraded, capsys: pytest.CaptureFixture[str]
) -> None:
    world, config = upgraded.world, str(upgraded.config)

    def told(*arguments: str, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert run([*arguments, "--config", config, "--output", "json"]) == code, capsys.readouterr().err
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    finished = "SELECT * FROM reconciler_repair WHERE state = 'DONE' ORDER BY unique_key"
    had_finished, had_rounds = world.rows("ledger", finished), world.rows("ledger", ROUNDS)
    applied = {row[0] for row in world.rows("inbox", "SELECT unique_key FROM reconciler_inbox")}

    # It reads what the other release wrote.
    listed = {row["unique_key"] for row in told("list", "candidates")["candidates"]}
    assert listed >= set(world.keys_of("held", "repaired"))
    assert {row["state"] for row in told("list", "repairs")["repairs"]} == set(RepairState)
    ((given_up,),) = world.rows("ledger", "SELECT unique_key FROM reconciler_repair WHERE state = 'FAILED'")
    for key in (world.keys_of(story)[0] for story in ("consumed", "repaired", "held", "never committed")):
        assert key in json.dumps(told("explain", key))
    assert told("status", code=1)["needs_a_person"] is True

    with ExitStack() as stack:
        upgraded.consume(stack)
        upgraded.sweep(stack)
        announced = f"SELECT count(*) FROM reconciler_outbox WHERE state = '{OutboxState.NEW}'"
        eventually(lambda: world.rows("outbox", announced) == [(0,)], within_seconds=60, message="all are announced")
        assert run(["resume", "ORDERS", "--config", config]) == 0
        assert run(["repair", given_up, "--yes", "--config", config]) in {0, 4}  # it did its part, or waits for proof
        assert run_once(upgraded.settings, threading.Event(), wait_seconds=60).exit_code == 0
        committed = set(world.keys_of()) - set(world.keys_of("never committed", "rolled back"))
        inbox = "SELECT unique_key FROM reconciler_inbox ORDER BY unique_key"
        eventually(
            lambda: [row[0] for row in world.rows("inbox", inbox)] == sorted(committed),
            within_seconds=60,
            message="every committed key has its effect",
        )
        left = f"SELECT count(*) FROM reconciler_outbox WHERE state NOT IN ('{OutboxState.SETTLED}', 'ROLLED_BACK')"
        eventually(lambda: world.rows("outbox", left) == [(0,)], within_seconds=60, message="all rows are settled")

    assert upgraded.copies() == dict.fromkeys(committed, 1), "a repair that was not needed, or none"
    assert Counter(upgraded.effects) == Counter(committed - applied), "an effect twice, or none"
    with Redis.from_url(upgraded.redis_url) as client:
        assert list(client.scan_iter("*:pending")) == []
    open_rows = "SELECT unique_key, state FROM reconciler_repair WHERE state <> 'DONE'"
    assert world.rows("ledger", open_rows) == []
    assert [row[: len(had_finished[0])] for row in world.rows("ledger", finished)][: len(had_finished)] == had_finished
    assert set(had_rounds) <= set(world.rows("ledger", ROUNDS))


ROUNDS = "SELECT consumer_group, shard, epoch, generation, announced, matched FROM reconciler_round"


def test_the_recording_says_which_code_wrote_it() -> None:
    """A shallow clone has the rows without the history; who records anew finds the commit here."""
    assert json.loads((FOLDER / "world.json").read_text())["revision"] == "6753d9b965c0"
