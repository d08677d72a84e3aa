"""The code of 0.2.0 on the ledger of this release: what one of them dismisses the other neither opens nor deletes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from reconciler.contract.kept_facts import REPAIR_DISMISSED
from reconciler.contract.tables import RepairState, Rung
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import RepairChange
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.words import said
from tests.chaos import earlier_release
from tests.chaos.hosts import environment_of
from tests.services.requirements import require

OURS, THEIRS = f"{1:032X}", f"{2:032X}"
#: Their part: they dismiss one, look at both, and delete what is old.
PART = """
import json, sys
from reconciler.contract.row_rules import DISMISSED_BY
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.sql.engines import open_engine

url, ours, theirs = sys.argv[1:]
engine = open_engine(url)
repairs = SqlLedger(engine).repairs
(row,) = repairs.of_keys("prod", "ORDERS", [theirs])[theirs]
assert repairs.dismiss(row, answer=f"{DISMISSED_BY}operator anna: paid by hand")
found = [repairs.of_keys("prod", "ORDERS", [key])[key][0] for key in (ours, theirs)]
unsent = [row.closed_unsent for row in found]
SqlRetention(SqlLedger(engine).database, keep_days=-1).delete_old("prod")
kept = [bool(repairs.of_keys("prod", "ORDERS", [key])) for key in (ours, theirs)]
print(json.dumps([unsent, kept]))
engine.dispose()
"""


def test_what_0_2_0_dismisses_and_what_it_finds_dismissed_is_neither_opened_nor_deleted(tmp_path: Path) -> None:
    require(earlier_release.missing())
    old = earlier_release.check_out(tmp_path / "0.2.0")
    url = f"sqlite:///{tmp_path}/ledger.db"
    schema.upgrade(url, "ledger")
    engine = open_engine(url)
    ledger = SqlLedger(engine, english=said)
    for key in (OURS, THEIRS):
        ledger.repairs.open("prod", "ORDERS", key, rung=Rung.END)
        (row,) = ledger.repairs.of_keys("prod", "ORDERS", [key])[key]
        assert ledger.repairs.claim(row, token="t", lease_seconds=60) is not None
        failed = RepairChange(state=RepairState.FAILED, rung=Rung.END, answer="no rung is left")
        changed = ledger.repairs.change(row, failed, token="t")
        assert changed is not None
        if key == OURS:
            assert ledger.repairs.dismiss(changed, answer=REPAIR_DISMISSED(by="operator ben", reason="refunded"))
    command = [sys.executable, "-c", PART, url, OURS, THEIRS]
    told = subprocess.run(command, cwd="/", env=environment_of(old), check=True, capture_output=True, text=True)
    assert json.loads(told.stdout) == [[False, False], [True, True]]
    SqlRetention(ledger.database, keep_days=-1).delete_old("prod")
    rows = {key: ledger.repairs.of_keys("prod", "ORDERS", [key])[key][0] for key in (OURS, THEIRS)}
    assert {key: (row.is_dismissed, row.closed_unsent) for key, row in rows.items()} == {
        OURS: (True, False),
        THEIRS: (True, False),
    }
    assert rows[THEIRS].answer_fact == REPAIR_DISMISSED(by="operator anna", reason="paid by hand")
    engine.dispose()
