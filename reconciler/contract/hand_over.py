"""The column `message` of a hand-over row: the parts of a message that a group's own handler needs to run it once more.

The daemon writes this column with the row, the group's replay worker reads the column, and DONE empties the column.
JSON text:

    {"v":1,"unique_key":…,"topic":…,"real_topic":…,"properties":{…},"body":<base64 of the uncompressed body>,
     "flag":0,"broker":…,"queue_id":…,"queue_offset":…,"commit_log_offset":…,"born_timestamp_ms":…,
     "store_timestamp_ms":…,"prepared_transaction_offset":…,"producer_group":…,"check_times":…,"reconsume_times":…,
     "content_digest":<hexadecimal>,"signature":<hexadecimal>}

`content_digest` is the digest of the outbox row or, without one, of the half (contract/content_digest.py). The reader
computes the digest of the message again and refuses a message that was changed. A row of an older service has no digest
and is not compared. The digest shows accidents. A person with UPDATE on the ledger could write another digest, too.
`signature` also stops such a person. The signature is the HMAC-SHA256 of the row's place and digest under the secret of
the announcements. Without that secret, no signature is written.

The transaction bits are left out, because a message that was handed over is no longer a record of a broker.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.contract.announcement import SignatureSecret, is_signed, sign
from reconciler.contract.content_digest import digest_of_message
from reconciler.contract.unique_key import require_unique_key
from reconciler.errors import MalformedInput

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class MessageParts:
    """The parts of a stored message that a hand-over row keeps: all except its transaction bits."""

    unique_key: str
    #: Topic of the record: the half topic for a half of 4.3 and newer.
    topic: str
    #: The topic that consumers see.
    real_topic: str
    broker: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    #: For a committed copy: the commit-log offset of the half from which the copy was made. Otherwise 0.
    prepared_transaction_offset: int
    #: Property PGROUP, empty if the record has none.
    producer_group: str
    #: TRANSACTION_CHECK_TIMES of a put-back copy. None: this is the first copy.
    check_times: int | None
    reconsume_times: int
    properties: Mapping[str, str]
    #: The body without compression.
    body: bytes
    flag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverSigner:
    """Signs the hand-over rows of one group."""

    #: The secret of the announcements.
    secret: SignatureSecret
    environment: str
    group: str

    def signature_of(self, *, topic: str, unique_key: str, content_digest: str) -> str:
        """Returns the HMAC-SHA256, in hexadecimal, over the JSON array [environment, topic, group, unique key,
        digest]."""
        return sign(self._signed(topic, unique_key, content_digest), self.secret)

    def has_signed(self, signature: object, *, topic: str, unique_key: str, content_digest: str) -> bool:
        """Returns True if the signature belongs to the place and the digest. The comparison takes constant time."""
        if not isinstance(signature, str) or not signature.isascii():
            return False
        return is_signed(self._signed(topic, unique_key, content_digest), signature, self.secret)

    def _signed(self, topic: str, unique_key: str, content_digest: str) -> bytes:
        place = [self.environment, topic, self.group, unique_key, content_digest]
        return json.dumps(place, separators=(",", ":")).encode()


def encode_hand_over(
    message: MessageParts, *, content_digest: bytes | None = None, signer: HandOverSigner | None = None
) -> str:
    """Returns the JSON text of a message. The size is 4/3 of the body, plus the properties.

    `content_digest`: the digest of the outbox row. None: the digest of the message itself is computed. Without a signer
    the text has no signature.
    """
    digest = (content_digest or _digest_of(message)).hex()
    document: dict[str, object] = {
        "v": VERSION,
        "unique_key": message.unique_key,
        "topic": message.topic,
        "real_topic": message.real_topic,
        "broker": message.broker,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "producer_group": message.producer_group,
        "check_times": message.check_times,
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "properties": dict(message.properties),
        "body": base64.b64encode(message.body).decode("ascii"),
        "content_digest": digest,
    }
    if signer is not None:
        document["signature"] = signer.signature_of(
            topic=message.real_topic, unique_key=message.unique_key, content_digest=digest
        )
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def decode_hand_over(text: str, *, signer: HandOverSigner | None = None) -> MessageParts:
    """Returns the parts of an encoded message. With a signer, the text must have a signature that fits.

    Raises MalformedInput, which names the field, for any other text. A message that differs from its digest is refused
    in the same way.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"hand-over message is no JSON: {str(error)[:120]}") from error
    if not isinstance(document, dict) or document.get("v") != VERSION:
        raise MalformedInput("hand-over message has an unknown version")
    properties = document.get("properties")
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise MalformedInput("hand-over field properties must be an object of texts")
    check_times = document.get("check_times")
    parts = MessageParts(
        unique_key=require_unique_key(document.get("unique_key")),
        topic=_text(document, "topic"),
        real_topic=_text(document, "real_topic"),
        broker=_text(document, "broker"),
        queue_id=_number(document, "queue_id"),
        queue_offset=_number(document, "queue_offset"),
        commit_log_offset=_number(document, "commit_log_offset"),
        born_timestamp_ms=_number(document, "born_timestamp_ms"),
        store_timestamp_ms=_number(document, "store_timestamp_ms"),
        prepared_transaction_offset=_number(document, "prepared_transaction_offset"),
        producer_group=_text(document, "producer_group"),
        check_times=None if check_times is None else _number(document, "check_times"),
        reconsume_times=_number(document, "reconsume_times"),
        properties=properties,
        body=_bytes(document, "body"),
        flag=_number(document, "flag"),
    )
    _require_intact(document, parts, signer)
    return parts


def _require_intact(document: dict[str, Any], parts: MessageParts, signer: HandOverSigner | None) -> None:
    expected = "" if document.get("content_digest") is None else _text(document, "content_digest")
    if signer is not None and not signer.has_signed(
        document.get("signature"), topic=parts.real_topic, unique_key=parts.unique_key, content_digest=expected
    ):
        raise MalformedInput(
            "hand-over field signature is missing or wrong: `reconciler run` and this worker have different values of "
            "unique_key_topic.signature_secret, or the row was changed; nothing was applied"
        )
    if not expected:
        return
    try:
        digest = _digest_of(parts).hex()
    except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
        raise MalformedInput("hand-over field properties has text that is no Unicode") from error
    if digest != expected:
        raise MalformedInput(
            f"hand-over message has the content digest {digest[:16]}, its row names {expected[:16]}: the row was "
            "changed after it was written, or the outbox keeps another body; nothing was applied"
        )


def _digest_of(message: MessageParts) -> bytes:
    return digest_of_message(
        topic=message.real_topic, unique_key=message.unique_key, properties=message.properties, body=message.body
    )


def _text(document: dict[str, Any], field: str) -> str:
    value = document.get(field)
    if not isinstance(value, str):
        raise MalformedInput(f"hand-over field {field} must be text")
    return value


def _number(document: dict[str, Any], field: str) -> int:
    value = document.get(field)
    if type(value) is not int:
        raise MalformedInput(f"hand-over field {field} must be an integer")
    return value


def _bytes(document: dict[str, Any], field: str) -> bytes:
    try:
        return base64.b64decode(_text(document, field), validate=True)
    except (ValueError, binascii.Error) as error:
        raise MalformedInput(f"hand-over field {field} is no base64") from error
