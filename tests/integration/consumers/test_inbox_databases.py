"""The inbox on SQLite, PostgreSQL and MariaDB, with transactions that really run at the same time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.inbox import InboxAnswer, InboxEntry, enter_inbox
from checkback_consumers.message import ConsumedMessage, business_id
from reconciler.contract.subscription import Subscription
from reconciler.errors import Collision, DatabaseAway, UsageError
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.policy.evidence import Presence
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox
from tests.engines import disposed
from tests.integration.consumers.faces import Decorator
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, message, new_key, pay

SUBSCRIPTION = Subscription(environment="test", topic="ORDERS", group="billing")


def driver_connection(engine: sa.Engine, *, autocommit: bool = False) -> Any:
    """What a service without SQLAlchemy has."""
    url = make_url(engine.url)
    if url.get_backend_name() == "sqlite":
        return sqlite3.connect(url.database or "", timeout=10, isolation_level=None if autocommit else "IMMEDIATE")
    if url.get_backend_name() == "postgresql":
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(plain, autocommit=autocommit)
    return pymysql.connect(
        host=url.host, port=url.port or 3306, user=url.username, password=url.password or "", database=url.database,
        autocommit=autocommit,
    )  # fmt: skip


def pay_plainly(received: ConsumedMessage, connection: Any) -> None:
    mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
    cursor = connection.cursor()
    cursor.execute(f"INSERT INTO effects (unique_key, amount) VALUES ({mark}, 1)", (received.unique_key,))
    cursor.close()


@pytest.fixture(params=["sqlalchemy", "driver"])
def wrapped(request: pytest.FixtureRequest, engine: sa.Engine, handling: Decorator) -> TransactionalHandler:
    if request.param == "sqlalchemy":
        return handling(engine, group="billing", dedupe_by=business_id)(pay)

    def connect() -> Any:
        return driver_connection(engine)

    return handling(connect, group="billing", dedupe_by=business_id)(pay_plainly)


def at_once(messages: Sequence[ConsumedMessage], call: Callable[[ConsumedMessage], Any]) -> list[Any]:
    """Runs the calls as nearly at the same time as threads can."""
    gate = threading.Barrier(len(messages))

    def run(each: ConsumedMessage) -> Any:
        gate.wait(60)
        return call(each)

    with ThreadPoolExecutor(len(messages)) as pool:
        return list(pool.map(run, messages))


@pytest.mark.promise("G1")
@pytest.mark.pooled
def test_one_message_delivered_to_eight_threads_at_once_has_one_effect(
    engine: sa.Engine, wrapped: TransactionalHandler
) -> None:
    for _ in range(5):
        received = message()
        answers = at_once([received] * 8, wrapped)
        # A loser may meet a deadlock or a lock's end and come again; it must not have a second effect.
        assert ConsumeStatus.CONSUME_SUCCESS in answers
        assert wrapped(received) is ConsumeStatus.CONSUME_SUCCESS
        assert effect_count(engine, received.unique_key) == 1


@pytest.mark.pooled
def test_one_business_id_under_eight_keys_at_once_has_one_effect(
    engine: sa.Engine, wrapped: TransactionalHandler
) -> None:
    for round_number in range(3):
        received = [message(BUSINESS_ID=f"order-{round_number}") for _ in range(8)]
        at_once(received, wrapped)
        assert [wrapped(each) for each in received] == [ConsumeStatus.CONSUME_SUCCESS] * 8
        assert effect_count(engine) == round_number + 1
        with engine.connect() as connection:
            rows = connection.execute(
                sa.select(inbox.c.unique_key, inbox.c.duplicate_of).where(
                    inbox.c.unique_key.in_([each.unique_key for each in received])
                )
            ).all()
        firsts = [row.unique_key for row in rows if row.duplicate_of is None]
        assert len(firsts) == 1
        assert {row.duplicate_of for row in rows} == {None, firsts[0]}
        assert len(rows) == 8


@pytest.mark.pooled
def test_batches_that_share_messages_in_another_order_have_one_effect_each(
    engine: sa.Engine, handling: Decorator
) -> None:
    wrapped = handling(engine, group="billing", is_batched=True)(pay)
    for _ in range(3):
        batch = [message() for _ in range(6)]
        gate = threading.Barrier(2)

        def run(messages: Sequence[ConsumedMessage], gate: threading.Barrier = gate) -> ConsumeStatus | FailedAt:
            gate.wait(60)
            return wrapped.listener(messages)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, [batch, batch[::-1]]))
        # Each may have waited for the other: the database then ends one of them, which goes message by message.
        assert wrapped.listener(batch) is ConsumeStatus.CONSUME_SUCCESS
        assert [effect_count(engine, each.unique_key) for each in batch] == [1] * 6


def test_the_second_waits_for_the_first_and_takes_over_if_it_rolls_back(
    engine: sa.Engine, wrapped: TransactionalHandler, handling: Decorator
) -> None:
    received = message()
    inside, leave = threading.Event(), threading.Event()

    def fails(message: ConsumedMessage, connection: Any) -> None:
        inside.set()
        leave.wait(60)
        raise ValueError("rolled back")

    failing = handling(engine, group="billing")(fails)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(failing, received)
        assert inside.wait(60)
        second = pool.submit(wrapped, received)
        leave.set()
        assert first.result(60) is ConsumeStatus.RECONSUME_LATER
        assert second.result(60) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine, received.unique_key) == 1


def test_redelivery_collision_and_rollback_are_the_same_everywhere(
    engine: sa.Engine, wrapped: TransactionalHandler
) -> None:
    received = message()
    assert wrapped.apply(received) is InboxAnswer.NEW
    assert wrapped.apply(received) is InboxAnswer.DUPLICATE
    with pytest.raises(Collision):
        wrapped.apply(message(received.unique_key, body=b"other"))
    assert effect_count(engine) == 1


def test_a_driver_connection_in_autocommit_is_refused(engine: sa.Engine) -> None:
    def connect() -> Any:
        return driver_connection(engine, autocommit=True)

    wrapped = transactional_handler(connect, group="billing")(pay_plainly)
    with pytest.raises(UsageError, match="autocommit"):
        wrapped.apply(message())
    assert effect_count(engine) == 0


def test_an_autocommit_engine_has_no_effect_without_its_row(engine: sa.Engine, handling: Decorator) -> None:
    wrapped = handling(engine.execution_options(isolation_level="AUTOCOMMIT"), group="billing")(pay)
    if engine.dialect.name == "sqlite":  # open_engine begins transactions itself, in any mode of the driver
        assert wrapped.apply(message()) is InboxAnswer.NEW
        assert effect_count(engine) == 1
        return
    with pytest.raises(UsageError, match="autocommit"):
        wrapped.apply(message())
    assert effect_count(engine) == 0


def test_a_begun_transaction_on_an_autocommit_connection_is_accepted(engine: sa.Engine) -> None:
    key = new_key()
    with closing(driver_connection(engine, autocommit=True)) as connection:
        connection.cursor().execute("BEGIN")
        entry = InboxEntry(group="billing", unique_key=key, topic="ORDERS")
        assert enter_inbox(connection, entry) is InboxAnswer.NEW
        connection.rollback()
        connection.cursor().execute("BEGIN")
        assert enter_inbox(connection, entry) is InboxAnswer.NEW
        assert enter_inbox(connection, entry) is InboxAnswer.DUPLICATE
        connection.rollback()


@pytest.mark.pooled
@pytest.mark.parametrize("kind", ["sqlalchemy", "driver"])
def test_a_handler_that_swallows_a_database_error_does_not_lose_its_effect(
    engine: sa.Engine, kind: str, handling: Decorator
) -> None:
    """PostgreSQL commits a failed transaction as a rollback without an error: it must not be acknowledged."""

    def swallows(received: ConsumedMessage, connection: Any) -> None:
        try:
            if kind == "sqlalchemy":
                connection.execute(sa.text("INSERT INTO no_such_table VALUES (1)"))
            else:
                connection.cursor().execute("INSERT INTO no_such_table VALUES (1)")
        except (sa.exc.DBAPIError, sqlite3.Error, psycopg.Error, pymysql.Error):
            pass

    database: Any = engine if kind == "sqlalchemy" else lambda: driver_connection(engine)
    received = message()
    answer = handling(database, group="billing")(swallows)(received)
    with engine.connect() as connection:
        kept = connection.execute(sa.select(sa.func.count()).select_from(inbox)).scalar_one()
    # Either the rest of the transaction stands and is acknowledged, or neither.
    assert (answer is ConsumeStatus.CONSUME_SUCCESS) == (kept == 1)
    assert (kept == 0) == (engine.dialect.name == "postgresql")


@pytest.mark.sql("mariadb")
@pytest.mark.parametrize("kind", ["sqlalchemy", "driver"])
def test_a_handler_that_tries_again_after_a_deadlock_has_no_effect_without_its_row(mariadb_url: str, kind: str) -> None:
    """InnoDB rolls the whole transaction back, inbox row included; what the handler does next is another one."""
    with inbox_engine(mariadb_url) as engine:
        with engine.begin() as connection:
            connection.execute(effects.insert(), [{"unique_key": name, "amount": 0} for name in "AB"])
        has_a, has_b = threading.Event(), threading.Event()

        def heavier() -> None:
            """InnoDB gives up the transaction that has changed less."""
            with engine.begin() as connection:
                rows = [{"unique_key": f"other-{number}", "amount": 1} for number in range(200)]
                connection.execute(effects.insert(), rows)
                connection.execute(effects.update().where(effects.c.unique_key == "B").values(amount=0))
                has_b.set()
                assert has_a.wait(60)
                connection.execute(effects.update().where(effects.c.unique_key == "A").values(amount=0))

        def run(connection: Any, name: str) -> None:
            sql = f"UPDATE effects SET amount = amount + 1 WHERE unique_key = '{name}'"
            connection.execute(sa.text(sql)) if kind == "sqlalchemy" else connection.cursor().execute(sql)

        deadlocks: list[object] = []

        def tries_again(_received: ConsumedMessage, connection: Any) -> None:
            for _ in range(2):
                try:
                    run(connection, "A")
                    has_a.set()
                    assert has_b.wait(60)
                    run(connection, "B")
                except (sa.exc.OperationalError, pymysql.OperationalError) as error:
                    deadlocks.append(getattr(error, "orig", None) or error)
                else:
                    return

        def connect() -> Any:
            connection = driver_connection(engine)
            # As the engine has it: REPEATABLE READ would lock every row that a statement without an index passes.
            connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            return connection

        handler = transactional_handler(engine if kind == "sqlalchemy" else connect, group="billing")(tries_again)
        received = message()
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(heavier)
            answers = [handler(received)]
            other.result(60)
        assert [error.args[0] for error in deadlocks] == [1213]  # type: ignore[attr-defined]
        answers += [handler(received), handler(received)]
        assert answers == [ConsumeStatus.RECONSUME_LATER, ConsumeStatus.CONSUME_SUCCESS, ConsumeStatus.CONSUME_SUCCESS]
        with engine.connect() as connection:
            of_a = sa.select(effects.c.amount).where(effects.c.unique_key == "A")
            assert connection.execute(of_a).scalar_one() == 1


def test_business_ids_that_a_database_cannot_tell_apart_never_lose_an_effect(
    engine: sa.Engine, handling: Decorator
) -> None:
    wrapped = handling(engine, group="billing", dedupe_by=business_id)(pay)
    first, second = message(BUSINESS_ID="one"), message(BUSINESS_ID="one ")
    assert [wrapped(first), wrapped(message(BUSINESS_ID="one"))] == [ConsumeStatus.CONSUME_SUCCESS] * 2
    answer = wrapped(second)
    is_told_apart = engine.dialect.name not in {"mysql", "mariadb"}
    assert (answer is ConsumeStatus.CONSUME_SUCCESS) == is_told_apart
    assert effect_count(engine, second.unique_key) == int(is_told_apart)


@pytest.mark.sql("mariadb")
def test_mysql_repeatable_read_sees_the_row_that_it_met(mariadb_url: str) -> None:
    """MySQL's default isolation reads a snapshot that may be older than the row that refused the insert."""
    entry = InboxEntry(group="billing", unique_key=new_key(), topic="ORDERS")
    with inbox_engine(mariadb_url) as engine:
        repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
        with repeatable.connect() as old, old.begin():
            old.execute(sa.select(effects)).all()  # the snapshot is taken here
            with engine.begin() as other:
                assert enter_inbox(other, entry) is InboxAnswer.NEW
            assert enter_inbox(old, entry) is InboxAnswer.DUPLICATE


