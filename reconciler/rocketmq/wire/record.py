"""The record of a message, which brokers store and return for pulls and look-ups (CommitLog append callback,
MessageDecoder).

The layout is the same from 3.2.6 to 5.x. Version 4.6.0 added IPv6 hosts. Version 5.1.0 added a second form for topics
over 127 bytes.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.wire.codes import SystemFlag
from reconciler.rocketmq.wire.compression import MAXIMUM_BODY_BYTES, decompress
from reconciler.rocketmq.wire.message_id import encode_offset_message_id
from reconciler.rocketmq.wire.properties import StoredProperties

#: The magic of both forms (MessageDecoder.MESSAGE_MAGIC_CODE and MESSAGE_MAGIC_CODE_V2). A file's blank filler has
#: 0xCBD43194 and is never returned.
MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
#: Longest topic in the first form, because Java reads its length byte as signed.
MAXIMUM_V1_TOPIC_BYTES = 127

# Plain numbers, because an operation on an enum's member costs more than decoding a record.
_COMPRESSED = int(SystemFlag.COMPRESSED)
_TRANSACTION_MASK = int(SystemFlag.TRANSACTION_MASK)
_BORN_V6 = int(SystemFlag.BORN_HOST_V6)
_STORE_V6 = int(SystemFlag.STORE_HOST_V6)
_ANY_V6 = _BORN_V6 | _STORE_V6


def _layout(born_bytes: int, store_bytes: int) -> struct.Struct:
    # total, magic, crc, queue, flag, queue offset, physical offset, system flag, born time, born host, store time,
    # store host, reconsume times, prepared transaction offset, body length
    return struct.Struct(f">iIIiiqqiq{born_bytes}sq{store_bytes}siqi")


def _head_layout(born_bytes: int, store_bytes: int) -> struct.Struct:
    # total, magic, queue offset, physical offset, system flag, store time, prepared transaction offset, body length
    return struct.Struct(f">iI12xqqi{8 + born_bytes}xq{store_bytes + 4}xqi")


# By the bits of the hosts: an IPv4 host has 8 bytes, an IPv6 host has 20.
_LAYOUTS, _HEAD_LAYOUTS = (
    {0: of(8, 8), _BORN_V6: of(20, 8), _STORE_V6: of(8, 20), _ANY_V6: of(20, 20)} for of in (_layout, _head_layout)
)
_V4, _HEAD_V4 = _LAYOUTS[0], _HEAD_LAYOUTS[0]
_LENGTH = struct.Struct(">H")
_PROPERTIES_LENGTH = struct.Struct(">h")


class TransactionType(StrEnum):
    """The transaction bits of a stored record (MessageSysFlag.getTransactionValue)."""

    NONE = "none"
    PREPARED = "prepared"
    COMMIT = "commit"
    ROLLBACK = "rollback"


_TYPES = {
    int(SystemFlag.PREPARED): TransactionType.PREPARED,
    int(SystemFlag.COMMIT): TransactionType.COMMIT,
    int(SystemFlag.ROLLBACK): TransactionType.ROLLBACK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """One stored message. `body` is the stored body, which may be compressed. Consumers need `plain_body()`."""

    topic: str
    queue_id: int
    #: A number for the service's own use.
    flag: int
    queue_offset: int
    physical_offset: int
    #: Bits of SystemFlag.
    system_flag: int
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int
    store_host: tuple[str, int]
    reconsume_times: int
    #: For a committed copy, the commit-log offset of its half.
    prepared_transaction_offset: int
    body: bytes
    properties: Mapping[str, str]
    #: CRC-32 of the stored body, without the highest bit. A value of 0 is not checked, because old broker settings
    #: write none.
    body_crc: int
    #: The broker that returned the record. The stored bytes do not name it.
    broker_name: str = ""

    @property
    def unique_key(self) -> str:
        """The unique key (property UNIQ_KEY). Empty if the producer sent no key."""
        return self.properties.get("UNIQ_KEY", "")

    @property
    def tags(self) -> str | None:
        """The tag of the message (property TAGS)."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the message, which are the words of the property KEYS."""
        return tuple(self.properties.get("KEYS", "").split())

    @property
    def transaction_type(self) -> TransactionType:
        """The transaction bits. A half of 4.3 and newer has no such bits, because it is an ordinary message of the half
        topic."""
        return _TYPES.get(self.system_flag & _TRANSACTION_MASK, TransactionType.NONE)

    @property
    def offset_message_id(self) -> str:
        """The offset message id, which is the store host and the physical offset in hex."""
        return encode_offset_message_id(*self.store_host, self.physical_offset)

    @property
    def size_bytes(self) -> int:
        """Size of the message in a cache, counted as the bytes of body and properties."""
        return len(self.body) + len(getattr(self.properties, "raw", b"")) + 91

    def plain_body(self, maximum_bytes: int = MAXIMUM_BODY_BYTES) -> bytes:
        """Returns the uncompressed body. Raises ProtocolViolation if the body is damaged or grows beyond the limit."""
        body = self.body
        if self.body_crc and zlib.crc32(body) & 0x7FFFFFFF != self.body_crc:
            raise ProtocolViolation(f"body of {self.topic} at {self.physical_offset} does not match its CRC")
        if self.system_flag & _COMPRESSED:
            return decompress(body, self.system_flag, maximum_bytes)
        if len(body) > maximum_bytes:
            raise ProtocolViolation(f"body of {len(body)} bytes is larger than {maximum_bytes}")
        return body


