"""An outbox or inbox that is a view: yesterday's installations go on, and it is told that it may hide rows."""

from __future__ import annotations

import pytest

from reconciler.commands.doctor.checks import examine
from reconciler.commands.status.primaries import blind_witnesses, unproved
from reconciler.contract.tables import VERSION_TABLES
from reconciler.evidence.witness_role import VIEW
from reconciler.sql import schema
from reconciler.wiring.databases import configured_databases
from reconciler.words import said
from tests.integration.policy.test_roles_told import connections_to
from tests.integration.policy.test_rows_that_a_reader_cannot_have import commit, execute, reader_of
from tests.unit.policy.world import TOPIC, World, key

OTHERS = ("reconciler_outbox_identity", VERSION_TABLES["outbox"], VERSION_TABLES["inbox"])


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.sql(name)) for name in ("postgres", "mariadb")])
def database_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=["beside its tables", "alone"])
def views_url(request: pytest.FixtureRequest, database_url: str) -> str:
    """A database whose outbox and inbox are views over tables of other names; one hides a tag."""
    for tree in ("outbox", "inbox"):
        schema.upgrade(database_url, tree)
    for table, condition in (("reconciler_outbox", "WHERE tag IS NULL OR tag <> 'hidden'"), ("reconciler_inbox", "")):
        execute(
            database_url,
            f"ALTER TABLE {table} RENAME TO own_{table}",
            f"CREATE VIEW {table} AS SELECT * FROM own_{table} {condition}",
        )
    if request.param == "alone":
        execute(database_url, *(f"DROP TABLE {table}" for table in OTHERS))
    return database_url


def test_views_are_told_as_unproved_and_blind_nobody(views_url: str) -> None:
    with connections_to(views_url, views_url) as connections:
        doubted = unproved(connections)
        assert [said(one.database) for one in doubted] == ["outbox of orders", "inbox of ORDERS/billing"]
        assert all(VIEW() in one.found for one in doubted)
        assert blind_witnesses(doubted, within_seconds=300) == []
        databases = configured_databases(connections.settings)
        assert [one.has_tables(connections) for one in databases if one.tree != "ledger"] == [True, True]
        told = [one.as_row() for one in examine(connections)]
    for name in ("outbox of orders", "inbox of ORDERS/billing"):
        (role,) = (one for one in told if one.check == f"role of {name}")
        assert (role.level, said(VIEW()) in role.found) == ("note", True)
        assert "fail" not in {one.level for one in told if name in one.check}, told


def test_an_outbox_that_is_a_view_proves_what_it_did(views_url: str) -> None:
    with reader_of(views_url) as reader:
        world = World()
        half = world.broker.send_half(key(1))
        commit(views_url, world.commit_locally(key(1), half))
        found = reader.look_up(TOPIC, {key(1): 1, key(2): 1})
    assert (found[key(1)].is_found, found[key(2)].is_absent) == (True, True)


def test_an_outbox_that_is_a_table_is_none(database_url: str) -> None:
    for tree in ("outbox", "inbox"):
        schema.upgrade(database_url, tree)
    with connections_to(database_url, database_url) as connections:
        assert all(VIEW() not in one.found for one in unproved(connections))