def test_evidence_of_many_keys_is_read_in_pages(engine: sa.Engine) -> None:
    wrapped = transactional_handler(engine, group="billing", dedupe_by=business_id)(pay)
    applied = [message(BUSINESS_ID="one") for _ in range(3)]
    for each in applied:
        wrapped.apply(each)
    transactional_handler(engine, group="shipping")(pay).apply(message())
    absent = [new_key() for _ in range(1_200)]
    evidence = SqlInboxEvidence({SUBSCRIPTION: [engine]})
    answers = evidence.look_up(SUBSCRIPTION, [*absent, *(each.unique_key for each in applied)])
    assert len(answers) == 1_203
    assert {answers[key].presence for key in absent} == {Presence.ABSENT}
    rows = [answers[each.unique_key].records[0] for each in applied]
    assert [row.duplicate_of for row in rows] == [None, applied[0].unique_key, applied[0].unique_key]
    assert all(row.content_digest is not None and len(row.content_digest) == 32 for row in rows)
    with engine.connect() as connection:
        assert abs(database_now_ms(connection) - rows[0].applied_at_ms) < 60_000


@pytest.mark.pooled
def test_rows_of_an_outage_are_paged_by_time_without_gap_or_repetition(engine: sa.Engine) -> None:
    keys = [new_key() for _ in range(25)]
    with engine.begin() as connection:
        for number, key in enumerate(keys):
            connection.execute(
                inbox.insert().values(
                    consumer_group="billing", unique_key=key, topic="ORDERS", source="consumer",
                    applied_at_ms=1_000 + number // 10,
                )
            )  # fmt: skip
        connection.execute(
            inbox.insert().values(
                consumer_group="billing", unique_key=new_key(), topic="REFUNDS", source="consumer", applied_at_ms=1_001
            )
        )
    evidence = SqlInboxEvidence({SUBSCRIPTION: [engine]})
    seen: list[str] = []
    after: tuple[int, str] | None = None
    while page := evidence.applied_since(SUBSCRIPTION, since_ms=1_000, after=after, limit=4):
        seen += [row.unique_key for row in page]
        after = (page[-1].applied_at_ms, page[-1].unique_key)
    assert sorted(seen) == sorted(keys)
    since = evidence.applied_since(SUBSCRIPTION, since_ms=1_001, after=None, limit=100)
    assert len(since) == 15


def test_an_inbox_that_cannot_be_asked_is_unknown_never_absent(tmp_path: Path) -> None:
    key = new_key()
    nowhere = SqlInboxEvidence({})
    assert not nowhere.is_configured(SUBSCRIPTION)
    assert nowhere.look_up(SUBSCRIPTION, [key])[key].is_unknown
    with pytest.raises(DatabaseAway):
        nowhere.applied_since(SUBSCRIPTION, since_ms=0, after=None, limit=1)
    for url in (f"sqlite:///{tmp_path}/empty.db", f"sqlite:///{tmp_path}/no/such/folder.db"):
        with disposed(open_engine(url)) as engine:
            evidence = SqlInboxEvidence({SUBSCRIPTION: [engine]})
            assert evidence.is_configured(SUBSCRIPTION)
            assert evidence.look_up(SUBSCRIPTION, [key])[key].is_unknown
