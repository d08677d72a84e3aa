"""Tables that somebody altered behind the reconciler's back: doctor names each difference and its danger."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.commands.doctor.checks import examine
from reconciler.contract.facts import Fact
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.wiring.connections import Connections
from tests.engines import begun
from tests.unit.service.test_doctor_findings import EXAMPLE

TABLE = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'reconciler_repair'"
KEY = "CONSTRAINT pk_reconciler_repair PRIMARY KEY (environment, topic, scope, unique_key)"


def findings(folder: Path) -> dict[str, tuple[str, Fact]]:
    """Code of what was found in the ledger -> level and fact, of what is not ok."""
    variables = {"RECONCILER_LEDGER__URL": f"sqlite:///{folder}/ledger.db"}
    with Connections(load_settings(EXAMPLE, variables)) as made:
        told = [one for one in examine(made) if "ledger" in one.as_row().check and one.level != "ok"]
    return {one.found.code.name: (one.level, one.found) for one in told}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Its folder."""
    schema.upgrade(f"sqlite:///{tmp_path}/ledger.db", "ledger")
    return tmp_path


def execute(folder: Path, *statements: str) -> None:
    with begun(f"sqlite:///{folder}/ledger.db") as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def remade(folder: Path, old: str, new: str) -> None:
    """The table of repairs, defined otherwise."""
    with begun(f"sqlite:///{folder}/ledger.db") as connection:
        (ddl,) = connection.exec_driver_sql(TABLE).scalars()
    assert old in ddl, ddl
    execute(folder, "DROP TABLE reconciler_repair", ddl.replace(old, new))


def test_tables_as_the_upgrade_made_them_have_no_finding(ledger: Path) -> None:
    assert findings(ledger) == {}


def test_a_table_without_its_primary_key_fails(ledger: Path) -> None:
    remade(ledger, "PRIMARY KEY (environment, topic, scope, unique_key)", "CHECK (1)")
    level, found = findings(ledger)["doctor.not-unique"]
    assert (level, found.fields["keys"]) == ("fail", ("reconciler_repair (environment, topic, scope, unique_key)",))


@pytest.mark.parametrize(
    ("column", "kind", "told"),
    [
        ("unique_key VARCHAR(64)", "unique_key CHAR(255)", "reconciler_repair.unique_key CHAR(255)"),
        ("state VARCHAR(32)", "state VARCHAR(8)", "reconciler_repair.state VARCHAR(8)"),
        ("created_at_ms BIGINT", "created_at_ms TIMESTAMP", "reconciler_repair.created_at_ms TIMESTAMP"),
        ("created_at_ms BIGINT", "made_at_ms BIGINT", "reconciler_repair.created_at_ms"),
    ],
)
def test_a_column_that_cannot_hold_its_values_fails(ledger: Path, column: str, kind: str, told: str) -> None:
    remade(ledger, column, kind)
    level, found = findings(ledger)["doctor.columns-altered"]
    assert (level, found.fields["columns"]) == ("fail", (told,))


def test_a_dropped_index_is_noted(ledger: Path) -> None:
    execute(ledger, "DROP INDEX ix_reconciler_candidate_unique")
    level, found = findings(ledger)["doctor.no-index"]
    assert (level, found.fields["indexes"]) == ("note", ("reconciler_candidate (unique_key)",))


def test_a_renamed_table_is_named_and_no_upgrade_is_advised_for_it(ledger: Path) -> None:
    execute(ledger, "ALTER TABLE reconciler_hold RENAME TO reconciler_hold_old")
    level, found = findings(ledger)["doctor.tables-gone"]
    assert (level, found.fields["tables"]) == ("fail", ("reconciler_hold",))
    with pytest.raises(ConfigurationError, match="reconciler_hold: somebody dropped or renamed it; rename it back"):
        schema.upgrade(f"sqlite:///{ledger}/ledger.db", "ledger")
