"""GET of the rows that `reconciler list` shows. The rows come from the ledger page by page, and begin with the newest
row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.commands.acts.jobs import find_job, job_document, list_jobs
from reconciler.commands.list import list_page
from reconciler.commands.listings import JOB_FILTERS, LISTINGS, Listing, ListingFilter
from reconciler.contract import tables
from reconciler.errors import InvalidValue
from reconciler.telling.ports.paging import LedgerFilter, Position
from reconciler.web.acts.jobs import JOB
from reconciler.web.cursors import CURSOR_CHARACTERS_MAX, CURSOR_PATTERN, cursor_of, position_of
from reconciler.web.description import (
    BAD_PARAMETER,
    END_OF_HOLD,
    FACT,
    FACT_OF_HOLD,
    FLAG,
    LINES,
    NAME,
    TEXT,
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
PAGED = (
    Parameter(
        name="limit",
        doc="Maximum number of rows of a page.",
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
#: Kind of a value that a listing computes -> schema of the value.
_MADE: Mapping[str, Schema] = {"text": TEXT, "flag": FLAG, "fact": nullable(FACT)}
#: Maximum number of floors in one answer. The answer has a floor for each queue of all subscriptions.
QUEUES_MAX = 10_000


def _row(listing: Listing) -> Schema:
    columns = {column.name: column for column in listing.table.columns}
    return record(
        {
            one.name: {**_MADE[one.kind], "description": one.doc}
            if one.doc
            else of_column(columns[one.in_table or one.name])
            for one in listing.columns
        }
    )


def _parameters(filters: Sequence[ListingFilter], *, time: str) -> Sequence[Parameter]:
    """Makes the parameters of a listing. If the listing has no time, all rows are on one page."""
    own = [Parameter(name=one.name, doc=one.doc, schema=_values(one)) for one in filters]
    return [*own, *since_and_before(time), *PAGED] if time else own


def _values(of: ListingFilter) -> Schema:
    return FLAG if of.kind is bool else one_of(of.words) if of.words else NAME


def filter_of(filters: Sequence[ListingFilter], values: Mapping[str, Any]) -> LedgerFilter:
    """Makes the filter from the parameters of a listing. The parameters for pages are left out."""
    given = {name: values[name] for name in ("since_ms", "before_ms") if name in values}
    for one in filters:
        if one.name in values:
            given |= one.meaning(values[one.name])
    since_ms, before_ms = given.get("since_ms"), given.get("before_ms")
    if since_ms is not None and before_ms is not None and since_ms >= before_ms:
        raise InvalidValue("before_ms", before_ms, f"later than since_ms, which is {since_ms}")
    return LedgerFilter(**given)


def after_of(what: str, values: Mapping[str, Any]) -> Position | None:
    """Returns the position after which the page begins. Raises InvalidValue for an invalid cursor."""
    return position_of(what, values["cursor"]) if "cursor" in values else None


def _endpoint(listing: Listing) -> ApiEndpoint:
    what, time = listing.name, listing.time
    parameters = _parameters(listing.filters, time=time)

    def show(services: WebServices, request: WebRequest) -> WebResponse:
        values = values_of(parameters, request)
        found = list_page(
            services.connections,
            what,
            only=filter_of(listing.filters, values),
            limit=values.get("limit", LIMIT_DEFAULT) if time else QUEUES_MAX,
            name=values.get("key"),
            after=after_of(what, values),
        )
        further = {"next_cursor": cursor_of(what, found.end)} if time else {}
        return json_response({"items": found.named(), **further, **found.told()})

    answer = record({"items": listed(_row(listing)), **({"next_cursor": NEXT_CURSOR} if time else {}), **NOTES})
    about = Description(
        summary=listing.summary,
        answer=answer,
        parameters=parameters,
        statuses=ANSWERS if time else _WHERE,
        more=f"The newest first, by `{time}`." if time else "",
    )
    return ApiEndpoint(handler=show, about=about)


_WHERE = ANSWERS | {200: "all of them"}
ENDPOINTS: Mapping[str, ApiEndpoint] = {name: _endpoint(listing) for name, listing in LISTINGS.items()}


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
_SEEN = {"until_ms": END_OF_HOLD, "seen": {**TEXT, "description": "A word for the hold as it is: a lift may carry it."}}
HOLDS = ApiEndpoint(
    handler=_show_holds,
    about=Description(
        summary="Topics whose repairs are stopped, by a person or by the circuit breaker",
        answer=record({"items": listed(record(_HOLD | _SEEN | {"fact": FACT_OF_HOLD}))}),
        statuses=_WHERE,
    ),
)

_JOBS = _parameters(JOB_FILTERS, time="created_at_ms")


def _show_jobs(services: WebServices, request: WebRequest) -> WebResponse:
    values = values_of(_JOBS, request)
    found = list_jobs(
        services.connections,
        only=filter_of(JOB_FILTERS, values),
        limit=values.get("limit", LIMIT_DEFAULT),
        after=after_of("jobs", values),
    )
    return json_response({"items": list(map(job_document, found.rows)), "next_cursor": cursor_of("jobs", found.end)})


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
