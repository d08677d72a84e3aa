"""A value that cannot be read in any column of the ledger stops no other row, and no reader."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.contract.schema import Column, Table
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import (
    LEDGER_TABLES,
    CandidateState,
    HoldKind,
    JobKind,
    JobState,
    NoticeKind,
    RepairState,
    Rung,
)
from reconciler.contract.verdicts import Verdict
from reconciler.errors import MalformedInput
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.commit_query import digest_of
from reconciler.policy.ports.announcing import AnnouncementQueue, RefusedAnnouncement
from reconciler.policy.ports.ledger import NotedHalf, VerdictEntry
from reconciler.policy.ports.rounds import RoundCounts, RoundDone
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from reconciler.telling.ports.actions import Intent
from reconciler.telling.ports.idempotency import KeyedRequest, KeyUse
from reconciler.telling.ports.jobs import JobChange, WantedJob
from tests.unit.damage.values import cases, damage

BAD, GOOD = f"{1:032X}", f"{2:032X}"
SUBSCRIPTION = Subscription(environment="test", topic="ORDERS", group="billing")
SHARD = Shard(subscription=SUBSCRIPTION, number=0)
QUEUE = AnnouncementQueue(unique_key_topic="UNIQUE", broker="broker-a", queue_id=0)

#: Whose row it is: a row of another environment, topic or key is not this one's, and nobody could know.
PLACE = ("environment", "topic", "consumer_group", "scope", "unique_key", "unique_key_topic", "action_id", "job_id")
WITHOUT: dict[str, tuple[str, ...]] = {table.name: PLACE for table in LEDGER_TABLES}
WITHOUT["reconciler_idempotency_key"] = (*PLACE, "by", "idempotency_key")
WITHOUT["reconciler_notice"] = (*PLACE, "notifier")
#: Rows are counted by these, nobody reads them, and the next look writes them again.
WITHOUT["reconciler_candidate"] = (*PLACE, "undecided_by", "undecided_since_ms")
POSTS = {name: KeyedRequest(by="me", key=name, digest=bytes(32)) for name in (BAD, GOOD)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with two rows of each kind, made once: hundreds of tests damage a copy of it."""
    path = tmp_path_factory.mktemp("filled") / "ledger.db"
    engine = open_engine(f"sqlite:///{path}")
    ledger_metadata.create_all(engine)
    fill(SqlLedger(engine))
    engine.dispose()
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path))


@pytest.fixture
def ledger(path: Path) -> Iterator[SqlLedger]:
    engine = open_engine(f"sqlite:///{path}")
    yield SqlLedger(engine)
    engine.dispose()


def entry(key: str, verdict: Verdict, state: CandidateState = CandidateState.OPEN) -> VerdictEntry:
    return VerdictEntry(
        unique_key=key, verdict=verdict, evidence={"a": 1}, first_seen_ms=5, state=state, wait_seconds=0.0
    )


def use_environment(ledger: SqlLedger) -> None:
    """A use ends after half a minute, and these tests take longer than that."""
    ledger.environment_uses.renew("test", frozenset({"cluster/broker-a at 127.0.0.1:10911"}), by="me")


def fill(ledger: SqlLedger) -> None:
    """Two rows of each kind, of which one is to be damaged."""
    ledger.rounds.begin(SUBSCRIPTION, at_ms=5)
    ledger.candidates.record(SHARD, [entry(key, Verdict.LOST_CONFIRM) for key in (BAD, GOOD)])
    ledger.repairs.open_all("test", "ORDERS", {BAD: Rung.END, GOOD: Rung.END})
    counts = RoundCounts(announced=1, matched=1, pending_before=0, pending_added=0, pending_matched=0, pending_after=0)
    for generation in (1, 2):
        ledger.rounds.store(
            RoundDone(shard=SHARD, epoch="test:e", generation=generation, at_ms=generation, offsets={}, counts=counts)
        )
    ledger.rounds.raise_floor(SUBSCRIPTION, {"broker-a/0": 5, "broker-b/0": 5})
    ledger.outages.open("test", reason="AWAY", noticed_by="me")
    ledger.holds.place("test", "ORDERS", HoldKind.HOLD, by="me", reason="why")
    ledger.holds.place("test", "OTHERS", HoldKind.HOLD, by="me", reason="why")
    ledger.brokers.note("test", "ORDERS", ["broker-a", "broker-b"], keep_seconds=60)
    ledger.halves.note("test", "ORDERS", HALVES)
    use_environment(ledger)
    for offset in (1, 2):
        refused = RefusedAnnouncement(queue=QUEUE, queue_offset=offset, reason="SHAPE", detail="d", body=b"b")
        ledger.announcements.quarantine("test", [refused])
    for _ in range(2):
        ledger.actions.begin(
            "test", Intent(by="me", command="hold", topic=None, group=None, unique_key=None, detail="")
        )
    for name in ("chat", "on-call"):
        ledger.notices.begin("test", name)
    for name in (BAD, GOOD):
        ledger.jobs.place("test", WantedJob(job_id=name, kind=JobKind.REPAIR, request={}, by="me"))
        first = ledger.idempotency_keys.begin("test", POSTS[name], lease_seconds=60)
        ledger.idempotency_keys.answer("test", POSTS[name], token=first.token, status=200, answer="{}")
    claimed = ledger.jobs.claim("test", token="dead", lease_seconds=-1)
    assert claimed is not None
    assert claimed.job.job_id == BAD
    ledger.jobs.change(claimed, JobChange(work={"keys": []}, counts={"sent": 1}, lines=[{}]), lease_seconds=-1)


