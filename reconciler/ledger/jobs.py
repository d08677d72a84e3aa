"""reconciler_job: long actions, and the claims on them.

Claims work like those of repairs (reconciler/sql/repair_claims.py). A claim is one conditional UPDATE in database time,
and every later write needs its token. A claim that was dated before the clock was set back counts as ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from reconciler.contract.row_rules import NAME_CHARACTERS, bounded_text, wait_ms
from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import JOB, JobKind, JobState
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.paging import Walk, done_by, equal, within
from reconciler.sql.database_time import asked_once
from reconciler.sql.stranded_leases import StrandedLeases
from reconciler.sql.tables import job as job_table
from reconciler.telling.ports.jobs import ATTEMPTS_MAX, ENDED_JOBS, ClaimedJob, Job, JobChange, WantedJob
from reconciler.telling.ports.paging import EVERY_ROW, LedgerFilter, Page, Position

#: Maximum number of jobs that one claim reads.
LOOKED_AT_MAX = 100
#: All columns except `work`. Only the owner of a claim reads `work`.
_COLUMNS = tuple(column for column in job_table.c if column.name != "work")
#: No process works on a job with a damaged row. The job is shown as FAILED.
_ROWS = RowReader(
    JOB, (column.name for column in _COLUMNS), otherwise={"kind": JobKind.REPAIR, "state": JobState.FAILED}
)
_WORK = RowReader(JOB, ("work",))
_UNFINISHED = sorted(state.value for state in JobState if state not in ENDED_JOBS)


class SqlJobs:
    """The jobs in SQL. All times are database time. Thread-safe. Each write is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._stranded = StrandedLeases(job_table, database.clock)

    def place(self, environment: str, wanted: WantedJob) -> Job:
        """Inserts a QUEUED job and returns it. If a job has this id, returns that job unchanged."""
        row = {
            "job_id": wanted.job_id,
            "environment": environment,
            "kind": wanted.kind.value,
            "request": _json(wanted.request),
            "by": bounded_text(wanted.by, NAME_CHARACTERS),
            "state": JobState.QUEUED.value,
            "attempts": 0,
            "done": 0,
            "created_at_ms": self._database.now(),
        }
        with self._database.writing() as connection:
            self._database.insert_missing(connection, job_table, [row])
            return job_of(connection.execute(_select(environment, wanted.job_id)).one())

    def find(self, environment: str, job_id: str) -> Job | None:
        """Returns the job. None if no job has this id."""
        with self._database.reading() as connection:
            row = connection.execute(_select(environment, job_id)).one_or_none()
        return None if row is None else job_of(row)

    def page(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Job]:
        """Returns a page of jobs, the newest first, paged like the listings of LedgerReports."""
        c = job_table.c
        walk = Walk(
            query=sa.select(*_COLUMNS),
            order=(c.created_at_ms, c.job_id),
            indexed=[*within(c.environment, environment, c.created_at_ms, only), *equal({c.state: only.job_state})],
            sifted=done_by(c.by, only.by),
        )
        with self._database.reading() as connection:
            rows, end = walk.page(connection, limit=limit, after=after)
        return Page(rows=[job_of(row) for row in rows], end=end)

    def cancel(self, environment: str, job_id: str, *, by: str) -> Job | None:
        """Ends a job without an owner. If the job has an owner, writes the wish into the row, where the owner sees it.
        An ended job and an earlier wish stay unchanged. Returns None if no job has this id."""
        c = job_table.c
        unfinished = (c.job_id == job_id) & (c.environment == environment) & c.state.in_(_UNFINISHED)
        wish = sa.update(job_table).where(unfinished, c.cancelled_by.is_(None))
        end = sa.update(job_table).where(unfinished, self._is_free(self._database.now()))
        with self._database.writing() as connection:
            connection.execute(wish.values(cancelled_by=bounded_text(by, NAME_CHARACTERS)))
            connection.execute(end.values(**self._ended(JobState.CANCELLED)))
            row = connection.execute(_select(environment, job_id)).one_or_none()
        return None if row is None else job_of(row)

    def claim(self, environment: str, *, token: str, lease_seconds: float) -> ClaimedJob | None:
        """Claims the oldest job without a living claim and makes it RUNNING. None if no job can be claimed.

        Ends a job as CANCELLED if its owner died before it saw the wish to cancel. Ends a job as FAILED after
        ATTEMPTS_MAX claims in a row whose owners died. Each claim is one conditional UPDATE: if several processes try,
        only one of them changes the row.
        """
        c = job_table.c
        now = asked_once(self._database.now(), self._database.engine.dialect.name)
        is_stranded = self._stranded.among(now, lease_seconds=lease_seconds)
        free = (
            sa.select(
                c.job_id, c.token, c.lease_until_ms, sa.func.coalesce(is_stranded, sa.false()).label("is_stranded")
            )
            .where(c.environment == environment, c.state.in_(_UNFINISHED), self._is_free(now) | is_stranded)
            .order_by(c.created_at_ms, c.job_id)
            .limit(LOOKED_AT_MAX)
        )
        with self._database.reading() as connection:
            rows = connection.execute(free).all()
        for row in rows:  # the first row is usually claimed
            is_free = self._is_free(self._database.now())
            if row.is_stranded:
                if not self._stranded.is_over(row.job_id, row, lease_seconds=lease_seconds):
                    continue
                is_free |= self._stranded.as_seen(row)
            job = self.find(environment, row.job_id)
            if job is None or job.state in ENDED_JOBS:  # the job has ended meanwhile, or is damaged
                continue
            with self._database.writing() as connection:
                taken = connection.execute(
                    sa.update(job_table)
                    .where(
                        c.job_id == job.job_id,
                        c.state == job.state.value,
                        c.attempts == job.attempts,
                        is_free,
                    )
                    .values(**self._taken(job, token=token, lease_seconds=lease_seconds))
                ).rowcount
                if taken != 1:
                    continue
                mine = job_of(connection.execute(_select(environment, job.job_id)).one())
                if mine.token == token:
                    work = connection.execute(sa.select(c.work).where(c.job_id == job.job_id)).one()
                    return ClaimedJob(job=mine, token=token, work=_WORK.parse(work).values["work"])
        return None

    def change(self, claimed: ClaimedJob, change: JobChange, *, lease_seconds: float) -> Job | None:
        """Writes under the token, and starts the lease again. None if the token no longer owns the job: stop at
        once."""
        c = job_table.c
        now = self._database.now()
        values: dict[str, Any] = {"lease_until_ms": now + wait_ms(lease_seconds)}
        if change.free_in_seconds is not None:
            values |= {"token": None, "lease_until_ms": now + wait_ms(change.free_in_seconds)}
        if change.comes_forward or change.free_in_seconds is not None:
            values["attempts"] = 0
        if change.ends is not None:
            values |= self._ended(change.ends)
        plain = {"done": change.done, "total": change.total}
        texts = {"counts": change.counts, "work": change.work}
        values |= {name: value for name, value in plain.items() if value is not None}
        values |= {name: _json(value) for name, value in texts.items() if value is not None}
        if change.lines is not None:
            values["lines"] = _json({"lines": list(change.lines)})
        values["error"] = None if change.error is None else bounded_text(change.error)
        with self._database.writing() as connection:
            update = sa.update(job_table).where(c.job_id == claimed.job.job_id, c.token == claimed.token)
            if connection.execute(update.values(**values)).rowcount != 1:
                return None
            by_id = sa.select(*_COLUMNS).where(c.job_id == claimed.job.job_id)
            return job_of(connection.execute(by_id).one())

    def _taken(self, job: Job, *, token: str, lease_seconds: float) -> dict[str, Any]:
        """Returns the values that a claim writes: its owner, or the end of a job that must not be claimed."""
        if job.cancelled_by is not None:
            return self._ended(JobState.CANCELLED)
        if job.attempts >= ATTEMPTS_MAX:
            died = f"{job.attempts} processes in a row died of it, or could not reach the ledger any more"
            return self._ended(JobState.FAILED) | {"error": f"{died}: look at their logs, then ask for it again"}
        now = self._database.now()
        return {
            "state": JobState.RUNNING.value,
            "token": token,
            "lease_until_ms": now + wait_ms(lease_seconds),
            "attempts": job.attempts + 1,
            "started_at_ms": sa.func.coalesce(job_table.c.started_at_ms, now),
        }

    def _ended(self, state: JobState) -> dict[str, Any]:
        return {"state": state.value, "token": None, "lease_until_ms": None, "ended_at_ms": self._database.now()}

    def _is_free(self, now: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        return job_table.c.lease_until_ms.is_(None) | (job_table.c.lease_until_ms < now)


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(dict(value), separators=(",", ":"))


def _select(environment: str, job_id: str) -> sa.Select[Any]:
    c = job_table.c
    return sa.select(*_COLUMNS).where(c.job_id == job_id, c.environment == environment)


def job_of(row: sa.Row[Any]) -> Job:
    """Returns the job of a row with _COLUMNS. A row with a damaged value is a FAILED job whose error names the
    damage."""
    read = _ROWS.parse(row)
    values = dict(read.values)
    del values["environment"]
    lines = (values["lines"] or {}).get("lines")
    values |= {
        "kind": JobKind(values["kind"]),
        "state": JobState(values["state"]),
        "counts": values["counts"] or {},
        "lines": [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else [],
    }
    if read.damage is not None:
        values |= {"state": JobState.FAILED, "error": f"damaged, delete the row: {read.damage}"}
    return Job(**values)
