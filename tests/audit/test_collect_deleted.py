"""What a sweeper or a purge has deleted is missing evidence, never a violation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.deleted import KEPT_AT_LEAST_MS, AgeOfRows, Lacking, earliest, missing_evidence
from reconciler.audit.collect.selection import Selection
from reconciler.audit.collect.sources import Source
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.errors import AuditError
from reconciler.contract.evidence_layout import INBOX_EVIDENCE
from reconciler.sql import tables
from tests.audit.audited_databases import Databases, quiet
from tests.engines import disposed

NOW_MS = 1_772_323_200_000
SKEW_MS = 10_000
OLD_MS = NOW_MS - 2 * KEPT_AT_LEAST_MS
OUTBOX: Lacking = ("outbox", "ORDERS", "")
INBOX: Lacking = ("inbox", "ORDERS", "billing")


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=200, seed=11, accidents={"LOST": 2}, topics=1), folder)
    return folder


def age(lacking: Lacking) -> AgeOfRows:
    source = Source(kind="database", address="sqlite:////nowhere", option="--inbox ORDERS/billing")
    return AgeOfRows(
        lacking=lacking,
        source=source,
        selection=Selection(layout=INBOX_EVIDENCE, table="t"),
        columns=("applied_at_ms",),
    )


@pytest.mark.parametrize(
    ("lacking", "at_ms", "oldest_ms", "is_told"),
    [
        # The table begins after the key: what was there is not known.
        (INBOX, OLD_MS, OLD_MS + SKEW_MS + 1, True),
        (OUTBOX, OLD_MS, OLD_MS + SKEW_MS + 1, True),
        # Rows of that age are there: this one was never written, which is for the judge.
        (INBOX, OLD_MS, OLD_MS + SKEW_MS, False),
        (OUTBOX, OLD_MS, OLD_MS - 1, False),
        # Everything was deleted, or nothing was ever there.
        (INBOX, OLD_MS, None, True),
        (OUTBOX, OLD_MS, None, True),
        # Nothing deletes rows as young as these, so they were never written: by a consumer that only says that it
        # consumed, or for a key that was announced before the service's first message.
        (INBOX, NOW_MS - KEPT_AT_LEAST_MS, None, False),
        (INBOX, NOW_MS - KEPT_AT_LEAST_MS, NOW_MS, False),
        (OUTBOX, NOW_MS - KEPT_AT_LEAST_MS, None, False),
        (OUTBOX, NOW_MS - KEPT_AT_LEAST_MS, NOW_MS, False),
        (OUTBOX, NOW_MS - KEPT_AT_LEAST_MS - SKEW_MS - 1, NOW_MS, True),
    ],
)
def test_only_a_table_without_any_row_of_that_age_is_missing_evidence(
    lacking: Lacking, at_ms: int, oldest_ms: int | None, *, is_told: bool
) -> None:
    lines = missing_evidence(
        {lacking: at_ms}, [(age(lacking), oldest_ms)], skew_bound_ms=SKEW_MS, collected_at_ms=NOW_MS
    )
    assert bool(lines) is is_told
    assert all(line.startswith("missing evidence: --inbox ORDERS/billing") for line in lines)


def test_the_earliest_key_of_all_pieces_decides() -> None:
    assert earliest([{INBOX: 5}, {INBOX: 3, OUTBOX: 9}, {}]) == {INBOX: 3, OUTBOX: 9}


@pytest.mark.spark  # with the audit's other long tests
@pytest.mark.parametrize("purged", ["outbox", "inbox"])
def test_a_day_whose_rows_were_deleted_since_gives_no_answer_and_accuses_nobody(
    sqlite: Databases, tmp_path: Path, purged: str
) -> None:
    """The sweeper takes what is settled, databases.md lets inbox rows go; the history is kept for longer."""
    url, table = (sqlite.outbox_url, tables.outbox) if purged == "outbox" else (sqlite.inbox_url, tables.inbox)
    middle_ms = sum(sqlite.asked["window"].values()) // 2
    with disposed(sa.create_engine(url)) as engine, engine.begin() as connection:
        if purged == "outbox":
            settled = table.c.created_at_ms < middle_ms  # whatever state the generated row has
            connection.execute(table.delete().where(settled))
        else:
            connection.execute(table.delete().where(table.c.applied_at_ms < middle_ms))
    (tmp_path / "evidence").mkdir()
    request = sqlite.request()
    request = replace(request, collected_at_ms=request.collected_at_ms + 30 * 86_400_000)
    with pytest.raises(AuditError, match=f"missing evidence: --{purged}.*gone from reconciler_{purged}") as refused:
        collect(request, tmp_path / "evidence", one_by_one, quiet)
    assert refused.value.reason == "inputs"
    assert not (tmp_path / "evidence" / "evidence.json").exists()


@pytest.mark.spark  # with the audit's other long tests
def test_without_a_history_settled_rows_tell_that_inbox_rows_were_deleted(sqlite: Databases, tmp_path: Path) -> None:
    """Else every message of that day looked lost."""
    middle_ms = sum(sqlite.asked["window"].values()) // 2
    for url, statement in (
        (sqlite.inbox_url, tables.inbox.delete().where(tables.inbox.c.applied_at_ms < middle_ms)),
        (sqlite.outbox_url, tables.outbox.update().values(state="SETTLED", settled_at_ms=middle_ms)),
    ):
        with disposed(sa.create_engine(url)) as engine, engine.begin() as connection:
            connection.execute(statement)
    request = replace(sqlite.request(), history=None)
    request = replace(request, collected_at_ms=request.collected_at_ms + 30 * 86_400_000)
    (tmp_path / "evidence").mkdir()
    with pytest.raises(AuditError, match=r"missing evidence: --inbox.*gone from reconciler_inbox") as refused:
        collect(request, tmp_path / "evidence", one_by_one, quiet)
    assert refused.value.reason == "inputs"
