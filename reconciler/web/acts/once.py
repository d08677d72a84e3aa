"""A request that is sent twice is done once: a double click, a reload, a client that got no answer."""

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

#: A form of the console has it as a field.
KEY_HEADER = "Idempotency-Key"
#: RFC draft-ietf-httpapi-idempotency-key-header leaves the length to the server.
KEY_CHARACTERS_MAX = 255
#: A request without an answer for so long counts as dead. The slowest act, repairs of some keys, ends before.
LEASE_SECONDS = 120.0
#: When one that is under way is asked for again.
RETRY_AFTER_SECONDS = 2
#: Status of a request of which nobody knows what came; no act answers with it.
_UNKNOWN = HTTPStatus.CONFLICT
#: Fields of acts that 0.2.0 lacks, and what they are where nobody gives them.
_SINCE_0_2_0: Mapping[str, object] = {"seen": {}, "by": "ladder", "cancel": False, "failed": False, "digest": None}
#: Act -> those that another act of 0.2.0 has.
_OF_ACT: Mapping[str, Mapping[str, object]] = {"dismiss": {"all": False, "verdict": None}}
#: Kind of the refusal of a request whose first one is not answered yet.
UNDER_WAY = "under-way"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneAct:
    """An act and its result."""

    result: ActResult
    #: True: it was done before, and this is what came of it then.
    is_replayed: bool = False


def done_once(
    services: WebServices, act: WebAct[Any], request: WebRequest, document: Mapping[str, object], *, key: str
) -> DoneAct:
    """Does an act under an idempotency key, or gives what was kept of the first time, for a day.

    A refusal frees the key: nothing was done, or what was begun is harmless when it is done again. Raises what the act
    raises, and WebRefusal for a key that is another request's, whose request is under way, or of which nobody knows
    what came.
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
    """Of a request that broke off, and is not harmless when it is done again."""
    return WebRefusal(
        _UNKNOWN,
        "this request broke off, and it may have been done: look at the actions of the last minutes, and ask again "
        "with a new key if it was not",
        kind="outcome-unknown",
    )


def require_key(key: str) -> None:
    """Raises WebRefusal for a key that a client may not use."""
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX or not all("!" <= character <= "~" for character in key):
        characters = f"1 to {KEY_CHARACTERS_MAX} visible ASCII characters, such as a UUID"
        told = f"the header {KEY_HEADER} is needed: {characters}, new for each request"
        raise WebRefusal(HTTPStatus.BAD_REQUEST, told, kind="idempotency-key-needed")


def keyed_request(act: WebAct[Any], request: WebRequest, fields: ActFields, *, key: str) -> KeyedRequest:
    """What is kept of a request: the key of a visitor and an act, and a digest of what was asked."""
    named = fields.model_dump(mode="json")
    # What an earlier release does not know and nobody gave: a request that it began stays the same request.
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
    """As the ledger has it: of one length, whatever the client made."""
    return f"{act.name}:{hashlib.sha256(key.encode()).hexdigest()}"


def _first(
    services: WebServices, act: WebAct[Any], asked: ActRequest, fields: ActFields, keyed: KeyedRequest, found: KeyAnswer
) -> DoneAct:
    environment, keys = services.settings.environment, services.connections.ledger.idempotency_keys
    try:
        result = act.do(services, asked, fields)
    except (WebRefusal, ReconcilerError) as error:
        # A dependency that is away may have done what it was asked for: of a COMMIT the answer can be lost.
        may_be_done = isinstance(error, TransientError) and not act.is_harmless_again
        with suppress(DatabaseAway):  # it runs out
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
    except DatabaseAway as error:  # it is done, and its caller gets the result
        logger.warning("act_result_not_kept", extra={"act": act.name, "by": asked.by, "error": str(error)})
    return DoneAct(result=ActResult(document=json.loads(text), status=result.status))
