"""One producer group over several databases: an instance never decides about the halves of another one's."""

# ruff: noqa: PT012  # the block is what is tested

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_producers import Outcome, TransactionalProducer
from checkback_producers.check_answer import StandIn
from checkback_producers.errors import NotCommitted
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import CheckedHalf
from reconciler.contract.properties import OUTBOX_MARK
from reconciler.sql.tables import outbox
from tests.unit.producers.world import World, checked, message, new_key


@pytest.fixture
def other(tmp_path: Path) -> Iterator[World]:
    """The database of another instance of the group."""
    opened = World(f"sqlite:///{tmp_path}/other.db")
    yield opened
    opened.close()


def asked_about(world: World, unique_key: str) -> CheckedHalf:
    """The broker's last question, with the mark that the half was really sent with."""
    (sent,) = (half for half in world.halves.sent if half.unique_key == unique_key)
    return checked(unique_key, check_times=15, outbox_mark=sent.properties.get(OUTBOX_MARK))


def commit(world: World, producer: TransactionalProducer) -> str:
    with producer.transaction(message()) as tx, world.engine.begin() as connection:
        tx.record(connection)
    return tx.unique_key


@pytest.mark.set_up("outboxes of one producer group in several databases")
def test_payments_of_one_database_are_not_rolled_back_by_an_instance_on_another(world: World, other: World) -> None:
    ours, theirs = world.producer(), other.producer()
    for home, stranger, sender in ((world, theirs, ours), (other, ours, theirs)):
        keys = [commit(home, sender) for _ in range(20)]
        asked = [asked_about(home, key) for key in keys]
        assert {stranger.check_answerer.answer(half) for half in asked} == {Outcome.UNKNOWN}
        assert {sender.check_answerer.answer(half) for half in asked} == {Outcome.COMMIT}
        away = other if home is world else world
        assert {away.state(key) for key in keys} == {None}, "no tombstone either: it could hide the commit"


@pytest.mark.set_up("a producer group of Java and Python instances")
def test_a_half_of_a_java_member_of_the_group_is_left_to_java(world: World) -> None:
    key = new_key()
    producer = world.producer()
    assert producer.check_answerer.answer(checked(key, check_times=15)) is Outcome.UNKNOWN
    assert world.state(key) is None
    world.insert_row(key)  # by another client, whose halves have no mark
    assert producer.check_answerer.answer(checked(key, check_times=15)) is Outcome.COMMIT


def test_a_tombstone_rolls_back_only_halves_of_its_own_database(world: World, other: World) -> None:
    key = new_key()
    world.insert_row(key, state="ROLLED_BACK")
    answerer = world.producer().check_answerer
    assert answerer.answer(world.checked(key, check_times=15)) is Outcome.ROLLBACK
    for half in (other.checked(key, check_times=15), checked(key, check_times=15)):
        assert answerer.answer(half) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("name", "value", "is_storable"),
    [
        ("tag", "x" * 161, False),
        ("tag", "lone \ud800", False),
        ("tag", "nul\x00", True),  # by all but PostgreSQL
        ("topic", "x" * 161, False),
        ("topic", "lone \ud800", False),
        ("unique_key", "nul\x00" * 8, False),
        ("unique_key", "\ud800" * 32, False),
        ("unique_key", "A" * 66, False),
    ],
    ids=ascii,
)
def test_a_half_that_no_tombstone_can_stand_for_is_unknown(
    world: World, name: str, value: str, is_storable: bool
) -> None:
    answerer = world.producer().check_answerer
    values: dict[str, Any] = {name: value}
    half = replace(world.checked(new_key(), check_times=15), **values)
    decision = answerer.decide(half)
    if is_storable and decision.outcome is Outcome.ROLLBACK:
        assert answerer.decide(half).reason == "a tombstone holds the key"
    else:
        assert decision.outcome is Outcome.UNKNOWN
        assert answerer.decide(half).outcome is Outcome.UNKNOWN
    sound = world.checked(new_key(), check_times=15)
    assert answerer.answer(sound) is Outcome.ROLLBACK


def test_a_mark_that_was_copied_from_another_message_is_replaced(world: World) -> None:
    producer = world.producer()
    with (
        producer.transaction(message(properties={OUTBOX_MARK: "another outbox"})) as tx,
        world.engine.begin() as connection,
    ):
        tx.record(connection)
    assert asked_about(world, tx.unique_key).outbox_mark == world.mark


def test_without_an_outbox_a_half_has_no_mark(world: World) -> None:
    with world.producer(without_outbox=True).transaction(message(properties={OUTBOX_MARK: world.mark})) as tx:
        pass
    assert asked_about(world, tx.unique_key).outbox_mark is None


# ----------------------------------------------------------------- the stand-in


def test_a_stand_in_finds_the_commit_in_whichever_database_it_is(world: World, other: World) -> None:
    key = commit(other, other.producer())
    world.insert_row(key, state="ROLLED_BACK")
    for outboxes in ([world.outbox(), other.outbox()], [other.outbox(), world.outbox()]):
        assert StandIn(outboxes, clock=world.clock).answer(asked_about(other, key)) is Outcome.COMMIT


def test_a_stand_in_rolls_back_by_the_marked_databases_tombstone_alone(world: World, other: World) -> None:
    with pytest.raises(NotCommitted), world.producer().transaction(message()) as tx, world.engine.connect() as undone:
        tx.record(undone)
        undone.rollback()
    half = asked_about(world, tx.unique_key)
    assert StandIn([other.outbox(), world.outbox()], clock=world.clock).answer(half) is Outcome.ROLLBACK
    foreign = checked(tx.unique_key, outbox_mark=other.mark)
    assert StandIn([other.outbox(), world.outbox()], clock=world.clock).answer(foreign) is Outcome.UNKNOWN


def test_one_database_that_is_away_stops_a_stand_in_from_rolling_back_and_from_nothing_else(
    world: World, tmp_path: Path
) -> None:
    committed = commit(world, world.producer())
    rolled_back = new_key()
    world.insert_row(rolled_back, state="ROLLED_BACK")
    gone = SqlOutbox(f"sqlite:///{tmp_path}/no-such-folder/gone.db")
    stand_in = StandIn([gone, world.outbox()], clock=world.clock)
    for _ in range(2):
        assert stand_in.answer(world.checked(rolled_back)) is Outcome.UNKNOWN
        assert stand_in.answer(world.checked(committed)) is Outcome.COMMIT
    gone.close()


def test_a_damaged_row_silences_its_database_for_no_other_half(world: World) -> None:
    damaged, sound = new_key(), new_key()
    world.insert_row(damaged)
    world.insert_row(sound)
    with world.engine.begin() as connection:
        connection.execute(sa.update(outbox).where(outbox.c.unique_key == damaged).values(state="LOST"))
    stand_in = StandIn([world.outbox()], clock=world.clock)
    assert stand_in.answer(world.checked(damaged)) is Outcome.UNKNOWN
    assert stand_in.answer(world.checked(sound)) is Outcome.COMMIT
