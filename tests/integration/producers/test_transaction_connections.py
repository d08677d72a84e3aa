"""Whose transaction the row is written in: each kind of connection that a service may hand in."""

# ruff: noqa: PT012, SIM117  # the block is what is tested, nested as services nest it

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from checkback_producers import Outcome
from checkback_producers.errors import NotCommitted, NotRecorded, UnsafeConnection
from tests.integration.producers.faces import FACES
from tests.integration.producers.raw_connections import raw_connection
from tests.unit.producers.world import World, message


@pytest.fixture
def world(both: World) -> World:
    """Every case holds on both faces, where it is not about a connection of one of them."""
    return both


#: Drivers' own connections that are not asynchronous.
of_threads = pytest.mark.parametrize("face", ["threads"], indirect=True)


@pytest.mark.parametrize("later", ["commit", "rollback"])
def test_an_outer_transaction_is_left_to_check_back(world: World, later: str, caplog: pytest.LogCaptureFixture) -> None:
    producer = world.producer()
    with world.database.connect() as connection:
        outer = connection.begin()
        with caplog.at_level(logging.WARNING, "checkback_producers"), producer.transaction(message()) as tx:
            tx.record(connection)
            world.do_business(connection, "outer")
        assert tx.outcome is Outcome.UNKNOWN
        assert tx.reason == "the recorded connection is still in a transaction"
        assert world.halves.ended == []
        assert tx.end_answer is None
        assert world.announcements.sent == []
        assert "outcome_unknown" in caplog.text
        assert producer.counts.as_dict()["unknown"] == 1
        getattr(outer, later)()
    answer = producer.check_answerer.answer(world.checked(tx.unique_key))
    assert answer is (Outcome.COMMIT if later == "commit" else Outcome.ROLLBACK)
    assert world.state(tx.unique_key) == ("NEW" if later == "commit" else "ROLLED_BACK")


def test_a_record_that_a_savepoint_took_back_gets_no_tombstone_while_its_transaction_is_open(world: World) -> None:
    producer = world.producer()
    with world.database.connect() as connection:
        with connection.begin():
            with producer.transaction(message()) as tx:
                savepoint = connection.begin_nested()
                tx.record(connection)
                savepoint.rollback()
            assert (tx.outcome, tx.reason) == (Outcome.UNKNOWN, "the recorded connection is still in a transaction")
            assert world.halves.ended == []
        assert world.state(tx.unique_key) is None
    assert producer.check_answerer.answer(world.checked(tx.unique_key)) is Outcome.ROLLBACK


@of_threads
def test_a_raw_connection_that_was_not_committed_yet_is_unknown(world: World) -> None:
    producer = world.producer()
    with raw_connection(world.url) as connection:
        with producer.transaction(message()) as tx:
            tx.record(connection)
        assert tx.outcome is Outcome.UNKNOWN
        connection.commit()
    assert producer.check_answerer.answer(world.checked(tx.unique_key)) is Outcome.COMMIT


@of_threads
@pytest.mark.pooled
def test_a_raw_connection_commits(world: World) -> None:
    with raw_connection(world.url) as connection, world.producer().transaction(message()) as tx:
        tx.record(connection)
        connection.commit()
    assert tx.outcome is Outcome.COMMIT
    assert world.state(tx.unique_key) == "ANNOUNCED"


@pytest.mark.pooled
def test_a_session_commits(world: World) -> None:
    with world.producer().transaction(message()) as tx, world.session() as session, session.begin():
        tx.record(session)
    assert tx.outcome is Outcome.COMMIT


def test_commit_as_you_go_commits(world: World) -> None:
    with world.producer().transaction(message()) as tx, world.database.connect() as connection:
        tx.record(connection)
        world.do_business(connection, "as you go")
        connection.commit()
    assert tx.outcome is Outcome.COMMIT
    assert world.did_business("as you go")


def test_a_rolled_back_savepoint_takes_the_row_with_it(world: World) -> None:
    with (
        pytest.raises(NotCommitted),
        world.producer().transaction(message()) as tx,
        world.database.begin() as connection,
    ):
        savepoint = connection.begin_nested()
        tx.record(connection)
        savepoint.rollback()
        world.do_business(connection, "without message")
    assert world.state(tx.unique_key) == "ROLLED_BACK"


def test_a_connection_in_autocommit_is_refused(world: World) -> None:
    engine = world.other_database(isolation_level="AUTOCOMMIT")
    with pytest.raises(UnsafeConnection, match="autocommit"), world.producer().transaction(message()) as tx:
        with engine.connect() as connection:
            tx.record(connection)
    engine.dispose()
    assert world.state(tx.unique_key) is None
    assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]


@of_threads
def test_a_raw_connection_in_autocommit_is_refused(world: World) -> None:
    with pytest.raises(UnsafeConnection, match="autocommit"), world.producer().transaction(message()) as tx:
        with raw_connection(world.url, autocommit=True) as connection:
            tx.record(connection)
    assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]


@of_threads
def test_an_explicit_transaction_on_an_autocommit_connection_is_accepted(world: World) -> None:
    with raw_connection(world.url, autocommit=True) as connection, world.producer().transaction(message()) as tx:
        connection.cursor().execute("BEGIN")
        tx.record(connection)
        connection.cursor().execute("COMMIT")
    assert tx.outcome is Outcome.COMMIT


@pytest.mark.pooled
def test_a_connection_to_another_database_is_refused(new_database_url: Callable[[], str], face: str) -> None:
    world, other = FACES[face](new_database_url()), World(new_database_url())
    engine = world.other_database(other.url)
    try:
        with pytest.raises(UnsafeConnection, match="another database"), world.producer().transaction(message()) as tx:
            with engine.begin() as connection:
                other.do_business(connection, "elsewhere")
                tx.record(connection)
        engine.dispose()
        assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]
        assert world.state(tx.unique_key) is None
        assert other.state(tx.unique_key) is None
        assert not other.did_business("elsewhere")
    finally:
        world.close()
        other.close()


def test_a_connection_to_a_database_without_an_outbox_is_refused(
    new_database_url: Callable[[], str], face: str
) -> None:
    world = FACES[face](new_database_url())
    other = world.other_database(new_database_url())
    try:
        with pytest.raises(UnsafeConnection, match="another database"), world.producer().transaction(message()) as tx:
            with other.begin() as connection:
                tx.record(connection)
        assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]
    finally:
        other.dispose()
        world.close()


def test_a_swallowed_refusal_still_rolls_the_message_back(new_database_url: Callable[[], str]) -> None:
    world, other = World(new_database_url()), World(new_database_url())
    try:
        with pytest.raises(NotRecorded), world.producer().transaction(message()) as tx:
            with other.engine.begin() as connection, pytest.raises(UnsafeConnection):
                tx.record(connection)
        assert world.halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]
    finally:
        world.close()
        other.close()


@pytest.mark.parametrize("other", [object(), None, "postgresql://"])
def test_what_is_no_connection_is_refused(world: World, other: object) -> None:
    with (
        pytest.raises(UnsafeConnection, match=r"no (asynchronous )?connection(:| that is known)"),
        world.producer().transaction(message()) as tx,
    ):
        tx.record(other)
