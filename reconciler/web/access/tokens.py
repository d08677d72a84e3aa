"""Random texts that prove who sends them: sessions and bearer tokens. Only their digests are kept.

256 random bits cannot be guessed, so a fast digest is enough, which for a password it is not.
"""

from __future__ import annotations

import hashlib
import secrets

#: People and programs that look for leaked secrets recognise a token by it.
TOKEN_PREFIX = "reconciler_"  # noqa: S105 - the part that is no secret
_RANDOM_BYTES = 32


def new_token() -> str:
    """A bearer token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def new_session_id() -> str:
    """The value of a cookie."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(text: str) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
