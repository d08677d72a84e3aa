"""The page of an act's result. Only the act's visitor sees it, for a day. Later only the list of actions shows the
act."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from http import HTTPStatus

from reconciler.telling.ports.idempotency import KeyUse
from reconciler.web.acts.act import name_on_record
from reconciler.web.acts.every import TOLD
from reconciler.web.acts.once import RETRY_AFTER_SECONDS, kept_key, outcome_unknown, require_key
from reconciler.web.console.names import keys_to_name
from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.services import WebServices


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows the result that is kept under the visitor's idempotency key. Raises WebRefusal if nothing is kept."""
    act, key = TOLD.get(request.parts["act"]), request.parts["key"]
    if act is None:
        raise WebRefusal(HTTPStatus.NOT_FOUND, "there is no such act")
    require_key(key)
    by = name_on_record(request.visitor)
    kept = services.connections.ledger.idempotency_keys.find(
        services.settings.environment, by=by, key=kept_key(act, key)
    )
    if kept is None:
        told = "what came of it is kept for a day, for who did it; the list of actions has it for longer"
        raise WebRefusal(HTTPStatus.NOT_FOUND, told)
    if kept.use is KeyUse.UNDER_WAY:
        answer = page(services, request, "under_way.html")
        return replace(answer, headers={**answer.headers, "Refresh": str(RETRY_AFTER_SECONDS)})
    if kept.status >= HTTPStatus.BAD_REQUEST:
        raise outcome_unknown()
    found = json.loads(kept.answer)
    lines = found.get("keys", ())
    outcomes = Counter(line["outcome"] or "none" for line in lines)
    named = keys_to_name(lines)
    return page(services, request, "outcome.html", act=act.name, found=found, named=named, outcomes=outcomes, by=by)
