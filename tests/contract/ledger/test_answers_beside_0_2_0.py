"""Answers of repairs where 0.2.0 writes beside this release: it writes the text, and leaves the fact as it was."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from reconciler.contract.earlier_words import BEGINS_DISMISSED
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import DISMISSAL_TAKEN_BACK, REPAIR_DISMISSED
from reconciler.contract.tables import EVERY_GROUP, RepairState, Rung
from reconciler.ledger.retention import SqlRetention
from reconciler.policy.ports.ledger import Repair, RepairChange
from reconciler.sql.engines import writing
from reconciler.sql.tables import repair
from tests.contract.ledger.conftest import DatabaseWorld
from tests.contract.ledger.rows import key

OURS = REPAIR_DISMISSED(by="operator anna", reason="paid: by hand")
NEWER = '{"code":"repair.paid-in-kind","fields":{},"crc32":0}'


def finished(world: DatabaseWorld, answer: Fact | str) -> Repair:
    """A repair that this release has ended."""
    repairs = world.ledger.repairs
    repairs.open(world.environment, "ORDERS", key(1), rung=Rung.END)
    claimed = repairs.claim(row_of(world), token="t", lease_seconds=60)
    assert claimed is not None
    for state in (RepairState.SENT, RepairState.DONE):
        changed = repairs.change(claimed, RepairChange(state=state, rung=Rung.END, answer=answer), token="t")
        assert changed is not None
    assert row_of(world) == changed
    return changed


def row_of(world: DatabaseWorld) -> Repair:
    (row,) = world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)]
    assert row.scope == EVERY_GROUP
    (listed,) = world.ledger.reports.repairs(world.environment, limit=9).rows
    assert world.ledger.reports.life(world.environment, key(1)).repairs == [row] == [listed]
    return row


def written(world: DatabaseWorld, **values: str | None) -> None:
    """As another release leaves the row."""
    with writing(world.ledger.database.engine) as connection:
        of = repair.c.environment == world.environment
        assert connection.execute(sa.update(repair).where(of).values(**values)).rowcount == 1


def is_kept(world: DatabaseWorld) -> bool:
    """Once it is old."""
    world.clock.advance(10 * 86_400)
    SqlRetention(world.ledger.database, keep_days=1).delete_old(world.environment)
    return bool(world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(1)]))


@pytest.mark.parametrize("before", [DISMISSAL_TAKEN_BACK(by="anna", reason="no"), "applied"])
def test_what_0_2_0_dismisses_is_neither_opened_again_nor_deleted(
    database_world: DatabaseWorld, before: Fact | str
) -> None:
    finished(database_world, before)
    written(database_world, answer=f"{BEGINS_DISMISSED}operator anna: paid: by hand")
    row = row_of(database_world)
    assert (row.is_dismissed, row.closed_unsent, row.answer_fact) == (True, False, OURS)
    assert is_kept(database_world)


def test_what_this_release_dismisses_begins_with_the_words_that_0_2_0_decides_by(
    database_world: DatabaseWorld,
) -> None:
    row = finished(database_world, OURS)
    assert (row.answer, row.answer_fact) == ("dismissed by operator anna: paid: by hand", OURS)
    assert is_kept(database_world)


def test_what_is_dismissed_is_kept_by_its_code_too_whatever_the_words_of_a_later_release_are(
    database_world: DatabaseWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_world.ledger.database.answers, "_english", lambda fact: fact.code.name)
    row = finished(database_world, OURS)
    assert (row.answer, row.is_dismissed) == ("repair.dismissed", True)
    assert is_kept(database_world)


@pytest.mark.parametrize(
    ("fact", "answer"),
    [
        (None, "the effect is there"),  # 0.2.0 opened it again and repaired it: the fact is that of the text before
        (NEWER, "paid in kind"),
        ('{"code":"repair.dismissed","fields":{"why":"new"}}', "closed"),
        ("no JSON", "closed"),
        ("[1]", None),
    ],
)
def test_the_fact_of_another_text_and_one_of_a_newer_release_count_for_nothing_and_are_no_damage(
    database_world: DatabaseWorld, fact: str | None, answer: str | None
) -> None:
    finished(database_world, OURS)
    written(database_world, answer=answer, **({} if fact is None else {"answer_fact": fact}))
    row = row_of(database_world)
    assert (row.state, row.answer, row.answer_fact) == (RepairState.DONE, answer, None)
    assert not row.is_dismissed