#: Of one business key.
HALVES = [
    NotedHalf(unique_key=one, broker="broker-a", key_digest=digest_of("a"), tag_digest=None, stored_at_ms=5)
    for one in (BAD, GOOD)
]

#: Which of the rows of a table is damaged.
ROW = {
    "reconciler_candidate": ("unique_key = ?", (BAD,)),
    "reconciler_repair": ("unique_key = ?", (BAD,)),
    "reconciler_round": ("generation = ?", (2,)),
    "reconciler_subscription": ("topic = ?", ("ORDERS",)),
    "reconciler_half": ("unique_key = ?", (BAD,)),
    "reconciler_floor": ("broker = ?", ("broker-a",)),
    "reconciler_outage": ("1 = 1", ()),
    "reconciler_hold": ("topic = ?", ("ORDERS",)),
    "reconciler_broker": ("broker = ?", ("broker-a",)),
    "reconciler_environment": ("environment = ?", ("test",)),
    "reconciler_quarantine": ("queue_offset = ?", (1,)),
    "reconciler_operator_action": ("rowid = ?", (1,)),
    "reconciler_job": ("job_id = ?", (BAD,)),
    "reconciler_idempotency_key": ("idempotency_key = ?", (BAD,)),
    "reconciler_notice": ("notifier = ?", ("on-call",)),
}


