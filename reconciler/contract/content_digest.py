"""SHA-256 over what a consumer can see of a message: proves that a repaired message equals its half."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from reconciler.contract.properties import KEYS, TAGS, user_properties


def content_digest(
    *, topic: str, tags: str | None, keys: str | None, properties: Mapping[str, str], body: bytes
) -> bytes:
    """32 bytes over topic, tags, keys, user properties sorted by name and the uncompressed body.

    Each part is a 4-byte big-endian length and its bytes (UTF-8). `keys` is the KEYS property as sent, on 3.2.6
    without the leading unique key (see content_keys). Reserved properties are left out.
    """
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)

    add(topic.encode())
    add((tags or "").encode())
    add((keys or "").encode())
    for name, value in user_properties(properties).items():
        add(name.encode())
        add(value.encode())
    add(body)
    return digest.digest()


def content_keys(keys: str | None, unique_key: str) -> str:
    """KEYS without the unique key that this project puts first for brokers without an index on UNIQ_KEY (3.2.6)."""
    parts = (keys or "").split(" ")
    if parts[0] == unique_key:
        parts = parts[1:]
    return " ".join(part for part in parts if part)


def digest_of_message(*, topic: str, unique_key: str, properties: Mapping[str, str], body: bytes) -> bytes:
    """The digest of a message as a consumer or a look-up sees it: with its properties and its plain body."""
    return content_digest(
        topic=topic,
        tags=properties.get(TAGS),
        keys=content_keys(properties.get(KEYS), unique_key),
        properties=properties,
        body=body,
    )
