"""What the wrapper does around a handler, on SQLite."""

from __future__ import annotations

import sqlite3
from functools import partial, wraps
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from checkback_consumers.effect import SqlInbox
from checkback_consumers.errors import InboxNotReached, IncompleteEffect
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.inbox import InboxAnswer
from checkback_consumers.message import ConsumedMessage, HandedOverMessage, business_id
from reconciler.errors import Collision, InvalidValue, MalformedInput, UsageError
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.sql.tables import inbox
from tests.engines import disposed
from tests.unit.consumers.messages import (
    KeptRecorder,
    effect_count,
    effects,
    message,
    new_key,
    pay,
)


def wrap(engine: sa.Engine, handler: Any = pay, **options: Any) -> TransactionalHandler:
    return transactional_handler(engine, group="billing", **options)(handler)


def inbox_rows(engine: sa.Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        query = sa.select(inbox.c.unique_key, inbox.c.duplicate_of, inbox.c.source).order_by(inbox.c.unique_key)
        return [tuple(row) for row in connection.execute(query)]


def test_a_redelivery_has_no_second_effect_but_is_recorded_again(engine: sa.Engine) -> None:
    recorder = KeptRecorder()
    wrapped = wrap(engine, recorder=recorder)
    received = message()
    assert wrapped(received) is ConsumeStatus.CONSUME_SUCCESS
    assert wrapped(received) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine, received.unique_key) == 1
    # The first run may have died before its SADD: without the second one the key would look lost for ever.
    assert recorder.recorded == [("ORDERS", received.unique_key)] * 2
    assert (wrapped.counts.applied, wrapped.counts.duplicates) == (1, 1)


def test_a_handler_that_raises_leaves_nothing_and_is_not_recorded(engine: sa.Engine) -> None:
    recorder = KeptRecorder()

    def fails(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        raise ValueError("the business says no")

    wrapped = wrap(engine, fails, recorder=recorder)
    assert wrapped(message()) is ConsumeStatus.RECONSUME_LATER
    assert effect_count(engine) == 0
    assert inbox_rows(engine) == []
    assert recorder.recorded == []


class Later:
    """Like the enum of rocketmq-client-python."""

    name = "RECONSUME_LATER"


@pytest.mark.parametrize("answer", [False, ConsumeStatus.RECONSUME_LATER, "RECONSUME_LATER", Later()])
def test_a_handler_that_answers_later_is_rolled_back(engine: sa.Engine, answer: object) -> None:
    def later(received: ConsumedMessage, connection: sa.Connection) -> object:
        pay(received, connection)
        return answer

    assert wrap(engine, later)(message()) is ConsumeStatus.RECONSUME_LATER
    assert effect_count(engine) == 0
    assert inbox_rows(engine) == []


@pytest.mark.parametrize("answer", [None, True, ConsumeStatus.CONSUME_SUCCESS, 17])
def test_what_an_existing_handler_returns_otherwise_is_success(engine: sa.Engine, answer: object) -> None:
    def answers(received: ConsumedMessage, connection: sa.Connection) -> object:
        pay(received, connection)
        return answer

    assert wrap(engine, answers)(message()) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine) == 1


def test_a_database_that_fails_before_the_handler_is_told_apart_from_one_that_fails_in_it(engine: sa.Engine) -> None:
    def connect() -> sa.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    unreached = transactional_handler(connect, group="billing")(pay)
    with pytest.raises(InboxNotReached, match="unable to open") as caught:
        unreached.apply(message())
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)

    def fails(received: ConsumedMessage, connection: sa.Connection) -> None:
        raise sqlite3.OperationalError("no such table: orders")

    with pytest.raises(sqlite3.OperationalError):
        wrap(engine, fails).apply(message())


class Killed(BaseException):
    """A process that dies: nothing catches it."""


def test_a_process_that_dies_between_effect_and_acknowledgement_repeats_nothing(engine: sa.Engine) -> None:
    class DyingRecorder:
        def record(self, topic: str, unique_key: str) -> bool:
            raise Killed

    received = message()
    with pytest.raises(Killed):
        wrap(engine, recorder=DyingRecorder())(received)
    recorder = KeptRecorder()
    assert wrap(engine, recorder=recorder)(received) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine) == 1
    assert recorder.recorded == [("ORDERS", received.unique_key)]


