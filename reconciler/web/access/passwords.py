"""Passwords: their limits, their hashes, and a comparison that takes equally long for an unknown user.

The hash is Argon2id with the low-memory parameters of RFC 9106 (4): 3 passes over 64 MiB.
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
#: Maximum number of comparisons at once, for unknown devices and for known devices. Each comparison takes 64 MiB.
COMPARISONS_AT_ONCE_MAX = 2
OF_KNOWN_DEVICES_MAX = 1

_HASHER = PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)


class TooManyComparisons(Exception):
    """The password was not compared, because other comparisons have taken all turns."""


def hashed_password(password: str) -> str:
    """Hashes a password. The result contains salt and parameters. Raises UsageError for an unusable password, without
    showing it."""
    if not PASSWORD_CHARACTERS_MIN <= len(password) <= PASSWORD_CHARACTERS_MAX:
        raise UsageError(f"a password has {PASSWORD_CHARACTERS_MIN} to {PASSWORD_CHARACTERS_MAX} characters")
    return _HASHER.hash(_normal(password))


class PasswordComparison:
    """Compares passwords with hashes. The threads of all requests share this object."""

    def __init__(self) -> None:
        #: Hash that is compared for an unknown user. No password matches it.
        self._nobodys_hash = _HASHER.hash(b"\xff")
        self._turns = threading.BoundedSemaphore(COMPARISONS_AT_ONCE_MAX)
        self._turns_of_known = threading.BoundedSemaphore(OF_KNOWN_DEVICES_MAX)

    def is_right(self, password_hash: str | None, password: str, *, is_known: bool = False) -> bool:
        """Returns True if the password is right. `password_hash` None: the user is unknown. `is_known`: the device is
        known.

        Raises TooManyComparisons if no turn is free. It does not wait for a turn.
        """
        turns = self._turns_of_known if is_known else self._turns
        if not turns.acquire(blocking=False):  # a request that waits would keep a thread from all other requests
            raise TooManyComparisons
        try:
            is_right = _HASHER.verify(password_hash or self._nobodys_hash, _normal(password[:PASSWORD_CHARACTERS_MAX]))
            return is_right and len(password) <= PASSWORD_CHARACTERS_MAX
        except (VerificationError, InvalidHashError):
            return False
        finally:
            turns.release()


def _normal(password: str) -> bytes:
    """Returns the same bytes for the same letters. Keyboards compose letters in different ways."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
