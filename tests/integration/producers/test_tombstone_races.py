"""Local transaction against check-back: in any order, broker and database never disagree."""

# ruff: noqa: PT012, SIM117  # the block is what is tested, nested as services nest it

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_producers import Outcome
from checkback_producers.check_answer import CheckAnswerer
from checkback_producers.errors import NotCommitted, NotRecorded, RolledBackAlready
from checkback_producers.outbox import SqlOutbox
from reconciler.errors import DatabaseAway
from tests.integration.producers.raw_connections import raw_connection
from tests.unit.producers.world import TOPIC, World, message

pytestmark = pytest.mark.pooled

SHORT_LOCK_WAIT = {
    "sqlite": "PRAGMA busy_timeout=100",
    "postgresql": "SET LOCAL lock_timeout = '100ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
}


def test_a_check_during_the_local_transaction_is_unknown_and_leaves_no_tombstone(world: World) -> None:
    producer = world.producer()
    with producer.transaction(message()) as tx, world.engine.begin() as connection:
        tx.record(connection)
        old = world.checked(tx.unique_key, check_times=15)
        decision = producer.check_answerer.decide(old)
        assert decision.outcome is Outcome.UNKNOWN
        assert decision.reason != "no row yet", "it must have met the lock"
    assert tx.outcome is Outcome.COMMIT
    assert producer.check_answerer.answer(old) is Outcome.COMMIT


def test_a_young_half_without_a_row_is_unknown_and_leaves_no_tombstone(world: World) -> None:
    producer = world.producer()
    with producer.transaction(message()) as tx:
        young = world.checked(tx.unique_key, born_timestamp_ms=world.clock.now_ms() - 59_999, check_times=14)
        assert producer.check_answerer.decide(young).reason == "no row yet"
        with world.engine.begin() as connection:
            tx.record(connection)
    assert tx.outcome is Outcome.COMMIT


def test_a_half_older_than_the_local_transaction_timeout_gets_a_tombstone(world: World) -> None:
    producer = world.producer()
    old = world.checked("AB" * 16, born_timestamp_ms=world.clock.now_ms() - 60_000, check_times=1)
    assert producer.check_answerer.answer(old) is Outcome.ROLLBACK
    assert world.state("AB" * 16) == "ROLLED_BACK"
    assert producer.check_answerer.decide(old).reason == "a tombstone holds the key"


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_check_that_waits_for_the_local_transaction_answers_what_it_did(world: World, ending: str) -> None:
    producer = world.producer()
    outbox = SqlOutbox(world.url)
    answerer = CheckAnswerer(outbox, clock=world.clock)
    waits = threading.Event()

    def notice(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(("INSERT", "BEGIN IMMEDIATE")):
            waits.set()

    sa.event.listen(outbox.engine, "before_cursor_execute", notice)
    refused = pytest.raises(NotCommitted) if ending == "rollback" else contextlib.nullcontext()
    with raw_connection(world.url) as connection, ThreadPoolExecutor(1) as broker:
        with refused, producer.transaction(message()) as tx:
            tx.record(connection)
            answer = broker.submit(answerer.answer, world.checked(tx.unique_key, check_times=15))
            assert waits.wait(60)
            getattr(connection, ending)()
            assert answer.result() is (Outcome.COMMIT if ending == "commit" else Outcome.ROLLBACK)
    assert world.state(tx.unique_key) == ("ANNOUNCED" if ending == "commit" else "ROLLED_BACK")
    outbox.close()


def test_in_a_race_the_answer_is_what_the_database_has(world: World) -> None:
    producer = world.producer()
    outcomes: Counter[Outcome] = Counter()
    with ThreadPoolExecutor(1) as broker:
        for number in range(30):
            barrier = threading.Barrier(2)
            with contextlib.suppress(RolledBackAlready, DatabaseAway), producer.transaction(message()) as tx:
                last_round = world.checked(tx.unique_key, check_times=15)

                def ask(barrier: threading.Barrier = barrier, half: object = last_round) -> Outcome:
                    barrier.wait(60)
                    return producer.check_answerer.answer(half)  # type: ignore[arg-type]  # bound early for the loop

                asked = broker.submit(ask)
                if number % 2:
                    barrier.wait(60)
                with world.engine.begin() as connection:
                    if not number % 2:
                        barrier.wait(60)
                    tx.record(connection)
                    world.do_business(connection, f"order-{number}")
            answer = asked.result()
            outcomes[answer] += 1
            committed = world.did_business(f"order-{number}")
            assert (answer, committed) in {
                (Outcome.COMMIT, True),
                (Outcome.ROLLBACK, False),
                (Outcome.UNKNOWN, True),
                (Outcome.UNKNOWN, False),
            }
            assert tx.outcome is (Outcome.COMMIT if committed else Outcome.ROLLBACK)
    assert outcomes[Outcome.COMMIT] + outcomes[Outcome.ROLLBACK] > 0


def test_a_record_that_failed_in_its_middle_is_decided_by_the_row(world: World) -> None:
    """The key is held by another transaction, so the fate of the caller's half-executed statement is unknown."""
    producer = world.producer()
    with raw_connection(world.url) as holder, raw_connection(world.url) as impatient:
        impatient.cursor().execute(SHORT_LOCK_WAIT[world.engine.dialect.name])
        with pytest.raises(NotRecorded), producer.transaction(message()) as tx:
            holder.cursor().execute(
                "INSERT INTO reconciler_outbox (unique_key, topic, producer_group, state, created_at_ms) "
                f"VALUES ('{tx.unique_key}', '{TOPIC}', 'x', 'NEW', 1)"
            )
            with pytest.raises(DatabaseAway):
                tx.record(impatient)
            impatient.rollback()
            holder.rollback()
    assert tx.outcome is Outcome.ROLLBACK
    assert world.state(tx.unique_key) == "ROLLED_BACK", "only a tombstone makes the rollback safe"


def test_a_busy_sqlite_at_the_end_leaves_the_row_to_the_sweeper(tmp_path: Path) -> None:
    """SQLite's one writer is another process: the outcome is read all the same, only the mark is missing."""
    world = World(f"sqlite:///{tmp_path}/busy.db")
    producer = world.producer()
    with raw_connection(world.url) as connection, raw_connection(world.url, autocommit=True) as writer:
        with producer.transaction(message()) as tx:
            tx.record(connection)
            connection.commit()
            writer.execute("BEGIN IMMEDIATE")
        assert tx.outcome is Outcome.COMMIT
        assert world.announcements.keys == [tx.unique_key]
        assert world.state(tx.unique_key) == "NEW"
        busy = producer.check_answerer.decide(world.checked("CD" * 16, check_times=15))
        assert busy.outcome is Outcome.UNKNOWN
        assert "locked" in busy.reason
        writer.execute("ROLLBACK")
    assert producer.check_answerer.answer(world.checked("CD" * 16, check_times=15)) is Outcome.ROLLBACK
    world.close()
