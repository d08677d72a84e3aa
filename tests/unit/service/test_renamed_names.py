"""A producer group or an environment gets another name: what is told, and what the page's statements keep."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from reconciler.commands.doctor.producer_groups import (
    ROWS_OF_OTHERS,
    TOPIC_OF_NOBODY,
    UNSWEPT,
    check_producer_groups,
)
from reconciler.commands.renaming.renamed_groups import Renames, renames
from reconciler.commands.status.standstill import before_since
from reconciler.commands.status.unswept import unswept
from reconciler.contract.kept_facts import ACT_GROUP_RENAME, ACT_GROUP_RENAME_UNDONE
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import operator_action, outbox
from reconciler.telling.ports.actions import Intent, OperatorAction
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.telling.ports.reports import VerdictCount
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.engines import begun
from tests.settings_file import settings_file
from tests.unit.consumers.messages import new_key

PAGE = (Path(__file__).parents[3] / "docs/how-to/rename.md").read_text(encoding="utf-8")
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
    return settings_file(folder, producer_group="", sections=sections)


def renamed(old: str, new: str) -> Intent:
    return Intent(by="anna", command="group rename", group=old, detail="in words that nothing is decided by")


def write_rows(
    folder: Path, *, topic: str = "ORDERS", group: str = "shop", count: int = 1, age_ms: int = HOUR_MS
) -> str:
    """NEW rows in the outbox; its URL."""
    url = f"sqlite:///{folder}/orders.db"
    schema.upgrade(url, "outbox")
    with begun(url) as connection:
        now_ms = connection.execute(sa.text("SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000")).scalar_one()
        row = {"topic": topic, "producer_group": group, "state": "NEW", "created_at_ms": now_ms - age_ms}
        connection.execute(sa.insert(outbox), [{**row, "unique_key": new_key()} for _ in range(count)])
    return url


@pytest.mark.parametrize(("groups", "is_told"), [(("shop-2",), True), (("shop-2", "shop"), False)])
def test_rows_that_no_sweep_looks_at_since_their_group_was_renamed_are_told(
    tmp_path: Path, groups: tuple[str, ...], is_told: bool
) -> None:
    url = write_rows(tmp_path)
    with closing(SqlOutbox(url)) as swept:
        for group in groups:
            found = swept.unannounced(group, older_than_seconds=60.0, limit=5)
            assert bool(found.facts) is (group == "shop"), "a sweep looks at the rows of its own group alone"
    with Connections(load_settings(settings_of(tmp_path, *groups), {})) as connections:
        told, in_status = check_producer_groups(connections), list(unswept(connections))
    told = [one for one in told if one.found.code is UNSWEPT]
    assert [("shop has committed messages to ORDERS" in said(one.found), one.level) for one in told] == (
        [(True, "note")] if is_told else []
    )
    assert ["1 commits of shop to ORDERS wait since" in said(line) for line in in_status] == ([True] if is_told else [])


@pytest.mark.parametrize(("topic", "age_ms"), [("ORDERS", 60_000), ("PARCELS", HOUR_MS)])
def test_rows_that_another_deployment_may_announce_or_that_nobody_asks_about_here_disturb_no_calm(
    tmp_path: Path, topic: str, age_ms: int
) -> None:
    """Two deployments share the table."""
    write_rows(tmp_path, topic=topic, age_ms=age_ms)
    with Connections(load_settings(settings_of(tmp_path, "shop-2"), {})) as connections:
        assert list(unswept(connections)) == []


def test_an_outbox_that_has_rows_of_other_groups_alone_is_told(tmp_path: Path) -> None:
    """Two environments have swapped their URLs: every commit would be called rolled back."""
    write_rows(tmp_path, group="shop-of-staging", age_ms=1_000)
    with Connections(load_settings(settings_of(tmp_path, "shop"), {})) as connections:
        (told,) = check_producer_groups(connections)
        assert (told.found.code, told.found.fields["others"]) == (ROWS_OF_OTHERS, ("shop-of-staging",))
        write_rows(tmp_path, group="shop", age_ms=HOUR_MS)
        assert check_producer_groups(connections) == []


def test_a_topic_that_a_group_sends_to_before_it_has_a_section_is_told(tmp_path: Path) -> None:
    """The services moved to the new topic first."""
    write_rows(tmp_path, group="shop", topic="ORDERS_2", age_ms=1_000)
    with Connections(load_settings(settings_of(tmp_path, "shop"), {})) as connections:
        (told,) = check_producer_groups(connections)
    assert (told.level, told.found.code) == ("note", TOPIC_OF_NOBODY)
    assert "shop has committed messages to ORDERS_2" in said(told.found)


def test_the_rows_of_each_group_are_counted_and_the_oldest_are_told_first(tmp_path: Path) -> None:
    write_rows(tmp_path, group="shop", count=3, age_ms=HOUR_MS)
    write_rows(tmp_path, group="kiosk", count=2, age_ms=2 * HOUR_MS)
    write_rows(tmp_path, group="shop-2", count=4, age_ms=3 * HOUR_MS)
    with Connections(load_settings(settings_of(tmp_path, "shop-2"), {})) as connections:
        told = [said(line).split(" wait")[0] for line in unswept(connections)]
    assert told == ["2 commits of kiosk to ORDERS", "3 commits of shop to ORDERS"]


def test_a_rename_of_a_group_is_known_after_a_thousand_other_acts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    schema.upgrade(url, "ledger")
    with Connections(load_settings(settings_of(tmp_path, "shop"), {})) as connections:
        actions = connections.ledger.actions
        done = actions.begin(
            "test", renamed("shipping", "parcels"), fact=ACT_GROUP_RENAME(old="shipping", new="parcels")
        )
        actions.end(done, "done")
        actions.begin("test", renamed("billing", "invoices"), fact=ACT_GROUP_RENAME(old="billing", new="invoices"))
        undone = ACT_GROUP_RENAME_UNDONE(old="kiosk", new="stall")
        actions.end(
            actions.begin("test", renamed("kiosk", "stall"), fact=ACT_GROUP_RENAME(**undone.fields)), "", fact=undone
        )
        later = {"environment": "test", "by": "anna", "command": "repair", "detail": "", "started_at_ms": 2**42}
        with begun(url) as connection:
            connection.execute(sa.insert(operator_action), [later | {"action_id": f"{n:032X}"} for n in range(1_010)])
        found = renames(connections)
        third_name = list(found.in_the_way_of("shipping", "boxes"))
        after_an_error = list(found.in_the_way_of("kiosk", "booth"))
    assert found.retired == {"kiosk", "shipping"}
    assert after_an_error == []
    assert found.unfinished == {"billing"}
    assert third_name == ["shipping is parcels by a rename: give that one another name, or rename it back first"]


def test_what_was_dismissed_and_held_is_so_under_the_new_environment(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    schema.upgrade(url, "ledger")
    engine = open_engine(url)
    old, new = (Subscription(environment=name, topic="ORDERS", group="billing") for name in ("staging", "live"))
    ledger = SqlLedger(engine)
    ledger.rounds.begin(old, at_ms=5)
    ledger.rounds.raise_floor(old, {"broker-a/3": 7})
    given_up = VerdictEntry(
        unique_key=KEY, verdict=Verdict.QUARANTINED, evidence={}, first_seen_ms=1,
        state=CandidateState.SETTLED, wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=old, number=0), [given_up])
    ledger.repairs.open("staging", "ORDERS", KEY, rung=Rung.END)
    ledger.holds.place("staging", "ORDERS", HoldKind.HOLD, by="anna", reason="why")
    ledger.actions.begin("staging", renamed("shipping", "billing"))
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
    (act,) = after.reports.actions("live", only=LedgerFilter(command="group rename"), limit=9).rows
    assert act.intent == renamed("shipping", "billing")
    engine.dispose()


def test_what_was_dismissed_is_so_under_the_new_name_after_a_restore_from_before_the_rename(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/back-up-the-ledger.md").read_text(encoding="utf-8")
    url = f"sqlite:///{tmp_path}/ledger.db"
    schema.upgrade(url, "ledger")
    engine = open_engine(url)
    old, new = (Subscription(environment="production", topic="ORDERS", group=name) for name in ("billing", "invoices"))
    ledger = SqlLedger(engine)
    ledger.rounds.begin(old, at_ms=5)
    given_up = VerdictEntry(
        unique_key=KEY, verdict=Verdict.QUARANTINED, evidence={}, first_seen_ms=1,
        state=CandidateState.SETTLED, wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=old, number=0), [given_up])
    statements = re.findall(r"`(UPDATE reconciler_[^`]*)`", page)
    assert len(statements) == 2
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    after = SqlLedger(engine)
    assert after.candidates.of_keys(new, [KEY])[KEY].is_dismissed
    assert after.rounds.since_ms(new) == 5
    engine.dispose()


def test_what_a_rename_closed_under_a_name_that_the_settings_lack_is_not_told_as_judged_again() -> None:
    old, new = (Subscription(environment="live", topic="ORDERS", group=group) for group in ("billing", "invoices"))
    closed = VerdictCount(
        subscription=old, state=CandidateState.SETTLED, verdict=Verdict.BEFORE_SINCE, loss_verdict=None, count=3,
        oldest_ms=1,
    )  # fmt: skip
    assert before_since([closed], {new: None}) == []
    assert len(before_since([closed], {old: None})) == 1


@pytest.mark.parametrize(
    ("old", "new", "ended_at_ms", "told"),
    [
        ("a", "b", 9, None),  # the same one again, which goes on where it stopped
        ("a", "b", None, None),
        ("a", "c", 9, "a is b by a rename"),
        ("a", "c", None, "the rename of a to b has no end"),
        ("b", "c", 9, None),
        ("c", "b", None, "the rename of a to b has no end"),
        ("c", "d", None, None),
    ],
)
def test_another_rename_of_a_name_is_in_the_way_and_the_same_one_is_not(
    old: str, new: str, ended_at_ms: int | None, told: str | None
) -> None:
    fact = ACT_GROUP_RENAME(old="a", new="b")
    act = OperatorAction(action_id="1", intent=renamed("a", "b"), started_at_ms=1, ended_at_ms=ended_at_ms, fact=fact)
    known = Renames(retired=frozenset(), unfinished=frozenset(), newest={"a": act, "b": act})
    found = list(known.in_the_way_of(old, new))
    assert len(found) == (told is not None)
    assert (told or "") in "".join(found)
