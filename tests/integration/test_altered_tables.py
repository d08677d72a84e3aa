"""Tables that somebody altered on real servers: what differs is named, and no row without transactions is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from checkback_consumers.effect import SqlInbox
from checkback_consumers.inbox import InboxEntry, enter_inbox
from checkback_producers.outbox import SqlOutbox
from reconciler.clock import ManualClock
from reconciler.commands.status.primaries import doubted_witnesses
from reconciler.contract.secret import SecretText
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import HoldKind, Rung
from reconciler.errors import ConfigurationError, DatabaseAway, StatementTooSlow
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.evidence.witness_role import read_role
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.evidence import Presence
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.sql import schema
from reconciler.sql.engines import open_engine, writing
from reconciler.sql.table_shapes import TRANSACTIONS_SECONDS, TableShapes, read_shapes, require_transactions
from reconciler.wiring.databases import database_fact
from reconciler.words import said
from tests.integration.producers.test_texts_that_are_changed import entry_of_key
from tests.unit.consumers.messages import new_key

#: A statement of each kind of difference, for each dialect; the field that has it, and the text.
ALTERED = {
    "postgresql": [
        ("ALTER TABLE reconciler_inbox DROP CONSTRAINT {key}", "not_unique", "(consumer_group, unique_key)"),
        ("DROP INDEX uq_reconciler_inbox_consumer_dedupe", "not_unique", "(consumer_group, dedupe_key)"),
        ("ALTER TABLE reconciler_inbox ALTER unique_key TYPE CHAR(255)", "columns", ".unique_key CHAR(255)"),
        ("ALTER TABLE reconciler_inbox ALTER applied_at_ms TYPE INTEGER", "columns", ".applied_at_ms INTEGER"),
        ("DROP INDEX ix_reconciler_inbox_consumer_applied", "indexes", "(consumer_group, applied_at_ms)"),
        ("ALTER TABLE reconciler_inbox SET UNLOGGED", "unlogged", ""),
    ],
    "mysql": [
        ("ALTER TABLE reconciler_inbox DROP PRIMARY KEY", "not_unique", "(consumer_group, unique_key)"),
        ("ALTER TABLE reconciler_inbox ENGINE=Aria", "without_transactions", "(Aria)"),
        ("ALTER TABLE reconciler_inbox MODIFY applied_at_ms INT NOT NULL", "columns", ".applied_at_ms INTEGER"),
    ],
}


POSTGRES, MARIADB = (pytest.param(name, marks=pytest.mark.sql(name)) for name in ("postgres", "mariadb"))


@pytest.fixture(params=[POSTGRES, MARIADB])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """A database with all tables."""
    url = str(request.getfixturevalue(f"{request.param}_url"))
    for tree in schema.TREES:
        schema.upgrade(url, tree)
    opened = open_engine(url)
    yield opened
    opened.dispose()


def subscription_of(group: str) -> Subscription:
    return Subscription(environment="test", topic="ORDERS", group=group)


def execute(engine: sa.Engine, statement: str) -> None:
    with writing(engine) as connection:
        connection.exec_driver_sql(statement)


def test_tables_of_an_upgrade_differ_in_nothing_and_each_change_is_named(engine: sa.Engine) -> None:
    assert {tree: read_shapes(engine, tree) for tree in schema.TREES} == dict.fromkeys(schema.TREES, TableShapes())
    key = sa.inspect(engine).get_pk_constraint("reconciler_inbox")["name"]
    for statement, field, text in ALTERED["postgresql" if engine.dialect.name == "postgresql" else "mysql"]:
        execute(engine, statement.format(key=key))
        told = getattr(read_shapes(engine, "inbox"), field)
        assert [one for one in told if one.startswith("reconciler_inbox") and one.endswith(text)], (statement, told)


@pytest.mark.parametrize("engine", [MARIADB], indirect=True)
@pytest.mark.parametrize("kind", ["MyISAM", "Aria"])
def test_a_service_records_nothing_in_an_outbox_that_keeps_what_was_rolled_back(engine: sa.Engine, kind: str) -> None:
    execute(engine, f"ALTER TABLE reconciler_outbox ENGINE={kind}")
    url = engine.url.render_as_string(hide_password=False)
    told = pytest.raises(ConfigurationError, match=f"reconciler_outbox has the engine {kind}")
    with closing(SqlOutbox(url)) as outbox, engine.connect() as connection, told:
        outbox.record(connection, entry_of_key(new_key()))


@pytest.mark.parametrize("engine", [MARIADB], indirect=True)
@pytest.mark.parametrize("completes_at_once", [False, True], ids=["rows complete later", "rows complete at once"])
def test_an_inbox_that_keeps_what_was_rolled_back_takes_no_message(engine: sa.Engine, completes_at_once: bool) -> None:
    if completes_at_once:
        execute(engine, "ALTER TABLE reconciler_inbox DROP COLUMN incomplete")
    execute(engine, "ALTER TABLE reconciler_inbox ENGINE=MyISAM")
    inbox = SqlInbox(engine)
    entry = InboxEntry(group="billing", unique_key=new_key(), topic="ORDERS")
    applied: list[str] = []

    def effect(_: object) -> None:
        applied.append("effect")
        raise TimeoutError

    with pytest.raises(ConfigurationError, match="reconciler_inbox has the engine MyISAM"):
        inbox.apply_once(entry, effect)
    execute(engine, "ALTER TABLE reconciler_inbox ENGINE=InnoDB")
    for _ in range(2):  # rolled back, so the message is still new
        with pytest.raises(TimeoutError):
            inbox.apply_once(entry, effect)
    assert applied == ["effect", "effect"]


@pytest.mark.parametrize("engine", [MARIADB], indirect=True)
def test_rows_of_tables_that_keep_what_was_rolled_back_prove_nothing_until_they_are_altered_back(
    engine: sa.Engine,
) -> None:
    """Plug-ins of 0.2.0 write them."""
    key, other = new_key(), new_key()
    secret = SecretText(engine.url.render_as_string(hide_password=False))
    subscription = subscription_of("billing")
    with closing(SqlOutbox(secret)) as outbox, engine.begin() as connection:
        outbox.record(connection, entry_of_key(key))
        enter_inbox(connection, InboxEntry(group="billing", unique_key=key, topic="ORDERS"))
    for table in ("reconciler_outbox", "reconciler_inbox"):
        execute(engine, f"ALTER TABLE {table} ENGINE=MyISAM")
    sources = [CommitSource(producer_group="shop", topics=frozenset({"ORDERS"}), url=secret)]
    with closing(SqlOutboxReader(sources)) as reader:
        inboxes = SqlInboxEvidence({subscription: [engine]})

        def presences() -> list[Presence]:
            told = reader.look_up("ORDERS", dict.fromkeys((key, other), WHENEVER_COMMITTED_MS))
            applied = inboxes.look_up(subscription, [key, other])
            return [found[one].presence for found in (told, applied) for one in (key, other)]

        assert presences() == [Presence.UNKNOWN] * 4
        for table in ("reconciler_outbox", "reconciler_inbox"):
            execute(engine, f"ALTER TABLE {table} ENGINE=InnoDB")
        assert presences() == [Presence.FOUND, Presence.ABSENT] * 2


@pytest.mark.parametrize("engine", [MARIADB], indirect=True)
def test_a_ledger_that_keeps_what_was_rolled_back_takes_nothing_until_it_is_altered_back(engine: sa.Engine) -> None:
    clock = ManualClock()
    ledger = SqlLedger(engine, clock=clock)
    writes: dict[str, Callable[[], object]] = {
        "a hold": lambda: ledger.holds.place("test", "ORDERS", HoldKind.HOLD, by="me", reason=""),
        "a repair": lambda: ledger.repairs.open("test", "ORDERS", new_key(), rung=Rung.END),
        "claims": lambda: ledger.repairs.claim_all([], lease_seconds=1.0),
    }
    for write in writes.values():
        write()
    execute(engine, "ALTER TABLE reconciler_candidate ENGINE=Aria")
    ledger.database.require_transactions()  # was looked at a moment ago
    clock.advance(TRANSACTIONS_SECONDS)
    for write in (ledger.database.require_transactions, *writes.values()):
        with pytest.raises(DatabaseAway, match=r"reconciler_candidate \(Aria\); ALTER TABLE"):
            write()
    execute(engine, "ALTER TABLE reconciler_candidate ENGINE=InnoDB")
    for write in writes.values():
        write()


@pytest.mark.parametrize("engine", [POSTGRES], indirect=True)
@pytest.mark.parametrize("tree", ["outbox", "inbox"])
def test_a_table_that_a_crash_of_its_server_empties_proves_nothing_until_it_is_logged(
    engine: sa.Engine, tree: str
) -> None:
    secret, subscription = SecretText(engine.url.render_as_string(hide_password=False)), subscription_of("billing")
    key = new_key()
    sources = [CommitSource(producer_group="shop", topics=frozenset({"ORDERS"}), url=secret)]
    with closing(SqlOutboxReader(sources)) as reader:
        inboxes = SqlInboxEvidence({subscription: [engine]})

        def presence() -> Presence:
            if tree == "inbox":
                return inboxes.look_up(subscription, [key])[key].presence
            return reader.look_up("ORDERS", {key: WHENEVER_COMMITTED_MS})[key].presence

        execute(engine, f"ALTER TABLE reconciler_{tree} SET UNLOGGED")
        role = read_role(engine, database=database_fact(tree, "orders"), tree=tree)
        assert (presence(), role.is_blind(300.0), role.is_doubted) == (Presence.UNKNOWN, True, True)
        (line,) = doubted_witnesses([role], within_seconds=300.0)
        assert f"ALTER TABLE reconciler_{tree} SET LOGGED" in said(line)
        execute(engine, f"ALTER TABLE reconciler_{tree} SET LOGGED")
        role = read_role(engine, database=database_fact(tree, "orders"), tree=tree)
        assert (presence(), role.is_blind(300.0)) == (Presence.ABSENT, False)


@pytest.mark.parametrize("engine", [MARIADB], indirect=True)
def test_a_look_that_a_database_ends_because_of_its_time_proves_no_transactions(engine: sa.Engine) -> None:
    def slow(*arguments: Any) -> tuple[str, Any]:
        _, _, statement, parameters, *_ = arguments
        if "information_schema.ENGINES" in statement:
            return f"SET STATEMENT max_statement_time = 0.1 FOR {statement} AND SLEEP(60) = 0", parameters
        return statement, parameters

    execute(engine, "ALTER TABLE reconciler_candidate ENGINE=Aria")
    event.listen(engine, "before_cursor_execute", slow, retval=True)
    ledger = SqlLedger(engine)
    for look in (ledger.database.require_transactions, lambda: require_transactions(engine, "reconciler_candidate")):
        with pytest.raises(StatementTooSlow):
            look()
    with pytest.raises(StatementTooSlow):
        ledger.holds.place("test", "ORDERS", HoldKind.HOLD, by="me", reason="")


def test_an_outbox_that_lost_its_identity_is_not_called_another_database(engine: sa.Engine) -> None:
    url = engine.url.render_as_string(hide_password=False)
    with closing(SqlOutbox(url)) as outbox:
        outbox.identity()
        execute(engine, "ALTER TABLE reconciler_outbox_identity RENAME TO identity_of_somebody")
        with engine.connect() as connection, connection.begin() as transaction:
            with pytest.raises(ConfigurationError, match="reconciler_outbox_identity"):
                outbox.record(connection, entry_of_key(new_key()))
            transaction.rollback()


@pytest.mark.parametrize("engine", [POSTGRES], indirect=True)
def test_a_statement_that_needs_the_lost_key_says_so(engine: sa.Engine) -> None:
    key = sa.inspect(engine).get_pk_constraint("reconciler_floor")["name"]
    execute(engine, f"ALTER TABLE reconciler_floor DROP CONSTRAINT {key}")
    names = "environment, topic, consumer_group, broker, queue_id"
    insert = f"INSERT INTO reconciler_floor ({names}) VALUES ('a', 'b', 'c', 'd', 1) ON CONFLICT ({names}) DO NOTHING"
    with pytest.raises(ConfigurationError, match="lacks a unique key"):
        execute(engine, insert)
