"""Several messages in one body. Inner batches of 5.x have the format of SEND_BATCH_MESSAGE (4.1 and newer).

The format of each message is: i32 total, i32 magic 0, i32 crc 0, i32 flag, i32 body length, body, i16 properties
length, properties (MessageDecoder.decodeMessages).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.wire.codes import SystemFlag
from reconciler.rocketmq.wire.properties import decode_properties
from reconciler.rocketmq.wire.record import MessageRecord

_HEAD = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEntry:
    """One message of a batch. The topic and queue of the message are those of the request."""

    body: bytes
    properties: Mapping[str, str]
    flag: int = 0


def decode_batch(data: bytes) -> list[BatchEntry]:
    """Decodes the messages of a batch body. Raises only ProtocolViolation for bad bytes."""
    entries: list[BatchEntry] = []
    at = 0
    try:
        while at < len(data):
            total, _magic, _crc, flag, body_length = _HEAD.unpack_from(data, at)
            body_at = at + _HEAD.size
            body_end = body_at + body_length
            end = at + total
            if body_length < 0 or body_end + _LENGTH.size > end or end > len(data):
                raise ProtocolViolation(f"batch entry of {total} bytes with a body of {body_length} at byte {at}")
            if body_end + _LENGTH.size + _LENGTH.unpack_from(data, body_end)[0] != end:
                raise ProtocolViolation("batch entry's properties do not end where the entry ends")
            properties = decode_properties(data[body_end + _LENGTH.size : end].decode())
            entries.append(BatchEntry(body=data[body_at:body_end], properties=properties, flag=flag))
            at = end
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"bad batch entry at byte {at}: {error}") from error
    return entries


def unwrap(record: MessageRecord) -> list[MessageRecord]:
    """Returns the messages of an inner batch of 5.x (MessageDecoder.decodeMessage). For any other record, returns the
    record itself.

    The first message has the queue offset of the record, and each further message has the next offset. Raises
    ProtocolViolation for a damaged batch.
    """
    wanted = SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP
    if record.system_flag & wanted != wanted:
        return [record]
    flags = record.system_flag & ~(wanted | SystemFlag.COMPRESSED | SystemFlag.COMPRESSION_MASK)
    return [
        replace(
            record,
            body=entry.body,
            properties=entry.properties,
            flag=entry.flag,
            system_flag=int(flags),
            queue_offset=record.queue_offset + number,
            body_crc=0,
        )
        for number, entry in enumerate(decode_batch(record.plain_body()))
    ]
