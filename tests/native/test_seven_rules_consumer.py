"""The rules for rocketmq-client-python on the consuming side, over the stand-in of its C functions."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_consumers.client_python import NativeConsumer
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import business_id
from reconciler.errors import InvalidValue, RequestTimeout, UsageError
from reconciler.rocketmq.client.native_client import load_library
from reconciler.sql.tables import inbox, inbox_metadata
from tests.engines import with_tables
from tests.native.native_records import NativeRecord
from tests.native.stand_in import StandIn

SUCCESS, LATER = 0, 1
GROUP = "billing"
KEYS = [f"{number:032X}" for number in range(1, 10)]

Effect = Callable[[Any, Any], object]


def record(topic: str = "ORDERS", key: str = KEYS[0], **properties: str) -> NativeRecord:
    """A message as the library has it."""
    named = {"UNIQ_KEY": key, "TAGS": "paid", "KEYS": "o-1", **properties}
    return NativeRecord(
        topic=topic.encode(),
        properties={name.encode(): value.encode() for name, value in named.items()},
        body=b"one order",
        born_timestamp_ms=1_700_000_000_000,
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with with_tables(f"sqlite:///{tmp_path}/billing.db", inbox_metadata) as opened:
        yield opened


@pytest.fixture
def handled(engine: sa.Engine) -> Callable[..., TransactionalHandler]:
    def make(effect: Effect, topic: str = "ORDERS", **options: Any) -> TransactionalHandler:
        return transactional_handler(engine, group=GROUP, topics=topic, **options)(effect)

    return make


Handled = Callable[..., TransactionalHandler]


def started(*handlers: TransactionalHandler, **options: Any) -> NativeConsumer:
    return NativeConsumer(*handlers, name_servers="127.0.0.1:9876", **options).start()


def keys_in(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.execute(sa.select(inbox.c.unique_key)).scalars())


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_rule_1_an_exception_in_a_handler_is_not_answered_with_success(
    stand_in: StandIn, handled: Handled, engine: sa.Engine, error: BaseException
) -> None:
    def effect(_message: Any, _connection: Any) -> None:
        raise error

    consumer = started(handled(effect))
    assert stand_in.deliver(record()) == LATER
    assert keys_in(engine) == []
    # An Exception is the handler's matter; what would have ended a Python thread is kept.
    assert consumer.last_failure is (None if isinstance(error, Exception) else error)


def test_rule_1_a_message_that_cannot_be_copied_comes_again(
    stand_in: StandIn, handled: Handled, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = started(handled(lambda _m, _c: None))
    broken = record()
    broken.topic = b"\xff"
    assert stand_in.deliver(broken) == LATER
    assert stand_in.deliver(record(topic="NOBODYS")) == LATER
    assert consumer.failures == 2
    assert isinstance(consumer.last_failure, KeyError)
    assert "comes again" in caplog.text


def test_rule_1_a_refusal_reaches_the_library_as_its_own_number(
    stand_in: StandIn, handled: Handled, engine: sa.Engine
) -> None:
    statuses = load_library(transactions=False).client.ConsumeStatus  # as services on this package return it
    started(handled(lambda _m, _c: statuses.RECONSUME_LATER))
    assert stand_in.deliver(record()) == LATER
    assert keys_in(engine) == []


def test_rule_2_the_unique_key_is_the_property_also_on_a_retry(
    stand_in: StandIn, handled: Handled, engine: sa.Engine
) -> None:
    seen: list[Any] = []
    started(handled(lambda message, _connection: seen.append(message)), property_names=("colour", "absent"))
    again = record(topic="%RETRY%billing", RETRY_TOPIC="ORDERS", colour="blue", BUSINESS_ID="order-7")
    again.reconsume_times = 2
    assert stand_in.deliver(again) == SUCCESS
    assert stand_in.deliver(record()) == SUCCESS  # the same key: a duplicate
    (message,) = seen
    assert (message.topic, message.unique_key, message.reconsume_times) == ("ORDERS", KEYS[0], 2)
    assert (message.body, message.tags, message.keys) == (b"one order", "paid", "o-1")
    assert (message.known_properties, message.properties) == ({"colour": "blue"}, None)
    assert message.born_timestamp_ms == 1_700_000_000_000
    with engine.connect() as connection:
        ((key, digest),) = connection.execute(sa.select(inbox.c.unique_key, inbox.c.content_digest)).all()
    assert (key, digest) == (KEYS[0], None)


def test_two_keys_with_one_business_id_have_one_effect(stand_in: StandIn, handled: Handled, engine: sa.Engine) -> None:
    seen: list[str] = []
    started(handled(lambda message, _c: seen.append(message.unique_key), dedupe_by=business_id))
    for key in KEYS[:2]:
        assert stand_in.deliver(record(key=key, BUSINESS_ID="order-7")) == SUCCESS
    assert seen == KEYS[:1]
    assert keys_in(engine) == KEYS[:2]


def test_a_foreign_clients_message_without_a_unique_key_is_told_by_its_offset(
    stand_in: StandIn, handled: Handled, engine: sa.Engine
) -> None:
    started(handled(lambda _m, _c: None))
    foreign = record(ORIGIN_MESSAGE_ID="7F00000100002A9F0000000000000007")
    foreign.properties.pop(b"UNIQ_KEY")
    assert stand_in.deliver(foreign) == SUCCESS
    assert keys_in(engine) == ["7F00000100002A9F0000000000000007"]


def test_rule_4_a_message_that_a_handler_kept_is_a_copy(stand_in: StandIn, handled: Handled) -> None:
    kept: list[Any] = []
    started(handled(lambda message, _c: kept.append(message)))
    stand_in.deliver(record())
    assert kept[0].body == b"one order"  # the library's own is freed: the fixture reports its use


def test_rule_4_one_start_one_shutdown_never_from_a_handler(stand_in: StandIn, handled: Handled) -> None:
    errors: list[BaseException] = []

    def effect(_message: Any, _connection: Any) -> None:
        try:
            consumer.shutdown()
        except UsageError as error:
            errors.append(error)
            raise

    consumer = started(handled(effect))
    assert stand_in.deliver(record()) == LATER
    assert len(errors) == 1
    with pytest.raises(UsageError):
        consumer.start()
    assert consumer.shutdown() is True
    assert consumer.shutdown() is True
    with pytest.raises(UsageError):
        consumer.start()


def test_rule_4_start_and_shutdown_that_hang_are_left_behind(
    stand_in: StandIn, handled: Handled, caplog: pytest.LogCaptureFixture
) -> None:
    handler = handled(lambda _m, _c: None)
    stand_in.hang["start"] = threading.Event()
    with pytest.raises(RequestTimeout, match="start of consumer billing"):
        started(handler, start_timeout_seconds=0.1)
    stand_in.hang.pop("start").set()
    with NativeConsumer(handler, name_servers="127.0.0.1:9876", shutdown_timeout_seconds=0.1):
        stand_in.hang["shutdown"] = threading.Event()
    assert "its shutdown hangs" in caplog.text


def test_rule_4_callbacks_are_not_collected(stand_in: StandIn, handled: Handled) -> None:
    started(handled(lambda _m, _c: None))
    gc.collect()
    assert stand_in.deliver(record()) == SUCCESS


def test_rule_5_two_topics_reach_their_own_handlers(stand_in: StandIn, handled: Handled) -> None:
    orders, refunds = list[str](), list[str]()
    started(
        handled(lambda message, _c: orders.append(message.topic)),
        handled(lambda message, _c: refunds.append(message.topic), topic="REFUNDS"),
        subscriptions={"ORDERS": "paid || late", "REFUNDS": "*"},
        threads=3,
        orderly=True,
    )
    stand_in.deliver(record())
    stand_in.deliver(record(topic="REFUNDS", key=KEYS[1]))
    assert (orders, refunds) == (["ORDERS"], ["REFUNDS"])
    assert stand_in.client("consumer").topics == {"ORDERS": "paid || late", "REFUNDS": "*"}


def test_rule_5_consumers_never_share_the_librarys_default_instance(stand_in: StandIn, handled: Handled) -> None:
    handler = handled(lambda _m, _c: None)
    for name_servers in ("127.0.0.1:9876", "127.0.0.2:9876"):
        NativeConsumer(handler, name_servers=name_servers).start()
    assert sorted(factory.name_servers for factory in stand_in.factories.values()) == [
        "127.0.0.1:9876",
        "127.0.0.2:9876",
    ]


def test_rule_6_subscriptions_are_looked_at_first(stand_in: StandIn, handled: Handled) -> None:
    handler = handled(lambda _m, _c: None)
    for wrong in ({"ORDERS": ""}, {"ORDERS": "a\0b"}, {"or.ders": "*"}, {"OTHERS": "*"}):
        with pytest.raises(InvalidValue):
            started(handler, subscriptions=wrong)
    with pytest.raises(InvalidValue):
        NativeConsumer(name_servers="127.0.0.1:9876")
    with pytest.raises(InvalidValue):
        NativeConsumer(handler, name_servers="here")
    assert stand_in._clients == {}
