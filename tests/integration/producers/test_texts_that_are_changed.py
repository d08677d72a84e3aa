"""MariaDB without a STRICT mode: a text that it would change on write refuses its message, and nothing else costs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from checkback_producers.errors import NotRecorded
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import OutboxEntry, Outcome
from reconciler.errors import InvalidValue
from reconciler.sql import kept_texts
from reconciler.sql.tables import outbox
from tests.integration.producers.faces import FACES
from tests.services.mariadb import MariaDBServer
from tests.unit.producers.world import GROUP, TOPIC, World, message, new_key

pytestmark = pytest.mark.sql("mariadb")

MONEY_BAG = "\N{MONEY BAG}"
#: Columns that a table of the old character set holds in three bytes a character.
THREE_BYTES = ("tag", "business_id", "message_keys", "producer_group")


@pytest.fixture
def world(mariadb_server: MariaDBServer, face: str) -> Iterator[World]:
    """An outbox whose texts have three bytes a character. A case holds on both faces, unless it says why not."""
    made = FACES[face](mariadb_server.create_database())
    with made.engine.begin() as connection:
        for name in THREE_BYTES:
            change = f"MODIFY {name} VARCHAR(160) CHARACTER SET utf8 COLLATE utf8_bin"
            connection.exec_driver_sql(f"ALTER TABLE reconciler_outbox {change}")
    yield made
    made.close()


@contextmanager
def lenient(world: World, *, also: str = "") -> Iterator[sa.Connection]:
    """A transaction of a service in a legacy mode."""
    with world.database.connect() as connection:
        connection.exec_driver_sql("SET SESSION sql_mode = ''")
        if also:
            connection.exec_driver_sql(also)
        connection.commit()
        with connection.begin():
            yield connection
        connection.invalidate()  # its mode is nobody else's


def entry_of_key(unique_key: str) -> OutboxEntry:
    return OutboxEntry(
        unique_key=unique_key, topic=TOPIC, producer_group=GROUP, tag="paid", message_keys="o-1", business_id="order 1",
        half_broker="broker-a", half_commit_log_offset=1, half_queue_offset=1, properties=None, body=None,
        content_digest=None,
    )  # fmt: skip


def keys(world: World) -> list[str]:
    with world.engine.connect() as connection:
        return list(connection.execute(sa.select(outbox.c.unique_key)).scalars())


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        ("tag", {"tags": MONEY_BAG}),
        ("message_keys", {"keys": ("o-1", MONEY_BAG)}),
        ("business_id", {"properties": {"BUSINESS_ID": f"order {MONEY_BAG}"}}),
    ],
)
def test_a_text_that_would_become_question_marks_refuses_its_message(
    world: World, column: str, changes: dict[str, Any]
) -> None:
    producer = world.producer()

    def block() -> None:
        with producer.transaction(message(**changes)) as tx, lenient(world) as connection:
            world.do_business(connection, "order 1")
            tx.record(connection)

    with pytest.raises(InvalidValue, match=r"the database would keep '.*\?'; give the column .*utf8mb4") as caught:
        block()
    assert caught.value.field == f"reconciler_outbox.{column}"
    assert MONEY_BAG in str(caught.value.value)
    assert keys(world) == []
    assert not world.did_business("order 1")
    assert [outcome for _, outcome in world.halves.ended] == [Outcome.ROLLBACK]


def test_a_service_that_goes_on_after_the_refusal_commits_no_changed_row(world: World) -> None:
    def block() -> None:
        with world.producer().transaction(message(tags=MONEY_BAG)) as tx, lenient(world) as connection:
            world.do_business(connection, "order 1")
            with suppress(InvalidValue):
                tx.record(connection)

    with pytest.raises(NotRecorded):
        block()
    assert (keys(world), world.did_business("order 1")) == ([], True)
    assert [outcome for _, outcome in world.halves.ended] == [Outcome.ROLLBACK]


@pytest.mark.parametrize(
    ("column", "text", "also"), [("half_broker", "b" * 161, ""), ("tag", "bezahlt é", "SET NAMES latin1")]
)
def test_a_text_that_is_cut_or_that_the_server_takes_for_another_encoding_refuses_its_message(
    world: World, column: str, text: str, also: str
) -> None:
    """The connection is no witness of its own mistake."""
    changed: dict[str, Any] = {column: text}
    entry = replace(entry_of_key(new_key()), **changed)
    with (
        closing(SqlOutbox(world.url)) as rows,
        lenient(world, also=also) as connection,
        pytest.raises(InvalidValue, match=rf"reconciler_outbox\.{column}"),
    ):
        world.record(rows, connection, entry)


def test_texts_that_the_columns_can_hold_are_recorded(world: World) -> None:
    with world.producer().transaction(message(tags="支付", keys=("é",))) as tx, lenient(world) as connection:
        tx.record(connection)
    assert (tx.outcome, world.row(tx.unique_key).tag) == (Outcome.COMMIT, "支付")


@pytest.mark.parametrize("face", ["threads"])  # both send what one procedure makes; here its statements are counted
@pytest.mark.parametrize(("tag", "statements"), [("paid", 1), ("p" * 160, 1), ("支付", 4)])
def test_plain_texts_of_fitting_length_cost_no_statement(world: World, tag: str, statements: int) -> None:
    with closing(SqlOutbox(world.url)) as rows, world.engine.connect() as connection, connection.begin():
        rows.identity()
        sent: list[str] = []
        sa.event.listen(connection, "before_cursor_execute", lambda _1, _2, statement, *_: sent.append(statement))
        rows.record(connection, replace(entry_of_key(new_key()), tag=tag))
    assert len(sent) == statements


def test_reading_back_takes_no_snapshot_for_the_service(world: World) -> None:
    """It locked a row, and reads what the one before it has committed."""
    with closing(SqlOutbox(world.url)) as rows, world.database.connect() as connection, connection.begin():
        world.record(rows, connection, replace(entry_of_key(new_key()), tag="支付"))
        with world.database.begin() as another:
            world.do_business(another, "meanwhile")
        assert connection.execute(sa.select(world.business.c.name)).scalars().all() == ["meanwhile"]


def test_a_login_that_may_not_read_the_outbox_records_as_before_and_is_told_once(
    world: World, mariadb_server: MariaDBServer, caplog: pytest.LogCaptureFixture
) -> None:
    database = make_url(world.url).database
    with world.engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE USER 'writer_{database}'@'%%' IDENTIFIED BY 'w'")
        for right in ("INSERT ON {}.reconciler_outbox", "SELECT ON {}.reconciler_outbox_identity"):
            connection.exec_driver_sql(f"GRANT {right.format(database)} TO 'writer_{database}'@'%%'")
    kept_texts._tell_once.cache_clear()
    url = make_url(mariadb_server.url(database or "")).set(username=f"writer_{database}", password="w")
    writer = world.other_database(url.render_as_string(hide_password=False))
    unique_keys = [new_key(), new_key()]
    with caplog.at_level(logging.WARNING), closing(SqlOutbox(world.url)) as rows:
        for key in unique_keys:
            with writer.begin() as connection:
                world.record(rows, connection, replace(entry_of_key(key), tag="支付"))
    writer.dispose()
    assert sorted(keys(world)) == unique_keys
    assert [record.message.partition(":")[0] for record in caplog.records] == ["texts_not_compared"]
