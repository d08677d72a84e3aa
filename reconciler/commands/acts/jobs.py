"""People ask for jobs, look at jobs, and cancel jobs. reconciler/commands/acts/job_worker.py works on jobs."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.acts.rebuild import require_past
from reconciler.commands.acts.repair import REPAIR_KEYS_MAX
from reconciler.commands.asking.availability import ask_ledger, require
from reconciler.contract.row_rules import is_storable
from reconciler.contract.tables import JobKind
from reconciler.contract.unique_key import UNIQUE_KEY_SHAPE, is_unique_key
from reconciler.errors import InvalidValue, MalformedInput, UsageError
from reconciler.telling.ports.jobs import ENDED_JOBS, Job, WantedJob
from reconciler.telling.ports.paging import EVERY_ROW, LedgerFilter, Page, Position
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import require_subscription

#: Most left-out keys that a job names.
LEFT_NAMED_MAX = 100
#: Maximum number of characters of a reason.
REASON_CHARACTERS_MAX = 500


def damaged_job(what: str) -> MalformedInput:
    """Returns the error for a part (`what`) of a job's row that this code has not written."""
    return MalformedInput(f"{what} is damaged: ask for it again")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """The request of a REPAIR job. A request without keys means every open loss."""

    unique_keys: tuple[str, ...] = ()
    topic: str | None = None
    group: str | None = None
    reason: str = ""
    #: Unique key -> the word for what the requesting person saw of the key (ports.seen_of).
    seen: Mapping[str, str] = field(default_factory=dict)
    #: Left-out keys, and their number. These keys matched when the person asked for the job, but were in no preview. At
    #: most LEFT_NAMED_MAX keys are named.
    left: tuple[str, ...] = ()
    left_number: int = 0

    @classmethod
    def of(cls, request: Mapping[str, object]) -> RepairRequest:
        """Reads a job's request. Raises MalformedInput."""
        keys = request.get("unique_keys")
        texts = [request.get(name) for name in ("topic", "group")]
        if not isinstance(keys, list) or not all(map(is_unique_key, keys)) or not all(map(_is_name, texts)):
            raise damaged_job("the request of this job")
        topic, group = (text if isinstance(text, str) else None for text in texts)
        seen = request.get("seen")  # missing in a job of an earlier release
        shown = {key: str(word) for key, word in seen.items()} if isinstance(seen, dict) else {}
        left = request.get("left")
        return cls(
            unique_keys=tuple(keys),
            topic=topic,
            group=group,
            reason=str(request.get("reason") or ""),
            seen=shown,
            left=tuple(map(str, left)) if isinstance(left, list) else (),
            left_number=number if type(number := request.get("left_number")) is int else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRequest:
    """The request of a REBUILD job. Without a time, the scan begins at the start of the open outage."""

    since_ms: int | None = None
    reason: str = ""

    @classmethod
    def of(cls, request: Mapping[str, object]) -> RebuildRequest:
        """Reads a job's request. Raises MalformedInput."""
        since_ms = request.get("since_ms")
        if since_ms is not None and type(since_ms) is not int:
            raise damaged_job("the request of this job")
        return cls(since_ms=since_ms, reason=str(request.get("reason") or ""))


def place_repair(
    connections: Connections,
    unique_keys: Sequence[str],
    *,
    topic: str | None,
    group: str | None,
    reason: str,
    by: str,
    job_id: str | None = None,
    seen: Mapping[str, str] | None = None,
    left: Sequence[str] = (),
) -> Job:
    """Asks for the repair of keys. Without keys, the job repairs every loss that is open when the job begins.

    `job_id`: an id of job_id_of(). None: a new job. `seen`: key -> the word for what the person saw of the key. A key
    that has changed when the job begins is left out. `left`: keys that match and were not shown. The job names them.
    Raises InvalidValue, DependencyAway.
    """
    require_subscription(connections.settings, topic, group)
    wanted = tuple(dict.fromkeys(unique_keys))
    if len(wanted) > REPAIR_KEYS_MAX:
        raise InvalidValue("unique_keys", len(wanted), f"at most {REPAIR_KEYS_MAX} keys a job: ask for several")
    for key in wanted:
        if not is_unique_key(key):
            raise InvalidValue("unique_keys", key[:80], f"a unique key has {UNIQUE_KEY_SHAPE}")
    wish = RepairRequest(
        unique_keys=wanted,
        topic=topic,
        group=group,
        reason=_checked(reason),
        seen=seen or {},
        left=tuple(left[:LEFT_NAMED_MAX]),
        left_number=len(left),
    )
    request = asdict(wish)
    if not left:
        del request["left"], request["left_number"]
    return _place(connections, JobKind.REPAIR, request, by=by, job_id=job_id)


def place_rebuild(
    connections: Connections, *, since_ms: int | None, reason: str, by: str, job_id: str | None = None
) -> Job:
    """Asks for a scan of the inboxes into Redis.

    Raises UsageError if there is neither a time nor an outage. Raises InvalidValue for a time in the future, and
    DependencyAway.
    """
    request = RebuildRequest(since_ms=since_ms, reason=_checked(reason))
    require_past(connections, since_ms, field="since_ms")
    require(ask_ledger(connections))
    if since_ms is None and connections.ledger.outages.current(connections.settings.environment) is None:
        raise UsageError("no outage is open: say since when the inboxes are to be scanned")
    return _place(connections, JobKind.REBUILD, asdict(request), by=by, job_id=job_id)


def job_id_of(environment: str, by: str, idempotency_key: str) -> str:
    """Returns the id of the job for a request with an idempotency key. A repeated request gets the same id."""
    parts = "\n".join(f"{len(part)}:{part}" for part in (environment, by, idempotency_key))
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def list_jobs(
    connections: Connections, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
) -> Page[Job]:
    """Returns one page of jobs, filtered by state, user and times. The newest job comes first.

    Raises DependencyAway, InvalidValue.
    """
    return connections.ledger.jobs.page(connections.settings.environment, only=only, limit=limit, after=after)


def find_job(connections: Connections, job_id: str) -> Job:
    """Returns the job. Raises InvalidValue for an unknown id, and DependencyAway."""
    found = connections.ledger.jobs.find(connections.settings.environment, job_id) if is_storable(job_id) else None
    return _found(found, job_id)


def cancel_job(connections: Connections, job_id: str, *, by: str) -> Job:
    """Ends a job before its next key, and records the act. A job that has ended stays as it is.

    Raises what find_job() raises.
    """
    jobs, environment = connections.ledger.jobs, connections.settings.environment
    find_job(connections, job_id)
    with recorded(connections, "cancel", by=by, detail=f"job {job_id}") as outcome:
        job = _found(jobs.cancel(environment, job_id, by=by), job_id)
        outcome.result = str(job.state) if job.state in ENDED_JOBS else "ends before its next key"
    return job


def job_document(job: Job) -> dict[str, Any]:
    """Returns a job as plain data for JSON. The claim is left out. The number of the request's keys is added."""
    document = asdict(job)
    del document["token"], document["lease_until_ms"], document["attempts"]
    keys = document["request"].pop("unique_keys", None)
    document["request"].pop("seen", None)
    if isinstance(keys, list):
        document["request"]["named_keys"] = len(keys)
    return document | {"kind": str(job.kind), "state": str(job.state)}


def _place(connections: Connections, kind: JobKind, request: dict[str, Any], *, by: str, job_id: str | None) -> Job:
    wanted = WantedJob(job_id=job_id or secrets.token_hex(16), kind=kind, request=request, by=by)
    about = {"topic": request.get("topic"), "group": request.get("group")}
    detail = ", ".join(text for text in (f"job {wanted.job_id}", kind.lower(), request["reason"]) if text)
    with recorded(connections, "job", by=by, **about, detail=detail) as outcome:
        job = connections.ledger.jobs.place(connections.settings.environment, wanted)
        outcome.result = str(job.state)
    return job


def _found(job: Job | None, job_id: str) -> Job:
    if job is None:
        raise InvalidValue("job", job_id[:80], "no job has this id: see reconciler jobs list")
    return job


def _checked(reason: str) -> str:
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidValue("reason", f"{reason[:40]}...", f"at most {REASON_CHARACTERS_MAX} characters")
    return reason


def _is_name(value: object) -> bool:
    return value is None or isinstance(value, str)
