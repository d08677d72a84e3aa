"""Migrations, printed DDL and the contract's tables are the same three times over, on every database."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from reconciler.contract.tables import VERSION_TABLES
from reconciler.errors import ConfigurationError, DatabaseAway, InvalidValue
from reconciler.sql import schema
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.identity import ensure_identity, read_identity
from reconciler.sql.tables import inbox_metadata, ledger_metadata, outbox_identity, outbox_metadata
from tests.engines import disposed, make_tables, with_tables

METADATA = {"outbox": outbox_metadata, "inbox": inbox_metadata, "ledger": ledger_metadata}


def description(engine: sa.Engine) -> dict[str, Any]:
    """Tables as the database itself describes them."""
    found: dict[str, Any] = {}
    with engine.connect() as connection:
        inspector = sa.inspect(connection)
        for table in inspector.get_table_names():
            if table.startswith("reconciler_alembic_version"):
                continue
            found[table] = {
                "columns": {
                    column["name"]: (str(column["type"]), column["nullable"], column.get("comment"), column["default"])
                    for column in inspector.get_columns(table)
                },
                "primary key": inspector.get_pk_constraint(table)["constrained_columns"],
                "indexes": {
                    index["name"]: (index["column_names"], index["unique"]) for index in inspector.get_indexes(table)
                },
                "options": options_of(inspector, table),
            }
    return found


def options_of(inspector: sa.Inspector, table: str) -> dict[str, Any]:
    """None where SQLAlchemy 2.0 cannot ask for them: only MySQL and MariaDB have some."""
    try:
        return inspector.get_table_options(table)
    except NotImplementedError:
        return {}


def described(url: str) -> dict[str, Any]:
    with disposed(open_engine(url)) as engine:
        return description(engine)


def made_by_hand(url: str) -> dict[str, Any]:
    """What metadata.create_all makes of the contract."""
    with with_tables(url, *METADATA.values()) as engine:
        return description(engine)


@pytest.mark.pooled
def test_all_trees_share_a_database_and_make_the_contracts_tables(new_database_url: Callable[[], str]) -> None:
    migrated, by_hand = new_database_url(), new_database_url()
    for tree in schema.TREES:
        assert schema.upgrade(migrated, tree) == schema.head(tree)
        assert schema.current(migrated, tree) == schema.head(tree)
    assert described(migrated) == made_by_hand(by_hand)


def test_an_upgrade_twice_changes_nothing(database_url: str) -> None:
    schema.upgrade(database_url, "outbox")
    engine = open_engine(database_url)
    identity = read_identity(engine)
    schema.upgrade(database_url, "outbox")
    assert read_identity(engine) == identity
    engine.dispose()


def test_a_copy_whose_identity_was_deleted_gets_another_one_by_an_upgrade(database_url: str) -> None:
    schema.upgrade(database_url, "outbox")
    engine = open_engine(database_url)
    identity = read_identity(engine)
    with writing(engine) as connection:
        connection.execute(sa.delete(outbox_identity))
    schema.upgrade(database_url, "outbox")
    assert read_identity(engine) != identity
    with reading(engine) as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(outbox_identity)).scalar_one() == 2
    engine.dispose()


def test_one_tree_makes_its_own_tables_only(database_url: str) -> None:
    schema.upgrade(database_url, "inbox")
    assert set(described(database_url)) == set(inbox_metadata.tables)
    assert schema.current(database_url, "ledger") is None
    assert schema.has_tables(database_url, "inbox")
    assert not schema.has_tables(database_url, "outbox")


def test_a_ledger_of_0_2_0_lacks_no_table_that_anybody_needs(tmp_path: Path) -> None:
    config, engine = schema._config("ledger"), open_engine(f"sqlite:///{tmp_path}/ledger.db")
    assert not schema.has_tables(engine, "ledger")
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, schema.base("ledger"))
    assert schema.has_tables(engine, "ledger")
    engine.dispose()


@pytest.mark.parametrize("tree", schema.TREES)
def test_the_printed_ddl_makes_the_same_tables_and_can_be_upgraded(
    new_database_url: Callable[[], str], tree: str
) -> None:
    printed, migrated = new_database_url(), new_database_url()
    engine = open_engine(printed)
    dialect = "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name
    statements = [part.strip() for part in schema.ddl(tree, dialect).split(";\n")]
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for statement in statements:
            if statement and statement not in {"BEGIN", "COMMIT"}:
                connection.exec_driver_sql(statement)
        connection.commit()  # SQLite begins a transaction all the same
    engine.dispose()
    schema.upgrade(migrated, tree)
    assert described(printed) == described(migrated)
    assert schema.upgrade(printed, tree) == schema.current(printed, tree)


def test_two_databases_have_two_identities(new_database_url: Callable[[], str]) -> None:
    identities = set()
    for _ in range(2):
        url = new_database_url()
        schema.upgrade(url, "outbox")
        with disposed(open_engine(url)) as engine:
            identities.add(read_identity(engine))
    assert len(identities) == 2
    assert all(len(identity) == 32 for identity in identities)


def test_ensure_identity_serves_tables_made_by_hand_and_keeps_what_is_there(database_url: str) -> None:
    engine = open_engine(database_url)
    outbox_metadata.create_all(engine)
    with pytest.raises(ConfigurationError, match="is empty"):
        read_identity(engine)
    first = ensure_identity(engine)
    assert ensure_identity(engine) == first
    with reading(engine) as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(outbox_identity)).scalar_one() == 2
    engine.dispose()


@pytest.mark.pooled
def test_processes_that_start_at_once_agree_on_one_identity(database_url: str) -> None:
    engine = open_engine(database_url)
    outbox_metadata.create_all(engine)
    barrier = threading.Barrier(4)

    def start(_number: int) -> str:
        barrier.wait(60)
        return ensure_identity(engine)

    with ThreadPoolExecutor(4) as processes:
        assert len(set(processes.map(start, range(4)))) == 1
    engine.dispose()


def test_processes_that_upgrade_at_once_reach_the_newest_revision_together(database_url: str) -> None:
    program = (
        "import sys; from reconciler.sql.schema import head, upgrade; head('outbox'); print(flush=True); "
        "sys.stdin.readline(); print(upgrade(sys.argv[1], 'outbox'))"
    )
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    running = [subprocess.Popen([sys.executable, "-c", program, database_url], text=True, **pipes) for _ in range(4)]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()  # it has loaded what it needs
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=60) for process in running]
    assert ended == [(f"{schema.head('outbox')}\n", "")] * 4


def test_tables_that_no_migration_made_are_named_with_the_way_out(database_url: str) -> None:
    make_tables(database_url, inbox_metadata)
    with pytest.raises(ConfigurationError, match="stamp reconciler_alembic_version_inbox with '0002_incomplete'"):
        schema.upgrade(database_url, "inbox")


@pytest.mark.parametrize(
    ("tree", "revision", "told"),
    [
        ("inbox", "9999_inbox", ".*; a newer release made this inbox"),
        ("outbox", "0003_filter", "its outbox is at revision 0003_filter, .*: upgrade to 0.2.0 first"),
        (
            "ledger",
            "0010_verified_repairs",
            "its ledger is at revision 0010_verified_repairs, .*: upgrade to 0.2.0 first",
        ),
    ],
)
def test_a_revision_that_this_release_does_not_know_is_named_and_its_tables_stay_as_they_are(
    database_url: str, tree: str, revision: str, told: str
) -> None:
    schema.upgrade(database_url, tree)
    before, engine = described(database_url), open_engine(database_url)
    with writing(engine) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLES[tree]} SET version_num = '{revision}'")
    with pytest.raises(ConfigurationError, match=f"{re.escape(shown(engine))}: {told}"):
        schema.upgrade(database_url, tree)
    assert (described(database_url), schema.current(engine, tree)) == (before, revision)
    engine.dispose()


def test_an_unknown_tree_or_dialect_is_refused() -> None:
    with pytest.raises(InvalidValue, match="outbox, inbox, ledger"):
        schema.ddl("audit", "sqlite")
    with pytest.raises(InvalidValue, match="sqlite, postgresql, mysql"):
        schema.ddl("outbox", "oracle")


def test_a_database_that_is_away_is_no_empty_one() -> None:
    with pytest.raises(DatabaseAway):
        schema.current("postgresql://nobody@127.0.0.1:1/none", "outbox")