def test_a_process_that_dies_inside_the_handler_leaves_nothing(engine: sa.Engine) -> None:
    def dies(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        raise Killed

    received = message()
    with pytest.raises(Killed):
        wrap(engine, dies)(received)
    assert inbox_rows(engine) == []
    assert wrap(engine)(received) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine) == 1


def test_without_redis_the_message_is_acknowledged_and_counted(engine: sa.Engine) -> None:
    recorder = KeptRecorder()
    recorder.is_away = True
    wrapped = wrap(engine, recorder=recorder)
    assert wrapped(message()) is ConsumeStatus.CONSUME_SUCCESS
    assert wrapped.counts.unrecorded == 1
    assert effect_count(engine) == 1


def test_one_key_with_two_contents_is_a_collision_and_comes_again(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = KeptRecorder()
    wrapped = wrap(engine, recorder=recorder)
    key = new_key()
    assert wrapped(message(key, body=b"one")) is ConsumeStatus.CONSUME_SUCCESS
    assert wrapped(message(key, body=b"two")) is ConsumeStatus.RECONSUME_LATER
    with pytest.raises(Collision, match=key):
        wrapped.apply(message(key, body=b"two"))
    assert effect_count(engine, key) == 1
    assert len(recorder.recorded) == 1
    assert wrapped.counts.collisions == 2
    assert "collision: not applied" in caplog.text


class NativeMessage:
    """Of a client that cannot list properties."""

    body, tags, keys, properties, reconsume_times = b"one", None, None, None, 0

    def __init__(self, key: str, *, topic: str = "ORDERS") -> None:
        self.unique_key, self.topic = key, topic


def test_a_client_without_properties_does_not_collide(engine: sa.Engine) -> None:
    key = new_key()
    wrapped = wrap(engine)
    assert wrapped.apply(NativeMessage(key)) is InboxAnswer.NEW
    assert wrapped.apply(message(key, body=b"whatever")) is InboxAnswer.DUPLICATE
    assert effect_count(engine) == 1


def test_a_client_without_properties_collides_with_the_same_key_of_another_topic(engine: sa.Engine) -> None:
    recorder = KeptRecorder()
    wrapped = wrap(engine, recorder=recorder)
    paid = NativeMessage(new_key())
    assert wrapped.apply(paid) is InboxAnswer.NEW
    refund = NativeMessage(paid.unique_key, topic="REFUNDS")
    with pytest.raises(Collision, match="applied from topic ORDERS, it arrived from REFUNDS"):
        wrapped.apply(refund)
    assert wrapped(refund) is ConsumeStatus.RECONSUME_LATER
    assert (effect_count(engine), recorder.recorded) == (1, [("ORDERS", paid.unique_key)])


def test_two_keys_with_one_business_id_have_one_effect(engine: sa.Engine) -> None:
    recorder = KeptRecorder()
    wrapped = wrap(engine, recorder=recorder, dedupe_by=business_id)
    first, second = message(BUSINESS_ID="order-7"), message(BUSINESS_ID="order-7")
    assert wrapped.apply(first) is InboxAnswer.NEW
    assert wrapped.apply(second) is InboxAnswer.DUPLICATE_BUSINESS
    assert wrapped.apply(second) is InboxAnswer.DUPLICATE
    assert wrapped.apply(first) is InboxAnswer.DUPLICATE
    assert effect_count(engine) == 1
    assert inbox_rows(engine) == [
        (first.unique_key, None, "consumer"),
        (second.unique_key, first.unique_key, "consumer"),
    ]
    assert [key for _, key in recorder.recorded] == [
        first.unique_key, second.unique_key, second.unique_key, first.unique_key,
    ]  # fmt: skip


def test_messages_without_a_business_id_do_not_dedupe_each_other(engine: sa.Engine) -> None:
    wrapped = wrap(engine, dedupe_by=business_id)
    assert wrapped.apply(message()) is InboxAnswer.NEW
    assert wrapped.apply(message()) is InboxAnswer.NEW


def test_two_groups_in_one_database_each_have_the_effect(engine: sa.Engine) -> None:
    received = message()
    for group in ("billing", "shipping"):
        assert transactional_handler(engine, group=group)(pay).apply(received) is InboxAnswer.NEW
    assert effect_count(engine) == 2


def test_a_foreign_topic_is_refused(engine: sa.Engine) -> None:
    wrapped = wrap(engine, topics="ORDERS")
    with pytest.raises(UsageError, match="REFUNDS"):
        wrapped.apply(message(topic="REFUNDS"))
    assert effect_count(engine) == 0


@pytest.mark.parametrize("place", ["RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_a_half_that_a_dashboard_has_consumed_directly_has_no_effect(engine: sa.Engine, place: str) -> None:
    """Its local transaction may have rolled back, or still be open; a handler for all topics took it for a message."""
    with pytest.raises(UsageError, match="half message"):
        wrap(engine).apply(message(topic=place))
    assert effect_count(engine) == 0


def test_a_foreign_clients_message_is_deduped_by_its_offset_id_and_not_recorded(engine: sa.Engine) -> None:
    class Foreign:
        topic, body, tags, keys, reconsume_times = "ORDERS", b"one", None, None, 0
        unique_key = None

        def __init__(self) -> None:
            self.offset_message_id = "7F00000100002A9F0000000000000090"
            self.properties: dict[str, str] = {}

    recorder = KeptRecorder()
    wrapped = wrap(engine, lambda received, connection: None, recorder=recorder)
    assert wrapped.apply(Foreign()) is InboxAnswer.NEW
    retried = Foreign()
    retried.offset_message_id = "7F00000100002A9F0000000000009999"
    retried.properties = {"ORIGIN_MESSAGE_ID": Foreign().offset_message_id}
    assert wrapped.apply(retried) is InboxAnswer.DUPLICATE
    assert recorder.recorded == []
    nameless = Foreign()
    nameless.offset_message_id = ""
    with pytest.raises(MalformedInput):
        wrapped.apply(nameless)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_handler_that_ends_the_transaction_is_not_acknowledged(engine: sa.Engine, ending: str) -> None:
    def ends(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        getattr(connection, ending)()

    received = message()
    wrapped = wrap(engine, ends)
    assert wrapped(received) is ConsumeStatus.RECONSUME_LATER
    with pytest.raises(IncompleteEffect if ending == "commit" else (UsageError, sa.exc.InvalidRequestError)):
        wrapped.apply(received)
    # Committed by the handler: the inbox row stands with the effect. Rolled back: neither does.
    assert effect_count(engine) == len(inbox_rows(engine)) == (1 if ending == "commit" else 0)


def test_a_session_rolls_back_with_its_handler(engine: sa.Engine) -> None:
    factory = sessionmaker(engine)

    def handler(received: ConsumedMessage, session: Session) -> None:
        session.execute(effects.insert().values(unique_key=received.unique_key, amount=1))
        if received.body == b"bad":
            raise ValueError

    wrapped = transactional_handler(factory, group="billing")(handler)
    good, bad = message(), message(body=b"bad")
    assert wrapped(good) is ConsumeStatus.CONSUME_SUCCESS
    assert wrapped(good) is ConsumeStatus.CONSUME_SUCCESS
    assert wrapped(bad) is ConsumeStatus.RECONSUME_LATER
    assert effect_count(engine) == 1
    assert [row[0] for row in inbox_rows(engine)] == [good.unique_key]


def test_a_plain_sqlite_connection_is_enough(engine: sa.Engine, tmp_path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(tmp_path / "service.db"))
        return opened[-1]

    def handler(received: ConsumedMessage, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO effects VALUES (?, 1)", (received.unique_key,))
        if received.body == b"swallowed":
            connection.rollback()

    wrapped = transactional_handler(connect, group="billing", dedupe_by=business_id)(handler)
    assert wrapped.apply(message(BUSINESS_ID="a")) is InboxAnswer.NEW
    assert wrapped.apply(message(BUSINESS_ID="a")) is InboxAnswer.DUPLICATE_BUSINESS
    with pytest.raises(UsageError):
        wrapped.apply(message(body=b"swallowed"))
    assert effect_count(engine) == 1
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError):
            connection.execute("SELECT 1")


def test_a_connection_in_autocommit_is_refused_before_anything_is_written(engine: sa.Engine, tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "service.db", isolation_level=None)

    called: list[object] = []
    wrapped = transactional_handler(connect, group="billing")(lambda received, connection: called.append(received))
    with pytest.raises(UsageError, match="autocommit"):
        wrapped.apply(message())
    assert called == []
    assert inbox_rows(engine) == []


def test_a_connection_of_an_unknown_kind_is_refused() -> None:
    class Strange:
        def rollback(self) -> None: ...

        def close(self) -> None: ...

    with pytest.raises(UsageError, match="Strange"):
        transactional_handler(Strange, group="billing")(pay).apply(message())


def test_a_batch_stops_at_its_first_failure(engine: sa.Engine) -> None:
    def handler(received: ConsumedMessage, connection: sa.Connection) -> None:
        if received.body == b"bad":
            raise ValueError
        pay(received, connection)

    wrapped = wrap(engine, handler)
    first, bad, last = message(), message(body=b"bad"), message()
    assert wrapped.listener([first, bad, last]) == FailedAt(1)
    assert effect_count(engine) == 1
    assert wrapped.listener([first, last]) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine) == 2


def test_a_business_id_that_no_column_holds_is_refused(engine: sa.Engine) -> None:
    wrapped = wrap(engine, dedupe_by=lambda received: "x" * 200)
    with pytest.raises(InvalidValue, match="dedupe_key"):
        wrapped.apply(message())


def test_a_group_without_a_name_is_refused(engine: sa.Engine) -> None:
    with pytest.raises(InvalidValue, match="group"):
        transactional_handler(engine, group="")(pay)


def test_the_source_of_an_effect_is_kept(engine: sa.Engine) -> None:
    received: HandedOverMessage = message()
    wrap(engine).apply(received, source="hand-over")
    assert inbox_rows(engine) == [(received.unique_key, None, "hand-over")]


@pytest.mark.parametrize("number", [7, UUID(int=7)])
def test_a_business_id_that_is_no_text_is_refused_by_name_and_type(engine: sa.Engine, number: Any) -> None:
    wrapped = wrap(engine, dedupe_by=lambda _received: number)
    with pytest.raises(InvalidValue, match=rf"dedupe_key = .*a str, not {type(number).__name__}"):
        wrapped.apply(message())


def one_too_few(received: ConsumedMessage) -> None: ...


def one_too_many(received: ConsumedMessage, connection: sa.Connection, price: int) -> None: ...


async def awaited_one_too_few(received: ConsumedMessage) -> None: ...


@pytest.mark.parametrize("wrong", [one_too_few, one_too_many, awaited_one_too_few, partial(one_too_few)])
def test_a_handler_that_cannot_take_a_message_and_a_connection_is_refused_at_once(
    engine: sa.Engine, wrong: Any
) -> None:
    with pytest.raises(InvalidValue, match=r"handler = .*called as .*\(message, connection\)"):
        TransactionalHandler(wrong, SqlInbox(engine), group="billing", loop=None)


class Payer:
    def __call__(self, received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)

    def pays(self, received: ConsumedMessage, connection: sa.Connection, *, price: int = 1) -> None:
        pay(received, connection)


@wraps(one_too_many)
def injected(*given: Any) -> None:
    pay(*given)


@pytest.mark.parametrize(
    "fitting", [Payer(), Payer().pays, partial(one_too_many, price=1), injected, lambda *given: None, dict.get]
)
def test_a_handler_that_takes_both_is_accepted_however_it_is_made(engine: sa.Engine, fitting: Any) -> None:
    assert wrap(engine, fitting).group == "billing"


def test_without_the_inboxs_table_each_failure_names_it_and_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with disposed(sa.create_engine(f"sqlite:///{tmp_path / 'empty.db'}")) as empty:
        wrapped = wrap(empty)
        with pytest.raises(InboxNotReached, match="table reconciler_inbox is missing: run reconciler db upgrade inbox"):
            wrapped.apply(message())
        assert wrapped(message()) is ConsumeStatus.RECONSUME_LATER
    assert "inbox_rows_complete_at_once" not in caplog.text
