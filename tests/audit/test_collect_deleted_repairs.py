"""A ledger whose repairs were deleted for their age is missing evidence, never a message that was late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect.collecting import collect
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.errors import AuditError
from reconciler.contract.unique_key import member_of
from reconciler.sql import tables
from tests.audit.audited_databases import Databases, quiet
from tests.audit.written_history import WrittenHistory

TOPIC = "ORDERS-0"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=200, seed=11, topics=1), folder)
    return folder


def test_a_repair_that_the_ledger_has_deleted_gives_no_answer_until_a_copy_or_no_ledger_is_given(
    sqlite: Databases, tmp_path: Path
) -> None:
    """A message that was sent again looked late, and a repair that was not needed looked like none."""
    start_ms, repaired = sqlite.asked["window"]["start_ms"], key_of_the_window(sqlite)
    history = WrittenHistory(tmp_path / "history", sqlite.asked["environment"])
    told = {"topic": TOPIC, "scope": "*", "rung": "end", "before": "OPEN", "after": "SENT", "attempts": 1, "answer": ""}
    history.seal({"repair": [told | {"key": member_of(repaired), "at_ms": start_ms + 60_000}]})
    request = replace(sqlite.request(), history=str(history.folder))
    (tmp_path / "evidence").mkdir()
    with pytest.raises(AuditError, match="missing evidence: --ledger: history has repairs") as refused:
        collect(request, tmp_path / "evidence", one_by_one, quiet)
    assert refused.value.reason == "inputs"
    without = replace(request, sources=replace(request.sources, ledger=None))
    (tmp_path / "without").mkdir()
    collect(without, tmp_path / "without", one_by_one, quiet)
    keep_repair(sqlite, repaired, at_ms=start_ms + 30_000)
    (tmp_path / "kept").mkdir()
    collect(request, tmp_path / "kept", one_by_one, quiet)
    assert (tmp_path / "kept" / "evidence.json").exists()


def key_of_the_window(sqlite: Databases) -> str:
    """A committed key of the topic."""
    engine = sa.create_engine(sqlite.outbox_url)
    window, outbox = sqlite.asked["window"], tables.outbox
    inside = outbox.c.created_at_ms.between(window["start_ms"], window["end_ms"] - 1)
    find = sa.select(outbox.c.unique_key).where(outbox.c.topic == TOPIC, outbox.c.state != "ROLLED_BACK", inside)
    with engine.connect() as connection:
        found = connection.scalars(find.order_by(outbox.c.unique_key).limit(1)).one()
    engine.dispose()
    return str(found)


def keep_repair(sqlite: Databases, unique_key: str, *, at_ms: int) -> None:
    """Puts the repair back into the ledger."""
    engine = sa.create_engine(sqlite.ledger_url)
    row = {
        "environment": sqlite.asked["environment"], "topic": TOPIC, "scope": "*", "unique_key": unique_key,
        "state": "DONE", "rung": "end", "attempts": 1, "next_at_ms": 0, "created_at_ms": at_ms,
    }  # fmt: skip
    with engine.begin() as connection:
        connection.execute(sa.delete(tables.repair).where(tables.repair.c.unique_key == unique_key))
        connection.execute(sa.insert(tables.repair).values(row))
    engine.dispose()