# The slots of a record are filled directly, which takes a third of the time of __init__. A call of __init__ would take
# half of the time that decoding a message needs. A test compares the order of the slots with the fields.
_new_record = object.__new__
(
    _set_topic,
    _set_queue_id,
    _set_flag,
    _set_queue_offset,
    _set_physical_offset,
    _set_system_flag,
    _set_born_timestamp_ms,
    _set_born_host,
    _set_store_timestamp_ms,
    _set_store_host,
    _set_reconsume_times,
    _set_prepared_transaction_offset,
    _set_body,
    _set_properties,
    _set_body_crc,
    _set_broker_name,
) = (getattr(MessageRecord, field.name).__set__ for field in fields(MessageRecord))


def decode_records(data: bytes | memoryview, broker_name: str = "") -> list[MessageRecord]:
    """Decodes all records of a reply's body. Raises only ProtocolViolation for bad bytes."""
    data = bytes(data)
    records: list[MessageRecord] = []
    at, end = 0, len(data)
    try:
        while at < end:
            record, at = _decode_record(data, at, end, broker_name)
            records.append(record)
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"bad record at byte {at}: {error}") from error
    return records


class RecordHead(NamedTuple):
    """The part of a record that a read of very many records needs. A head has neither body nor hosts, and its
    properties are the stored bytes.

    This class is a tuple, because the constructor of a frozen dataclass takes five times as long.
    """

    queue_offset: int
    physical_offset: int
    system_flag: int
    store_timestamp_ms: int
    prepared_transaction_offset: int
    properties: bytes


def decode_heads(data: bytes) -> list[RecordHead]:
    """Decodes the heads of all records of a reply's body. This takes a third of the time of decode_records. Raises
    ProtocolViolation for bad bytes."""
    heads: list[RecordHead] = []
    at, end = 0, len(data)
    try:
        while at < end:
            layout = _HEAD_V4
            total, magic, queue_offset, place, flag, store_ms, prepared, body_length = layout.unpack_from(data, at)
            if flag & _ANY_V6:
                layout = _HEAD_LAYOUTS[flag & _ANY_V6]
                total, magic, queue_offset, place, flag, store_ms, prepared, body_length = layout.unpack_from(data, at)
            record_end = at + total
            body_end = at + layout.size + body_length
            if body_length < 0 or not body_end < record_end <= end:
                raise ProtocolViolation(f"record of {total} bytes with a body of {body_length} at byte {at}")
            if magic == MAGIC_V1:
                topic_end = body_end + 1 + data[body_end]
            elif magic == MAGIC_V2:
                topic_end = body_end + 2 + _LENGTH.unpack_from(data, body_end)[0]
            else:
                raise ProtocolViolation(f"record with magic number {magic:#010x}")
            properties = data[topic_end + 2 : record_end]
            heads.append(RecordHead(queue_offset, place, flag, store_ms, prepared, properties))
            at = record_end
    except struct.error as error:
        raise ProtocolViolation(f"bad record at byte {at}: {error}") from error
    return heads


def _decode_record(data: bytes, at: int, end: int, broker_name: str) -> tuple[MessageRecord, int]:
    layout = _V4
    values = layout.unpack_from(data, at)
    if values[7] & _ANY_V6:
        layout = _LAYOUTS[values[7] & _ANY_V6]
        values = layout.unpack_from(data, at)
    (
        total, magic, crc, queue_id, flag, queue_offset, physical_offset, system_flag, born_ms, born_host,
        store_ms, store_host, reconsume_times, prepared_offset, body_length,
    ) = values  # fmt: skip
    record_end = at + total
    body_at = at + layout.size
    body_end = body_at + body_length
    if total < layout.size or record_end > end or body_length < 0 or body_end > record_end:
        raise ProtocolViolation(f"record of {total} bytes with a body of {body_length} where {end - at} are left")
    if magic == MAGIC_V1:
        topic_at = body_end + 1
        topic_end = topic_at + data[body_end] if body_end < record_end else record_end + 1
    elif magic == MAGIC_V2:
        topic_at = body_end + 2
        topic_end = topic_at + _LENGTH.unpack_from(data, body_end)[0]
    else:
        raise ProtocolViolation(f"record with magic number {magic:#010x}")
    properties_at = topic_end + 2
    if properties_at > record_end:
        raise ProtocolViolation("record ends inside its topic")
    if _PROPERTIES_LENGTH.unpack_from(data, topic_end)[0] != record_end - properties_at:
        raise ProtocolViolation("record's properties do not end where the record ends")
    record = _new_record(MessageRecord)
    _set_topic(record, _topic(data[topic_at:topic_end]))
    _set_queue_id(record, queue_id)
    _set_flag(record, flag)
    _set_queue_offset(record, queue_offset)
    _set_physical_offset(record, physical_offset)
    _set_system_flag(record, system_flag)
    _set_born_timestamp_ms(record, born_ms)
    _set_born_host(record, _host(born_host))
    _set_store_timestamp_ms(record, store_ms)
    _set_store_host(record, _host(store_host))
    _set_reconsume_times(record, reconsume_times)
    _set_prepared_transaction_offset(record, prepared_offset)
    _set_body(record, data[body_at:body_end])
    _set_properties(record, StoredProperties(data[properties_at:record_end]))
    _set_body_crc(record, crc)
    _set_broker_name(record, broker_name)
    return record, record_end


@lru_cache(maxsize=4096)
def _topic(encoded: bytes) -> str:
    return encoded.decode()


@lru_cache(maxsize=4096)
def _host(packed: bytes) -> tuple[str, int]:
    family = socket.AF_INET if len(packed) == 8 else socket.AF_INET6
    return socket.inet_ntop(family, packed[:-4]), int.from_bytes(packed[-4:], "big", signed=True)
