"""Works on jobs one at a time, besides the other work of the process.

A worker holds a lease on its job. When the worker dies, the lease ends, and another worker continues with the first key
that is not finished. The dead worker may have sent this key. The claim on the key's repair prevents a second send.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from reconciler.clock import Clock, Reminders
from reconciler.commands.acts.jobs import RebuildRequest, RepairRequest, damaged_job
from reconciler.commands.acts.rebuild import put_back
from reconciler.commands.acts.repair import (
    REPAIR_KEYS_MAX,
    RepairLine,
    keys_by_subscription,
    keys_changed,
    open_loss_keys,
    repair_key,
)
from reconciler.commands.asking.availability import require_all_dependencies
from reconciler.contract.outcomes import KEY_FAILED, UNHEARD
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import JobKind, JobState
from reconciler.errors import ConfigurationError, ReconcilerError, TransientError, told_error, told_to_operators
from reconciler.ledger.jobs import SqlJobs
from reconciler.policy.keys_by_hand import KeysByHand
from reconciler.policy.plan import TopicPlan
from reconciler.telling.ports.jobs import ClaimedJob, Job, JobChange
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import RoundAssembly

logger = logging.getLogger(__name__)

#: A claim ends after this time without a renewal. Its owner renews the claim three times within this time.
LEASE_SECONDS = 30.0
#: Pause of a worker that has found no job.
LOOK_SECONDS = 1.0
#: Pause before a job is claimed again after a dependency was away.
AGAIN_SECONDS = 10.0
#: A process that ends waits for the current key up to this time.
STOP_SECONDS_MAX = 20.0
#: Maximum number of keys of one job that are stored with the reason of their bad end.
LINES_MAX = 500
_REASON_CHARACTERS = 300


class _Ends(Exception):
    """The work on a job ends before the job is finished."""


class _ClaimLost(_Ends):
    """The claim is lost. Another worker may have the job, so this worker does and writes nothing more."""


class _Cancelled(_Ends):
    """A person asked to end the job."""


class _Stopped(_Ends):
    """The process ends. The next worker continues the job at once."""


@contextmanager
def working_on_jobs(
    connections: Connections,
    *,
    stop: threading.Event | None = None,
    assembly: RoundAssembly | None = None,
    lease_seconds: float = LEASE_SECONDS,
) -> Iterator[None]:
    """Works on jobs on its own thread within the block. The end of the block waits for the current key, up to a limit.

    `stop`: an event that ends the work on jobs, even before the end of the block. `assembly`: the assembly of this
    process, if there is one.
    """
    over = threading.Event()
    worker = JobWorker(
        connections,
        is_over=lambda: over.is_set() or (stop is not None and stop.is_set()),
        assembly=assembly,
        lease_seconds=lease_seconds,
    )

    def run() -> None:
        while not connections.clock.wait(over, worker.work_all()):
            pass

    thread = threading.Thread(target=run, name="jobs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(STOP_SECONDS_MAX)


class JobWorker:
    """Claims jobs and works on them. Used by one thread only. Another thread renews the claim of the current job."""

    def __init__(
        self,
        connections: Connections,
        *,
        is_over: Callable[[], bool],
        assembly: RoundAssembly | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._connections = connections
        self._is_over = is_over
        self._assembly = assembly
        self._lease_seconds = lease_seconds
        self._by_hand: dict[str, KeysByHand] = {}
        self._reminders = Reminders(connections.clock)

    def work_all(self) -> float:
        """Works on all jobs, and returns the pause before the next look. Logs errors, and raises none."""
        try:
            while not self._is_over() and self.work_one():
                pass
        except (TransientError, ConfigurationError) as error:  # the ledger is away, or its tables are missing
            if self._reminders.is_due((type(error), error.remedy)):
                logger.warning("jobs_wait", extra={"error": str(error)})
            return AGAIN_SECONDS
        except Exception:
            logger.exception("jobs_failed")
            return AGAIN_SECONDS
        self._reminders.end()
        return LOOK_SECONDS

    def work_one(self) -> bool:
        """Claims one job, and works on the job until its end or an interruption. Returns False if there is no job.

        Raises DatabaseAway.
        """
        jobs, token = self._connections.ledger.jobs, secrets.token_hex(16)
        asked_at = self._connections.clock.monotonic_seconds()
        claimed = jobs.claim(self._connections.settings.environment, token=token, lease_seconds=self._lease_seconds)
        if claimed is None:
            return False
        about = {"job_id": claimed.job.job_id, "kind": str(claimed.job.kind), "by": claimed.job.by}
        logger.info("job_taken", extra=about | {"done": claimed.job.done})
        claim = _Claim(jobs, claimed, self._connections.clock, is_over=self._is_over, lease_seconds=self._lease_seconds)
        try:
            with claim.kept_alive(since_seconds=asked_at):
                change = self._outcome(claim, about)
                claim.write(change)
        except _ClaimLost:
            logger.warning("job_lost", extra=about)
            return True
        logger.info("job_left", extra=about | {"ends": str(change.ends or "no"), "error": change.error})
        return True

    def _outcome(self, claim: _Claim, about: Mapping[str, str]) -> JobChange:
        """Works on the job, and returns what to write at its end. Raises _ClaimLost."""
        try:
            claim.check()
            if claim.claimed.job.kind is JobKind.REPAIR:
                self._repair(claim)
                return JobChange(ends=JobState.DONE)
            return JobChange(ends=JobState.DONE, done=self._rebuild(claim))
        except _Cancelled:
            return JobChange(ends=JobState.CANCELLED)
        except _Stopped:
            return JobChange(free_in_seconds=0.0)
        except TransientError as error:
            return JobChange(free_in_seconds=AGAIN_SECONDS, error=f"waits: {error}")
        except ReconcilerError as error:
            return JobChange(ends=JobState.FAILED, error=str(error))
        except _ClaimLost:
            raise
        except Exception as error:
            logger.exception("job_failed", extra=about)
            return JobChange(ends=JobState.FAILED, error=f"a bug, see the log: {told_error(error)}")

    # ---- repairs

    def _repair(self, claim: _Claim) -> None:
        job = claim.claimed.job
        request = RepairRequest.of(job.request)
        assembly = self._assembled()
        keys, changed = self._planned(claim, request, assembly)
        plans = {plan.subscription: topic for topic in assembly.plans for plan in topic.subscriptions}
        counts, lines = Counter(job.counts), list(job.lines)
        detail = _detail(job, request.reason)
        for number, (topic, group, key) in enumerate(keys[job.done :], start=job.done + 1):
            claim.check()
            subscription = Subscription(environment=self._connections.settings.environment, topic=topic, group=group)
            line = self._repair_one(
                plans.get(subscription), subscription, key, by=job.by, detail=detail, is_changed=key in changed
            )
            counts[line.outcome or ("well" if line.ended_well else "unknown")] += 1
            is_kept = not line.ended_well and len(lines) < LINES_MAX
            if is_kept:
                lines.append(line.as_dict() | {"reason": line.cells["reason"][:_REASON_CHARACTERS]})
            claim.write(
                JobChange(done=number, counts=dict(counts), lines=lines if is_kept else None, comes_forward=True)
            )

    def _planned(
        self, claim: _Claim, request: RepairRequest, assembly: RoundAssembly
    ) -> tuple[Sequence[tuple[str, str, str]], Collection[str]]:
        """Returns (topic, group, key) of each message, and the set of changed keys. Both were found when the job began.

        A changed key is no longer as the person saw it who asked for the job.
        """
        if claim.claimed.work is not None:
            return _keys_of(claim.claimed.work), _changed_of(claim.claimed.work)
        if claim.claimed.job.total is not None:
            raise damaged_job("what this job has to do")
        require_all_dependencies(self._connections)
        keys: list[tuple[str, str, str]] = []
        find, of = partial(open_loss_keys, self._connections), {"topic": request.topic, "group": request.group}
        found = keys_by_subscription(assembly, request.unique_keys, find=find, **of)
        for _, subscription, of_subscription in found:
            keys += ((subscription.topic, subscription.group, key) for key in of_subscription)
        heard = {key for _, _, key in keys}
        # Unknown keys are in the result, too, with the reason.
        keys += ((request.topic or "", request.group or "", key) for key in request.unique_keys if key not in heard)
        keys = keys[:REPAIR_KEYS_MAX]
        changed = keys_changed(self._connections, request.seen)
        claim.write(JobChange(work={"keys": keys, "changed": sorted(changed)}, total=len(keys)))
        return keys, changed

    def _repair_one(
        self, plan: TopicPlan | None, subscription: Subscription, key: str, *, by: str, detail: str, is_changed: bool
    ) -> RepairLine:
        topic, group = subscription.topic, subscription.group
        failed = RepairLine(topic=topic, group=group, unique_key=key, verdict="", outcome="failed", rung="")
        if plan is None:
            return replace(failed, outcome="unheard", reason=UNHEARD())
        try:
            if plan.topic not in self._by_hand:
                self._by_hand[plan.topic] = self._assembled().keys_by_hand(plan)
            return repair_key(
                self._connections,
                self._by_hand[plan.topic],
                plan,
                subscription,
                key,
                by=by,
                detail=detail,
                is_changed=is_changed,
            )
        except TransientError:
            raise  # the job waits, and later continues with this key
        except Exception as error:  # an error of one key must not stop later keys
            logger.exception("job_key_failed", extra={"topic": topic, "group": group, "unique_key": key})
            return replace(failed, reason=KEY_FAILED(error=told_to_operators(error)))

    # ---- rebuilding

    def _rebuild(self, claim: _Claim) -> int:
        """Returns the number of inbox rows that were put back. If the owner dies, the next owner's scan begins anew.

        A repeated scan is harmless.
        """
        job = claim.claimed.job
        request = RebuildRequest.of(job.request)
        if (
            request.since_ms is None
            and self._connections.ledger.outages.current(self._connections.settings.environment) is None
        ):
            return job.done  # meanwhile the reconciler has scanned the inboxes and closed the outage

        def progress(rows: int) -> None:
            claim.check()
            claim.write(JobChange(done=rows))

        return put_back(
            self._connections,
            since_ms=request.since_ms,
            by=job.by,
            progress=progress,
            reason=_detail(job, request.reason),
            assembly=self._assembled(),
        )

    def _assembled(self) -> RoundAssembly:
        if self._assembly is None:
            self._assembly = RoundAssembly(self._connections)
        return self._assembly


class _Claim:
    """The claim on the current job. Shared by the worker and the thread that renews the claim."""

    def __init__(
        self, jobs: SqlJobs, claimed: ClaimedJob, clock: Clock, *, is_over: Callable[[], bool], lease_seconds: float
    ) -> None:
        self.claimed = claimed
        self._jobs = jobs
        self._clock = clock
        self._is_over = is_over
        self._lease_seconds = lease_seconds
        self._is_cancelled = claimed.job.cancelled_by is not None
        self._is_lost = False
        self._until_seconds = 0.0

    @contextmanager
    def kept_alive(self, *, since_seconds: float) -> Iterator[None]:
        """Renews the lease until the end of the block, three times within the length of the lease.

        `since_seconds`: the monotonic time at which the claim was asked for.
        """
        self._until_seconds = since_seconds + self._lease_seconds
        left = threading.Event()

        def renew() -> None:
            while not self._clock.wait(left, self._lease_seconds / 3) and not self._is_lost:
                with suppress(TransientError, _ClaimLost):  # if the ledger stays away, the claim ends by itself
                    self.write(JobChange())

        thread = threading.Thread(target=renew, name="job-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            left.set()

    def check(self) -> None:
        """Called before each step. Raises _ClaimLost, _Cancelled, _Stopped."""
        if self._is_lost or self._clock.monotonic_seconds() >= self._until_seconds:
            raise _ClaimLost
        if self._is_cancelled:
            raise _Cancelled
        if self._is_over():
            raise _Stopped

    def write(self, change: JobChange) -> None:
        """Writes a change. Raises _ClaimLost, DatabaseAway."""
        asked_at = self._clock.monotonic_seconds()
        job = self._jobs.change(self.claimed, change, lease_seconds=self._lease_seconds)
        if job is None:
            self._is_lost = True
            raise _ClaimLost
        self._until_seconds = asked_at + self._lease_seconds
        self._is_cancelled = self._is_cancelled or job.cancelled_by is not None


def _detail(job: Job, reason: str) -> str:
    """Returns the text in the records of acts that belong to a job."""
    return f"job {job.job_id}, {reason}" if reason else f"job {job.job_id}"


def _changed_of(work: Mapping[str, object]) -> frozenset[str]:
    """Returns the changed keys. Work of an earlier release has none, because that release compared nothing."""
    keys = work.get("changed")
    return frozenset(map(str, keys)) if isinstance(keys, list) else frozenset()


def _keys_of(work: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Returns the keys. Raises MalformedInput for work that no worker can have written."""
    rows = work.get("keys")
    if isinstance(rows, list):
        keys = [(row[0], row[1], row[2]) for row in rows if isinstance(row, list) and list(map(type, row)) == 3 * [str]]
        if len(keys) == len(rows):
            return keys
    raise damaged_job("what this job has to do")
