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
#: Each takes 64 MiB while it runs. From devices that are not known, and from those that are.
COMPARISONS_AT_ONCE_MAX = 2
OF_KNOWN_DEVICES_MAX = 1

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
        self._turns_of_known = threading.BoundedSemaphore(OF_KNOWN_DEVICES_MAX)

    def is_right(self, password_hash: str | None, password: str, *, is_known: bool = False) -> bool:
        """`password_hash`: None: there is no such user. `is_known`: the device is. Waits for no turn.

        Raises TooManyComparisons.
        """
        turns = self._turns_of_known if is_known else self._turns
        if not turns.acquire(blocking=False):  # who waits for a turn keeps a thread from everybody else
            raise TooManyComparisons
        try:
            is_right = _HASHER.verify(password_hash or self._nobodys_hash, _normal(password[:PASSWORD_CHARACTERS_MAX]))
            return is_right and len(password) <= PASSWORD_CHARACTERS_MAX
        except (VerificationError, InvalidHashError):
            return False
        finally:
            turns.release()


def _normal(password: str) -> bytes:
    """The same bytes for the same letters, however a keyboard composes them."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
