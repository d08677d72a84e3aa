"""What `status` asks for five subscriptions and for fifty: what they share, once, and the rest together. What `status`
and `doctor` compute grows with the subscriptions, and no faster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy as sa

from reconciler.commands.doctor.checks import examine
from reconciler.commands.status.reading import read_status
from reconciler.commands.status.report import StatusReport
from reconciler.contract.subscription import Shard, Subscription
from reconciler.embedded.server import EmbeddedBroker
from reconciler.evidence import pop_groups
from reconciler.evidence.reused_offsets import ReusedOffsets
from reconciler.policy.ports.rounds import RestingShard, RoundCounts, RoundDone
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import configured_databases
from reconciler.wiring.rounds import RoundAssembly
from tests.counted_lines import counted_lines, grown_faster
from tests.services.redis_server import RedisServer
from tests.unit.service.many_subscriptions import settings_text

SHARDS = 2


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Statements, commands and pipelines sent to Redis, and requests for the ends of the unique-key topic's queues."""
    found: Counter[str] = Counter()

    def counting(sent: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*arguments: Any, **named: Any) -> Any:
            found["redis"] += 1
            return sent(*arguments, **named)

        return counts

    def statement(*told: Any) -> None:
        is_of_queues = "reconciler_floor" in told[2]  # what was seen of business queues: every few seconds
        found["sql"] += not is_of_queues and not told[2].startswith(("BEGIN", "PRAGMA"))

    submit = RemotingClient.submit

    def submitting(self: RemotingClient, address: str, command: Any, *rest: Any) -> Any:
        is_end = command.code == RequestCode.GET_MAX_OFFSET
        found["ends"] += is_end and command.fields["topic"] == "RECONCILER_UNIQUE_KEY"
        return submit(self, address, command, *rest)

    request = RemotingClient.request

    def requesting(self: RemotingClient, address: str, command: Any, **rest: Any) -> Any:
        found["signs"] += command.code == RequestCode.QUERY_TOPICS_BY_CONSUMER
        return request(self, address, command, **rest)

    sa.event.listen(sa.Engine, "before_cursor_execute", statement)
    with monkeypatch.context() as patch:
        patch.setattr(redis.Redis, "execute_command", counting(redis.Redis.execute_command))
        patch.setattr(redis.client.Pipeline, "execute", counting(redis.client.Pipeline.execute))
        patch.setattr(RemotingClient, "submit", submitting)
        patch.setattr(RemotingClient, "request", requesting)
        patch.setattr(pop_groups, "_REMEMBER_SECONDS", 3_600.0)
        patch.setattr(ReusedOffsets, "begin_to_keep", lambda _: None)  # as where nothing new was seen
        yield found
    sa.event.remove(sa.Engine, "before_cursor_execute", statement)


def ran(assembly: RoundAssembly) -> None:
    """Every shard had its first round."""
    counts = RoundCounts(announced=0, matched=0, pending_before=0, pending_added=0, pending_matched=0, pending_after=0)
    for of in assembly.subscriptions:
        assembly.ledger.rounds.begin(of, at_ms=1)
        assembly.shard_numbers.keep(of)
        for number in range(SHARDS):
            one = Shard(subscription=of, number=number)
            done = assembly.memory.take_round(one, epoch=assembly.memory.begin_epoch(one))
            assert isinstance(done, RoundDone)
            assert done.counts == counts
            assembly.ledger.rounds.store(done)


def with_rounds(shape: str, number: int, folder: Path, broker: EmbeddedBroker, redis_url: str) -> Settings:
    """Settings of so many subscriptions, whose shards had a round each."""
    path = folder / f"{number}.toml"
    names = broker.name_servers
    path.write_text(settings_text(shape, number, folder, name_servers=names, redis_url=redis_url, shards=SHARDS))
    schema.upgrade(f"sqlite:///{folder}/{number}.db", "ledger")
    with RemotingClient() as client:
        for topic in ("RECONCILER_UNIQUE_KEY", *(f"T{n}" for n in range(number))):
            Admin(client).create_topic(broker.address, topic, queues=SHARDS)
    settings = load_settings(path, {})
    for database in configured_databases(settings)[1:]:
        database.upgrade()
    with Connections(settings) as connections:
        ran(RoundAssembly(connections))
    return settings


def asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> tuple[StatusReport, Counter[str]]:
    with Connections(settings) as connections, counted(monkeypatch) as found:
        return read_status(connections), found


def urls(redis_server: RedisServer, *numbers: int) -> list[tuple[int, str]]:
    """Each number of subscriptions with a Redis database of its own."""
    return [(number, f"{redis_server.url.rsplit('/', 1)[0]}/{at}") for at, number in enumerate(numbers)]


def lines_of(settings: Settings) -> Counter[str]:
    """Lines of `status` and `doctor`."""
    with Connections(settings) as connections, counted_lines() as found:
        read_status(connections)
        examine(connections)
    return found


@pytest.mark.redis
def test_a_look_at_shards_at_rest_is_told_as_the_last_look(tmp_path: Path, redis_server: RedisServer) -> None:
    """Beside rows of rest, shards have no round for half an hour. Nobody must take that for a hang."""
    with EmbeddedBroker() as broker:
        settings = with_rounds("announced only", 1, tmp_path, broker, redis_server.url)
        with Connections(settings) as connections:
            before = read_status(connections)
            assembly = RoundAssembly(connections)
            (of,) = assembly.subscriptions
            rounds = connections.ledger.reports.last_rounds(of)
            seen = [RestingShard(round_at_ms=one.done.at_ms, offsets=one.done.offsets) for one in rounds]
            time.sleep(0.05)
            assert assembly.ledger.rounds.keep_rest({of: seen}, seconds_ago=0.0)
            now_ms = connections.ledger_now_ms()
            after = read_status(connections)
    was, now = before.subscriptions[0].last_round_ms, after.subscriptions[0].last_round_ms
    assert was is not None
    assert now is not None
    assert was + 40 <= now <= now_ms


@pytest.mark.redis
def test_status_asks_ledger_and_redis_as_often_for_five_subscriptions_as_for_fifty(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker() as broker:
        of_five, of_fifty = (
            asked(with_rounds("announced only", number, tmp_path, broker, url), monkeypatch)
            for number, url in urls(redis_server, 5, 50)
        )
    for number, (report, found) in ((5, of_five), (50, of_fifty)):
        assert found.pop("signs") == number
        assert [one.subscription for one in report.subscriptions] == [
            Subscription(environment="test", topic=f"T{n}", group="billing") for n in range(number)
        ]
        assert all(one.last_round_ms is not None for one in report.subscriptions)
        assert {one.pending for one in report.subscriptions} == {0}
    assert of_fifty[1] == of_five[1]
    assert of_five[1]["ends"] == SHARDS


@pytest.mark.redis
@pytest.mark.unmeasured
@pytest.mark.parametrize("shape", ["databases each", "queries"])
def test_status_and_doctor_work_at_most_eight_times_as_much_for_32_subscriptions_as_for_four(
    shape: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    with EmbeddedBroker() as broker:
        few, many = (
            lines_of(with_rounds(shape, number, tmp_path, broker, url)) for number, url in urls(redis_server, 4, 32)
        )
    assert grown_faster(few, many, times=8) == {}
