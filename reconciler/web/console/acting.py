"""Forms of the console. A POST does an act once, and leads to the page of the act's result (303).

A form has an idempotency key that was made with its page. A double click, a reload or the way back therefore does
nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from reconciler.errors import InvalidValue
from reconciler.web.acts.act import ActResult, WebAct
from reconciler.web.acts.dismissing import DISMISS
from reconciler.web.acts.incident import ACKNOWLEDGE
from reconciler.web.acts.jobs import REBUILD
from reconciler.web.acts.once import UNDER_WAY, done_once
from reconciler.web.acts.repairing import REPAIR
from reconciler.web.console.offer import CONFIRMED_ABOVE
from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse, last_of, see_other
from reconciler.web.services import Handler, WebServices

KEY_FIELD = "act_key"
#: Field in which a person types the confirmation.
CONFIRMATION_FIELD = "confirmation"
REBUILD_WORD = "rebuild"
_NUMBER = re.compile("[0-9]{1,16}")

Form = Mapping[str, Sequence[str]]
#: Function that adds to a document what only a form says. It can raise WebRefusal and InvalidValue.
Completion = Callable[[Form, dict[str, Any]], None]


def by_form(act: WebAct[Any]) -> Handler:
    """Makes the handler of an act. The handler takes a form, and leads to a page with the result."""
    complete = _COMPLETED.get(act.name)

    def handle(services: WebServices, request: WebRequest) -> WebResponse:
        form = request.form()
        key = last_of(form, KEY_FIELD)
        document = document_of(act, form)
        if complete is not None:
            complete(form, document)
        if document.get("dry_run"):
            key = _key_of_choice(key, document)
        try:
            done = done_once(services, act, request, document, key=key)
        except WebRefusal as refusal:
            if refusal.kind != UNDER_WAY:
                raise
            return see_other(services.prefix + _outcome_path(act, key))  # the outcome's page shows the result later
        if not act.keeps_result:
            return page(services, request, "opened_body.html", opened=done.result.document)
        return see_other(services.prefix + _place_of(act, key, done.result))

    return handle


def document_of(act: WebAct[Any], form: Form) -> dict[str, Any]:
    """Reads the fields of an act from a form, in the types that a program would send. Empty fields are left out."""
    found: dict[str, Any] = {}
    for name, field in act.fields.model_fields.items():
        values = [value for value in form.get(name, ()) if value.strip()]
        if not values:
            continue
        if field.annotation is bool:
            found[name] = values[-1] == "true"
        elif field.annotation in (int, int | None):
            found[name] = int(values[-1]) if _NUMBER.fullmatch(values[-1]) else values[-1]
        elif field.annotation == list[str]:
            found[name] = values
        elif field.annotation == dict[str, str]:  # the form repeats the field, with KEY=VALUE for each key
            found[name] = dict(value.split("=", 1) for value in values if "=" in value)
        else:
            found[name] = values[-1]
    return found


def require_typed_number(form: Form, document: dict[str, Any]) -> None:
    """Requires that the person has typed the number of messages for a repair of many messages. Otherwise raises
    WebRefusal."""
    if document.get("dry_run"):
        return
    named = document.get("seen" if document.get("all") else "keys", ())
    number = str(len(named)) if named or not document.get("all") else last_of(form, "number")
    if not _NUMBER.fullmatch(number):
        raise _not_confirmed("the form does not say how many they are: look at them first")
    if int(number) > CONFIRMED_ABOVE and last_of(form, CONFIRMATION_FIELD).strip() != number:
        raise _not_confirmed(f"type the number {number} to confirm so many")


def require_number_of_all(form: Form, document: dict[str, Any]) -> None:
    """Requires that the person has typed the number of messages for a dismissal of everything that waits. Otherwise
    raises WebRefusal."""
    if document.get("all"):
        require_typed_number(form, document)


def since_and_word(form: Form, document: dict[str, Any]) -> None:
    """Reads the time of a rebuild (UTC), and requires that the person has typed the word. Raises WebRefusal without the
    word. Raises InvalidValue for an invalid time."""
    if last_of(form, CONFIRMATION_FIELD).strip().lower() != REBUILD_WORD:
        raise _not_confirmed(f"type {REBUILD_WORD} to confirm")
    since = last_of(form, "since").strip()
    if since:
        try:
            at = datetime.fromisoformat(since)
        except ValueError:
            raise InvalidValue("since", since[:40], "a time as 2026-11-25T09:30, UTC") from None
        document["since_ms"] = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


#: Name of an act -> function that adds what only the act's form says.
_COMPLETED: Mapping[str, Completion] = {
    REPAIR.name: require_typed_number,
    DISMISS.name: require_number_of_all,
    REBUILD.name: since_and_word,
}


def _key_of_choice(key: str, document: Mapping[str, Any]) -> str:
    """Makes an idempotency key that depends on the choices. A visitor can return from a preview, choose otherwise, and
    send the same form. The key then belongs to another request."""
    chosen = hashlib.sha256(json.dumps(document, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{key}-{chosen[:16]}" if key else ""


def _not_confirmed(detail: str) -> WebRefusal:
    return WebRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"nothing was done: {detail}", kind="not-confirmed")


def _place_of(act: WebAct[Any], key: str, result: ActResult) -> str:
    job = result.document.get("job")
    return f"/jobs/{job['job_id']}" if isinstance(job, dict) else _outcome_path(act, key)


def _outcome_path(act: WebAct[Any], key: str) -> str:
    if act is ACKNOWLEDGE:
        return "/"  # the overview shows the result
    return f"/acts/{act.name}/{quote(key, safe='')}"
