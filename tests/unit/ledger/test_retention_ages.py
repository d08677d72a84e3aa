"""A row of the ledger is deleted a millisecond before its time, before it is finished, or never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.contract.earlier_words import BEGINS_DISMISSED
from reconciler.contract.row_rules import GROUP_RENAME, QUERY_ACCEPTANCE, QUERY_WITHDRAWAL
from reconciler.contract.tables import CandidateState, JobState, PostState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.retention import IDEMPOTENCY_KEEP_MS, SqlRetention
from reconciler.sql.tables import (
    candidate,
    half,
    idempotency_key,
    job,
    ledger_metadata,
    operator_action,
    outage,
    quarantine,
    repair,
    round_row,
)
from tests.engines import with_tables

NOW_MS = 200 * 86_400_000
KEEP_DAYS = 90
LIMIT_MS = NOW_MS - KEEP_DAYS * 86_400_000
TIMES_MS = (LIMIT_MS - 1, LIMIT_MS, LIMIT_MS + 1)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with with_tables(f"sqlite:///{tmp_path}/ledger.db", ledger_metadata) as made:
        yield made


def insert(engine: sa.Engine, table: sa.Table, number: int, **values: Any) -> None:
    """A row whose other columns that may not be NULL have any value; texts of the primary key are its number."""
    values["environment"] = "test"
    for column in table.columns:
        if column.name in values or (column.nullable and not column.primary_key):
            continue
        if isinstance(column.type, sa.String):
            values[column.name] = f"{number:032X}"
        else:
            values[column.name] = b"" if isinstance(column.type, sa.LargeBinary) else number
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(**values))


def delete(engine: sa.Engine, *, ahead_ms: int = 0) -> dict[str, int]:
    """What one pass deleted, by table; nothing of another environment. `ahead_ms`: of the host, the ledger's clock."""
    now = sa.literal(NOW_MS + ahead_ms, sa.BigInteger())
    database = LedgerDatabase(engine, now=lambda _: now, clock=ManualClock(NOW_MS))
    assert not SqlRetention(database, keep_days=KEEP_DAYS).delete_old("another").has_more
    deleted = SqlRetention(database, keep_days=KEEP_DAYS).delete_old("test")
    assert not deleted.has_more
    counts = {
        "candidate": deleted.candidates,
        "repair": deleted.repairs,
        "round": deleted.rounds,
        "quarantined": deleted.quarantined,
        "outage": deleted.outages,
        "action": deleted.actions,
        "job": deleted.jobs,
        "idempotency key": deleted.idempotency_keys,
        "half": deleted.halves,
    }
    return {name: count for name, count in counts.items() if count}


def times(engine: sa.Engine, column: sa.Column[Any]) -> list[Any]:
    with engine.begin() as connection:
        return sorted(connection.execute(sa.select(column)).scalars(), key=lambda value: value or 0)


@pytest.mark.parametrize(
    ("table", "name", "column", "others"),
    [
        (
            candidate,
            "candidate",
            "updated_at_ms",
            {"state": CandidateState.SETTLED.value, "verdict": Verdict.CONSUMED.value, "next_at_ms": 0},
        ),
        (
            candidate,
            "candidate",
            "next_at_ms",
            {"state": CandidateState.SETTLED.value, "verdict": Verdict.CONSUMED.value, "updated_at_ms": 0},
        ),
        (repair, "repair", "done_at_ms", {"state": RepairState.DONE.value, "next_at_ms": 0, "answer": "healed"}),
        (repair, "repair", "next_at_ms", {"state": RepairState.DONE.value, "done_at_ms": 0, "answer": None}),
        (quarantine, "quarantined", "seen_at_ms", {}),
        (outage, "outage", "closed_at_ms", {}),
        (operator_action, "action", "started_at_ms", {"command": "repair"}),
        (job, "job", "ended_at_ms", {"state": JobState.FAILED.value, "created_at_ms": 0}),
        (job, "job", "created_at_ms", {"state": JobState.CANCELLED.value, "ended_at_ms": 0}),
    ],
)
def test_a_row_is_deleted_before_its_time_or_kept_behind_it(
    engine: sa.Engine, table: sa.Table, name: str, column: str, others: dict[str, Any]
) -> None:
    for number, at_ms in enumerate(TIMES_MS):
        insert(engine, table, number, **{column: at_ms}, **others)
    assert delete(engine) == {name: 1}
    assert times(engine, table.c[column]) == [LIMIT_MS, LIMIT_MS + 1]


@pytest.mark.parametrize("command", [GROUP_RENAME, QUERY_ACCEPTANCE, QUERY_WITHDRAWAL])
def test_the_rename_of_a_group_and_an_accepted_query_are_known_at_any_age(engine: sa.Engine, command: str) -> None:
    insert(engine, operator_action, 1, started_at_ms=0, command=command)
    insert(engine, operator_action, 2, started_at_ms=0, command="hold")
    assert delete(engine) == {"action": 1}
    assert times(engine, operator_action.c.command) == [command]


