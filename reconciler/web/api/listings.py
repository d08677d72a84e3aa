"""GET of what `reconciler list` shows, page by page: rows of the ledger, the newest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reconciler.commands.acts.jobs import find_job, job_document, list_jobs
from reconciler.commands.list import LISTINGS, list_page
from reconciler.contract import tables
from reconciler.contract.schema import Table
from reconciler.contract.tables import CandidateState, JobKind, JobState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvalidValue
from reconciler.telling.ports.paging import LedgerFilter, Position
from reconciler.web.cursors import CURSOR_CHARACTERS_MAX, CURSOR_PATTERN, cursor_of, position_of
from reconciler.web.description import (
    ANYTHING,
    BAD_PARAMETER,
    END_OF_HOLD,
    FACT,
    FACT_OF_HOLD,
    FLAG,
    LINES,
    NAME,
    NUMBER,
    TEXT,
    TIME_MS,
    ApiEndpoint,
    Description,
    Parameter,
    Schema,
    between,
    coded,
    listed,
    nullable,
    of_column,
    one_of,
    record,
    since_and_before,
    values_of,
)
from reconciler.web.exchange import WebRequest, WebResponse, json_response
from reconciler.web.problems import job_of_the_path
from reconciler.web.services import WebServices

LIMIT_MAX, LIMIT_DEFAULT = 1_000, 100
TOPIC = Parameter(name="topic", doc="Only rows of this topic.", schema=NAME)
GROUP = Parameter(name="group", doc="Only rows of this consumer group.", schema=NAME)
KEY = Parameter(name="key", doc="Only rows of this unique key, or of this business id's newest messages.", schema=NAME)
BY = Parameter(name="by", doc="Only what this person did: `ann` finds `web:ann` and `operator ann`, too.", schema=NAME)
PAGED = (
    Parameter(
        name="limit",
        doc="Most rows of a page.",
        schema=between(1, LIMIT_MAX, default=LIMIT_DEFAULT),
    ),
    Parameter(
        name="cursor",
        doc="next_cursor of the page before, with the same filters. Without it the newest rows come.",
        schema={"type": "string", "maxLength": CURSOR_CHARACTERS_MAX, "pattern": CURSOR_PATTERN},
    ),
)
NEXT_CURSOR: Schema = {
    "type": ["string", "null"],
    "description": "For the next page; null: there are no more rows. A page may be short, and even empty, while there "
    "are more: one request looks at a bounded number of rows.",
}
NOTES: Mapping[str, Schema] = {
    "notes": {**LINES, "description": "How the key was understood, and topics or groups that are not configured."},
    "facts": coded("notes"),
}
ANSWERS = {200: "a page", **BAD_PARAMETER, 503: "the ledger is away"}
#: Columns of listings that have another name in their table.
_IN_TABLE = {"group": "consumer_group", "queue": "queue_id", "offset": "queue_offset"}
#: Columns that are made for the listing.
_MADE: Mapping[tuple[str, str], Schema] = {
    ("repairs", "fact"): nullable({**FACT, "description": "What the answer says; null: somebody else's words."}),
    ("rounds", "void"): {**FLAG, "description": "Redis fell back to a memory before it: it counts as never run."},
    ("outages", "left_out"): {**TEXT, "description": "What the scan left out, and why."},
}


def _row(what: str, table: Table) -> Schema:
    columns = {column.name: column for column in table.columns}
    names = LISTINGS[what][0].split()
    return record({name: _MADE.get((what, name)) or of_column(columns[_IN_TABLE.get(name, name)]) for name in names})


def filter_of(what: str, values: Mapping[str, Any]) -> LedgerFilter:
    """The filter that parameters of a listing mean; those of its pages are left out."""
    given = {name: value for name, value in values.items() if name not in ("limit", "cursor", "key")}
    kinds: Mapping[str, tuple[str, Callable[[str], object]]] = {
        "candidates": ("candidate_state", CandidateState),
        "repairs": ("repair_state", RepairState),
        "jobs": ("job_state", JobState),
    }
    if "state" in given:
        name, kind = kinds[what]
        given[name] = kind(given.pop("state"))
    for name, word in (("verdict", Verdict), ("rung", Rung)):
        if name in given:
            given[name] = word(given[name])
    if "has_loss" in given:
        given["is_loss"] = given.pop("has_loss")
    since_ms, before_ms = given.get("since_ms"), given.get("before_ms")
    if since_ms is not None and before_ms is not None and since_ms >= before_ms:
        raise InvalidValue("before_ms", before_ms, f"later than since_ms, which is {since_ms}")
    return LedgerFilter(**given)


def after_of(what: str, values: Mapping[str, Any]) -> Position | None:
    """Where the page begins. Raises InvalidValue."""
    return position_of(what, values["cursor"]) if "cursor" in values else None


def _listing(what: str, table: Table, summary: str, filters: Sequence[Parameter], *, time: str) -> ApiEndpoint:
    parameters = (*filters, *since_and_before(time), *PAGED)

    def show(services: WebServices, request: WebRequest) -> WebResponse:
        values = values_of(parameters, request)
        found = list_page(
            services.connections,
            what,
            only=filter_of(what, values),
            limit=values.get("limit", LIMIT_DEFAULT),
            name=values.get("key"),
            after=after_of(what, values),
        )
        return json_response({"items": found.named(), "next_cursor": cursor_of(what, found.end), **found.told()})

    answer = record({"items": listed(_row(what, table)), "next_cursor": NEXT_CURSOR, **NOTES})
    more = f"The newest first, by `{time}`."
    about = Description(summary=summary, answer=answer, parameters=parameters, statuses=ANSWERS, more=more)
    return ApiEndpoint(handler=show, about=about)


CANDIDATES = _listing(
    "candidates",
    tables.CANDIDATE,
    "Messages that were due and verified, with their verdicts",
    (
        TOPIC,
        GROUP,
        Parameter(name="state", doc="Only rows in this state.", schema=one_of(CandidateState)),
        Parameter(name="verdict", doc="Only rows with this verdict.", schema=one_of(Verdict)),
        Parameter(name="has_loss", doc="true: only rows with a loss_verdict; false: only others.", schema=FLAG),
        KEY,
    ),
    time="first_seen_ms",
)
REPAIRS = _listing(
    "repairs",
    tables.REPAIR,
    "Repairs",
    (
        TOPIC,
        Parameter(name="scope", doc="`*`, or the group of a hand-over.", schema=NAME),
        Parameter(name="state", doc="Only rows in this state.", schema=one_of(RepairState)),
        Parameter(name="rung", doc="Only rows that are repaired in this way.", schema=one_of(Rung)),
        KEY,
    ),
    time="created_at_ms",
)
ROUNDS = _listing("rounds", tables.ROUND, "Rounds that ran", (TOPIC, GROUP), time="stored_at_ms")
QUARANTINE = _listing("quarantine", tables.QUARANTINE, "Announcements that were refused", (), time="seen_at_ms")
OUTAGES = _listing("outages", tables.OUTAGE, "Times without Redis, or without its memory", (), time="started_at_ms")
ACTIONS = _listing(
    "actions", tables.OPERATOR_ACTION, "What people did by hand", (TOPIC, GROUP, BY, KEY), time="started_at_ms"
)

_WHERE = ANSWERS | {200: "all of them"}
_FLOORS = (TOPIC, GROUP)


def _show_floors(services: WebServices, request: WebRequest) -> WebResponse:
    """One a queue, all of them."""
    only = filter_of("floors", values_of(_FLOORS, request))
    found = list_page(services.connections, "floors", only=only, limit=QUEUES_MAX)
    return json_response({"items": found.named(), **found.told()})


#: Floors of one answer: queues of all subscriptions.
QUEUES_MAX = 10_000
FLOORS = ApiEndpoint(
    handler=_show_floors,
    about=Description(
        summary="Where announcements would start again if Redis lost everything",
        answer=record({"items": listed(_row("floors", tables.FLOOR)), **NOTES}),
        parameters=_FLOORS,
        statuses=_WHERE,
    ),
)


def _show_holds(services: WebServices, request: WebRequest) -> WebResponse:
    values_of((), request)
    found = services.connections.ledger.reports.holds(services.settings.environment)
    rows = [
        {name: str(getattr(h, name)) if name == "kind" else getattr(h, name) for name in (*_HOLD, *_SEEN)}
        | {"fact": None if h.reason_fact is None else h.reason_fact.as_dict()}
        for h in found
    ]
    return json_response({"items": rows})


_NOT_SHOWN = ("environment", "fact")
_HOLD = {column.name: of_column(column) for column in tables.HOLD.columns if column.name not in _NOT_SHOWN}
_SEEN = {"until_ms": END_OF_HOLD, "seen": {**TEXT, "description": "It as one word: a lift may carry it."}}
HOLDS = ApiEndpoint(
    handler=_show_holds,
    about=Description(
        summary="Topics whose repairs are stopped, by a person or by the circuit breaker",
        answer=record({"items": listed(record(_HOLD | _SEEN | {"fact": FACT_OF_HOLD}))}),
        statuses=_WHERE,
    ),
)

_JOBS = (
    Parameter(name="state", doc="Only jobs in this state.", schema=one_of(JobState)),
    BY,
    *since_and_before("created_at_ms"),
    *PAGED,
)


def _show_jobs(services: WebServices, request: WebRequest) -> WebResponse:
    values = values_of(_JOBS, request)
    found = list_jobs(
        services.connections,
        only=filter_of("jobs", values),
        limit=values.get("limit", LIMIT_DEFAULT),
        after=after_of("jobs", values),
    )
    return json_response({"items": list(map(job_document, found.rows)), "next_cursor": cursor_of("jobs", found.end)})


JOB: Schema = record(
    {
        "job_id": TEXT,
        "kind": one_of(JobKind),
        "request": {"type": "object", "description": "What was asked for; of named keys their number."},
        "by": TEXT,
        "state": one_of(JobState),
        "done": {**NUMBER, "description": "Repair: keys that are finished. Rebuild: inbox rows."},
        "total": {**nullable(NUMBER), "description": "Repair: keys. null: not known."},
        "counts": {"type": "object", "additionalProperties": NUMBER, "description": "Finished keys by outcome."},
        "lines": {**listed(ANYTHING), "description": "The first keys that did not end well, and why."},
        "error": {**nullable(TEXT), "description": "Why it failed, or what it waits for."},
        "cancelled_by": nullable(TEXT),
        "created_at_ms": TIME_MS,
        "started_at_ms": nullable(TIME_MS),
        "ended_at_ms": nullable(TIME_MS),
    }
)
JOBS = ApiEndpoint(
    handler=_show_jobs,
    about=Description(
        summary="Long actions that people asked for",
        answer=record({"items": listed(JOB), "next_cursor": NEXT_CURSOR}),
        parameters=_JOBS,
        statuses=ANSWERS,
        more="The newest first, by `created_at_ms`.",
    ),
)


JOB_ID = Parameter(
    name="job_id", doc="Id of the job.", schema={"type": "string", "maxLength": 64}, where="path", is_required=True
)


def _show_job(services: WebServices, request: WebRequest) -> WebResponse:
    job_id = values_of((JOB_ID,), request)["job_id"]
    with job_of_the_path():
        job = find_job(services.connections, job_id)
    return json_response({"job": job_document(job)})


ONE_JOB = ApiEndpoint(
    handler=_show_job,
    about=Description(
        summary="One job: its progress, its result, and the first keys that did not end well",
        answer=record({"job": JOB}),
        parameters=(JOB_ID,),
        statuses=ANSWERS | {200: "the job", 404: "no job has this id"},
    ),
)
