"""Passwords: what is taken for one, its hash, and the comparison, which takes as long for a user who is not there.

Argon2id with the low-memory parameters of RFC 9106 (4): 3 passes over 64 MiB.
"""

from __future__ import annotations

import threading
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.profiles import RFC_9106_LOW_MEMORY

from reconciler.errors import UsageError

PASSWORD_CHARACTERS_MIN = 12
PASSWORD_CHARACTERS_MAX = 1_000
#: Each takes 64 MiB while it runs.
COMPARISONS_AT_ONCE_MAX = 2
#: A comparison waits this long for its turn.
TURN_SECONDS_MAX = 5.0

_HASHER = PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)


class TooManyComparisons(Exception):
    """Others have the turns; nothing was compared."""


def hashed_password(password: str) -> str:
    """The hash, with its salt and parameters. Raises UsageError for what is no password; its text does not show it."""
    if not PASSWORD_CHARACTERS_MIN <= len(password) <= PASSWORD_CHARACTERS_MAX:
        raise UsageError(f"a password has {PASSWORD_CHARACTERS_MIN} to {PASSWORD_CHARACTERS_MAX} characters")
    return _HASHER.hash(_normal(password))


class PasswordComparison:
    """Shared by the threads of all requests."""

    def __init__(self) -> None:
        #: No password has it: it stands for a user who is not there.
        self._nobodys_hash = _HASHER.hash(b"\xff")
        self._turns = threading.BoundedSemaphore(COMPARISONS_AT_ONCE_MAX)

    def is_right(self, password_hash: str | None, password: str) -> bool:
        """None: there is no such user. Raises TooManyComparisons."""
        if not self._turns.acquire(timeout=TURN_SECONDS_MAX):
            raise TooManyComparisons
        try:
            is_right = _HASHER.verify(password_hash or self._nobodys_hash, _normal(password[:PASSWORD_CHARACTERS_MAX]))
            return is_right and len(password) <= PASSWORD_CHARACTERS_MAX
        except (VerificationError, InvalidHashError):
            return False
        finally:
            self._turns.release()


def _normal(password: str) -> bytes:
    """The same bytes for the same letters, however a keyboard composes them."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