def test_a_clock_of_the_ledger_that_jumps_40_days_ahead_deletes_nothing(engine: sa.Engine) -> None:
    settled = {"state": CandidateState.SETTLED.value, "verdict": Verdict.CONSUMED.value, "next_at_ms": 0}
    insert(engine, candidate, 1, updated_at_ms=LIMIT_MS, **settled)
    insert(engine, idempotency_key, 1, created_at_ms=NOW_MS, state=PostState.ANSWERED.value)
    assert delete(engine, ahead_ms=40 * 86_400_000) == {}
    assert delete(engine) == {}
    insert(engine, candidate, 2, updated_at_ms=LIMIT_MS - 1, **settled)
    assert delete(engine, ahead_ms=40 * 86_400_000) == {"candidate": 1}, "what is old by both clocks"


def test_a_request_is_done_again_within_a_day_or_remembered_for_longer(engine: sa.Engine) -> None:
    day_ago_ms = NOW_MS - IDEMPOTENCY_KEEP_MS
    for number, at_ms in enumerate((day_ago_ms - 1, day_ago_ms, day_ago_ms + 1)):
        state = PostState.UNDER_WAY.value if number == 1 else PostState.ANSWERED.value
        insert(engine, idempotency_key, number, created_at_ms=at_ms, state=state)
    assert delete(engine) == {"idempotency key": 1}
    assert times(engine, idempotency_key.c.created_at_ms) == [day_ago_ms, day_ago_ms + 1]


@pytest.mark.parametrize(
    ("table", "values"),
    [
        (candidate, {"state": CandidateState.OPEN.value, "verdict": Verdict.UNKNOWN.value}),
        (candidate, {"state": CandidateState.SETTLED.value, "verdict": Verdict.DELIVERED_NOT_APPLIED.value}),
        (candidate, {"state": CandidateState.QUARANTINED.value, "verdict": Verdict.COLLISION.value}),
        (repair, {"state": RepairState.SENT.value, "answer": None}),
        (repair, {"state": RepairState.FAILED.value, "answer": "refused"}),
        (repair, {"state": RepairState.DONE.value, "answer": f"{BEGINS_DISMISSED}anna: refunded"}),
        (outage, {"closed_at_ms": None}),
        (job, {"state": JobState.QUEUED.value, "created_at_ms": 1, "ended_at_ms": None}),
        (job, {"state": JobState.RUNNING.value, "created_at_ms": 1, "ended_at_ms": None}),
    ],
)
def test_what_is_not_finished_or_was_dismissed_is_forgotten(
    engine: sa.Engine, table: sa.Table, values: dict[str, Any]
) -> None:
    old = {
        name: 1
        for name in ("next_at_ms", "updated_at_ms", "done_at_ms")
        if name in table.columns and name not in values
    }
    insert(engine, table, 1, **old, **values)
    assert delete(engine) == {}


def test_the_round_that_a_shard_goes_on_from_is_deleted(engine: sa.Engine) -> None:
    rounds = [
        (0, "lost", 9, LIMIT_MS - 3, 0),  # of an epoch that has gone
        (0, "e", 1, LIMIT_MS - 2, 0),
        (0, "e", 2, LIMIT_MS, 0),  # old enough in a millisecond
        (0, "e", 3, LIMIT_MS + 1, 0),
        (1, "e", 1, 1, 0),  # the newest of its shard that counts
        (1, "e", 2, 2, 1),  # void: Redis fell back behind it
        (2, "e", 1, 3, 0),  # which of these two epochs is the later one is not known
        (2, "f", 1, 3, 0),
        (3, "e", 1, 4, 0),  # followed by the same epoch alone
        (3, "e", 2, 5, 0),
        (4, "f", 2, 6, 0),
        (4, "e", 1, 7, 0),  # a later memory has smaller numbers
    ]
    for shard, epoch, generation, at_ms, void in rounds:
        of_shard: dict[str, Any] = {"topic": "ORDERS", "consumer_group": "billing", "shard": shard}
        insert(engine, round_row, 0, epoch=epoch, generation=generation, stored_at_ms=at_ms, void=void, **of_shard)
    assert delete(engine) == {"round": 4}
    assert times(engine, round_row.c.stored_at_ms) == [1, 2, 3, 3, 5, 7, LIMIT_MS, LIMIT_MS + 1]


def test_noted_halves_are_deleted_by_the_time_when_they_were_stored(engine: sa.Engine) -> None:
    for number, at_ms in enumerate(TIMES_MS):
        insert(engine, half, number, stored_at_ms=at_ms)
    assert delete(engine) == {"half": 1}
    assert times(engine, half.c.stored_at_ms) == [LIMIT_MS, LIMIT_MS + 1]


def test_a_ledger_without_the_table_of_halves_loses_its_other_old_rows_all_the_same(engine: sa.Engine) -> None:
    insert(engine, operator_action, 1, started_at_ms=0, command="hold")
    half.drop(engine)
    assert delete(engine) == {"action": 1}
