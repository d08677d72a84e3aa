"""Several processes and threads at one ledger, in database time: each row has exactly one owner, no write is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.contract.earlier_words import BEGINS_DISMISSED
from reconciler.contract.facts import Fact
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, JobKind, RepairState, Rung
from reconciler.contract.verdicts import QUARANTINING, Verdict
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.ledger.holds import SqlHolds
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import RepairChange
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata, operator_action, outage, repair, round_row
from reconciler.telling.ports.actions import Intent
from reconciler.telling.ports.jobs import WantedJob
from tests.contract.ledger.rows import entry, key, message, round_done, shard, subscription
from tests.engines import disposed, make_tables
from tests.forks import fork_server
from tests.polling import eventually

ROWS = 120
#: SQLite lets nobody have its turn: who loses a race again and again waits for long on a busy machine.
LOCK_SECONDS = 60.0
ENVIRONMENT = "races"

pytestmark = pytest.mark.pooled("nightly")


@pytest.fixture
def url(database_url: str) -> str:
    """A fresh ledger in database time."""
    make_tables(database_url, ledger_metadata)
    return database_url


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    with disposed(open_engine(url, pool_size=8, lock_timeout_seconds=LOCK_SECONDS)) as engine:
        yield SqlLedger(engine)


def _claim_all(url: str, token: str, start: object, results: object) -> None:
    """In a process of its own: claims all it can and reports the keys."""
    engine = open_engine(url, lock_timeout_seconds=LOCK_SECONDS)
    repairs = SqlLedger(engine).repairs
    rows = repairs.claimable(ENVIRONMENT, "ORDERS", scope=EVERY_GROUP, limit=ROWS)
    start.wait(60)  # type: ignore[attr-defined]  # a multiprocessing barrier
    mine = [row.unique_key for row in rows if repairs.claim(row, token=token, lease_seconds=60) is not None]
    engine.dispose()
    results.put((token, len(rows), mine))  # type: ignore[attr-defined]  # a multiprocessing queue


def test_of_two_processes_exactly_one_claims_each_row(url: str, ledger: SqlLedger) -> None:
    for number in range(ROWS):
        ledger.repairs.open(ENVIRONMENT, "ORDERS", key(number), rung=Rung.END)
    context = fork_server()
    start, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_claim_all, args=(url, token, start, results)) for token in ("first", "second")]
    for process in processes:
        process.start()
    answers = [results.get(timeout=90) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert [seen for _, seen, _ in answers] == [ROWS, ROWS], "both saw every row"
    claimed = [unique_key for _, _, mine in answers for unique_key in mine]
    assert sorted(claimed) == [key(number) for number in range(ROWS)]
    owners = {unique_key: token for token, _, mine in answers for unique_key in mine}
    rows = ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", claimed)
    assert {one: rows[one][0].token for one in claimed} == owners


def _together(count: int, work: Callable[[int], object]) -> list[object]:
    barrier = threading.Barrier(count)

    def one(number: int) -> object:
        barrier.wait(60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_owners_whose_batches_overlap_neither_share_a_row_nor_wait_for_each_other_for_ever(ledger: SqlLedger) -> None:
    repairs = ledger.repairs
    repairs.open_all(ENVIRONMENT, "ORDERS", {key(number): Rung.END for number in range(ROWS)})
    rows = repairs.claimable(ENVIRONMENT, "ORDERS", scope=EVERY_GROUP, limit=ROWS)
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)

    def work(owner: int) -> list[str]:
        mine: list[str] = []
        ordered = list(rows) if owner % 2 else list(reversed(rows))
        for start in range(0, ROWS, 15):
            batch = [(row, f"{owner}/{row.unique_key}") for row in ordered[start : start + 30]]
            repairs.claim_all(batch, lease_seconds=60)
            changed = repairs.change_all([(row, sending, token) for row, token in batch])
            mine += [row.unique_key for row in changed if row is not None and row.attempts == 1]
        return mine

    sent = [one for mine in _together(4, work) for one in mine]  # type: ignore[attr-defined]  # lists of keys
    assert sorted(sent) == [key(number) for number in range(ROWS)], "each by one owner, none twice"


def test_of_eight_workers_two_do_the_same_job(ledger: SqlLedger) -> None:
    ids = [f"{number:032x}" for number in range(10)]
    for job_id in ids:
        ledger.jobs.place(ENVIRONMENT, WantedJob(job_id=job_id, kind=JobKind.REPAIR, request={}, by="anna"))

    def work(worker: int) -> list[str]:
        mine: list[str] = []
        while claimed := ledger.jobs.claim(ENVIRONMENT, token=f"{worker}/{len(mine)}", lease_seconds=60):
            mine.append(claimed.job.job_id)
        return mine

    done = [one for mine in _together(8, work) for one in mine]  # type: ignore[attr-defined]  # lists of ids
    assert sorted(done) == sorted(set(done)), "each by one owner"
    while claimed := ledger.jobs.claim(ENVIRONMENT, token="last", lease_seconds=60):  # what losers had looked past
        done.append(claimed.job.job_id)
    assert sorted(done) == ids


def test_of_eight_threads_exactly_one_claims_a_row(ledger: SqlLedger) -> None:
    for number in range(15):
        ledger.repairs.open(ENVIRONMENT, "ORDERS", key(number), rung=Rung.END)
        row = ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", [key(number)])[key(number)][0]
        won = _together(
            8,
            lambda n, row=row: ledger.repairs.claim(row, token=str(n), lease_seconds=60),  # type: ignore[misc]
        )
        assert len([one for one in won if one is not None]) == 1


def test_a_lease_that_ended_in_database_time_is_taken_over(ledger: SqlLedger) -> None:
    ledger.repairs.open(ENVIRONMENT, "ORDERS", key(1), rung=Rung.END)
    row = ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", [key(1)])[key(1)][0]
    began = time.monotonic()
    assert ledger.repairs.claim(row, token="dead", lease_seconds=3.0) is not None
    early = ledger.repairs.claim(row, token="early", lease_seconds=3.0)
    assert early is None or time.monotonic() - began >= 3.0, "a busy machine may come late"
    heir = eventually(lambda: ledger.repairs.claim(row, token="heir", lease_seconds=60), within_seconds=60)
    assert heir is not None
    assert heir.lease_until_ms is not None
    change = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
    assert ledger.repairs.change(row, change, token="dead") is None


def test_database_time_is_the_present(ledger: SqlLedger) -> None:
    before = time.time_ns() // 1_000_000
    ledger.repairs.open(ENVIRONMENT, "ORDERS", key(1), rung=Rung.END)
    created = ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", [key(1)])[key(1)][0].created_at_ms
    assert before - 50 <= created <= time.time_ns() // 1_000_000 + 50


def test_verdicts_of_owners_who_write_the_same_keys_at_once_are_all_counted(ledger: SqlLedger) -> None:
    of = shard(ENVIRONMENT)
    batch = [entry(number, Verdict.UNKNOWN) for number in range(40)]

    def record(number: int) -> None:
        mine = list(reversed(batch)) if number % 2 else batch
        for _ in range(5):
            ledger.candidates.record(of, mine)

    _together(4, record)
    rows = ledger.candidates.of_keys(of.subscription, [one.unique_key for one in batch])
    assert {row.attempts for row in rows.values()} == {20}


def test_a_settled_verdict_wins_whoever_writes_last(ledger: SqlLedger) -> None:
    of = shard(ENVIRONMENT)

    def record(number: int) -> None:
        state = CandidateState.SETTLED if number == 0 else CandidateState.OPEN
        for key_number in range(20):
            ledger.candidates.record(of, [entry(key_number, Verdict.UNKNOWN, state)])

    _together(4, record)
    rows = ledger.candidates.of_keys(of.subscription, [key(number) for number in range(20)])
    assert {row.state for row in rows.values()} == {CandidateState.SETTLED}


def test_an_outage_noticed_by_many_at_once_is_closed_for_all(ledger: SqlLedger, url: str) -> None:
    for _ in range(5):
        opened = _together(6, lambda n: ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by=str(n)))
        current = ledger.outages.current(ENVIRONMENT)
        assert current in opened
        assert current is not None
        ledger.outages.finish(current)
        assert ledger.outages.current(ENVIRONMENT) is None


def test_a_hold_placed_by_many_is_placed_once(ledger: SqlLedger) -> None:
    placed = _together(6, lambda n: ledger.holds.place(ENVIRONMENT, "T", HoldKind.BREAKER, by=str(n), reason="r"))
    assert placed.count(True) == 1


def test_a_breaker_that_is_lifted_while_it_is_dated_anew_is_open_afterwards(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, date_anew = ledger.holds, SqlHolds._date_again
    assert holds.place(ENVIRONMENT, "T2", HoldKind.BREAKER, by="one", reason="storm 1")

    def lifted_before(self: SqlHolds, environment: str, topic: str, reason: Fact | str | None = None) -> bool:
        holds.lift(environment, topic, HoldKind.BREAKER)
        return date_anew(self, environment, topic, reason)

    monkeypatch.setattr(SqlHolds, "_date_again", lifted_before)
    assert holds.place(ENVIRONMENT, "T2", HoldKind.BREAKER, by="one", reason="storm 2")
    assert holds.active(ENVIRONMENT)["T2"] == [HoldKind.BREAKER]


def test_rounds_floors_and_refusals_by_many_leave_the_highest(ledger: SqlLedger) -> None:
    of = shard(ENVIRONMENT)

    def work(number: int) -> None:
        for generation in range(1, 12):
            ledger.rounds.store(round_done(of, generation, generation * 1_000))
            ledger.rounds.raise_floor(of.subscription, {"broker-a/3": generation * 10})

    _together(4, work)
    assert [one.queue_offset for one in ledger.reports.floors(of.subscription)] == [110]


# ---- retention


def test_rounds_of_memories_that_redis_has_lost_do_not_stay_for_ever(ledger: SqlLedger) -> None:
    """A Redis without persistence begins an epoch at every restart; each round asks for the newest of every epoch."""
    of, day_ms = shard(ENVIRONMENT), 86_400_000
    epochs = [f"test:{name}" for name in ("c", "a", "b", "d")]
    for days_ago, epoch in zip((4, 3, 2, 0), epochs, strict=True):
        for generation in (1, 2):
            ledger.rounds.store(round_done(of, generation, 1_000 - 10 * days_ago + generation, epoch=epoch))
        with ledger.database.writing() as connection:
            past = sa.update(round_row).where(round_row.c.epoch == epoch)
            connection.execute(past.values(stored_at_ms=round_row.c.stored_at_ms - days_ago * day_ms))
    retention = SqlRetention(ledger.database, keep_days=2.5)
    assert retention.delete_old(ENVIRONMENT).rounds == 4
    assert SqlRetention(ledger.database, keep_days=1).delete_old(ENVIRONMENT).rounds == 2
    with ledger.database.reading() as connection:
        left = connection.execute(sa.select(round_row.c.epoch, round_row.c.generation)).all()
    assert sorted(map(tuple, left)) == [("test:d", 1), ("test:d", 2)]
    last = ledger.rounds.last(of)
    assert last is not None
    assert (last.epoch, last.generation) == ("test:d", 2)


def test_old_finished_rows_go_in_batches_and_unfinished_ones_stay(ledger: SqlLedger) -> None:
    of, day_ms = shard(ENVIRONMENT), 86_400_000
    states = [CandidateState.OPEN, CandidateState.SETTLED, CandidateState.QUARANTINED]
    ledger.candidates.record(of, [entry(n, Verdict.UNKNOWN, states[n % 3]) for n in range(30)])
    for number, state in enumerate([RepairState.SENT, RepairState.DONE, RepairState.FAILED]):
        ledger.hand_overs.insert(ENVIRONMENT, message(number), groups=["billing"])
        row = ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", [key(number)])[key(number)][0]
        assert ledger.repairs.claim(row, token="t", lease_seconds=9) is not None
        ledger.repairs.change(row, RepairChange(state=state, rung=Rung.HAND_OVER), token="t")
    for generation in range(1, 12):
        ledger.rounds.store(round_done(of, generation, generation))
    ledger.rounds.void_after(of, epoch="test:one", generation=10)
    ledger.rounds.store(round_done(shard(ENVIRONMENT, 9), 1, 1))
    ledger.outages.finish(ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="x"))
    ledger.outages.open(ENVIRONMENT, reason="MANUAL", noticed_by="x")
    ledger.actions.begin(ENVIRONMENT, Intent(by="anna", command="hold"))

    young = SqlRetention(ledger.database, keep_days=1).delete_old(ENVIRONMENT)
    assert (young.candidates, young.repairs, young.rounds, young.outages, young.actions) == (0, 0, 0, 0, 0)
    with ledger.database.writing() as connection:
        for table, columns in {
            ledger_metadata.tables["reconciler_candidate"]: ["next_at_ms", "updated_at_ms"],
            repair: ["next_at_ms", "done_at_ms", "created_at_ms"],
            round_row: ["stored_at_ms"],
            outage: ["closed_at_ms"],
            operator_action: ["started_at_ms"],
        }.items():
            connection.execute(sa.update(table).values({name: table.c[name] - 2 * day_ms for name in columns}))

    retention = SqlRetention(ledger.database, keep_days=1, rows_a_transaction=3, transactions_a_call=2)
    first = retention.delete_old(ENVIRONMENT)
    assert (first.candidates, first.has_more) == (6, True)
    other = SqlRetention(ledger.database, keep_days=1).delete_old("elsewhere")
    assert (other.candidates, other.rounds) == (0, 0)
    rest = SqlRetention(ledger.database, keep_days=1).delete_old(ENVIRONMENT)
    assert (first.candidates + rest.candidates, rest.has_more) == (10, False)

    kept = ledger.candidates.of_keys(subscription(ENVIRONMENT), [key(n) for n in range(30)])
    assert {row.state for row in kept.values()} == {CandidateState.OPEN, CandidateState.QUARANTINED}
    assert len(kept) == 20
    repairs = ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", [key(n) for n in range(3)])
    assert {rows[0].state for rows in repairs.values()} == {RepairState.SENT, RepairState.FAILED}
    last = ledger.rounds.last(of)
    assert last is not None
    assert last.generation == 10
    assert ledger.rounds.last(shard(ENVIRONMENT, 9)) is not None
    assert first.actions + rest.actions == 1
    assert first.rounds + rest.rounds == 9, "the newest round stays, and the void one after it"
    assert ledger.outages.current(ENVIRONMENT) is not None


def test_what_a_person_has_dismissed_stays_however_old_it_is(ledger: SqlLedger) -> None:
    verdicts = [Verdict.CONSUMED, Verdict.REJECTED, Verdict.FILTERED, *sorted(QUARANTINING)]
    settled = [entry(n, verdict, CandidateState.SETTLED) for n, verdict in enumerate(verdicts)]
    ledger.candidates.record(shard(ENVIRONMENT), settled)
    for number, answer in enumerate([None, "the effect is there", f"{BEGINS_DISMISSED}anna: refunded"]):
        ledger.repairs.open(ENVIRONMENT, "ORDERS", key(number), rung=Rung.END)
        row = ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", [key(number)])[key(number)][0]
        assert ledger.repairs.claim(row, token="t", lease_seconds=9) is not None
        ledger.repairs.change(row, RepairChange(state=RepairState.DONE, rung=Rung.END, answer=answer), token="t")
    deleted = SqlRetention(ledger.database, keep_days=-1).delete_old(ENVIRONMENT)
    assert (deleted.candidates, deleted.repairs, deleted.has_more) == (3, 2, False)
    kept = ledger.candidates.of_keys(subscription(ENVIRONMENT), [key(n) for n in range(len(verdicts))])
    assert {row.verdict for row in kept.values()} == QUARANTINING
    assert set(ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", [key(n) for n in range(3)])) == {key(2)}


# ---- away, locked, not migrated


def test_a_ledger_without_tables_says_what_to_run(tmp_path: Path) -> None:
    opened = open_engine(f"sqlite:///{tmp_path}/empty.db")
    with disposed(opened) as engine, pytest.raises(ConfigurationError, match="db upgrade"):
        SqlLedger(engine).holds.active(ENVIRONMENT)


def test_a_locked_sqlite_is_away_and_nothing_is_lost(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db", lock_timeout_seconds=0.1)
    ledger_metadata.create_all(engine)
    ledger = SqlLedger(engine)
    with ledger.database.writing():
        with pytest.raises(DatabaseAway):
            ledger.candidates.record(shard(ENVIRONMENT), [entry(1)])
        assert ledger.candidates.of_keys(subscription(ENVIRONMENT), [key(1)]) == {}, "readers are not blocked"
    ledger.candidates.record(shard(ENVIRONMENT), [entry(1)])
    engine.dispose()


@pytest.mark.sql("postgres")
def test_a_postgres_that_is_gone_is_away() -> None:
    engine = open_engine("postgresql://nobody@127.0.0.1:1/nothing")
    ledger = SqlLedger(engine)
    with pytest.raises(DatabaseAway):
        ledger.repairs.open(ENVIRONMENT, "ORDERS", key(1), rung=Rung.END)
    with pytest.raises(DatabaseAway):
        ledger.rounds.last(shard(ENVIRONMENT))
    engine.dispose()
