"""An *idempotency key* names one request that changes something: the same request again gets the first one's answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """A request with a key."""

    by: str
    #: At most 160 characters (row_rules.NAME_CHARACTERS): the route, and the client's key or its digest.
    key: str
    #: SHA-256 over what was asked: method, path and body.
    digest: bytes


class KeyUse(Enum):
    """What a key says about a request."""

    #: It is the first one, or the one before died: do it, then `answer`.
    FIRST = "first"
    #: The first one is not answered yet.
    UNDER_WAY = "under way"
    #: Here is the first one's answer.
    ANSWERED = "answered"
    #: The key belongs to another request.
    OTHER_REQUEST = "other request"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAnswer:
    """How a key is used, and for ANSWERED status and answer of the first request."""

    use: KeyUse
    #: FIRST: the right to answer.
    token: str = ""
    #: FIRST: a process died in this request before, and nobody knows how far it was.
    is_again: bool = False
    status: int = 0
    answer: str = ""
