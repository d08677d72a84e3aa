"""A ledger that can be read and not written: every turn would end in its middle, and rounds would look alive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.errors import DatabaseAway
from reconciler.sql.engines import open_engine
from reconciler.sql.rights import refused_writes
from reconciler.sql.tables import ledger_metadata

TABLES = ledger_metadata.sorted_tables
LOGIN, PASSWORD = "reader", "reader"


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ]
)
def ledgers(request: pytest.FixtureRequest) -> Iterator[tuple[sa.Engine, sa.Engine]]:
    """The owner's engine, and that of a login which may do all but INSERT into the repairs."""
    owner = open_engine(request.getfixturevalue(f"{request.param}_server").create_database())
    ledger_metadata.create_all(owner)
    is_postgres = request.param == "postgres"
    who = LOGIN if is_postgres else f"'{LOGIN}'@'127.0.0.1'"
    with owner.begin() as connection:
        if is_postgres:
            connection.exec_driver_sql(f"DROP ROLE IF EXISTS {LOGIN}")
            connection.exec_driver_sql(f"CREATE ROLE {LOGIN} LOGIN PASSWORD '{PASSWORD}'")
        else:
            connection.exec_driver_sql(f"CREATE OR REPLACE USER {who} IDENTIFIED BY '{PASSWORD}'")
        for table in TABLES:
            insert = "" if table.name == "reconciler_repair" else ", INSERT"
            connection.exec_driver_sql(f"GRANT SELECT, UPDATE, DELETE{insert} ON {table.name} TO {who}")
    limited = open_engine(owner.url.set(username=LOGIN, password=PASSWORD).render_as_string(hide_password=False))
    yield owner, limited
    limited.dispose()
    with owner.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {LOGIN}" if is_postgres else f"DROP USER {who}")
    owner.dispose()


def test_login_that_cannot_open_a_repair_is_told_before_a_loss_is_proved(ledgers: tuple[sa.Engine, sa.Engine]) -> None:
    owner, limited = ledgers
    assert refused_writes(owner, TABLES) == []
    (line,) = refused_writes(limited, TABLES)
    assert line.startswith("INSERT reconciler_repair: ")
    assert "denied" in line


def test_looking_for_rights_changes_no_row_and_a_busy_file_is_no_missing_right(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db", lock_timeout_seconds=0.1)
    ledger_metadata.create_all(engine)
    assert refused_writes(engine, TABLES) == []
    with engine.connect() as connection, connection.begin():
        with pytest.raises(DatabaseAway):
            refused_writes(engine, TABLES)
        assert [connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in TABLES] == [0] * len(
            TABLES
        )
    engine.dispose()
