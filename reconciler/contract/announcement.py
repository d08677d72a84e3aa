"""The *announcement*: the ordinary message that carries committed unique keys.

The topic of announcements is the *unique-key topic*.

Version 1 is UTF-8 JSON of at most 64 KiB. A message has at most 500 keys, all of one shard, and is sent to the shard's
queue:

    {"v":1,"env":"production","topic":"ORDERS","group":"order-service",
     "keys":[{"key":"7F00000100002A9F0000000000000090","tag":"paid","committed_at_ms":1763716000000}]}

Releases up to 0.2.0 know only keys of 32 to 64 upper-case hexadecimal digits, with an even number of digits. Such a
release refuses a whole message because of one other key. So other keys are sent in separate messages.

Version 0 is one bare key, for unique-key topics that are configured for it. The optional message property
RECONCILER_SIGNATURE is the hexadecimal HMAC-SHA256 of the body bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from reconciler.contract.unique_key import is_digits, require_unique_key, shard_of
from reconciler.errors import InvalidValue, MalformedInput

VERSION = 1
BODY_BYTES_MAX = 64 * 1024
KEYS_MAX = 500
#: The latest valid committed_at_ms.
TIME_MS_MAX = (1 << 53) - 1
SIGNATURE_PROPERTY = "RECONCILER_SIGNATURE"
#: Topic of the announcements unless a business topic has its own.
UNIQUE_KEY_TOPIC_DEFAULT = "RECONCILER_UNIQUE_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedKey:
    """One committed unique key."""

    unique_key: str
    #: The message's tag. A group that filters by tags does not have to consume other tags. None: the message has no
    #: tag.
    tag: str | None
    #: The outbox row's created_at: database time of the producer, milliseconds UTC.
    committed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """Keys of one producer group and topic. In a message, all keys are of one shard."""

    environment: str
    topic: str
    producer_group: str
    keys: tuple[AnnouncedKey, ...]


def encode_announcement(announcement: Announcement) -> bytes:
    """Returns a version 1 body. Raises MalformedInput above KEYS_MAX keys or BODY_BYTES_MAX bytes (see split_by_shard).

    Replaces an invalid committed_at_ms by the nearest valid time. Otherwise a reader would refuse the whole message.
    """
    if not 0 < len(announcement.keys) <= KEYS_MAX:
        raise MalformedInput(f"an announcement carries 1 to {KEYS_MAX} keys, not {len(announcement.keys)}")
    document = {
        "v": VERSION,
        "env": announcement.environment,
        "topic": announcement.topic,
        "group": announcement.producer_group,
        "keys": [
            {"key": k.unique_key, "tag": k.tag, "committed_at_ms": _time(k.committed_at_ms)} for k in announcement.keys
        ],
    }
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) > BODY_BYTES_MAX:
        raise MalformedInput(f"an announcement has at most {BODY_BYTES_MAX} bytes, not {len(body)}")
    return body


def split_by_shard(announcement: Announcement, shards: int) -> Iterator[tuple[int, Announcement]]:
    """Cuts an announcement into (shard, announcement) parts that each fit into one message.

    The keys of one part are either all known to releases up to 0.2.0, or all unknown to them.
    """
    parts: dict[tuple[int, bool], list[AnnouncedKey]] = {}
    for key in announcement.keys:
        parts.setdefault((shard_of(key.unique_key, shards), not is_digits(key.unique_key)), []).append(key)
    for (shard, _), of_part in sorted(parts.items(), key=lambda part: part[0]):
        for keys in _chunks(of_part):
            yield (
                shard,
                Announcement(
                    environment=announcement.environment,
                    topic=announcement.topic,
                    producer_group=announcement.producer_group,
                    keys=tuple(keys),
                ),
            )


def _chunks(keys: Sequence[AnnouncedKey]) -> Iterator[list[AnnouncedKey]]:
    chunk: list[AnnouncedKey] = []
    size = 0
    for key in keys:
        # 128 bytes for the key, the names of the fields and the time. An escaped tag may take six bytes per character.
        cost = 128 + 6 * len(key.tag or "")
        if chunk and (len(chunk) == KEYS_MAX or size + cost > BODY_BYTES_MAX // 2):
            yield chunk
            chunk, size = [], 0
        chunk.append(key)
        size += cost
    if chunk:
        yield chunk


def decode_announcement(body: bytes) -> Announcement:
    """Reads a version 1 body. Ignores unknown fields. Raises MalformedInput for any other bytes, and names the
    field."""
    if len(body) > BODY_BYTES_MAX:
        raise MalformedInput(f"announcement of {len(body)} bytes: at most {BODY_BYTES_MAX} are accepted")
    try:
        document: Any = json.loads(body.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise MalformedInput(f"announcement is no UTF-8 JSON: {str(error)[:120]}") from error
    if not isinstance(document, dict):
        raise MalformedInput("announcement is no JSON object")
    version = document.get("v")
    if type(version) is not int or version != VERSION:
        raise MalformedInput(f"announcement version {version!r} is unknown: this release reads v = {VERSION}")
    keys = document.get("keys")
    if not isinstance(keys, list) or not 0 < len(keys) <= KEYS_MAX:
        raise MalformedInput(f"announcement field keys must be a list of 1 to {KEYS_MAX} entries")
    return Announcement(
        environment=_text(document, "env"),
        topic=_text(document, "topic"),
        producer_group=_text(document, "group"),
        keys=tuple(_decode_keys(keys)),
    )


def decode_bare_key(body: bytes) -> str:
    """Reads a version 0 body, which is one unique key. Raises MalformedInput for any other bytes."""
    try:
        return require_unique_key(body.decode("ascii").strip())
    except UnicodeDecodeError as error:
        raise MalformedInput("version 0 announcement is no ASCII text") from error


def _decode_keys(entries: Iterable[Any]) -> Iterator[AnnouncedKey]:
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise MalformedInput(f"announcement field keys[{number}] is no object")
        tag = entry.get("tag")
        if tag is not None and not isinstance(tag, str):
            raise MalformedInput(f"announcement field keys[{number}].tag is neither text nor null")
        at = entry.get("committed_at_ms")
        if type(at) is not int:
            raise MalformedInput(f"announcement field keys[{number}].committed_at_ms is no time in milliseconds")
        # Senders up to 0.2.0 accept an invalid time. Such a time must not cost the other keys of the message.
        yield AnnouncedKey(unique_key=require_unique_key(entry.get("key")), tag=tag or None, committed_at_ms=_time(at))


def _time(at_ms: int) -> int:
    """Returns the nearest valid time, from 0 to TIME_MS_MAX."""
    return min(max(0, at_ms), TIME_MS_MAX)


def _text(document: dict[str, Any], field: str) -> str:
    value = document.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise MalformedInput(f"announcement field {field} must be text of 1 to 255 characters")
    return value


#: A secret, or a function that returns the present secrets. The first secret signs. A signature by any present secret
#: is accepted.
SignatureSecret: TypeAlias = bytes | Callable[[], Sequence[bytes]]


def signing_keys(secret: SignatureSecret) -> Sequence[bytes]:
    """Returns the present secrets. Raises InvalidValue if there is no secret, or if a secret is empty: any sender could
    sign with an empty secret."""
    keys = (secret,) if isinstance(secret, bytes) else secret()
    if not keys or not all(keys):
        raise InvalidValue("signature_secret", "(empty)", 'a secret, or None: any sender can sign with ""')
    return keys


def sign(body: bytes, secret: SignatureSecret) -> str:
    """Returns the value of the property RECONCILER_SIGNATURE. Raises InvalidValue like signing_keys()."""
    return _signature(body, signing_keys(secret)[0])


def is_signed(body: bytes, signature: str | None, secret: SignatureSecret) -> bool:
    """Returns True if the signature belongs to the body. The comparison takes constant time. Raises InvalidValue like
    signing_keys()."""
    if signature is None:
        return False
    given = signature.encode()
    return any(hmac.compare_digest(_signature(body, key).encode(), given) for key in signing_keys(secret))


def _signature(body: bytes, key: bytes) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()
