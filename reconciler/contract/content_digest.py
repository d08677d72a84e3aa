"""SHA-256 over the parts of a message that a consumer sees. An equal digest proves that a repaired message equals its
half."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

from reconciler.contract.properties import KEYS, TAGS, user_properties

_LENGTH = struct.Struct(">I")


def content_digest(
    *, topic: str, tags: str | None, keys: str | None, properties: Mapping[str, str], body: bytes
) -> bytes:
    """Returns 32 bytes over topic, tags, keys, the user properties sorted by name, and the uncompressed body.

    Each part is a 4-byte big-endian length, followed by the part's bytes (UTF-8). `keys` is the KEYS property as sent.
    On 3.2.6 the leading unique key is left out (see content_keys). Reserved properties are left out. Half of a
    surrogate pair, which JSON may contain, counts as a question mark, as in Java's String.getBytes.
    """
    texts = [topic, tags or "", keys or ""]
    for pair in user_properties(properties).items():
        texts += pair
    # Consumers compute this digest for every message. So one update covers all parts except the body. The body may be
    # long, and is not copied.
    parts: list[bytes] = []
    for text in texts:
        part = text.encode("utf-8", "replace")
        parts += (_LENGTH.pack(len(part)), part)
    parts.append(_LENGTH.pack(len(body)))
    digest = hashlib.sha256(b"".join(parts))
    digest.update(body)
    return digest.digest()


def content_keys(keys: str | None, unique_key: str) -> str:
    """Returns KEYS without the leading unique key. This project writes that key for brokers without an index on
    UNIQ_KEY (3.2.6)."""
    parts = (keys or "").split(" ")
    if parts[0] == unique_key:
        parts = parts[1:]
    return " ".join(part for part in parts if part)


def digest_of_message(*, topic: str, unique_key: str, properties: Mapping[str, str], body: bytes) -> bytes:
    """Returns the digest of a message in the form that a consumer or a look-up sees, with its properties and its
    uncompressed body."""
    return content_digest(
        topic=topic,
        tags=properties.get(TAGS),
        keys=content_keys(properties.get(KEYS), unique_key),
        properties=properties,
        body=body,
    )
