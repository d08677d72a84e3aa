"""A record for tests, with only what matters spelled out."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace

from reconciler.rocketmq.wire.record import MessageRecord

PLAIN = MessageRecord(
    topic="Orders",
    queue_id=1,
    flag=7,
    queue_offset=5,
    physical_offset=1_000,
    system_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    born_host=("127.0.0.1", 4_000),
    store_timestamp_ms=1_700_000_000_001,
    store_host=("127.0.0.1", 10_911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"body",
    properties={"UNIQ_KEY": "7F0000010000000000000000000000AA"},
    body_crc=zlib.crc32(b"body") & 0x7FFFFFFF,
)


def record(
    *,
    topic: str = "Orders",
    key: str = "7F0000010000000000000000000000AA",
    properties: Mapping[str, str] | None = None,
    system_flag: int = 0,
    physical_offset: int = 1_000,
    queue_offset: int = 5,
    store_timestamp_ms: int = 1_700_000_000_001,
    prepared_transaction_offset: int = 0,
    body: bytes = b"body",
) -> MessageRecord:
    """A stored record."""
    return replace(
        PLAIN,
        topic=topic,
        properties={"UNIQ_KEY": key, **(properties or {})},
        system_flag=system_flag,
        physical_offset=physical_offset,
        queue_offset=queue_offset,
        store_timestamp_ms=store_timestamp_ms,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        body_crc=zlib.crc32(body) & 0x7FFFFFFF,
    )
