"""A *session* connects later requests with a login. Sessions are kept in the memory of the process, and their number is
limited."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from reconciler.clock import Clock
from reconciler.web.access.tokens import digest_of, new_session_id
from reconciler.web.access.users import WebUser

#: Longest pause between two requests of a session.
IDLE_SECONDS_MAX = 3_600.0
#: Longest life of a session after the login, even if it is in use.
SESSION_SECONDS_MAX = 12 * 3_600.0
#: Most sessions. Above this number, the session that was used least recently ends.
SESSIONS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    user: WebUser
    begun_at_seconds: float
    used_at_seconds: float


class Sessions:
    """Sessions by the digest of their id. Threads share this object."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_digest: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, user: WebUser) -> str:
        """Begins a session and returns its id."""
        session_id = new_session_id()
        now = self._clock.monotonic_seconds()
        with self._lock:
            self._by_digest[digest_of(session_id)] = _Session(user=user, begun_at_seconds=now, used_at_seconds=now)
            while len(self._by_digest) > SESSIONS_MAX:
                self._by_digest.popitem(last=False)
        return session_id

    def user_of(self, session_id: str) -> WebUser | None:
        """Returns the user as known at the login, and marks the session as used now. None: the session is unknown or
        has ended."""
        digest = digest_of(session_id)
        now = self._clock.monotonic_seconds()
        with self._lock:
            session = self._by_digest.pop(digest, None)
            if session is None or _has_ended(session, now):
                return None
            self._by_digest[digest] = replace(session, used_at_seconds=now)
            return session.user

    def end(self, session_id: str) -> None:
        """Ends a session. An unknown id changes nothing."""
        with self._lock:
            self._by_digest.pop(digest_of(session_id), None)


def _has_ended(session: _Session, now: float) -> bool:
    is_idle = now - session.used_at_seconds >= IDLE_SECONDS_MAX
    return is_idle or now - session.begun_at_seconds >= SESSION_SECONDS_MAX
