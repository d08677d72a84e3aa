"""The act of opening a message. No other part shows a message's body."""

from __future__ import annotations

import base64
from http import HTTPStatus

from pydantic import Field

from reconciler.commands.acts.jobs import REASON_CHARACTERS_MAX
from reconciler.commands.acts.message_body import FOUND_IN, open_body
from reconciler.errors import InvalidValue
from reconciler.web.acts.act import DONE, ActFields, ActRequest, ActResult, WebAct
from reconciler.web.description import NUMBER, TEXT, one_of, record
from reconciler.web.exchange import WebRefusal
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices

#: Maximum number of bytes of a body that are shown, from its beginning.
SHOWN_BYTES_MAX = 64 * 1024


class BodyFields(ActFields):
    """The reason for opening a body. The key is in the path."""

    reason: str = Field(
        min_length=1,
        max_length=REASON_CHARACTERS_MAX,
        description="Why; kept with the name of the person who opened it.",
        json_schema_extra={"pattern": r"\S"},
    )


def _open(services: WebServices, asked: ActRequest, fields: BodyFields) -> ActResult:
    if not fields.reason.strip():
        raise InvalidValue("reason", fields.reason, "say why you open it")
    key = asked.request.parts["unique_key"]
    found = open_body(services.connections, key, reason=fields.reason, by=asked.by)
    if found is None:
        told = "no outbox has kept this message's body, and no broker that answers has a copy"
        raise WebRefusal(HTTPStatus.NOT_FOUND, told, kind="no-body")
    shown = found.body[:SHOWN_BYTES_MAX]
    try:
        text, encoding = shown.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(shown).decode(), "base64"
    document = {
        "unique_key": found.unique_key,
        "topic": found.topic,
        "found_in": found.found_in,
        "bytes": len(found.body),
        "shown_bytes": len(shown),
        "encoding": encoding,
        "body": text,
    }
    return ActResult(document=document)


OPEN_BODY = WebAct(
    name="body",
    path="/messages/{unique_key}/body",
    role=WebRole.OPERATOR,
    summary="Opens the body of a message, the first 64 KiB at most, on record with the reason.",
    fields=BodyFields,
    do=_open,
    answer=record(
        {
            "unique_key": TEXT,
            "topic": TEXT,
            "found_in": one_of(FOUND_IN),
            "bytes": {**NUMBER, "description": "Bytes of the whole body."},
            "shown_bytes": {**NUMBER, "description": f"Bytes of it in `body`: {SHOWN_BYTES_MAX} at most."},
            "encoding": {**one_of(("utf-8", "base64")), "description": "How `body` is written."},
            "body": TEXT,
        }
    ),
    statuses=DONE | {404: "no outbox and no broker that answers has the body"},
    keeps_result=False,
)
