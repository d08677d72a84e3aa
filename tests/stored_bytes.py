"""A record of the client's as the bytes that a broker stores: what MessageRecord was decoded from."""

from __future__ import annotations

import socket
import struct

from reconciler.errors import MalformedInput
from reconciler.rocketmq.wire.codes import SystemFlag
from reconciler.rocketmq.wire.properties import MAXIMUM_PROPERTIES_BYTES, StoredProperties, encode_properties
from reconciler.rocketmq.wire.record import MAGIC_V1, MAGIC_V2, MAXIMUM_V1_TOPIC_BYTES, MessageRecord

_LENGTH = struct.Struct(">H")
_PROPERTIES_LENGTH = struct.Struct(">h")


def encode_record(record: MessageRecord) -> bytes:
    """The stored bytes; a decoded record gives back the bytes it came from. Raises MalformedInput if it cannot fit."""
    topic = record.topic.encode()
    if isinstance(record.properties, StoredProperties):
        properties = record.properties.raw
    else:
        properties = encode_properties(record.properties).encode()
    if len(properties) > MAXIMUM_PROPERTIES_BYTES or len(topic) > 0xFFFF:
        raise MalformedInput(f"topic of {len(topic)} or properties of {len(properties)} bytes do not fit a record")
    is_v2 = len(topic) > MAXIMUM_V1_TOPIC_BYTES
    topic_length = _LENGTH.pack(len(topic)) if is_v2 else bytes((len(topic),))
    is_born_v6, is_store_v6 = (
        bool(record.system_flag & flag) for flag in (SystemFlag.BORN_HOST_V6, SystemFlag.STORE_HOST_V6)
    )
    layout = struct.Struct(f">iIIiiqqiq{20 if is_born_v6 else 8}sq{20 if is_store_v6 else 8}siqi")
    total = layout.size + len(record.body) + len(topic_length) + len(topic) + 2 + len(properties)
    try:
        head = layout.pack(
            total,
            MAGIC_V2 if is_v2 else MAGIC_V1,
            record.body_crc,
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            record.system_flag,
            record.born_timestamp_ms,
            _packed_host(record.born_host, is_v6=is_born_v6),
            record.store_timestamp_ms,
            _packed_host(record.store_host, is_v6=is_store_v6),
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(record.body),
        )
    except (struct.error, OSError) as error:
        raise MalformedInput(f"a number or host of the record does not fit its field: {error}") from error
    tail = (topic_length, topic, _PROPERTIES_LENGTH.pack(len(properties)), properties)
    return b"".join((head, record.body, *tail))


def _packed_host(host: tuple[str, int], *, is_v6: bool) -> bytes:
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    return socket.inet_pton(family, host[0]) + struct.pack(">i", host[1])
