"""Encodes and decodes stored messages as records of CommitLog's append callback. This code is on the hot path.

The client has a decoder of its own in reconciler/rocketmq/wire/record.py, so that two implementations check each other
in the tests. The decoder here never reads bodies, and reads only what a broker needs.
"""

from __future__ import annotations

import socket
import struct
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache

from reconciler.rocketmq.wire.properties import decode_properties, encode_properties

MAGIC = 0xDAA320A7  # MessageVersion.MESSAGE_VERSION_V1
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 4
TRANSACTION_COMMIT = 8
TRANSACTION_ROLLBACK = 12
MAX_TOPIC_BYTES = 127
MAX_PROPERTIES_BYTES = 32767

_HEAD = struct.Struct(">IIIiiqqiq")  # up to BORNTIMESTAMP
_MIDDLE = struct.Struct(">q")  # STORETIMESTAMP
_TAIL = struct.Struct(">iqi")  # RECONSUMETIMES, prepared transaction offset, body length
_LENGTH = struct.Struct(">H")
_PORT = struct.Struct(">i")


@dataclass(slots=True, kw_only=True, eq=False)
class BrokerMessage:
    """A message on its way into or out of the log. Only the broker's loop uses this class."""

    topic: str
    queue_id: int
    body: bytes
    born_timestamp_ms: int
    born_host: bytes
    properties_text: str = ""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    store_timestamp_ms: int = 0
    store_host: bytes = b""
    size: int = 0
    delay_level: int | None = None  # None: as the property DELAY says
    _properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """The stored properties."""
        if self._properties is None:
            self._properties = dict(decode_properties(self.properties_text))
        return self._properties

    def put_properties(self, *, trimmed: bool, **changes: str | None) -> None:
        """Sets properties, and removes those whose value is None. Rewrites the property text."""
        properties = dict(self.properties)
        for name, value in changes.items():
            if value is None:
                properties.pop(name, None)
            else:
                properties[name] = value
        self._properties = properties
        self.properties_text = properties_text(properties, trimmed=trimmed)

    def copied(self) -> BrokerMessage:
        """Copies the message without its place in the log."""
        return replace(self, queue_offset=0, physical_offset=0, size=0, delay_level=None, _properties=None)


def properties_text(properties: dict[str, str], *, trimmed: bool) -> str:
    """Encodes the properties. With ``trimmed``, leaves out the last separator, as MessageDecoder does from 4.9.1 to
    5.1."""
    text = encode_properties(properties)
    return text.removesuffix("\x02") if trimmed else text


def encode(message: BrokerMessage) -> bytes:
    """Encodes the record. Offsets, store time and store host must be set."""
    body = message.body
    topic = message.topic.encode()
    properties = message.properties_text.encode()
    born, stored = message.born_host, message.store_host
    # The client's flags are not trusted, because a record whose flags contradict its hosts could never be read again.
    message.sys_flag = message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | _host_flags(born, stored)
    size = 75 + len(born) + len(stored) + len(body) + len(topic) + len(properties)
    message.size = size
    return b"".join(
        (
            _HEAD.pack(
                size,
                MAGIC,
                zlib.crc32(body) & 0x7FFFFFFF,
                message.queue_id,
                message.flag,
                message.queue_offset,
                message.physical_offset,
                message.sys_flag,
                message.born_timestamp_ms,
            ),
            born,
            _MIDDLE.pack(message.store_timestamp_ms),
            stored,
            _TAIL.pack(message.reconsume_times, message.prepared_offset, len(body)),
            body,
            len(topic).to_bytes(1, "big"),
            topic,
            _LENGTH.pack(len(properties)),
            properties,
        )
    )


def _host_flags(born: bytes, stored: bytes) -> int:
    return (BORN_HOST_V6 if len(born) > 8 else 0) | (STORE_HOST_V6 if len(stored) > 8 else 0)


def decode(record: bytes) -> BrokerMessage:
    """Decodes a record that this module has encoded."""
    size, _magic, _crc, queue_id, flag, queue_offset, physical, sys_flag, born_ms = _HEAD.unpack_from(record)
    at = _HEAD.size
    born_end = at + (20 if sys_flag & BORN_HOST_V6 else 8)
    (store_ms,) = _MIDDLE.unpack_from(record, born_end)
    store_end = born_end + 8 + (20 if sys_flag & STORE_HOST_V6 else 8)
    reconsume, prepared, body_length = _TAIL.unpack_from(record, store_end)
    body_end = store_end + _TAIL.size + body_length
    topic_end = body_end + 1 + record[body_end]
    return BrokerMessage(
        topic=record[body_end + 1 : topic_end].decode(),
        queue_id=queue_id,
        body=record[store_end + _TAIL.size : body_end],
        born_timestamp_ms=born_ms,
        born_host=record[at:born_end],
        properties_text=record[topic_end + 2 : size].decode(),
        flag=flag,
        sys_flag=sys_flag,
        reconsume_times=reconsume,
        prepared_offset=prepared,
        queue_offset=queue_offset,
        physical_offset=physical,
        store_timestamp_ms=store_ms,
        store_host=record[born_end + 8 : store_end],
        size=size,
    )


def store_timestamp_of(record: bytes) -> int:
    """Reads STORETIMESTAMP in milliseconds, without decoding the rest."""
    (sys_flag,) = struct.unpack_from(">i", record, 36)
    at = _HEAD.size + (20 if sys_flag & BORN_HOST_V6 else 8)
    value: int = _MIDDLE.unpack_from(record, at)[0]
    return value


@lru_cache(maxsize=4096)
def packed_host(host: str, port: int) -> bytes:
    """Packs BORNHOST or STOREHOST. The address takes 4 or 16 bytes, and the port follows as int32."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(kind, host.partition("%")[0]) + _PORT.pack(port)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Makes an offset message id like MessageDecoder.createMessageId, with address, port and log offset in upper-case
    hex."""
    return (store_host + _MIDDLE.pack(physical_offset)).hex().upper()


def java_hash(text: str) -> int:
    """Hashes a text like java.lang.String.hashCode. The result has signed 32 bits over UTF-16 code units."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (value * 31 + unit) & 0xFFFFFFFF
    else:
        encoded = text.encode("utf-16-be")
        for high, low in zip(encoded[::2], encoded[1::2], strict=True):
            value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


@lru_cache(maxsize=4096)
def tags_code(tags: str | None) -> int:
    """Hashes a tag like MessageExtBrokerInner.tagsString2tagsCode. A message without tags has 0."""
    return java_hash(tags) if tags else 0
