"""An *idempotency key* identifies one request that changes something. If the request is repeated, its first answer is
returned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """A request with an idempotency key."""

    by: str
    #: The route, and the client's key or a digest of the key. At most 160 characters (row_rules.NAME_CHARACTERS).
    key: str
    #: SHA-256 of the request's method, path and body.
    digest: bytes


class KeyUse(Enum):
    """The state of a request, by its key."""

    #: The request is the first with this key, or the process of an earlier request has died. Execute the request, then
    #: call `answer`.
    FIRST = "first"
    #: The first request is not answered yet.
    UNDER_WAY = "under way"
    #: The first request is answered. Return this answer.
    ANSWERED = "answered"
    #: The key belongs to another request.
    OTHER_REQUEST = "other request"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAnswer:
    """The use of a key. For ANSWERED, also the status and the answer of the first request."""

    use: KeyUse
    #: The token with which the process may answer. Empty unless the use is FIRST.
    token: str = ""
    #: True if the use is FIRST and a process has died during an earlier try. Nobody knows how far that process came.
    is_again: bool = False
    status: int = 0
    answer: str = ""
