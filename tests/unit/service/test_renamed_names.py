"""A producer group or an environment gets another name: what is told, and what the page's statements keep."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from reconciler.commands.doctor.producer_groups import check_producer_groups
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports import Verification
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import outbox
from reconciler.wiring.connections import Connections

PAGE = (Path(__file__).parents[3] / "docs/how-to/operations.md").read_text(encoding="utf-8")
HOUR_MS = 3_600_000
KEY = "A0" * 16


def settings_of(folder: Path, *groups: str) -> Path:
    sections = "".join(
        f"""[[producers]]
group = "{group}"
topics = ["ORDERS"]
outbox_url = "sqlite:///{folder}/orders.db"
"""
        for group in groups
    )
    path = folder / "reconciler.toml"
    path.write_text(f"""environment = "test"
rocketmq.name_servers = "127.0.0.1:1"
redis.url = "redis://127.0.0.1:1/0"
ledger.url = "sqlite:///{folder}/ledger.db"
{sections}
[[subscriptions]]
topic = "ORDERS"
group = "billing"
""")
    return path


@pytest.mark.parametrize(("groups", "is_told"), [(("shop-2",), True), (("shop-2", "shop"), False)])
def test_rows_that_no_sweep_looks_at_since_their_group_was_renamed_are_told(
    tmp_path: Path, groups: tuple[str, ...], is_told: bool
) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    schema.upgrade(url, "outbox")
    engine = open_engine(url)
    with engine.begin() as connection:
        now_ms = connection.execute(sa.text("SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000")).scalar_one()
        row = {"unique_key": KEY, "topic": "ORDERS", "producer_group": "shop", "state": "NEW"}
        connection.execute(sa.insert(outbox).values(**row, created_at_ms=now_ms - HOUR_MS))
    engine.dispose()
    with closing(SqlOutbox(url)) as swept:
        for group in groups:
            found = swept.unannounced(group, older_than_seconds=60.0, limit=5)
            assert bool(found.facts) is (group == "shop"), "a sweep looks at the rows of its own group alone"
    with Connections(load_settings(settings_of(tmp_path, *groups), {})) as connections:
        told = check_producer_groups(connections)
    assert [("shop has committed messages to ORDERS" in one.found, one.level) for one in told] == (
        [(True, "note")] if is_told else []
    )


def test_what_was_dismissed_and_held_is_so_under_the_new_environment(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    schema.upgrade(url, "ledger")
    engine = open_engine(url)
    old, new = (Subscription(environment=name, topic="ORDERS", group="billing") for name in ("staging", "live"))
    ledger = SqlLedger(engine)
    ledger.rounds.begin(old, at_ms=5)
    ledger.rounds.raise_floor(old, {"broker-a/3": 7})
    given_up = Verification(
        unique_key=KEY, verdict=Verdict.QUARANTINED, evidence={}, first_seen_ms=1,
        state=CandidateState.SETTLED, wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=old, number=0), [given_up])
    ledger.repairs.open("staging", "ORDERS", KEY, rung=Rung.END)
    ledger.holds.place("staging", "ORDERS", HoldKind.HOLD, by="anna", reason="why")
    assert KEY not in ledger.candidates.of_keys(new, [KEY]), "under another name the ledger knows nothing of it"
    (block,) = re.findall(r"```sql\n(\s+UPDATE reconciler_candidate SET environment.*?)```", PAGE, re.DOTALL)
    with engine.begin() as connection:
        for statement in block.split(";"):
            if statement.strip():
                connection.execute(sa.text(statement))
    after = SqlLedger(engine)
    assert after.candidates.of_keys(new, [KEY])[KEY].is_dismissed
    (repair,) = after.repairs.of_keys("live", "ORDERS", [KEY])[KEY]
    assert (repair.scope, repair.state) == (EVERY_GROUP, RepairState.OPEN)
    assert (after.rounds.since_ms(new), [one.queue_offset for one in after.reports.floors(new)]) == (5, [7])
    assert after.holds.active("live") == {"ORDERS": [HoldKind.HOLD]}
    engine.dispose()
