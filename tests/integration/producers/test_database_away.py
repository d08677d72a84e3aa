"""The producer's database goes away at the worst moments, on both faces."""

# ruff: noqa: PT012, SIM117  # the block is what is tested, nested as services nest it

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checkback_producers import Outcome
from reconciler.errors import DatabaseAway
from tests.integration.producers.faces import FACES
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.requirements import mariadb_missing, postgres_missing, require
from tests.unit.producers.world import message

pytestmark = pytest.mark.sql


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer | MariaDBServer]:
    """A server that the test may stop."""
    require(postgres_missing() if request.param == "postgresql" else mariadb_missing())
    with PostgresServer() if request.param == "postgresql" else MariaDBServer() as started:
        yield started


def test_a_database_that_goes_away_between_commit_and_end_leaves_it_to_check_back(
    server: PostgresServer | MariaDBServer, face: str
) -> None:
    world = FACES[face](server.create_database())
    producer = world.producer()
    with producer.transaction(message()) as tx:
        with world.database.begin() as connection:
            tx.record(connection)
            world.do_business(connection, "committed")
        server.stop()
    assert tx.outcome is Outcome.UNKNOWN
    assert world.halves.ended == []
    assert world.announcements.sent == []
    assert producer.check_answerer.answer(world.checked(tx.unique_key, check_times=15)) is Outcome.UNKNOWN
    server.start()
    assert producer.check_answerer.answer(world.checked(tx.unique_key, check_times=15)) is Outcome.COMMIT
    assert world.did_business("committed")
    world.close()


def test_a_database_that_goes_away_before_the_commit_ends_in_the_callers_error_and_a_rollback(
    server: PostgresServer | MariaDBServer, face: str
) -> None:
    world = FACES[face](server.create_database())
    producer = world.producer()
    with pytest.raises(Exception, match=r".") as raised, producer.transaction(message()) as tx:
        with world.database.begin() as connection:
            tx.record(connection)
            server.stop()
            world.do_business(connection, "never")
    assert "sqlalchemy" in type(raised.value).__module__, "the caller's own error, not ours"
    assert tx.outcome is Outcome.UNKNOWN
    server.start()
    assert producer.check_answerer.answer(world.checked(tx.unique_key, check_times=15)) is Outcome.ROLLBACK
    assert not world.did_business("never")
    world.close()


def test_record_translates_a_lost_connection(server: PostgresServer | MariaDBServer, face: str) -> None:
    world = FACES[face](server.create_database())
    producer = world.producer()
    with pytest.raises(DatabaseAway), producer.transaction(message()) as tx, world.database.connect() as connection:
        world.do_business(connection, "first")
        server.stop()
        tx.record(connection)
    assert tx.outcome is Outcome.UNKNOWN
    world.close()
