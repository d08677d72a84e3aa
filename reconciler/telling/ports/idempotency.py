"""An *idempotency key* identifies one request that changes something: a repeated request gets the first one's
answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """A request with a key."""

    by: str
    #: At most 160 characters (row_rules.NAME_CHARACTERS): the route, and the client's key or its digest.
    key: str
    #: SHA-256 of the request: method, path and body.
    digest: bytes


class KeyUse(Enum):
    """What a key shows about a request."""

    #: The request is the first one, or the process of the one before died: execute it, then call `answer`.
    FIRST = "first"
    #: The first request is not answered yet.
    UNDER_WAY = "under way"
    #: The first request's answer is returned.
    ANSWERED = "answered"
    #: The key belongs to another request.
    OTHER_REQUEST = "other request"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAnswer:
    """How a key is used; for ANSWERED, status and answer of the first request."""

    use: KeyUse
    #: For FIRST: the token that allows answering.
    token: str = ""
    #: For FIRST: a process died during this request before, and how far it came is unknown.
    is_again: bool = False
    status: int = 0
    answer: str = ""
