"""A database stands still in the middle of a write, and goes on later: what was given up may be executed then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from checkback_producers import Outcome
from checkback_producers.check_answer import CheckAnswerer
from checkback_producers.outbox import SqlOutbox
from reconciler.clock import ManualClock
from reconciler.contract.tables import RepairState
from reconciler.errors import DatabaseSilent
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.silence import silence_of
from reconciler.words import said
from tests.integration.policy.conftest import STATEMENT_SECONDS, Server, Standstill
from tests.polling import eventually
from tests.unit.policy.world import World
from tests.unit.producers.world import World as ProducerWorld
from tests.unit.producers.world import message, new_key


def stops_at(standstill: Standstill, engine: sa.Engine, moment: str) -> Callable[[], None]:
    """What makes the server stand still the next time that the engine is about to send a statement, or a COMMIT."""
    armed: list[bool] = []

    def freeze(*_: object) -> None:
        if armed:
            armed.clear()
            standstill.begin()

    event.listen(engine, {"COMMIT": "commit", "UPDATE": "before_cursor_execute"}[moment], freeze)
    return lambda: armed.append(True)


def went_on(standstill: Standstill, engine: sa.Engine) -> None:
    """The server goes on, and the process need not wait for the end of its pause to find out."""
    standstill.end()
    silence = silence_of(engine)
    assert silence is not None
    silence.note_answered()


@pytest.mark.parametrize("moment", ["UPDATE", "COMMIT"])
def test_nothing_is_sent_whose_attempt_is_in_doubt_and_it_is_sent_once_when_the_ledger_goes_on(
    server: Server, standstill: Standstill, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.create_database()
    schema.upgrade(url, "ledger")
    engine = open_engine(url, statement_seconds=STATEMENT_SECONDS)
    world = World()
    ledger: Any = SqlLedger(engine, now=lambda _: sa.literal(world.clock.now_ms(), sa.BigInteger()), english=said)
    world.ledger = ledger
    lost = world.lose(1)
    world.clock.advance(60)
    process = world.process()
    process.keys_by_hand.judge_one(world.subscriptions[0], lost)
    arm = stops_at(standstill, engine, moment)
    change_all = ledger.repairs.change_all

    def change(changes: Any) -> Any:
        arm()
        return change_all(changes)

    monkeypatch.setattr(ledger.repairs, "change_all", change)
    with pytest.raises(DatabaseSilent, match="may have been written"):
        process.run(world.subscriptions[0])
    assert world.broker.ends == []
    monkeypatch.undo()
    went_on(standstill, engine)
    if moment == "COMMIT":  # what was given up is executed now
        eventually(lambda: _state(world, lost) is RepairState.SENDING, within_seconds=30)
    process.run(world.subscriptions[0])
    assert world.broker.ends == [], "another process may have the claim"
    world.rounds(process, 12)
    assert [end for end in world.broker.ends if end[2]] == [(lost, *world.broker.ends[0][1:])]
    assert len(world.broker.copies) == 1
    assert _state(world, lost) is RepairState.DONE
    engine.dispose()


def _state(world: World, lost: str) -> RepairState | None:
    row = world.repair(lost)
    return None if row is None else row.state


def test_a_tombstone_in_doubt_is_answered_unknown_and_holds_the_key_when_it_was_written_after_all(
    server: Server, standstill: Standstill
) -> None:
    url = server.create_database()
    world = ProducerWorld(url)
    half = world.checked(new_key(), check_times=15)
    with closing(SqlOutbox(url, statement_seconds=STATEMENT_SECONDS)) as outbox:
        outbox.identity()
        arm = stops_at(standstill, outbox.engine, "COMMIT")
        answerer = CheckAnswerer(outbox, clock=ManualClock())
        arm()
        assert answerer.answer(half) is Outcome.UNKNOWN
        assert answerer.answer(half) is Outcome.UNKNOWN, "nobody asks within the pause"
        went_on(standstill, outbox.engine)
        eventually(lambda: world.state(half.unique_key) == "ROLLED_BACK", within_seconds=30)
        assert answerer.answer(half) is Outcome.ROLLBACK
    world.close()


def test_a_block_whose_outcome_cannot_be_read_in_time_sends_nothing_and_check_back_decides(
    server: Server, standstill: Standstill
) -> None:
    world = ProducerWorld(server.create_database())
    producer = world.producer()
    with producer.transaction(message()) as tx:
        with world.engine.begin() as connection:
            tx.record(connection)
            world.do_business(connection, "committed")
        standstill.begin()
    assert tx.outcome is Outcome.UNKNOWN
    assert world.halves.ended == []
    standstill.end()
    checked = world.checked(tx.unique_key)
    with producer.transaction(message()) as next_one, world.engine.begin() as connection:
        next_one.record(connection)  # on the service's own connection: the plug-in learns that the database answers
    assert next_one.outcome is Outcome.COMMIT
    assert producer.check_answerer.answer(checked) is Outcome.COMMIT
    world.close()
