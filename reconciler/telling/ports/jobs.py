"""A *job* is a long action that a person asked for: one process at a time works on it, and if that one dies, another
one continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.contract.tables import JobKind, JobState

#: In these states no process works on the job.
ENDED_JOBS = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedJob:
    """A job that a person asks for."""

    #: At most 64 ASCII characters. A repeated id means the same job.
    job_id: str
    kind: JobKind
    #: JSON-ready; each kind has its own form.
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
    #: Claims since the job last made progress.
    attempts: int
    #: Number of finished keys, from the first on; for a rebuild, of inbox rows.
    done: int
    #: None: not known.
    total: int | None
    #: Outcome -> number of finished keys; empty for a rebuild.
    counts: Mapping[str, int]
    #: The first keys that did not end well, JSON-ready.
    lines: Sequence[Mapping[str, object]]
    #: Why it failed, or what it waits for.
    error: str | None
    #: The person who asked to end it early; it ends before its next key.
    cancelled_by: str | None
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job and its work, for its owner."""

    job: Job
    token: str
    #: None: it is not planned yet.
    work: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """What an owner writes under its token. None keeps the stored value."""

    done: int | None = None
    total: int | None = None
    counts: Mapping[str, int] | None = None
    lines: Sequence[Mapping[str, object]] | None = None
    work: Mapping[str, object] | None = None
    #: Why it failed, or what it waits for; None removes the stored text.
    error: str | None = None
    #: One of ENDED_JOBS: the job has ended, and the claim ends.
    ends: JobState | None = None
    #: True: the job has made progress that is not repeated, so earlier deaths of owners do not count any more.
    comes_forward: bool = False
    #: The claim ends, and the job may be claimed after so many seconds, from database time: its owner did not die of
    #: it.
    free_in_seconds: float | None = None


#: After so many owners in a row died during a job, it is FAILED.
ATTEMPTS_MAX = 5
