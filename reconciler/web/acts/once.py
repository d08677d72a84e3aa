"""Does a request once, even if it is sent twice. A double click, a reload, or a client that got no answer sends it
twice."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from reconciler.commands.acts.jobs import job_id_of
from reconciler.errors import DatabaseAway, ReconcilerError, TransientError
from reconciler.telling.ports.idempotency import KeyAnswer, KeyedRequest, KeyUse
from reconciler.web.acts.act import ActFields, ActRequest, ActResult, WebAct, name_on_record
from reconciler.web.exchange import WebRefusal, WebRequest
from reconciler.web.services import WebServices

logger = logging.getLogger(__name__)

#: Header of the idempotency key. A form of the console sends the key in a field.
KEY_HEADER = "Idempotency-Key"
#: The RFC draft draft-ietf-httpapi-idempotency-key-header leaves the length to the server.
KEY_CHARACTERS_MAX = 255
#: Longest time without an answer before a request counts as dead. The slowest act, which repairs some keys, takes less.
LEASE_SECONDS = 120.0
#: Pause before a client asks again for a running request.
RETRY_AFTER_SECONDS = 2
#: Status of a request whose outcome is unknown. No act answers with it.
_UNKNOWN = HTTPStatus.CONFLICT
#: Field that 0.2.0 lacks -> its default value.
_SINCE_0_2_0: Mapping[str, object] = {"seen": {}, "by": "ladder", "cancel": False, "failed": False, "digest": None}
#: Act -> fields that 0.2.0 lacks in this act, but has in another act. The value of a field is its default.
_OF_ACT: Mapping[str, Mapping[str, object]] = {"dismiss": {"all": False, "verdict": None}}
#: Kind of the refusal while the first request with this key has no answer yet.
UNDER_WAY = "under-way"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneAct:
    """An act that was done, with its result."""

    result: ActResult
    #: True: the act was done before, and this is its result.
    is_replayed: bool = False


def done_once(
    services: WebServices, act: WebAct[Any], request: WebRequest, document: Mapping[str, object], *, key: str
) -> DoneAct:
    """Does an act under an idempotency key, or returns the kept result of the first time. Results are kept for a day.

    A refusal frees the key, because the act did nothing, or can be done again without harm. Raises what the act raises.
    Raises WebRefusal if another request used the key, if the first request still runs, or if its outcome is unknown.
    """
    require_key(key)
    fields = act.read(document)
    keyed = keyed_request(act, request, fields, key=key)
    environment = services.settings.environment
    asked = ActRequest(request=request, job_id=job_id_of(environment, keyed.by, keyed.key))
    found = services.connections.ledger.idempotency_keys.begin(environment, keyed, lease_seconds=LEASE_SECONDS)
    match found.use:
        case KeyUse.OTHER_REQUEST:
            told = "this idempotency key was used for another request: make a new one for each"
            raise WebRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, told, kind="key-of-another-request")
        case KeyUse.UNDER_WAY:
            headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            raise WebRefusal(HTTPStatus.CONFLICT, "this request is under way", kind=UNDER_WAY, headers=headers)
        case KeyUse.ANSWERED if found.status == _UNKNOWN:
            raise outcome_unknown()
        case KeyUse.ANSWERED if act.keeps_result:
            kept = ActResult(document=json.loads(found.answer), status=HTTPStatus(found.status))
            return DoneAct(result=kept, is_replayed=True)
        case KeyUse.ANSWERED:
            return DoneAct(result=act.do(services, asked, fields), is_replayed=True)
    if found.is_again and not act.is_harmless_again:
        raise outcome_unknown()
    return _first(services, act, asked, fields, keyed, found)


def outcome_unknown() -> WebRefusal:
    """Makes the refusal for a request that broke off and could do harm if it were done again."""
    return WebRefusal(
        _UNKNOWN,
        "this request broke off, and it may have been done: look at the actions of the last minutes, and ask again "
        "with a new key if it was not",
        kind="outcome-unknown",
    )


def require_key(key: str) -> None:
    """Raises WebRefusal for an unusable key."""
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX or not all("!" <= character <= "~" for character in key):
        characters = f"1 to {KEY_CHARACTERS_MAX} visible ASCII characters, such as a UUID"
        told = f"the header {KEY_HEADER} is needed: {characters}, new for each request"
        raise WebRefusal(HTTPStatus.BAD_REQUEST, told, kind="idempotency-key-needed")


def keyed_request(act: WebAct[Any], request: WebRequest, fields: ActFields, *, key: str) -> KeyedRequest:
    """Makes the form of a request that is kept: the key of a visitor and an act, and a digest of the request."""
    named = fields.model_dump(mode="json")
    # Unset fields that an earlier release lacks are left out. So a request that the earlier release began stays the
    # same request.
    for name, default in (*_SINCE_0_2_0.items(), *_OF_ACT.get(act.name, {}).items()):
        if name in named and named[name] == default:
            del named[name]
    asked = json.dumps([request.path, named], sort_keys=True)
    return KeyedRequest(
        by=name_on_record(request.visitor),
        key=kept_key(act, key),
        digest=hashlib.sha256(asked.encode("utf-8", "surrogatepass")).digest(),
    )


def kept_key(act: WebAct[Any], key: str) -> str:
    """Returns the key for the ledger. Its length is the same for every client's key."""
    return f"{act.name}:{hashlib.sha256(key.encode()).hexdigest()}"


def _first(
    services: WebServices, act: WebAct[Any], asked: ActRequest, fields: ActFields, keyed: KeyedRequest, found: KeyAnswer
) -> DoneAct:
    environment, keys = services.settings.environment, services.connections.ledger.idempotency_keys
    try:
        result = act.do(services, asked, fields)
    except (WebRefusal, ReconcilerError) as error:
        # The unreachable dependency may have done its work: the answer to a COMMIT can be lost.
        may_be_done = isinstance(error, TransientError) and not act.is_harmless_again
        with suppress(DatabaseAway):  # the ledger forgets the key later
            if may_be_done:
                keys.answer(environment, keyed, token=found.token, status=_UNKNOWN, answer="{}")
            else:
                keys.forget(environment, keyed, token=found.token)
        raise
    services.status.outdate()
    text = json.dumps(result.document, default=str)
    try:
        kept = text if act.keeps_result else ""
        keys.answer(environment, keyed, token=found.token, status=result.status.value, answer=kept)
    except DatabaseAway as error:  # the act is done, so its caller gets the result
        logger.warning("act_result_not_kept", extra={"act": act.name, "by": asked.by, "error": str(error)})
    return DoneAct(result=ActResult(document=json.loads(text), status=result.status))
