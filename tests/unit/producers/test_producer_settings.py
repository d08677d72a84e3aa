"""Settings and messages that cannot be safe are refused before anything is sent."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from checkback_producers import TransactionalProducer, open_producer, remoting
from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.entry import NAME_CHARACTERS_MAX
from checkback_producers.outbox import SqlOutbox
from reconciler.errors import ConfigurationError, InvalidValue, UsageError
from reconciler.rocketmq.client.client_instance import ClientInstance
from tests.unit.producers.world import MemoryAnnouncements, MemoryHalves, World, message


def make(world: World, **changes: object) -> TransactionalProducer:
    values: dict[str, object] = {
        "group": "g",
        "halves": world.halves,
        "announcer": Announcer(MemoryAnnouncements(), AnnouncementRoute(environment="test")),
        "outbox": None,
    }
    return TransactionalProducer(**{**values, **changes})  # type: ignore[arg-type]  # names are the parameters'


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "without_outbox=True"),
        ({"without_outbox": True, "completion": "check"}, "needs an outbox"),
        ({"without_outbox": True, "keep_bodies": True}, "keep_bodies"),
        ({"without_outbox": True, "completion": "never"}, "completion"),
        ({"without_outbox": True, "local_transaction_timeout_seconds": 0}, "local_transaction_timeout_seconds"),
    ],
)
def test_settings_that_contradict_each_other(world: World, changes: dict[str, object], part: str) -> None:
    with pytest.raises(ConfigurationError, match=part):
        make(world, **changes)


@pytest.mark.parametrize(
    ("changes", "error", "part"),
    [
        ({"send_timeout_seconds": 0.0}, InvalidValue, "send_timeout_seconds.*more than 0"),
        ({"end_timeout_seconds": 0.0}, InvalidValue, "end_timeout_seconds.*more than 0"),
        ({"name_servers": None}, UsageError, "name_servers or instance"),
        ({"announcements": AnnouncementRoute(environment="staging")}, ConfigurationError, "staging"),
        ({"name_servers": ["a:1", "b:1"]}, InvalidValue, 'name_servers = .*a str, not list: "host:port;host:port"'),
        ({"group": 7}, InvalidValue, "group = 7: the name of the producer group"),
        ({"environment": 7}, InvalidValue, "environment = 7: 1 to 64 characters"),
    ],
)
def test_what_open_producer_cannot_do_is_refused(changes: Any, error: type[Exception], part: str) -> None:
    given = {"group": "g", "environment": "test", "name_servers": "127.0.0.1:1", "without_outbox": True, **changes}
    with pytest.raises(error, match=part):
        open_producer(**given)


def test_an_outbox_and_without_outbox_contradict(world: World) -> None:
    outbox = SqlOutbox(world.url)
    with pytest.raises(ConfigurationError, match="contradicts"):
        make(world, outbox=outbox, without_outbox=True)
    outbox.close()


ASYNCHRONOUS = create_async_engine("postgresql+psycopg://127.0.0.1/orders")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql+asyncpg://127.0.0.1/orders", "the driver asyncpg is asynchronous; write postgresql://"),
        (ASYNCHRONOUS, "not AsyncEngine"),
        (ASYNCHRONOUS.sync_engine, "not Engine"),
        (AsyncSession(ASYNCHRONOUS), "not AsyncSession"),
    ],
)
def test_a_database_that_has_to_be_awaited_is_refused_before_anything_is_started(url: Any, said: str) -> None:
    with pytest.raises(InvalidValue, match=said) as refused:
        open_producer(group="g", environment="test", name_servers="127.0.0.1:1", outbox_url=url)
    assert len(str(refused.value).splitlines()) == 1


def test_an_engine_is_no_outbox(world: World) -> None:
    with pytest.raises(InvalidValue, match=r"outbox = 'AsyncEngine': give SqlOutbox\(url\)"):
        make(world, outbox=ASYNCHRONOUS)


@pytest.mark.promise("G2")
def test_the_weaker_mode_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "checkback_producers"), make(world, without_outbox=True) as producer:
        assert producer.is_weaker
    assert "weaker mode" in caplog.text
    assert not world.halves.is_running


@pytest.mark.parametrize("asks_back", [True, False, None])
def test_completion_by_check_back_needs_brokers_that_ask_back(
    world: World, asks_back: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    world.halves.asks_back = asks_back
    if asks_back is False:
        with pytest.raises(ConfigurationError, match="never ask back"):
            world.producer(completion="check")
        assert not world.halves.is_running
        return
    world.producer(completion="check")
    assert ("no broker answered with its version" in caplog.text) == (asks_back is None)


def test_a_delay_level_is_refused_before_anything_is_sent(world: World) -> None:
    with pytest.raises(InvalidValue, match="cannot be delayed"):
        world.producer().transaction(message(delay_level=3))
    assert world.halves.sent == []


@pytest.mark.parametrize(
    ("changes", "business_id", "field"),
    [
        ({}, "x" * 161, "business_id"),
        ({}, " padded", "business_id"),
        ({}, "a\x01b", "properties"),
        ({}, "a\0b", "business_id"),
        ({"tags": "t" * 161}, None, "tags"),
        ({"keys": ("a\0b",)}, None, "keys"),
        ({"properties": {"BUSINESS_ID": "one"}}, "two", "business_id"),
    ],
)
def test_what_the_outbox_could_not_keep_is_refused_before_anything_is_sent(
    world: World, changes: dict[str, object], business_id: str | None, field: str
) -> None:
    with pytest.raises(InvalidValue, match=field):
        world.producer().transaction(message(**changes), business_id=business_id)
    assert world.halves.sent == []


def test_the_business_id_is_given_or_found_or_made(world: World) -> None:
    producer = world.producer()
    assert producer.transaction(message(), business_id="order-1").business_id == "order-1"
    assert producer.transaction(message(properties={"BUSINESS_ID": "order-2"})).business_id == "order-2"
    made = {producer.transaction(message()).business_id for _ in range(100)}
    assert len(made) == 100


def test_a_producer_that_is_not_started_sends_nothing(world: World) -> None:
    with pytest.raises(UsageError, match="not started"):
        make(world, without_outbox=True).transaction(message())


def test_a_block_is_entered_once(world: World) -> None:
    producer = world.producer(without_outbox=True)
    with producer.transaction(message()) as tx:
        pass
    with pytest.raises(UsageError, match="one block"), tx:
        pytest.fail("entered twice")


def test_a_half_under_another_key_is_a_bug_that_is_named(world: World) -> None:
    producer = world.producer()
    tx = producer.transaction(message())
    other = MemoryHalves().send_half(message(unique_key="AB" * 16))
    with pytest.raises(Exception, match="instead of"):
        tx.attach(other)


def test_the_plug_in_loads_nothing_heavy() -> None:
    heavy = (
        "apscheduler",
        "alembic",
        "pydantic",
        "typer",
        "rich",
        "structlog",
        "pyspark",
        "reconciler.settings",
    )
    code = f"import sys, checkback_producers; print([name for name in {heavy!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "[]"


def test_an_option_of_open_producer_is_lost_on_its_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Any] = {}

    class Taken(remoting._RemotingProducer):
        def __init__(self, **options: Any) -> None:
            taken.update(options)

    monkeypatch.setattr(remoting, "_RemotingProducer", Taken)
    options: dict[str, Any] = {
        "group": "g",
        "without_outbox": False,
        "completion": "check",
        "keep_bodies": True,
        "local_transaction_timeout_seconds": 61.0,
        "check_maximum": 6,
        "announce_every_seconds": 2.0,
    }
    places: dict[str, Any] = {"environment": "test", "outbox_url": world.url}
    with ClientInstance("127.0.0.1:1") as instance:
        shared: Any = open_producer(
            instance=instance, send_timeout_seconds=4.0, end_timeout_seconds=5.0, **options, **places
        )
        assert shared.owned is None
        assert {name: taken[name] for name in options} == options
        assert (taken["clock"], taken["halves"]._instance) == (instance.clock, instance)
        assert (taken["halves"]._send_timeout_seconds, taken["halves"]._end_timeout_seconds) == (4.0, 5.0)
        taken["outbox"].close()
    own: Any = open_producer(name_servers="127.0.0.1:1", **options, **places)
    assert own.owned is taken["halves"]._instance
    taken["outbox"].close()
    own.owned.close()


def test_a_message_without_a_tag_or_with_names_as_long_as_their_column_is_refused(world: World) -> None:
    producer = world.producer()
    bare = producer.transaction(message(tags=None, keys=()))
    longest = producer.transaction(message(tags="t" * NAME_CHARACTERS_MAX), business_id="b" * NAME_CHARACTERS_MAX)
    assert bare.business_id
    assert longest.business_id == "b" * NAME_CHARACTERS_MAX


@pytest.mark.parametrize("number", [7, UUID(int=7)])
def test_a_business_id_that_is_no_text_is_refused_by_name_and_type(world: World, number: Any) -> None:
    with (
        world.made() as producer,
        pytest.raises(InvalidValue, match=rf"business_id = .*a str .*, not {type(number).__name__}: write str"),
    ):
        producer.transaction(message(), business_id=number)


def test_a_second_start_is_refused_and_the_producer_goes_on(world: World) -> None:
    with world.made() as producer:
        with pytest.raises(
            UsageError, match=r"started already.*AsyncTransactionalProducer .* do not start it yourself"
        ):
            producer.start()
        assert world.halves.is_running
