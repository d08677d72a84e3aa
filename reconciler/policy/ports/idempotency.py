"""An *idempotency key* names one request that changes something: the same request again gets the first one's answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


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


class IdempotencyKeys(Protocol):
    """Requests by key, of about a day. All times are database time. Raises DatabaseAway."""

    def begin(self, environment: str, request: KeyedRequest, *, lease_seconds: float) -> KeyAnswer:
        """Notes the request unless its key is there. Raises InvalidValue for a key that cannot be kept as it is.

        One that is under way for longer than its lease counts as dead, and the same request is FIRST again: what is
        done under a key must be harmless when it is done again, as repairs are by their claims and jobs by their ids.
        """
        ...

    def renew(self, environment: str, request: KeyedRequest, *, token: str, lease_seconds: float) -> bool:
        """The lease begins anew. False: another request took the dead one's place."""
        ...

    def find(self, environment: str, *, by: str, key: str) -> KeyAnswer | None:
        """How a key is used: UNDER_WAY or ANSWERED; None: it is not, or not any more, or its row is damaged."""
        ...

    def answer(self, environment: str, request: KeyedRequest, *, token: str, status: int, answer: str) -> bool:
        """Keeps the answer, whose length the caller bounds. False: another request took the dead one's place."""
        ...

    def forget(self, environment: str, request: KeyedRequest, *, token: str) -> None:
        """Frees the key of a request that changed nothing, or nothing that is harmful when it is done again."""
        ...
