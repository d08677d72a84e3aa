"""Random texts that prove who sends them: sessions and bearer tokens. Only their digests are kept.

Nobody can guess 256 random bits, so a fast digest is enough for these texts. A password needs a slow one.
"""

from __future__ import annotations

import hashlib
import secrets

#: Prefix of tokens. People and programs that look for leaked secrets recognise a token by it.
TOKEN_PREFIX = "reconciler_"  # noqa: S105 - the part that is no secret
_RANDOM_BYTES = 32


def new_token() -> str:
    """Makes a bearer token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def new_session_id() -> str:
    """Makes a session's id, the value of its cookie."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(text: str) -> str:
    """Computes SHA-256 in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
