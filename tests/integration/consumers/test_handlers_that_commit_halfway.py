"""A handler that ends the transaction before it returns: half of its effect may be durable, and its key is refused.

The inbox row is completed by the wrapper's last statement. Until then it is no effect: not for a redelivery, and not
for the reconciler.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from checkback_consumers.completion import _ASKED
from checkback_consumers.errors import IncompleteEffect
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
from checkback_consumers.message import ConsumedMessage, business_id
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.errors import UsageError
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.policy.evidence import Presence
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox
from reconciler.words import said
from tests.engines import disposed
from tests.integration.consumers.faces import Decorator
from tests.integration.consumers.test_inbox_databases import driver_connection, pay_plainly
from tests.polling import eventually
from tests.unit.consumers.messages import KeptRecorder, business, effect_count, message, new_key

SUBSCRIPTION = Subscription(environment="test", topic="ORDERS", group="billing")
#: What a handler does between its debit and its credit.
Break = Callable[[Any], None]


@pytest.fixture
def engine(database_url: Secret) -> Iterator[sa.Engine]:
    schema.upgrade(database_url, "inbox")
    opened = open_engine(database_url)
    business.create_all(opened)
    yield opened
    opened.dispose()


def execute(connection: Any, sql: str) -> None:
    if isinstance(connection, sa.Connection):
        connection.exec_driver_sql(sql)
    else:
        connection.cursor().execute(sql)


def pays(received: ConsumedMessage, connection: Any) -> None:
    if isinstance(connection, sa.Connection):
        connection.exec_driver_sql(f"INSERT INTO effects (unique_key, amount) VALUES ('{received.unique_key}', 1)")
    else:
        pay_plainly(received, connection)


def halfway(end: Break, *, then: str) -> Callable[[ConsumedMessage, Any], None]:
    """Debits, ends the transaction, and then credits, raises or returns."""

    def handler(received: ConsumedMessage, connection: Any) -> None:
        pays(received, connection)
        end(connection)
        if then == "raises":
            raise ValueError("after the commit")
        if then == "credits":
            pays(received, connection)

    return handler


def with_ddl(connection: Any) -> None:
    execute(connection, f"CREATE TABLE made_{new_key().lower()} (a INTEGER)")


WAYS: dict[str, Break] = {
    "commits": lambda connection: connection.commit(),
    "sends COMMIT": lambda connection: execute(connection, "COMMIT"),
    "has DDL": with_ddl,
}


def rows(engine: sa.Engine) -> dict[str, str | None]:
    with engine.connect() as connection:
        found = connection.execute(sa.select(inbox.c.unique_key, inbox.c.incomplete)).all()
    return {row.unique_key: row.incomplete for row in found}


@pytest.mark.parametrize("then", ["credits", "raises", "returns"])
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("kind", ["sqlalchemy", "driver"])
def test_a_handler_that_ends_its_transaction_is_refused_for_good_and_is_no_evidence(
    engine: sa.Engine, kind: str, way: str, then: str, handling: Decorator
) -> None:
    database: Any = engine if kind == "sqlalchemy" else lambda: driver_connection(engine)
    recorder, received = KeptRecorder(), message()
    bill = handling(database, group="billing", recorder=recorder)(halfway(WAYS[way], then=then))
    if way == "has DDL" and engine.dialect.name != "mysql":  # its DDL is a part of the transaction
        assert (bill(received) is ConsumeStatus.CONSUME_SUCCESS) == (then != "raises")
        assert (rows(engine) == {received.unique_key: None}) == (then != "raises")
        return
    assert bill(received) is ConsumeStatus.RECONSUME_LATER
    assert rows(engine)[received.unique_key] is not None, "the debit is durable, and its row is incomplete"
    durable = effect_count(engine, received.unique_key)
    for _ in range(3):
        with pytest.raises(IncompleteEffect):
            bill.apply(received)
    assert effect_count(engine, received.unique_key) == durable >= 1
    assert (bill.counts.duplicates, recorder.recorded) == (0, [])
    evidence = SqlInboxEvidence({SUBSCRIPTION: [engine]})
    found = evidence.look_up(SUBSCRIPTION, [received.unique_key])[received.unique_key]
    assert found.presence is Presence.UNKNOWN, "neither an effect nor an absence"
    assert found.incomplete is not None
    assert "incomplete" in said(found.incomplete)
    (scanned,) = evidence.applied_since(SUBSCRIPTION, since_ms=0, after=None, limit=10)
    assert scanned.incomplete is not None


def test_a_handler_that_leaves_the_transaction_alone_completes_its_row(engine: sa.Engine, handling: Decorator) -> None:
    received = message()
    bill = handling(engine, group="billing")(pays)
    assert [bill.apply(received), bill.apply(received)] == [InboxAnswer.NEW, InboxAnswer.DUPLICATE]
    assert rows(engine) == {received.unique_key: None}
    found = SqlInboxEvidence({SUBSCRIPTION: [engine]}).look_up(SUBSCRIPTION, [received.unique_key])
    assert found[received.unique_key].is_found


@pytest.mark.parametrize("kind", ["sqlalchemy", "driver"])
def test_in_a_batch_each_row_is_completed_after_its_own_handler(
    engine: sa.Engine, kind: str, handling: Decorator
) -> None:
    """The handler of the second message commits what the first one has done: that one is whole, this one is not."""
    database: Any = engine if kind == "sqlalchemy" else lambda: driver_connection(engine)
    batch = [message() for _ in range(3)]

    def handler(received: ConsumedMessage, connection: Any) -> None:
        pays(received, connection)
        if received is batch[1]:
            connection.commit()

    bill = handling(database, group="billing", is_batched=True)(handler)
    assert bill.listener(batch) == FailedAt(1)
    assert bill.listener(batch[2:]) is ConsumeStatus.CONSUME_SUCCESS
    found = rows(engine)
    assert [found[each.unique_key] is None for each in batch] == [True, False, True]
    assert [effect_count(engine, each.unique_key) for each in batch] == [1, 1, 1]
    assert bill.listener(batch) == FailedAt(1)


def test_a_batch_of_handlers_that_all_commit_completes_no_row(engine: sa.Engine, handling: Decorator) -> None:
    """The transaction of the second message is not the one that wrote the row of the first."""
    batch = [message() for _ in range(3)]
    handler = halfway(WAYS["commits"], then="returns")
    bill = handling(lambda: driver_connection(engine), group="billing", is_batched=True)(handler)
    assert bill.listener(batch) == FailedAt(0)
    for each in batch[1:]:
        assert bill(each) is ConsumeStatus.RECONSUME_LATER
    assert all(mark is not None for mark in rows(engine).values())


@pytest.mark.parametrize("kind", ["sqlalchemy", "driver"])
def test_in_a_batch_each_message_is_what_it_would_be_alone(engine: sa.Engine, kind: str, handling: Decorator) -> None:
    """New ones, one that comes twice in the batch, one that was applied before, and a second key of a business id."""
    database: Any = engine if kind == "sqlalchemy" else lambda: driver_connection(engine)
    bill = handling(database, group="billing", is_batched=True, dedupe_by=business_id)(pays)
    before, first, twice, last = (message(BUSINESS_ID=f"order-{number}") for number in range(4))
    other = message(BUSINESS_ID="order-1")
    assert bill.listener([before]) is ConsumeStatus.CONSUME_SUCCESS
    assert bill.listener([first, twice, twice, before, other, last]) is ConsumeStatus.CONSUME_SUCCESS
    assert (bill.counts.applied, bill.counts.duplicates, bill.counts.failed) == (4, 3, 0)
    assert rows(engine) == dict.fromkeys(each.unique_key for each in (before, first, twice, other, last))
    assert [effect_count(engine, each.unique_key) for each in (first, twice, other, last)] == [1, 1, 0, 1]


@pytest.mark.sql("postgres")
@pytest.mark.parametrize("together", [1, 8])
def test_completing_a_row_reads_that_row_alone_while_the_table_has_no_statistics(
    postgres_url: str, together: int
) -> None:
    """A prepared plan of an empty table took the index of business ids: each row cost a look at all of its group."""
    schema.upgrade(postgres_url, "inbox")
    engine = open_engine(postgres_url)
    business.create_all(engine)
    messages = 400
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_inbox SET (autovacuum_enabled = false)")
    bill = transactional_handler(engine, group="billing", is_batched=True)(pays)
    for _ in range(messages // together):
        assert bill.listener([message() for _ in range(together)]) is ConsumeStatus.CONSUME_SUCCESS
    engine.dispose()  # a server process tells what it has read when it ends
    looking = open_engine(postgres_url)

    def read() -> list[int]:
        with looking.connect() as connection:
            asked = (
                "SELECT n_tup_upd, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables "
                "WHERE relname = 'reconciler_inbox'"
            )
            (row,) = connection.exec_driver_sql(asked).all()
            return list(row)

    try:
        eventually(lambda: read()[0] == messages, within_seconds=60)
        assert read()[1] <= 3 * messages
        assert set(rows(looking).values()) == {None}
    finally:
        looking.dispose()


@pytest.mark.sql("postgres")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_batches_are_completed_under_every_isolation(postgres_url: str, level: Any) -> None:
    schema.upgrade(postgres_url, "inbox")
    engine = sa.create_engine(postgres_url, isolation_level=level)
    business.create_all(engine)
    bill = transactional_handler(engine, group="billing", is_batched=True)(pays)
    first, twice = message(), message()
    try:
        assert bill.listener([first, twice, twice, message()]) is ConsumeStatus.CONSUME_SUCCESS
        assert (bill.counts.applied, bill.counts.duplicates, bill.counts.failed) == (3, 1, 0)
        assert list(rows(engine).values()) == [None] * 3
    finally:
        engine.dispose()


def test_another_key_of_the_business_id_is_no_duplicate_of_half_an_effect(engine: sa.Engine) -> None:
    first, second = message(BUSINESS_ID="order-7"), message(BUSINESS_ID="order-7")
    commits = transactional_handler(lambda: driver_connection(engine), group="billing", dedupe_by=business_id)(
        halfway(WAYS["commits"], then="raises")
    )
    whole = transactional_handler(engine, group="billing", dedupe_by=business_id)(pays)
    assert commits(first) is ConsumeStatus.RECONSUME_LATER
    with pytest.raises(IncompleteEffect, match=first.unique_key):
        whole.apply(second)
    assert effect_count(engine, second.unique_key) == 0
    assert list(rows(engine)) == [first.unique_key]


def without_the_column(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_inbox DROP COLUMN incomplete")


def test_without_the_column_the_plug_in_works_as_before_and_says_so_once(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    without_the_column(engine)
    if engine.dialect.name == "sqlite":
        caplog.set_level(logging.CRITICAL)  # another test of this process may have been told of SQLite
    bill = transactional_handler(engine, group="billing", dedupe_by=business_id)(pays)
    received = message(BUSINESS_ID="order-7")
    answers = [bill.apply(each) for each in (received, received, message(BUSINESS_ID="order-7"))]
    assert answers == [InboxAnswer.NEW, InboxAnswer.DUPLICATE, InboxAnswer.DUPLICATE_BUSINESS]
    told = [record.getMessage() for record in caplog.records if "inbox_rows_complete_at_once" in record.getMessage()]
    assert len(told) == (engine.dialect.name != "sqlite")
    assert all("db upgrade inbox" in text for text in told)
    evidence = SqlInboxEvidence({SUBSCRIPTION: [engine]})
    assert evidence.look_up(SUBSCRIPTION, [received.unique_key])[received.unique_key].is_found
    assert len(evidence.applied_since(SUBSCRIPTION, since_ms=0, after=None, limit=10)) == 2


def test_a_right_that_is_taken_away_meanwhile_refuses_one_message_at_most(engine: sa.Engine) -> None:
    bill = transactional_handler(engine, group="billing")(pays)
    assert bill.apply(message()) is InboxAnswer.NEW
    without_the_column(engine)
    received = message()
    answers = [bill(received), bill(received)]
    assert answers[-1] is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine, received.unique_key) == 1


@pytest.mark.parametrize("way", ["engines", "one engine"])
def test_tenants_with_and_without_the_column_may_take_turns(engine: sa.Engine, tmp_path: Path, way: str) -> None:
    """An answer of one of them is none of the other, and the connection does not tell which one it leads to."""
    other, into_other = another_tenant(engine, tmp_path, way=way)
    turns = itertools.count()

    def tenant() -> sa.Connection:
        if next(turns) % 2 == 0:
            return engine.connect()
        connection = other.connect()
        for statement in into_other:
            connection.exec_driver_sql(statement)
        return connection

    bill = transactional_handler(tenant, group="billing")(pays)
    try:
        answers = [bill(message()) for _ in range(20)]
    finally:
        other.dispose()
    refused = answers.count(ConsumeStatus.RECONSUME_LATER)
    assert refused == 0 if way == "engines" else refused <= 1
    assert all(mark is None for mark in rows(engine).values())


def another_tenant(engine: sa.Engine, tmp_path: Path, *, way: str) -> tuple[sa.Engine, list[str]]:
    """A database without the column: its engine, and what leads one of its connections there."""
    if engine.dialect.name == "sqlite" or way == "engines":
        other = open_engine(f"sqlite:///{tmp_path}/other.db")
        schema.upgrade(f"sqlite:///{tmp_path}/other.db", "inbox")
        business.create_all(other)
        without_the_column(other)
        return other, []
    name = f"tenant_{new_key().lower()}"
    back = "public" if engine.dialect.name == "postgresql" else str(engine.url.database)
    into = f"SET search_path TO {name}" if engine.dialect.name == "postgresql" else f"USE {name}"
    like = "LIKE {} INCLUDING ALL" if engine.dialect.name == "postgresql" else "LIKE {}"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
        for table in ("reconciler_inbox", "effects"):
            of = like.format(f"{back}.{table}")
            connection.exec_driver_sql(f"CREATE TABLE {name}.{table} ({of})")
        connection.exec_driver_sql(f"ALTER TABLE {name}.reconciler_inbox DROP COLUMN incomplete")
    out = f"SET search_path TO {back}" if engine.dialect.name == "postgresql" else f"USE {back}"
    event.listen(engine, "checkout", lambda raw, *_: run_on(raw, out))
    return engine, [into]


def run_on(raw: Any, statement: str) -> None:
    with closing(raw.cursor()) as cursor:
        cursor.execute(statement)


def test_a_process_that_commits_between_the_question_and_the_row_refuses_no_message(tmp_path: Path) -> None:
    """A SQLite transaction that is begun deferred sees what was there at its first read."""
    url = f"sqlite:///{tmp_path}/inbox.db"
    schema.upgrade(url, "inbox")
    made = open_engine(url)
    business.create_all(made)
    other = sqlite3.connect(tmp_path / "inbox.db", timeout=0, isolation_level=None)
    deferred = sa.create_engine(url)
    event.listen(deferred, "begin", lambda connection: connection.exec_driver_sql("BEGIN DEFERRED"))

    def interferes(*statement: Any) -> None:
        if "pragma_table_info" in statement[2]:
            with suppress(sqlite3.OperationalError):  # locked: it has to wait
                other.execute("INSERT INTO effects (unique_key, amount) VALUES ('another', 1)")

    event.listen(deferred, "after_cursor_execute", interferes)
    try:
        received = message()
        assert transactional_handler(deferred, group="billing")(pays).apply(received) is InboxAnswer.NEW
        assert effect_count(made, received.unique_key) == 1
    finally:
        other.close()
        deferred.dispose()
        made.dispose()


@pytest.mark.sql("mariadb")
def test_the_question_opens_no_table_but_its_own(mariadb_url: Secret) -> None:
    """MariaDB reads the definition of every table of the server for a question that it does not understand."""
    schema.upgrade(mariadb_url, "inbox")
    with disposed(open_engine(mariadb_url)) as opened, opened.connect() as connection:
        plan = connection.exec_driver_sql("EXPLAIN " + _ASKED["mysql"], ()).mappings().all()
    assert ["Scanned 0 databases" in str(row["Extra"]) for row in plan] == [True]


@pytest.mark.parametrize("granted", ["the table", "columns", "no UPDATE", "no column"])
@pytest.mark.parametrize(
    "server",
    [
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ],
)
def test_a_login_completes_rows_by_any_grant_and_without_one_works_as_before(
    request: pytest.FixtureRequest, server: str, granted: str
) -> None:
    url = request.getfixturevalue(f"{server}_server").create_database()
    schema.upgrade(url, "inbox")
    owner = open_engine(url)
    business.create_all(owner)
    older = [c.name for c in inbox.columns if c.name != "incomplete"]
    every = [c.name for c in inbox.columns]
    read, write = ", ".join(every if granted == "columns" else older), ", ".join(every)
    rights = {
        "the table": ["SELECT, INSERT, UPDATE"],
        "columns": [f"SELECT ({read}), INSERT ({write}), UPDATE (incomplete)"],
        "no UPDATE": ["SELECT, INSERT"],
        "no column": [f"SELECT ({read}), INSERT ({read})"],
    }[granted]
    login = f"halfway_{new_key()[-6:].lower()}"
    is_mysql = owner.dialect.name == "mysql"
    name = f"'{login}'@'127.0.0.1'" if is_mysql else login
    with owner.begin() as connection:
        how = "IDENTIFIED BY 'x'" if is_mysql else "LOGIN PASSWORD 'x'"
        connection.exec_driver_sql(f"CREATE {'USER' if is_mysql else 'ROLE'} {name} {how}")
        for right in (*(f"{one} ON reconciler_inbox" for one in rights), "SELECT, INSERT ON effects"):
            connection.exec_driver_sql(f"GRANT {right} TO {name}")
    of_service = open_engine(owner.url.set(username=login, password="x").render_as_string(hide_password=False))
    try:
        commits = transactional_handler(of_service, group="billing")(halfway(WAYS["sends COMMIT"], then="returns"))
        bill = transactional_handler(of_service, group="billing")(pays)
        half, whole = message(), message()
        assert commits(half) is ConsumeStatus.RECONSUME_LATER
        assert [bill.apply(whole), bill.apply(whole)] == [InboxAnswer.NEW, InboxAnswer.DUPLICATE]
        completes = granted in ("the table", "columns")
        found = rows(owner)
        assert (found[half.unique_key] is not None) == completes
        assert found[whole.unique_key] is None
        together = transactional_handler(of_service, group="billing", is_batched=True)(pays)
        batch = [message() for _ in range(3)]
        assert together.listener(batch) is ConsumeStatus.CONSUME_SUCCESS
        assert (together.counts.applied, together.counts.failed) == (3, 0)
        assert {rows(owner)[each.unique_key] for each in batch} == {None}
        again = ConsumeStatus.RECONSUME_LATER if completes else ConsumeStatus.CONSUME_SUCCESS
        assert bill(half) is again
        seen = SqlInboxEvidence({SUBSCRIPTION: [of_service]}).look_up(SUBSCRIPTION, [half.unique_key])
        assert seen[half.unique_key].is_found == (not completes)
    finally:
        of_service.dispose()
        with owner.begin() as connection:
            if is_mysql:
                connection.exec_driver_sql(f"DROP USER {name}")
            else:
                connection.exec_driver_sql(f"DROP OWNED BY {login}")
                connection.exec_driver_sql(f"DROP ROLE {login}")
        owner.dispose()


@pytest.mark.sql("postgres")
def test_row_security_that_hides_rows_from_updates_refuses_nothing(postgres_url: Secret) -> None:
    """An UPDATE that finds no row for it looks like one of another transaction."""
    schema.upgrade(postgres_url, "inbox")
    engine = open_engine(postgres_url)
    business.create_all(engine)
    with engine.begin() as connection:
        for statement in (
            "ALTER TABLE reconciler_inbox ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE reconciler_inbox FORCE ROW LEVEL SECURITY",
            "CREATE POLICY reads ON reconciler_inbox FOR SELECT USING (true)",
            "CREATE POLICY writes ON reconciler_inbox FOR INSERT WITH CHECK (true)",
            "CREATE ROLE of_policies LOGIN PASSWORD 'x'",
            "GRANT SELECT, INSERT, UPDATE ON reconciler_inbox TO of_policies",
            "GRANT SELECT, INSERT ON effects TO of_policies",
        ):
            connection.exec_driver_sql(statement)
    url = engine.url.set(username="of_policies", password="x").render_as_string(hide_password=False)
    of_service = open_engine(url)
    try:
        assert transactional_handler(of_service, group="billing")(pays).apply(message()) is InboxAnswer.NEW
    finally:
        of_service.dispose()
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP OWNED BY of_policies")
            connection.exec_driver_sql("DROP ROLE of_policies")
        engine.dispose()


def test_a_handler_that_rolls_back_leaves_no_row_and_may_come_again(engine: sa.Engine) -> None:
    received = message()
    rest: list[Callable[[ConsumedMessage, Any], None]] = [
        halfway(lambda connection: connection.rollback(), then="credits"),
        pays,
    ]

    def handler(received: ConsumedMessage, connection: Any) -> None:
        rest.pop(0)(received, connection)

    bill = transactional_handler(lambda: driver_connection(engine), group="billing")(handler)
    with pytest.raises((UsageError, sqlite3.Error)):
        bill.apply(received)
    assert (rows(engine), effect_count(engine)) == ({}, 0)
    assert bill.apply(received) is InboxAnswer.NEW
