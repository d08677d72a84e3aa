"""GET /api/v1/audits and /api/v1/audits/NAME: the audits of the folder, and whether their files match the signed
digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from reconciler.errors import InvalidValue
from reconciler.telling.ports.paging import Position
from reconciler.web.api.listings import LIMIT_DEFAULT, NEXT_CURSOR, PAGED
from reconciler.web.audits.check import VERDICTS, AuditCheck, AuditState
from reconciler.web.audits.folder import AuditEntry
from reconciler.web.audits.found import find_audit, shelf_and_look
from reconciler.web.cursors import cursor_of, position_of
from reconciler.web.description import (
    BAD_PARAMETER,
    FLAG,
    LINES,
    NUMBER,
    TEXT,
    TIME_MS,
    ApiEndpoint,
    Description,
    Parameter,
    Schema,
    listed,
    nullable,
    one_of,
    record,
    values_of,
)
from reconciler.web.exchange import WebRequest, WebResponse, json_response
from reconciler.web.services import WebServices

_WHAT = "audits"


def _show_all(services: WebServices, request: WebRequest) -> WebResponse:
    values = values_of(PAGED, request)
    shelf, look = shelf_and_look(services.audits)
    entries = look.entries
    if "cursor" in values:
        after = _name_of(position_of(_WHAT, values["cursor"]))
        entries = [one for one in entries if one.name < after]
    shown = entries[: values.get("limit", LIMIT_DEFAULT)]
    end = (shown[-1].name,) if len(entries) > len(shown) else None
    return json_response(
        {
            "items": [_summary(*one) for one in zip(shown, shelf.checks(shown), strict=True)],
            "next_cursor": cursor_of(_WHAT, end),
            "left_out": look.left_out,
        }
    )


def _name_of(position: Position) -> str:
    match position:
        case (str(name),):
            return name
    raise InvalidValue("cursor", "of another form", "take next_cursor of the answer before as it is")


def _show_one(services: WebServices, request: WebRequest) -> WebResponse:
    name = values_of((_NAME,), request)["name"]
    _, entry, check = find_audit(services.audits, name)
    return json_response({"audit": audit_document(entry, check)})


def _summary(entry: AuditEntry, check: AuditCheck) -> dict[str, Any]:
    return {
        "name": entry.name,
        "verification": check.state,
        "why": check.why,
        "checked_at_ms": check.checked_at_ms,
        "verdict": check.verdict,
        "start_ms": check.start_ms,
        "end_ms": check.end_ms,
        "keys": check.keys,
        "violations": check.violations,
        "signed_by": check.signed_by,
    }


def audit_document(entry: AuditEntry, check: AuditCheck) -> dict[str, Any]:
    """Makes the whole document of one audit."""
    return _summary(entry, check) | {
        "statements": list(map(asdict, check.statements)),
        "more_statements": check.more_statements,
        "differences": list(check.differences),
        "more_differences": check.more_differences,
        "not_checked": list(check.not_checked),
        "files_equal": check.files_equal,
    }


_NAME = Parameter(
    name="name",
    doc="Name of the audit's output in the folder.",
    schema={"type": "string", "maxLength": 255},
    where="path",
    is_required=True,
)
_COUNT: Schema = {**NUMBER, "description": "-1: the statement says none."}
_SUMMARY: Mapping[str, Schema] = {
    "name": {**TEXT, "description": "Name of the output in the folder."},
    "verification": {
        **one_of(AuditState),
        "description": "What `reconciler statement verify` says of this output; `waiting`: it is being verified.",
    },
    "why": {**TEXT, "description": "Why there is no answer; empty where there is one."},
    "checked_at_ms": nullable(TIME_MS),
    "verdict": {
        **nullable(one_of(VERDICTS)),
        "description": "The worst that a statement says. Believe it where `verification` is `verified`.",
    },
    "start_ms": {**nullable(TIME_MS), "description": "Beginning of the window; null: no statement says it."},
    "end_ms": {**nullable(TIME_MS), "description": "Not included."},
    "keys": {**nullable(NUMBER), "description": "Outcomes of all statements."},
    "violations": nullable(NUMBER),
    "signed_by": {**nullable(TEXT), "description": "Fingerprint of web.audits_public_key, where a signature holds."},
}
_STATEMENT: Mapping[str, Schema] = {
    "file": TEXT,
    "environment": TEXT,
    "topic": TEXT,
    "group": TEXT,
    "start": TEXT,
    "end": TEXT,
    "start_ms": _COUNT,
    "end_ms": _COUNT,
    "zone": TEXT,
    "sequence": {**NUMBER, "description": "Its place in the chain of its subscription, from 1."},
    "verdict": TEXT,
    "keys": _COUNT,
    "violations": _COUNT,
    "classes": {"type": "object", "additionalProperties": NUMBER, "description": "Keys by class."},
    "signed_by": {**nullable(TEXT), "description": "Fingerprint that it names; null: it says that it is not signed."},
    "signature_holds": {**FLAG, "description": "web.audits_public_key has signed it."},
    "report_sha256": {**nullable(TEXT), "description": "SHA-256 of report.html, as it was signed."},
}
_DETAILS: Mapping[str, Schema] = {
    "statements": listed(record(_STATEMENT)),
    "more_statements": NUMBER,
    "differences": {**listed(record({"file": TEXT, "row": TEXT, "message": TEXT})), "description": "What was altered."},
    "more_differences": NUMBER,
    "not_checked": {**LINES, "description": "What was not looked at, or cannot be known."},
    "files_equal": {**NUMBER, "description": "Files that are as they were signed."},
}
_ANSWERS = {404: "no folder is set", **BAD_PARAMETER, 503: "the folder or the key cannot be read"}
AUDITS = ApiEndpoint(
    handler=_show_all,
    about=Description(
        summary="Audits of the folder, each verified or not, and why",
        answer=record(
            {
                "items": listed(record(_SUMMARY)),
                "next_cursor": NEXT_CURSOR,
                "left_out": {**NUMBER, "description": "Outputs that are not looked at, since there are more than 400."},
            }
        ),
        parameters=PAGED,
        statuses={200: "a page", **_ANSWERS},
        more="The last by name first. Audits that were not verified yet are verified from now on, one after the other.",
    ),
)
ONE_AUDIT = ApiEndpoint(
    handler=_show_one,
    about=Description(
        summary="One audit: what its statements say, who signed them, and what was altered",
        answer=record({"audit": record({**_SUMMARY, **_DETAILS})}),
        parameters=(_NAME,),
        statuses={200: "the audit", **_ANSWERS, 404: "no audit has this name, or no folder is set"},
    ),
)
