"""A *job* is a long action that a person asked for: any process that can does it, one at a time, and another goes on
when that one dies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.contract.tables import JobKind, JobState

#: In these states nothing is done any more.
ENDED_JOBS = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedJob:
    """A job that is asked for."""

    #: At most 64 ASCII characters. The same id again is the same job.
    job_id: str
    kind: JobKind
    #: JSON-ready; each kind has its shape.
    request: Mapping[str, object]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A row of reconciler_job, without its work."""

    job_id: str
    kind: JobKind
    request: Mapping[str, object]
    by: str
    state: JobState
    token: str | None
    lease_until_ms: int | None
    #: Claims since the job last came forward.
    attempts: int
    #: Keys that are finished, from the first on; of a rebuild the inbox rows.
    done: int
    #: None: not known.
    total: int | None
    #: Finished keys by outcome; empty for a rebuild.
    counts: Mapping[str, int]
    #: The first keys that did not end well, JSON-ready.
    lines: Sequence[Mapping[str, object]]
    #: Why it failed, or what it waits for.
    error: str | None
    #: Who wished that it ends before its time; it does so before its next key.
    cancelled_by: str | None
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job and what is to be done, for its owner."""

    job: Job
    token: str
    #: None: it was not planned yet.
    work: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """What an owner writes under its token. None keeps what is written."""

    done: int | None = None
    total: int | None = None
    counts: Mapping[str, int] | None = None
    lines: Sequence[Mapping[str, object]] | None = None
    work: Mapping[str, object] | None = None
    #: Why it failed, or what it waits for; None takes back what was written.
    error: str | None = None
    #: One of ENDED_JOBS: it is over, and the claim is given up.
    ends: JobState | None = None
    #: True: what is done now is not done again, so the deaths of earlier owners do not count any more.
    comes_forward: bool = False
    #: The claim is given up, and the job may be taken after this, from database time: its owner did not die of it.
    free_in_seconds: float | None = None


#: Owners in a row that may die of a job before it is FAILED.
ATTEMPTS_MAX = 5
