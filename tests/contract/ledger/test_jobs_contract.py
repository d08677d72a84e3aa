"""SqlJobs on every database: one owner at a time, and another one when it dies."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import sqlalchemy as sa

from reconciler.contract.row_rules import TEXT_CHARACTERS
from reconciler.contract.tables import JobKind, JobState
from reconciler.ledger.jobs import SqlJobs
from reconciler.sql.tables import job as job_table
from reconciler.telling.ports.jobs import ATTEMPTS_MAX, ClaimedJob, Job, JobChange, WantedJob
from reconciler.telling.ports.paging import LedgerFilter, Position
from tests.contract.ledger.conftest import DatabaseWorld

_NUMBERS = itertools.count(1)
LEASE_SECONDS = 60.0


def wanted(kind: JobKind = JobKind.REPAIR, **request: object) -> WantedJob:
    return WantedJob(job_id=f"{next(_NUMBERS):032x}", kind=kind, request=request or {"reason": "drill"}, by="anna")


def placed(world: DatabaseWorld, job: WantedJob | None = None) -> Job:
    return world.ledger.jobs.place(world.environment, job or wanted())


def claim(world: DatabaseWorld, token: str = "first") -> ClaimedJob | None:
    return world.ledger.jobs.claim(world.environment, token=token, lease_seconds=LEASE_SECONDS)


def claimed(world: DatabaseWorld, token: str = "first") -> ClaimedJob:
    found = claim(world, token)
    assert found is not None
    return found


def change(world: DatabaseWorld, mine: ClaimedJob, change: JobChange) -> Job | None:
    return world.ledger.jobs.change(mine, change, lease_seconds=LEASE_SECONDS)


def found(world: DatabaseWorld, job: Job) -> Job:
    row = world.ledger.jobs.find(world.environment, job.job_id)
    assert row is not None
    return row


def test_a_request_that_is_placed_twice_is_done_twice(database_world: DatabaseWorld) -> None:
    job = wanted(keys=["A0"])
    first = placed(database_world, job)
    database_world.clock.advance(1)
    assert placed(database_world, replace(job, by="ben", request={})) == first
    assert database_world.ledger.jobs.page(database_world.environment, limit=9).rows == [first]
    assert (first.state, first.done, first.total, first.by, first.request) == (
        *(JobState.QUEUED, 0, None, "anna"),
        {"keys": ["A0"]},
    )


def test_the_oldest_job_is_done_first_and_by_one_owner_only(database_world: DatabaseWorld) -> None:
    first = placed(database_world)
    database_world.clock.advance(1)
    second = placed(database_world, wanted(JobKind.REBUILD))
    mine = claimed(database_world, "one")
    assert (mine.job.job_id, mine.job.state, mine.job.attempts) == (first.job_id, JobState.RUNNING, 1)
    assert mine.job.started_at_ms == database_world.clock.now_ms()
    assert claimed(database_world, "two").job.job_id == second.job_id
    assert claim(database_world, "three") is None
    assert database_world.ledger.jobs.claim("another", token="three", lease_seconds=9) is None


def test_an_owner_whose_lease_was_lost_goes_on_beside_its_heir(database_world: DatabaseWorld) -> None:
    job = placed(database_world)
    old = claimed(database_world, "old")
    assert change(database_world, old, JobChange(work={"keys": [1, 2, 3]}, total=3, done=0)) is not None
    database_world.clock.advance(LEASE_SECONDS)
    assert claim(database_world, "heir") is None, "a lease holds to its last millisecond"
    database_world.clock.advance(0.001)
    heir = claimed(database_world, "heir")
    assert heir.work == {"keys": [1, 2, 3]}
    assert change(database_world, old, JobChange(done=2)) is None
    assert change(database_world, old, JobChange(ends=JobState.DONE)) is None
    assert found(database_world, job) == heir.job


def test_a_heartbeat_keeps_the_job_and_what_is_written(database_world: DatabaseWorld) -> None:
    job = placed(database_world)
    mine = claimed(database_world)
    line = {"unique_key": "A0", "outcome": "failed", "reason": "‮ \x00 refused"}
    change(database_world, mine, JobChange(done=2, total=4, counts={"sent": 1, "failed": 1}, lines=[line]))
    for _ in range(3):
        database_world.clock.advance(LEASE_SECONDS)
        assert change(database_world, mine, JobChange()) is not None
    assert claim(database_world, "another") is None
    kept = found(database_world, job)
    assert (kept.done, kept.total, kept.counts, kept.lines) == (2, 4, {"sent": 1, "failed": 1}, [line])


def test_a_dead_owner_of_a_clock_that_was_set_back_keeps_its_job_until_that_time_is_there_again(
    database_world: DatabaseWorld,
) -> None:
    job = placed(database_world)
    dead = claimed(database_world)
    database_world.clock.step_wall(-3_600)
    assert claim(database_world, "heir") is None
    database_world.clock.advance(LEASE_SECONDS - 1)
    assert claim(database_world, "heir") is None
    database_world.clock.advance(1)
    assert claimed(database_world, "heir").job.job_id == job.job_id
    assert change(database_world, dead, JobChange()) is None
    assert claim(database_world, "third") is None


def test_a_job_that_every_owner_dies_of_is_claimed_for_ever(database_world: DatabaseWorld) -> None:
    job = placed(database_world)
    for number in range(ATTEMPTS_MAX):
        assert claimed(database_world, str(number)).job.attempts == number + 1
        database_world.clock.advance(LEASE_SECONDS + 1)
    assert claim(database_world) is None
    ended = found(database_world, job)
    assert (ended.state, ended.ended_at_ms, ended.token) == (JobState.FAILED, database_world.clock.now_ms(), None)
    assert f"{ATTEMPTS_MAX} processes in a row died" in (ended.error or "")


def test_a_job_that_comes_forward_is_given_up_for_the_restarts_of_its_owners(database_world: DatabaseWorld) -> None:
    placed(database_world)
    for number in range(3 * ATTEMPTS_MAX):
        mine = claimed(database_world, str(number))
        change(database_world, mine, JobChange(done=number + 1, comes_forward=True))
        database_world.clock.advance(LEASE_SECONDS + 1)
    assert claimed(database_world).job.done == 3 * ATTEMPTS_MAX


def test_a_job_that_waits_is_free_after_its_time_and_told_why(database_world: DatabaseWorld) -> None:
    job = placed(database_world)
    for _ in range(2 * ATTEMPTS_MAX):  # nobody died
        mine = claimed(database_world)
        waiting = change(database_world, mine, JobChange(error="redis is away", free_in_seconds=5.0))
        assert waiting is not None
        assert (waiting.state, waiting.error, waiting.token) == (JobState.RUNNING, "redis is away", None)
        assert claim(database_world) is None
        database_world.clock.advance(5.001)
    again = claimed(database_world)
    assert change(database_world, again, JobChange(ends=JobState.DONE)) is not None
    assert found(database_world, job).error is None


@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_has_ended_is_done_again_or_cancelled(database_world: DatabaseWorld, state: JobState) -> None:
    job = placed(database_world)
    mine = claimed(database_world)
    ended = change(database_world, mine, JobChange(ends=state, error="x" * (TEXT_CHARACTERS + 1)))
    assert ended is not None
    assert (ended.state, ended.ended_at_ms) == (state, database_world.clock.now_ms())
    assert len(ended.error or "") == TEXT_CHARACTERS
    assert change(database_world, mine, JobChange(done=1)) is None
    database_world.clock.advance(2 * LEASE_SECONDS)
    assert claim(database_world) is None
    assert database_world.ledger.jobs.cancel(database_world.environment, job.job_id, by="ben") == ended


def test_a_wish_to_cancel_ends_what_nobody_works_on_and_tells_an_owner(database_world: DatabaseWorld) -> None:
    jobs, environment = database_world.ledger.jobs, database_world.environment
    queued = placed(database_world)
    gone = jobs.cancel(environment, queued.job_id, by="ben")
    assert gone is not None
    assert (gone.state, gone.cancelled_by, gone.ended_at_ms) == (
        *(JobState.CANCELLED, "ben"),
        database_world.clock.now_ms(),
    )
    running = placed(database_world)
    mine = claimed(database_world)
    wished = jobs.cancel(environment, running.job_id, by="ben")
    assert wished is not None
    assert (wished.state, wished.cancelled_by) == (JobState.RUNNING, "ben")
    assert jobs.cancel(environment, running.job_id, by="carl") == wished, "the first wish stays"
    told = change(database_world, mine, JobChange(done=1))
    assert told is not None
    assert told.cancelled_by == "ben"
    assert jobs.cancel(environment, "0" * 32, by="ben") is None
    other = placed(database_world)
    assert jobs.cancel("another", other.job_id, by="ben") is None
    assert found(database_world, other) == other


def test_a_wish_that_the_owner_did_not_live_to_see_is_forgotten(database_world: DatabaseWorld) -> None:
    job = placed(database_world)
    claimed(database_world)
    database_world.ledger.jobs.cancel(database_world.environment, job.job_id, by="ben")
    database_world.clock.advance(LEASE_SECONDS + 1)
    following = placed(database_world)
    assert claimed(database_world, "heir").job.job_id == following.job_id
    assert claim(database_world, "heir") is None
    assert found(database_world, job).state is JobState.CANCELLED


def test_a_damaged_job_holds_up_no_other(database_world: DatabaseWorld) -> None:
    damaged, sound = placed(database_world), placed(database_world)
    with database_world.ledger.database.writing() as connection:
        this = sa.update(job_table).where(job_table.c.job_id == damaged.job_id)
        connection.execute(this.values(request="no json"))
    assert claimed(database_world).job.job_id == sound.job_id


def test_a_claimant_that_comes_too_late_for_one_job_gets_the_next(
    database_world: DatabaseWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = placed(database_world), placed(database_world)
    find = SqlJobs.find

    def find_late(self: SqlJobs, environment: str, job_id: str) -> Job | None:
        seen = find(self, environment, job_id)
        monkeypatch.setattr(SqlJobs, "find", find)
        assert claimed(database_world, "quicker").job.job_id == first.job_id
        return seen

    monkeypatch.setattr(SqlJobs, "find", find_late)
    assert claimed(database_world, "late").job.job_id == second.job_id


def test_pages_leave_a_job_out_or_show_it_twice(database_world: DatabaseWorld) -> None:
    jobs, environment = database_world.ledger.jobs, database_world.environment
    ids = []
    for number in range(7):
        ids.append(placed(database_world).job_id)
        database_world.clock.advance(number % 2)  # some at the same time
    jobs.cancel(environment, ids[2], by="ben")
    shown: list[Job] = []
    after: Position | None = None
    while (page := jobs.page(environment, limit=2, after=after)).end is not None:
        shown += page.rows
        after = page.end
    assert [job.job_id for job in (*shown, *page.rows)] == ids[::-1]

    def those(only: LedgerFilter, limit: int = 9) -> list[str]:
        return [job.job_id for job in jobs.page(environment, only=only, limit=limit).rows]

    assert those(LedgerFilter(job_state=JobState.CANCELLED)) == [ids[2]]
    assert those(LedgerFilter(job_state=JobState.QUEUED), limit=2) == ids[:4:-1]
    assert those(LedgerFilter(by="anna")) == ids[::-1]
    assert those(LedgerFilter(by="ben")) == []
