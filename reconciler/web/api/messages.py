"""GET /api/v1/messages/NAME and /api/v1/doctor. Each request asks every witness or every dependency."""

from __future__ import annotations

from http import HTTPStatus

from reconciler.commands.doctor.checks import examine
from reconciler.commands.explain import life_stories
from reconciler.errors import DependencyAway
from reconciler.web.description import (
    BAD_PARAMETER,
    FACT,
    FLAG,
    LINES,
    NAME,
    NUMBER,
    TEXT,
    TIME_MS,
    ApiEndpoint,
    Description,
    Parameter,
    coded,
    listed,
    nullable,
    one_of,
    record,
    values_of,
)
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse, json_response
from reconciler.web.few_at_once import asks_everything
from reconciler.web.services import WebServices
from reconciler.words import said

_NAME = Parameter(name="name", doc="Unique key, business id or query key.", schema=NAME, where="path", is_required=True)
_COMMAND = {**TEXT, "description": "A command, with places for the owner's URL and a reason."}
_EVIDENCE = {"type": "object", "description": "Names and values; below `facts` code and fields of its sentences."}
_EVENT = record({"at_ms": TIME_MS, "witness": TEXT, "what": TEXT, "fact": FACT, "evidence": _EVIDENCE})


_STORY = {
    "unique_key": TEXT,
    "seen": {
        **TEXT,
        "description": "A word for its state in the ledger. An act that carries the word skips the message if the "
        "state has changed.",
    },
    "known": FLAG,
    "events": {**listed(_EVENT), "description": "In time order."},
    "silent": {**LINES, "description": "Witnesses that gave no answer: the story may be incomplete."},
    "away": {**LINES, "description": "Dependencies that are away."},
    "outlook": {**LINES, "description": "How far the message is and what comes next, one sentence per subscription."},
    "incomplete": {
        **listed(
            record(
                dict.fromkeys(("topic", "group"), TEXT)
                | dict.fromkeys(("accept", "delete", "accept_all", "delete_all"), _COMMAND)
            )
        ),
        "description": "Effects that may be half. Nothing here may change an inbox: its owner runs a command.",
    },
    "facts": coded("silent", "away", "outlook"),
}
_OF_KEY = _STORY | {
    "notes": LINES,
    "facts": coded("silent", "away", "outlook", "notes"),
}
_OF_BUSINESS_ID = {
    "business_id": TEXT,
    "known": FLAG,
    "messages": {**listed(record(_STORY)), "description": "The newest first."},
    "older": {**NUMBER, "description": "Messages that are not shown."},
    "silent": LINES,
    "away": LINES,
    "notes": LINES,
    "facts": coded("silent", "away", "notes"),
}


@asks_everything
def _explain(services: WebServices, request: WebRequest) -> WebResponse:
    found = life_stories(services.connections, values_of((_NAME,), request)["name"])
    if found.is_known:
        return json_response(found.as_dict())
    if found.away:
        raise DependencyAway("; ".join(map(said, (found.unheard, *found.away))))
    raise WebRefusal(HTTPStatus.NOT_FOUND, said(found.unheard), kind="unknown-message")


MESSAGE = ApiEndpoint(
    handler=_explain,
    about=Description(
        summary="The life of one message, or of each message of a business id, with the evidence",
        answer={"oneOf": [record(_OF_KEY), record(_OF_BUSINESS_ID)]},
        parameters=(_NAME,),
        statuses={
            200: "what is known, also where a witness is away",
            404: "no witness knows it",
            422: "no message can have this name",
            503: "nobody who answered knows it, and somebody is away; or many ask at once",
        },
        more="Asks brokers and databases: it may take seconds.",
    ),
)


@asks_everything
def _doctor(services: WebServices, request: WebRequest) -> WebResponse:
    values_of((), request)
    findings = examine(services.connections)
    healthy = all(one.level != "fail" for one in findings)
    return json_response({"healthy": healthy, "findings": [one.as_dict() for one in findings]})


_FINDING = record(
    {
        "check": TEXT,
        "level": one_of(("ok", "note", "fail")),
        "found": TEXT,
        "remedy": TEXT,
        "facts": record({"check": FACT, "found": FACT, "remedy": nullable(FACT)}),
        "following": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Findings of the same form that follow from this one, and are not in the list.",
        },
    }
)
DOCTOR = ApiEndpoint(
    handler=_doctor,
    about=Description(
        summary="Every dependency and setting, checked now, and what to do about each failure",
        answer=record({"healthy": FLAG, "findings": listed(_FINDING)}),
        statuses={200: "what was found", **BAD_PARAMETER, 503: "many ask at once"},
        more="Asks every dependency: it may take seconds.",
    ),
)
