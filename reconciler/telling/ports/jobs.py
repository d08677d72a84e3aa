"""A *job* is a long act that a person requested. One process at a time works on a job. If that process dies, another
process continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.contract.tables import JobKind, JobState

#: States in which no process works on the job any more.
ENDED_JOBS = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedJob:
    """A job that a person requests."""

    #: At most 64 ASCII characters. Two requests with the same id mean the same job.
    job_id: str
    kind: JobKind
    #: The request, JSON-ready. Each kind of job has its own form of request.
    request: Mapping[str, object]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A row of reconciler_job without the job's work."""

    job_id: str
    kind: JobKind
    request: Mapping[str, object]
    by: str
    state: JobState
    token: str | None
    lease_until_ms: int | None
    #: Number of claims since the job last made progress.
    attempts: int
    #: Number of finished keys, counted from the first key. For a rebuild: of inbox rows.
    done: int
    #: Number of all keys or inbox rows. None: not known.
    total: int | None
    #: Outcome -> number of finished keys. Empty for a rebuild.
    counts: Mapping[str, int]
    #: The first keys that did not end well, JSON-ready.
    lines: Sequence[Mapping[str, object]]
    #: Why the job failed, or why it waits.
    error: str | None
    #: The person who asked to end the job early. The job ends before its next key.
    cancelled_by: str | None
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job and its work, for the owner of the claim."""

    job: Job
    token: str
    #: The planned work. None: the work is not planned yet.
    work: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """The change that an owner writes under its token. None keeps the stored value."""

    done: int | None = None
    total: int | None = None
    counts: Mapping[str, int] | None = None
    lines: Sequence[Mapping[str, object]] | None = None
    work: Mapping[str, object] | None = None
    #: Why the job failed, or why it waits. None removes the stored text.
    error: str | None = None
    #: The state of ENDED_JOBS in which the job ends. The claim ends, too.
    ends: JobState | None = None
    #: True: the job has made lasting progress, so earlier deaths of owners do not count any more.
    comes_forward: bool = False
    #: Number of seconds in database time after which the job may be claimed again. The claim ends at once. This does
    #: not count as a death of the owner.
    free_in_seconds: float | None = None


#: A job is FAILED after this number of owners have died during the job, without progress in between.
ATTEMPTS_MAX = 5
