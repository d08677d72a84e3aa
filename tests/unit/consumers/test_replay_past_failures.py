"""Hand-over rows that never reach the inbox hold up no other rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.errors import InboxNotReached
from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxEntry
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.replay_worker import UNREACHED_ROWS_MAX, ReplayCounts, ReplayWorker
from reconciler.sql.tables import hold, ledger_metadata
from tests.unit.consumers.messages import effect_count, inbox_engine, message, new_key, sqlite_url
from tests.unit.consumers.test_hand_over_message import stored
from tests.unit.consumers.test_replay_worker import insert_row, make_due, pay, row_of


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        ledger_metadata.create_all(opened)
        with opened.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TRIGGER refuses BEFORE INSERT ON reconciler_inbox WHEN NEW.dedupe_key = 'poison' "
                "BEGIN SELECT RAISE(ABORT, 'no such order'); END"
            )
        yield opened


@pytest.mark.parametrize("topics", [("ORDERS", "REFUNDS"), ("REFUNDS", "ORDERS")])
@pytest.mark.parametrize("poisoned", [1, 5])
def test_rows_that_always_fail_before_the_handler_do_not_starve_those_behind_them(
    engine: sa.Engine, topics: tuple[str, str], poisoned: int
) -> None:
    handler = transactional_handler(engine, group="billing", dedupe_by=lambda each: each.tags)(pay)
    good = {new_key(): topic for topic in topics}
    for number in range(poisoned):
        key = new_key()
        properties = {"TAGS": "poison", "UNIQ_KEY": key}
        insert_row(engine, key, next_at_ms=number, stored=stored(unique_key=key, properties=properties))
    for key, topic in good.items():
        sent = stored(unique_key=key, topic=topic, real_topic=topic, properties={"TAGS": topic, "UNIQ_KEY": key})
        insert_row(engine, key, topic=topic, next_at_ms=100, stored=sent)
    worker = ReplayWorker(handler, environment="test", topics=topics, queue=HandOverRows(engine))
    for _ in range(3):
        worker.run_once()
    assert [effect_count(engine, key) for key in good] == [1, 1]


def test_rows_that_fail_before_the_handler_one_at_a_time_end_no_run(engine: sa.Engine) -> None:
    handler = transactional_handler(engine, group="billing", dedupe_by=lambda each: each.tags)(pay)
    good = []
    for number in range(2 * UNREACHED_ROWS_MAX + 1):
        key, tag = new_key(), f"paid {number}" if number % 2 == 0 else "poison"
        insert_row(
            engine, key, next_at_ms=number, stored=stored(unique_key=key, properties={"TAGS": tag, "UNIQ_KEY": key})
        )
        good += [key] if tag != "poison" else []
    ReplayWorker(handler, environment="test", topics="ORDERS", queue=HandOverRows(engine)).run_once()
    assert [effect_count(engine, key) for key in good] == [1] * len(good)


def test_a_topic_that_is_held_holds_up_no_other_and_is_told_once(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    topics = ("ORDERS", "PAYMENTS", "REFUNDS")
    held = {"topic": topics[0], "environment": "test", "kind": "HOLD", "since_ms": 1, "by": "anna", "reason": "drill"}
    with engine.begin() as connection:
        connection.execute(sa.insert(hold), [held, held | {"topic": topics[1]}])
    for topic in topics:
        key = new_key()
        properties = {"TAGS": "paid", "UNIQ_KEY": key}
        insert_row(
            engine,
            key,
            topic=topic,
            stored=stored(unique_key=key, topic=topic, real_topic=topic, properties=properties),
        )
    handler = transactional_handler(engine, group="billing")(pay)
    worker = ReplayWorker(handler, environment="test", topics=topics, queue=HandOverRows(engine))
    assert [worker.run_once() for _ in range(2)] == [ReplayCounts(applied=1, held=2), ReplayCounts(held=2)]
    assert len([one for one in caplog.records if "hand_overs_held" in one.msg]) == 2


def test_a_topic_that_is_held_while_its_rows_are_run_stops_before_the_next_one(engine: sa.Engine) -> None:
    def pay_and_hold(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        values = {"environment": "test", "topic": "ORDERS", "kind": "HOLD", "since_ms": 1, "by": "anna", "reason": ""}
        connection.execute(sa.insert(hold).values(**values))

    for _ in range(3):
        insert_row(engine, new_key())
    handler = transactional_handler(engine, group="billing")(pay_and_hold)
    worker = ReplayWorker(handler, environment="test", topics="ORDERS", queue=HandOverRows(engine))
    assert worker.run_once() == ReplayCounts(applied=1, held=2)


def test_a_row_that_the_database_refuses_for_its_values_is_given_up_in_the_end(engine: sa.Engine) -> None:
    """It was taken for a database that is away, so it was tried for ever."""

    class Refusing:
        is_weaker = False

        def apply_once(self, entry: InboxEntry, effect: object) -> object:
            raise type("DataError", (Exception,), {})("PostgreSQL text fields cannot contain NUL (0x00) bytes")

    key = new_key()
    insert_row(engine, key)
    handler = transactional_handler(Refusing(), group="billing")(pay)  # type: ignore[arg-type]  # a driver's error
    worker = ReplayWorker(handler, environment="test", topics="ORDERS", queue=HandOverRows(engine))
    for _ in range(16):
        make_due(engine)
        worker.run_once()
    assert row_of(engine, key).state == "FAILED"


def test_a_database_that_is_away_is_still_told_apart(engine: sa.Engine) -> None:
    def connect() -> sa.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    with pytest.raises(InboxNotReached):
        transactional_handler(connect, group="billing")(pay).apply(message())