@pytest.mark.unmeasured
@pytest.mark.parametrize(("table", "column", "value"), cases(*LEDGER_TABLES, without=WITHOUT))
def test_a_damaged_ledger_row_stops_no_reader(
    path: Path, ledger: SqlLedger, table: Table, column: Column, value: Any
) -> None:
    where, arguments = ROW[table.name]
    use_environment(ledger)
    damage(path, table, column, value, where=where, arguments=arguments)
    # What rounds do. The damaged candidate is looked at: as an open row, or because its key is pending.
    read = ledger.candidates.of_keys(SUBSCRIPTION, [BAD, GOOD])
    assert read[GOOD].damage is None
    due = ledger.candidates.open_due(SUBSCRIPTION, shards={0}, limit=10)
    assert GOOD in {row.unique_key for row in due}
    assert GOOD in {row.unique_key for row in ledger.candidates.open_losses(SUBSCRIPTION, limit=10)}
    if table.name == "reconciler_candidate":
        assert (read[BAD].damage or "").startswith(f"reconciler_candidate.{column.name} ")
        assert not (read[BAD].state is not CandidateState.OPEN and column.name == "state")
    claimable = ledger.repairs.claimable("test", "ORDERS", scope="*", limit=10)
    assert GOOD in {row.unique_key for row in claimable}
    assert ledger.repairs.claim(next(r for r in claimable if r.unique_key == GOOD), token="t", lease_seconds=9)
    repairs = ledger.repairs.of_keys("test", "ORDERS", [BAD, GOOD])
    if column.name == "message":  # read for the one row that is handed over
        with pytest.raises(MalformedInput):
            ledger.repairs.message_of(repairs[BAD][0])
    elif column.name == "answer_fact":  # the text beside it says all
        assert (repairs[BAD][0].state, repairs[BAD][0].answer_fact) == (RepairState.OPEN, None)
    elif table.name == "reconciler_repair":
        assert repairs[BAD][0].state is RepairState.FAILED
        assert f"reconciler_repair.{column.name} " in (repairs[BAD][0].answer or "")
        assert BAD not in {row.unique_key for row in claimable}
    last = ledger.rounds.last(SHARD)
    assert last is not None
    assert last.generation in (1, 2)
    is_since = (table.name, column.name) == ("reconciler_subscription", "since_ms")
    assert ledger.rounds.since_ms(SUBSCRIPTION) == (0 if is_since else 5)
    assert ledger.reports.last_rounds(SUBSCRIPTION)[0].done.shard == SHARD
    ledger.rounds.raise_floor(SUBSCRIPTION, {"broker-a/0": 9, "broker-b/0": 9})
    if column.name not in ("broker", "queue_id"):
        seen = ledger.announcements.floor(SUBSCRIPTION, QUEUE)
        assert seen is not None
        assert seen.queue_offset == 9
    assert {"ORDERS", "OTHERS"} == set(ledger.holds.active("test"))
    assert "broker-b" in ledger.brokers.note("test", "ORDERS", ["broker-b"], keep_seconds=60)
    assert "broker-b" in ledger.brokers.note("test", "ORDERS", ["broker-b"], keep_seconds=60)
    assert ledger.halves.note("test", "ORDERS", HALVES)
    shared = ledger.halves.of_keys("test", "ORDERS", [digest_of("a")])
    if shared is not None:  # None where a row cannot be read: whether it is of the key is not known
        assert {GOOD, BAD} >= {one.unique_key for one in shared[digest_of("a")]} >= {GOOD}
    use = ledger.environment_uses.current("test")
    assert (use is not None and bool(use.brokers)) == (table.name != "reconciler_environment" or column.name == "by")
    outage = ledger.outages.current("test")
    if outage is not None:
        ledger.outages.advance(outage, scan_position={"complete": True, "rounds": True}, scanned=1)
        again = ledger.outages.current("test")
        assert again is not None
        assert again.is_scanned
        ledger.outages.finish(again)
    assert ledger.outages.current("test") is None
    is_damaged = table.name == "reconciler_job" and column.name != "work"  # what is to be done is asked for again
    if is_damaged:
        shown = ledger.jobs.find("test", BAD)
        assert shown is not None
        assert shown.state is JobState.FAILED
        assert f"reconciler_job.{column.name} " in (shown.error or "")
    claimed = [ledger.jobs.claim("test", token=token, lease_seconds=60) for token in ("a", "b")]
    assert [one.job.job_id for one in claimed if one is not None] == ([GOOD] if is_damaged else [BAD, GOOD])
    assert ledger.idempotency_keys.begin("test", POSTS[GOOD], lease_seconds=60).use is KeyUse.ANSWERED
    posted_again = ledger.idempotency_keys.begin("test", POSTS[BAD], lease_seconds=60)
    assert posted_again.use is not KeyUse.FIRST, "what may have been done is not done again"
    told = {one.notifier: one for one in ledger.notices.conversations("test")}
    assert told["chat"].kind is NoticeKind.OUTAGE
    if table.name == "reconciler_notice" and column.name != "kind":  # the next message is written all the same
        conversation = told.get("on-call") or replace(told["chat"], notifier="on-call", version=0)
        assert ledger.notices.write(conversation)
        assert {one.notifier for one in ledger.notices.conversations("test")} == {"chat", "on-call"}
    assert not ledger.notices.standing("test", [])
    losses = ((NoticeKind.LOSS_PROVED, "ORDERS", "billing"), 1)
    assert ledger.notices.past("test", [losses])[losses].count in (1, 2)
    show_all(ledger)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [case for case in cases(*LEDGER_TABLES, without=WITHOUT) if case.values[0].name == "reconciler_candidate"],
)
def test_the_next_verdict_mends_a_damaged_candidate(
    path: Path, ledger: SqlLedger, table: Table, column: Column, value: Any
) -> None:
    damage(path, table, column, value, where="unique_key = ?", arguments=(BAD,))
    ledger.candidates.record(SHARD, [entry(BAD, Verdict.LOST_CONFIRM)])
    mended = ledger.candidates.of_keys(SUBSCRIPTION, [BAD])[BAD]
    assert (mended.damage, mended.state, mended.loss_verdict) == (None, CandidateState.OPEN, Verdict.LOST_CONFIRM)
    assert mended.first_seen_ms == 5
    assert mended.attempts >= 1
    ledger.candidates.record(SHARD, [entry(BAD, Verdict.CONSUMED, CandidateState.SETTLED)])
    assert ledger.candidates.of_keys(SUBSCRIPTION, [BAD])[BAD].state is CandidateState.SETTLED


def show_all(ledger: SqlLedger) -> None:
    """What status, list and explain read."""
    reports = ledger.reports
    assert reports.candidates("test", limit=10).rows
    assert reports.repairs("test", limit=10).rows
    assert sum(count.count for count in reports.verdict_counts("test")) == 2
    assert sum(count.count for count in reports.repair_counts("test")) == 2
    for key in (BAD, GOOD):
        assert reports.life("test", key).candidates
    assert reports.last_rounds_of([SUBSCRIPTION]) == {SUBSCRIPTION: reports.last_rounds(SUBSCRIPTION)}
    assert len(reports.quarantined("test", limit=10).rows) == 2
    assert len(reports.holds("test")) == 2
    assert reports.floors(SUBSCRIPTION)
    assert len(reports.outages("test", limit=10).rows) == 1
    assert len(reports.actions("test", limit=10).rows) == 2
    assert len(ledger.jobs.page("test", limit=10).rows) == 2


def test_any_number_of_damaged_repairs_holds_up_no_sound_one(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    ledger_metadata.create_all(engine)
    ledger = SqlLedger(engine)
    for number in range(30):
        ledger.repairs.open("test", "ORDERS", f"{number:032X}", rung=Rung.END)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE reconciler_repair SET rung = 'ODD' WHERE unique_key < ?", (f"{25:032X}",))
    found = ledger.repairs.claimable("test", "ORDERS", scope="*", limit=3)
    assert [int(row.unique_key, 16) for row in found] == [25, 26, 27]
    engine.dispose()
