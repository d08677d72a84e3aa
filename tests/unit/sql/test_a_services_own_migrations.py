"""The plug-ins' tables in a service's own migrations: Alembic writes them down, or a revision runs what is printed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox_metadata, outbox_metadata
from tests.unit.sql.test_schema_trees import described, description

PLUG_INS = [outbox_metadata, inbox_metadata]
#: As short as a service's own can be.
ENVIRONMENT = """
from alembic import context

attributes = context.config.attributes
context.configure(connection=attributes["connection"], target_metadata=attributes["tables"])
context.run_migrations()
"""


def test_the_revision_that_alembic_writes_by_itself_makes_the_contracts_tables_and_needs_nothing_of_ours(
    database_url: str, tmp_path: Path
) -> None:
    engine, of_service = open_engine(database_url), Config(tmp_path / "alembic.ini", stdout=StringIO())
    command.init(of_service, str(tmp_path / "migrations"))
    (tmp_path / "migrations" / "env.py").write_text(ENVIRONMENT)
    with engine.begin() as connection:
        of_service.attributes.update(connection=connection, tables=PLUG_INS)
        command.revision(of_service, autogenerate=True)
        command.upgrade(of_service, "head")
    (written,) = (tmp_path / "migrations" / "versions").glob("*.py")
    assert "reconciler.sql" not in written.read_text()
    made = description(engine)
    made.pop("alembic_version")
    with engine.begin() as connection:
        compared = MigrationContext.configure(connection)
        assert compare_metadata(compared, PLUG_INS) == []  # type: ignore[arg-type]  # several are taken, too
        for metadata in PLUG_INS:
            metadata.drop_all(connection)
            metadata.create_all(connection)
        sa.Table("alembic_version", sa.MetaData()).drop(connection)
    assert made == description(engine)
    engine.dispose()


@pytest.mark.parametrize("dialect", schema.DIALECTS)
@pytest.mark.parametrize("tree", schema.TREES)
def test_what_is_printed_for_a_transaction_ends_none(tree: str, dialect: str) -> None:
    words = schema.ddl(tree, dialect, in_transaction=True).replace(";", " ").split()
    assert {"BEGIN", "COMMIT", "CONCURRENTLY"}.isdisjoint(words)


@pytest.mark.sql("postgres")
def test_a_service_that_rolls_back_keeps_no_table_and_one_that_commits_has_what_an_upgrade_makes(
    postgres_url: str,
) -> None:
    engine = open_engine(postgres_url)
    printed = "\n".join(schema.ddl(tree, "postgresql", in_transaction=True) for tree in schema.TREES)
    with engine.connect() as connection:
        connection.exec_driver_sql(printed)
        connection.rollback()
        assert sa.inspect(connection).get_table_names() == []
        connection.exec_driver_sql(printed)
        connection.commit()
    made = described(postgres_url)
    with engine.begin() as connection:
        for table in sa.inspect(connection).get_table_names():
            connection.exec_driver_sql(f"DROP TABLE {table}")
    engine.dispose()
    for tree in schema.TREES:
        schema.upgrade(postgres_url, tree)
    assert made == described(postgres_url)
