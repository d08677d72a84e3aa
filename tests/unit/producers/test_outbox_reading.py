"""Outbox rows as evidence: FOUND, ABSENT only if every database answered, else UNKNOWN."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.contract.content_digest import digest_of_message
from reconciler.contract.tables import OutboxState
from reconciler.contract.urls import shown_url
from reconciler.evidence.outbox import KEYS_MAX, SqlOutboxReader
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.evidence import Presence
from reconciler.words import said
from tests.engines import disposed
from tests.unit.producers.world import GROUP, TOPIC, World, message, new_key


def at(*unique_keys: str) -> dict[str, int]:
    """Keys of 1970: as early as any sign of life."""
    return dict.fromkeys(unique_keys, 0)


def reader_of(*urls: str | None, topic: str = TOPIC) -> SqlOutboxReader:
    return SqlOutboxReader(
        CommitSource(producer_group=f"group-{number}", topics=frozenset({topic}), url=url)
        for number, url in enumerate(urls)
    )


def test_a_committed_row_comes_back_as_it_was_recorded(world: World) -> None:
    producer = world.producer(keep_bodies=True)
    with producer.transaction(message(properties={"currency": "€"})) as tx, world.engine.begin() as connection:
        tx.record(connection)
    reader = reader_of(world.url)
    lookup = reader.look_up(TOPIC, at(tx.unique_key))[tx.unique_key]
    (row,) = lookup.records
    assert lookup.presence is Presence.FOUND
    said = row.commit
    assert said is not None
    assert (said.producer_group, row.state, said.tag, said.message_keys) == (
        GROUP,
        OutboxState.ANNOUNCED,
        "paid",
        "o-1 c-7",
    )
    assert (row.half_broker, row.half_commit_log_offset, row.half_queue_offset) == ("broker-a", 4_000_000_000_000, 7)
    assert said.body == b"one order"
    assert said.properties == {"currency": "€", "BUSINESS_ID": tx.business_id, "RECONCILER_OUTBOX": world.mark}
    (half,) = world.halves.sent
    stored = half.wire_properties(tx.unique_key)
    assert said.content_digest == digest_of_message(
        topic=TOPIC, unique_key=tx.unique_key, properties=stored, body=half.body
    ), "the digest that a look-up computes from the broker's record is the recorded one"
    reader.close()


def test_a_tombstone_is_found_and_not_committed(world: World) -> None:
    key = new_key()
    world.insert_row(key, state="ROLLED_BACK")
    reader = reader_of(world.url)
    lookup = reader.look_up(TOPIC, at(key))[key]
    assert lookup.is_found
    assert lookup.records[0].commit is None
    reader.close()


def test_absent_needs_an_answer_of_every_outbox(world: World, tmp_path: Path) -> None:
    present, missing = new_key(), new_key()
    world.insert_row(present)
    reader = reader_of(world.url, f"sqlite:///{tmp_path}/gone.db")
    found = reader.look_up(TOPIC, at(present, missing))
    assert found[present].is_found
    assert found[missing].is_unknown
    assert "gone.db" in said(found[missing].reason)
    reader.close()
    alone = reader_of(world.url)
    absent = alone.look_up(TOPIC, at(missing))[missing]
    assert absent.is_absent
    assert [said(answer.fact) for answer in absent.answers] == [f"{shown_url(world.url)}: no row"]
    alone.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[World]:
    """A second database of the group."""
    opened = World(f"sqlite:///{tmp_path}/other.db")
    yield opened
    opened.close()


@pytest.mark.parametrize("tombstone_first", [True, False])
def test_a_tombstone_in_one_database_hides_no_commit_in_another(
    world: World, other: World, *, tombstone_first: bool
) -> None:
    key = new_key()
    world.insert_row(key, state="ROLLED_BACK")
    other.insert_row(key, state="ANNOUNCED")
    reader = reader_of(*((world.url, other.url) if tombstone_first else (other.url, world.url)))
    lookup = reader.look_up(TOPIC, at(key))[key]
    assert [row.state for row in lookup.records] == [OutboxState.ANNOUNCED]
    reader.close()


def test_a_tombstone_proves_nothing_while_another_database_is_away(world: World, tmp_path: Path) -> None:
    rolled_back, committed = new_key(), new_key()
    world.insert_row(rolled_back, state="ROLLED_BACK")
    world.insert_row(committed)
    reader = reader_of(world.url, f"sqlite:///{tmp_path}/gone.db")
    found = reader.look_up(TOPIC, at(rolled_back, committed))
    assert found[rolled_back].is_unknown
    assert found[committed].is_found, "one that is away stops nothing of the others"
    reader.close()


def test_a_tombstone_counts_when_every_database_has_answered(world: World, other: World) -> None:
    key = new_key()
    world.insert_row(key, state="ROLLED_BACK")
    reader = reader_of(world.url, other.url)
    assert [row.commit for row in reader.look_up(TOPIC, at(key))[key].records] == [None]
    reader.close()


def test_two_committed_rows_are_both_evidence(world: World, other: World) -> None:
    key = new_key()
    world.insert_row(key, content_digest=b"a" * 32)
    other.insert_row(key, content_digest=b"b" * 32)
    reader = reader_of(world.url, other.url)
    assert {row.message.content_digest for row in reader.look_up(TOPIC, at(key))[key].records} == {b"a" * 32, b"b" * 32}
    reader.close()


def test_a_group_without_an_outbox_can_never_say_absent(world: World) -> None:
    reader = reader_of(world.url, None)
    key = new_key()
    assert reader.look_up(TOPIC, at(key))[key].is_unknown
    reader.close()
    weaker = reader_of(None)
    assert weaker.look_up(TOPIC, at(key))[key].is_unknown


def test_a_topic_that_nobody_sends_is_unknown_not_absent(world: World) -> None:
    reader = reader_of(world.url, topic="OTHER")
    key = new_key()
    assert reader.look_up(TOPIC, at(key))[key].is_unknown
    reader.close()


def test_a_row_of_another_topic_is_no_evidence(world: World) -> None:
    key = new_key()
    world.insert_row(key, topic="REFUNDS")
    reader = reader_of(world.url)
    assert reader.look_up(TOPIC, at(key))[key].is_absent
    reader.close()


def test_more_keys_than_one_statement_takes(world: World) -> None:
    keys = [new_key() for _ in range(KEYS_MAX * 2 + 1)]
    for key in keys[::100]:
        world.insert_row(key)
    reader = reader_of(world.url)
    found = reader.look_up(TOPIC, at(*keys, keys[0]))
    assert set(found) == set(keys)
    assert [key for key in keys if found[key].is_found] == keys[::100]
    reader.close()


def test_two_groups_in_one_database_are_one_witness(world: World) -> None:
    reader = reader_of(world.url, world.url)
    key = new_key()
    world.insert_row(key)
    lookup = reader.look_up(TOPIC, at(key))[key]
    assert len(lookup.records) == 1
    assert [answer.witness for answer in lookup.answers] == ["outbox of group-0, group-1"]
    reader.close()


def test_a_missing_table_is_unknown_and_named(tmp_path: Path) -> None:
    with disposed(sa.create_engine(f"sqlite:///{tmp_path}/empty.db")) as engine, engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE unrelated (x INTEGER)")
    reader = reader_of(f"sqlite:///{tmp_path}/empty.db")
    key = new_key()
    lookup = reader.look_up(TOPIC, at(key))[key]
    assert lookup.is_unknown
    assert "run reconciler db upgrade" in said(lookup.reason)
    reader.close()


@pytest.mark.parametrize("keys", [[], ["A" * 32]])
def test_reading_changes_nothing(world: World, keys: list[str]) -> None:
    reader = reader_of(world.url)
    assert set(reader.look_up(TOPIC, at(*keys))) == set(keys)
    reader.close()
