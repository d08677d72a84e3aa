"""A stand-in for a dead producer group answers check-back only for keys that the outbox knows."""

# ruff: noqa: PT012  # the block is what is tested

from __future__ import annotations

import pytest

from checkback_producers import Outcome
from checkback_producers.check_answer import StandIn
from checkback_producers.errors import NotCommitted
from checkback_producers.outbox import SqlOutbox
from tests.unit.producers.world import World, message, new_key


@pytest.mark.pooled
def test_a_stand_in_never_rolls_back_what_it_does_not_know(world: World) -> None:
    outbox = SqlOutbox(world.url)
    stand_in = StandIn([outbox], clock=world.clock)
    unknown = new_key()
    asked_for_the_last_time = world.checked(unknown, born_timestamp_ms=0, check_times=15)
    assert stand_in.answer(asked_for_the_last_time) is Outcome.UNKNOWN
    assert outbox.find(unknown) is None, "no tombstone: the group may have another database"
    outbox.close()


def test_a_stand_in_answers_what_the_outbox_knows(world: World) -> None:
    producer = world.producer()
    with producer.transaction(message()) as committed, world.engine.begin() as connection:
        committed.record(connection)
    with pytest.raises(NotCommitted), producer.transaction(message()) as undone, world.engine.connect() as connection:
        undone.record(connection)
        connection.rollback()
    outbox = SqlOutbox(world.url)
    stand_in = StandIn([outbox], clock=world.clock)
    assert stand_in.answer(world.checked(committed.unique_key)) is Outcome.COMMIT
    assert stand_in.answer(world.checked(undone.unique_key)) is Outcome.ROLLBACK
    outbox.close()
