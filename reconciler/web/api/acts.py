"""POST /api/v1/...: acts of programs, each under an idempotency key that the program makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from http import HTTPStatus
from typing import Any

from reconciler.commands.acts.message_body import FOUND_IN
from reconciler.commands.acts.repair import RepairLine
from reconciler.contract.tables import HoldKind, RepairAct
from reconciler.contract.unique_key import UNIQUE_KEY_PATTERN
from reconciler.policy.open_halves import HalfState
from reconciler.web.acts.act import WebAct
from reconciler.web.acts.bodies import OPEN_BODY, SHOWN_BYTES_MAX
from reconciler.web.acts.brakes import HOLD, LIFT
from reconciler.web.acts.incident import ACKNOWLEDGE
from reconciler.web.acts.jobs import CANCEL, REBUILD
from reconciler.web.acts.once import KEY_CHARACTERS_MAX, KEY_HEADER, done_once
from reconciler.web.acts.repairing import DISMISS, REPAIR
from reconciler.web.api.listings import JOB
from reconciler.web.description import (
    END_OF_HOLD,
    FACT,
    FLAG,
    LINES,
    NUMBER,
    TEXT,
    Description,
    Parameter,
    Schema,
    coded,
    listed,
    nullable,
    one_of,
    record,
)
from reconciler.web.exchange import WebRequest, WebResponse, json_response
from reconciler.web.services import Handler, WebServices

REPLAYED_HEADER = "Idempotency-Replayed"
_PLACE = re.compile(r"\{(\w+)")

_KEY = Parameter(
    name=KEY_HEADER,
    doc="1 to 255 visible ASCII characters, new for each request, for example a UUID. The same request again gets the "
    f"first one's answer, and `{REPLAYED_HEADER}: true`.",
    schema={"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX, "pattern": "^[!-~]+$"},
    where="header",
    is_required=True,
)
#: What stands in the places of paths.
_PLACES: Mapping[str, Schema] = {
    "topic": {"type": "string", "pattern": "^[%|a-zA-Z0-9_-]{1,127}$"},
    "job_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "unique_key": {"type": "string", "pattern": f"^{UNIQUE_KEY_PATTERN}$"},
}
_REFUSED = {
    400: f"{KEY_HEADER} is missing, or the body is no JSON",
    403: "the visitor may not do this",
    409: "the same key is under way (with Retry-After), nobody knows what came of it, or what is needed is not so",
    422: "a field has a value that cannot work, or the key was used for another request",
    503: "a dependency is away: the key is free again, unless this may have been done and is not harmless again",
}
_DONE, _PLACED = {200: "it is done"}, {202: "it is a job, whose address is in Location"}
_OF_JOB = record({"job": JOB})
_EXIT_CODE = {"type": "integer", "description": "That of the command."}
_LINE = record({field.name: TEXT for field in fields(RepairLine)} | {"fact": nullable(FACT)})
_REPORT = record(
    {
        "dry_run": FLAG,
        "keys": listed(_LINE),
        "notes": LINES,
        "facts": coded("notes"),
        "chosen": record(
            {"all": FLAG, "failed": FLAG, "act": one_of(RepairAct)}
            | dict.fromkeys(("topic", "group", "verdict"), nullable(TEXT)),
            optional=("failed",),  # of an answer that 0.2.0 has kept
        ),
        "seen": {"type": "object", "additionalProperties": TEXT},
        "lines": {**NUMBER, "description": "Lines that there would be, had a dry run no bound."},
        "digest": {**TEXT, "description": "Of a dry run: of `seen`, which a repair of all repeats."},
        "exit_code": _EXIT_CODE,
    },
    optional=("digest",),
)
_KINDS = listed(one_of(HoldKind))
#: Act -> schema of its answer, and what statuses say that are its own.
_ANSWERS: Mapping[str, tuple[Schema, Mapping[int, str]]] = {
    REPAIR.name: ({"oneOf": [_REPORT, _OF_JOB]}, _DONE | _PLACED),
    DISMISS.name: (
        record(
            {
                "keys": listed(
                    record(
                        dict.fromkeys(("topic", "group", "unique_key", "outcome", "told"), TEXT)
                        | {"fact": nullable(FACT), "now": nullable({"type": "object"})}
                    )
                ),
                "dry_run": FLAG,
                "halves": listed(
                    record(
                        {
                            "topic": TEXT,
                            "unique_key": TEXT,
                            "state": one_of(HalfState),
                            "told": TEXT,
                            "fact": FACT,
                            "until": nullable(TEXT),
                            "can_be_closed": FLAG,
                            "closed": FLAG,
                        }
                    )
                ),
                "seen": {"type": "object", "additionalProperties": TEXT},
                "chosen": record(
                    {"all": FLAG} | dict.fromkeys(("topic", "group", "verdict"), nullable(TEXT)),
                    optional=("all", "verdict"),  # of an answer that 0.2.0 has kept
                ),
                "messages": {**NUMBER, "description": "Of a dry run of all: how many wait."},
                "digest": {**TEXT, "description": "Of a dry run of all: of `seen`, which the act repeats."},
                "left": {**LINES, "description": "Of all: what waits, and was in no preview; the first ones."},
                "left_number": {**NUMBER, "description": "How many these are."},
                "exit_code": _EXIT_CODE,
            },
            optional=("messages", "digest", "left", "left_number"),
        ),
        _DONE,
    ),
    ACKNOWLEDGE.name: (record({"by": TEXT}), _DONE),
    HOLD.name: (record({"topic": TEXT, "held": FLAG, "changed": FLAG, "until_ms": END_OF_HOLD}), _DONE),
    LIFT.name: (record({"topic": TEXT, "held": FLAG, "lifted": _KINDS, "left": _KINDS}), _DONE),
    REBUILD.name: (_OF_JOB, _PLACED),
    CANCEL.name: (_OF_JOB, _DONE | {404: "no job has this id"}),
    OPEN_BODY.name: (
        record(
            {
                "unique_key": TEXT,
                "topic": TEXT,
                "found_in": one_of(FOUND_IN),
                "bytes": {**NUMBER, "description": "Of the whole body."},
                "shown_bytes": {**NUMBER, "description": f"Of it in `body`: {SHOWN_BYTES_MAX} at most."},
                "encoding": {**one_of(("utf-8", "base64")), "description": "How `body` is written."},
                "body": TEXT,
            }
        ),
        _DONE | {404: "no outbox and no broker that answers has the body"},
    ),
}


def description_of(act: WebAct[Any], path: str) -> Description:
    """Of the route of an act."""
    places = (
        Parameter(name=name, doc="Of the path.", schema=_PLACES[name], where="path", is_required=True)
        for name in _PLACE.findall(path)
    )
    answer, statuses = _ANSWERS[act.name]
    return Description(
        summary=act.summary.rstrip("."),
        answer=answer,
        parameters=(*places, _KEY),
        body=_plain(act.fields.model_json_schema()),
        statuses=dict(sorted({**_REFUSED, **statuses}.items())),
        answers_with=tuple(status for status in statuses if status < HTTPStatus.BAD_REQUEST),
        more="[More](console.md#acts).",
    )


def _plain(schema: Any) -> Any:
    """pydantic's, without the titles that repeat names, and with `null` as a type like another."""
    if isinstance(schema, list):
        return list(map(_plain, schema))
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(value) for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    kinds = found.pop("anyOf", None)
    if kinds is None:
        return found
    (one,) = [kind for kind in kinds if kind["type"] != "null"]
    found.pop("default", None)  # null: it may as well be left out
    return {**found, **nullable(one)}


def over_api(act: WebAct[Any]) -> Handler:
    """The handler of an act: a JSON object in, its result out."""

    def handle(services: WebServices, request: WebRequest) -> WebResponse:
        key = request.headers.get(KEY_HEADER.lower(), "")
        done = done_once(services, act, request, request.document(), key=key)
        headers = {REPLAYED_HEADER: "true"} if done.is_replayed else {}
        job = done.result.document.get("job")
        if done.result.status is HTTPStatus.ACCEPTED and isinstance(job, dict):
            headers["Location"] = f"{services.prefix}/api/v1/jobs/{job['job_id']}"
        # What is not kept is a body, of which the act takes the beginning.
        is_whole = not act.keeps_result
        return json_response(done.result.document, status=done.result.status, headers=headers, is_whole=is_whole)

    return handle
