"""An environment, group or topic that the settings name and nobody runs with: `status` and `doctor` fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.commands.diagnosis import DiagnosisRow
from reconciler.commands.doctor.checks import examine
from reconciler.commands.explain import life_stories
from reconciler.commands.list import list_rows
from reconciler.commands.status.reading import read_status
from reconciler.commands.status.report import StatusReport
from reconciler.contract.announcement import UNIQUE_KEY_TOPIC_DEFAULT
from reconciler.contract.subscription import Shard, Subscription
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.settings.file import load_settings
from reconciler.shards.client import open_redis
from reconciler.shards.memory import RedisShardMemory
from reconciler.sql.tables import round_row
from reconciler.telling.account import RUN_LIVES_MS
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.contract.ledger.rows import round_done
from tests.engines import begun
from tests.services.redis_server import RedisServer
from tests.settings_file import settings_file

pytestmark = pytest.mark.redis

TOPIC, GROUP = "ORDERS", "billing"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as opened:
        with RemotingClient() as client:
            for topic in (TOPIC, UNIQUE_KEY_TOPIC_DEFAULT):
                Admin(client).create_topic(opened.address, topic, queues=1)
            Admin(client).create_group(opened.address, GROUP)
        yield opened


@pytest.fixture
def connections(broker: EmbeddedBroker, redis_server: RedisServer, tmp_path: Path) -> Iterator[Connections]:
    """A deployment that was made a moment ago: nothing has run with it."""
    path = settings_file(
        tmp_path,
        "unique_key_topic.queues = 1",
        name_servers=broker.name_servers,
        redis_url=redis_server.url,
        topic=TOPIC,
        group=GROUP,
        sections=f'[[subscriptions]]\ntopic = "{TOPIC}"\ngroup = "biling"',
        has_ledger=True,
    )
    with Connections(load_settings(path, {})) as opened:
        yield opened


def shard_of(group: str) -> Shard:
    return Shard(subscription=Subscription(environment="test", topic=TOPIC, group=group), number=0)


def told(connections: Connections) -> tuple[StatusReport, list[str]]:
    """`status`, and what it says of rounds."""
    report = read_status(connections)
    late = map(said, report.late_lines)
    return report, [line for line in late if "round" in line or "ran with" in line]


def age_rounds(connections: Connections) -> None:
    """As if `run` had lived for longer than a start takes."""
    with begun(connections.settings.ledger.url) as connection:
        connection.execute(round_row.update().values(stored_at_ms=round_row.c.stored_at_ms - RUN_LIVES_MS))


def group_line(connections: Connections, group: str) -> DiagnosisRow:
    (line,) = [
        one for one in (found.as_row() for found in examine(connections)) if one.check == f"group {TOPIC}/{group}"
    ]
    return line


def environment_notes(connections: Connections) -> list[str]:
    return [row.found for row in (one.as_row() for one in examine(connections)) if row.check == "environment"]


def test_a_fresh_installation_is_calm(connections: Connections) -> None:
    assert environment_notes(connections) == []
    report, lines = told(connections)
    assert (report.exit_code, report.late_lines, lines) == (0, (), [])
    assert "there never was a round" in said(report.summary)


def run_round(connections: Connections, shard: Shard) -> None:
    """A round, in Redis and in the ledger."""
    redis = open_redis(connections.settings.redis.url)
    memory = RedisShardMemory(redis)
    done = memory.take_round(shard, epoch=memory.begin_epoch(shard), not_before_ms=0)
    redis.close()
    assert done is not None
    connections.ledger.rounds.store(done)


def test_what_went_with_redis_and_with_run_is_not_accounted_for_before_the_next_round(connections: Connections) -> None:
    run_round(connections, shard_of(GROUP))
    assert told(connections)[1] == []
    connections.redis.delete(*connections.redis.keys(f"*{GROUP}*"))
    report, lines = told(connections)
    assert report.exit_code == 3
    assert any("Redis lost what the last round of shard 0 left there" in line for line in lines)
    assert "every commit until" not in said(report.summary)
    run_round(connections, shard_of(GROUP))
    assert told(connections)[1] == []


def test_a_group_that_rounds_leave_out_is_a_failure_once_run_has_lived(connections: Connections) -> None:
    run_round(connections, shard_of(GROUP))
    assert told(connections)[1] == [], "its first turn may be under way"
    age_rounds(connections)
    report, lines = told(connections)
    assert report.exit_code == 3
    assert any("there never was a round, while others of test have had theirs" in line for line in lines)


def test_an_environment_that_nobody_runs_with_is_a_failure_beside_one_that_is_used(connections: Connections) -> None:
    uses = connections.ledger.environment_uses
    uses.renew("live", frozenset({"c/b at 1"}), by="host:1")
    report, lines = told(connections)
    assert report.exit_code == 3
    assert any("nothing ever ran with environment = 'test'; the ledger knows live" in line for line in lines)
    assert environment_notes(connections) == ["nothing ever ran with environment = 'test'; the ledger knows live"]
    listed = list_rows(connections, "candidates", only=LedgerFilter(), limit=9)
    explained = life_stories(connections, "7F00000100002A9F0000000000000090")
    for found in (listed, explained):
        assert found.exit_code == 3
        assert any("the ledger knows live: correct `environment`" in said(note) for note in found.notes)
    run_round(connections, shard_of(GROUP))
    assert list_rows(connections, "candidates", only=LedgerFilter(), limit=9).exit_code == 0
    assert life_stories(connections, "7F00000100002A9F0000000000000090").exit_code == 2
    assert environment_notes(connections) == []
    uses.renew("test", frozenset({"c/b at 1"}), by="host:2")
    assert told(connections)[1] == [], "a process of it has begun"


def test_a_group_that_no_broker_knows_fails_from_its_second_round_on(connections: Connections) -> None:
    assert group_line(connections, GROUP).level != "fail"
    assert group_line(connections, "biling").level == "note"
    for generation in (1, 2):
        assert group_line(connections, "biling").level == "note"
        for group in (GROUP, "biling"):
            connections.ledger.rounds.store(round_done(shard_of(group), generation, 1_000 * generation))
    line = group_line(connections, "biling")
    assert (line.level, line.found) == ("fail", "no broker knows the group")
    assert group_line(connections, GROUP).level != "fail"
