"""Collations that take names for one another: a row is believed only if it has the names that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
from checkback_consumers.message import business_id
from checkback_producers.outbox import SqlOutbox
from reconciler.contract.subscription import Subscription
from reconciler.errors import Collision, ConfigurationError, MalformedInput
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.folded_names import folded_columns
from reconciler.sql.incomplete_rows import IncompleteRows
from reconciler.sql.key_probes import has_key
from reconciler.sql.renamed_group import RenamedRows
from reconciler.sql.tables import inbox
from reconciler.sql.tables import outbox as outbox_table
from reconciler.words import said
from tests.integration.consumers.faces import Decorator
from tests.integration.producers.test_texts_that_are_changed import entry_of_key
from tests.unit.consumers.messages import (
    KeptRecorder,
    business,
    effect_count,
    message,
    new_key,
    pay,
)

LOWER, UPPER = (Subscription(environment="test", topic="ORDERS", group=group) for group in ("billing", "Billing"))
_FOLDING = "CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"


def fold(engine: sa.Engine, table: str, *columns: str) -> None:
    """As somebody converts a whole database: case counts no more."""
    with engine.begin() as connection:
        if engine.dialect.name != "postgresql":
            change = "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
            connection.exec_driver_sql(f"ALTER TABLE {table} {change}")
            return
        connection.exec_driver_sql(_FOLDING)
        for column in columns:
            connection.exec_driver_sql(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE varchar(160) COLLATE folding")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.sql(name)) for name in ("postgres", "mariadb")])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def database_url(url: str) -> str:
    """Of `handling`."""
    return url


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    """An inbox that takes `Billing` for `billing`."""
    schema.upgrade(url, "inbox")
    opened = open_engine(url)
    business.create_all(opened)
    fold(opened, "reconciler_inbox", "consumer_group", "unique_key", "topic", "dedupe_key")
    yield opened
    opened.dispose()


def key_of_a_go_client() -> str:
    """In lower case."""
    return f"c0a8{new_key()[4:]}".lower()


def test_a_second_group_of_the_same_name_is_refused_and_not_recorded(engine: sa.Engine, handling: Decorator) -> None:
    received, recorder = message(), KeptRecorder()
    assert handling(engine, group="billing")(pay).apply(received) is InboxAnswer.NEW
    other = handling(engine, group="Billing", recorder=recorder)(pay)
    with pytest.raises(Collision, match=f"group Billing has met the row of key {received.unique_key} of group billing"):
        other.apply(received)
    assert other(received) is ConsumeStatus.RECONSUME_LATER
    assert (effect_count(engine), recorder.recorded) == (1, [])


def test_a_key_that_differs_in_case_is_no_duplicate(engine: sa.Engine, handling: Decorator) -> None:
    key = key_of_a_go_client()
    handler = handling(engine, group="billing")(pay)
    assert handler.apply(message(key)) is InboxAnswer.NEW
    assert handler.apply(message(key)) is InboxAnswer.DUPLICATE
    with pytest.raises(Collision, match=f"has met the row of key {key} of group billing"):
        handler.apply(message(key.upper()))


def test_a_business_id_of_another_group_is_no_duplicate(engine: sa.Engine, handling: Decorator) -> None:
    for group, expected in (("billing", InboxAnswer.NEW), ("billing", InboxAnswer.DUPLICATE_BUSINESS)):
        handler = handling(engine, group=group, dedupe_by=business_id)(pay)
        assert handler.apply(message(BUSINESS_ID="order-7")) is expected
    other = handling(engine, group="Billing", dedupe_by=business_id)(pay)
    with pytest.raises(Collision, match="of group billing"):
        other.apply(message(BUSINESS_ID="order-7"))


def test_of_a_batch_only_the_message_that_meets_another_row_comes_again(engine: sa.Engine, handling: Decorator) -> None:
    met, new = message(), message()
    assert handling(engine, group="billing")(pay).apply(met) is InboxAnswer.NEW
    batched = handling(engine, group="Billing", is_batched=True)(pay)
    assert batched.listener([new, met]) == FailedAt(1)
    assert (effect_count(engine, new.unique_key), effect_count(engine, met.unique_key)) == (1, 1)


# From here on rows are read, whichever face has written them: these cases have one.


def test_the_row_of_another_name_is_neither_the_effect_nor_its_absence(engine: sa.Engine) -> None:
    received, go = message(), message(key_of_a_go_client())
    handler = transactional_handler(engine, group="billing")(pay)
    handler.apply(received)
    handler.apply(go)
    asked, swapped = received.unique_key, go.unique_key.upper()
    evidence = SqlInboxEvidence({LOWER: [engine], UPPER: [engine]})
    assert evidence.look_up(LOWER, [asked])[asked].is_found
    of_other = evidence.look_up(UPPER, [asked])[asked]
    assert (of_other.is_unknown, of_other.damage is not None) == (True, True)
    assert "consumer_group billing" in said(of_other.reason)
    answers = evidence.look_up(LOWER, [swapped, go.unique_key, new_key()])
    assert [one.is_unknown for one in answers.values()] == [True, False, False]
    assert answers[go.unique_key].is_found


def test_a_scan_takes_no_row_of_another_group_or_topic(engine: sa.Engine) -> None:
    received = message()
    transactional_handler(engine, group="billing")(pay).apply(received)
    other_topic = replace(LOWER, topic="orders")
    evidence = SqlInboxEvidence({one: [engine] for one in (LOWER, UPPER, other_topic)})
    sound = {
        one: [row.unique_key for row in evidence.applied_since(one, since_ms=0, after=None, limit=9) if not row.damage]
        for one in (LOWER, UPPER, other_topic)
    }
    assert sound == {LOWER: [received.unique_key], UPPER: [], other_topic: []}
    assert [evidence.newest_keys(one, limit=9) for one in (LOWER, UPPER, other_topic)] == [
        [received.unique_key], [], [],
    ]  # fmt: skip


def test_a_group_whose_rows_cannot_be_told_apart_gets_no_other_name(engine: sa.Engine) -> None:
    with pytest.raises(ConfigurationError, match=r"reconciler_inbox\.consumer_group"):
        RenamedRows(engine, old="billing", new="invoicing").count()


def test_incomplete_rows_of_another_group_are_not_ended(engine: sa.Engine) -> None:
    received = message()
    transactional_handler(engine, group="billing")(pay).apply(received)
    with engine.begin() as connection:
        connection.execute(sa.update(inbox).values(incomplete="a handler's mark"))
    key = received.unique_key
    assert [row.unique_key for row in IncompleteRows(engine, LOWER).all(limit=9)] == [key]
    assert IncompleteRows(engine, UPPER).all(limit=9) == []
    assert IncompleteRows(engine, UPPER).of_keys([key]) == []


def test_every_folded_column_is_named(engine: sa.Engine) -> None:
    found = [name.partition(" ")[0] for name in folded_columns(engine, "inbox")]
    columns = ("consumer_group", "dedupe_key", "topic", "unique_key")
    assert found == [f"reconciler_inbox.{name}" for name in columns]


def test_no_column_of_sound_tables_is_named(new_database_url: Callable[[], str]) -> None:
    database_url = new_database_url()
    sound = open_engine(database_url)
    for tree in schema.TREES:
        schema.upgrade(database_url, tree)
        assert folded_columns(sound, tree) == []
    sound.dispose()


def test_the_outbox_row_of_another_key_answers_no_check_back(url: str) -> None:
    schema.upgrade(url, "outbox")
    engine = open_engine(url)
    outbox = SqlOutbox(url)
    key = key_of_a_go_client()
    with engine.connect() as connection, connection.begin():
        outbox.record(connection, entry_of_key(key))
    fold(engine, "reconciler_outbox", "unique_key")
    assert outbox.find(key) is not None
    with pytest.raises(MalformedInput, match=f"takes {key} for the same"):
        outbox.find(key.upper())
    with engine.connect() as connection:
        column = outbox_table.c.unique_key
        rows = sa.select(column).where(has_key(column, engine.dialect.name))
        assert connection.execute(rows).scalars().all() == [key]
    outbox.close()
    engine.dispose()
