"""Bodies of administrators' requests, which brokers pass on to a consumer. The maps in these bodies have queues (JSON
objects) as keys.

fastjson writes such a map as {{"brokerName":"b","queueId":0,"topic":"T"}:1}, which is no JSON. The tolerant parser
reads this form. This file also writes this form, because the stock tools read no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.tolerant_json import JsonKey, parse_object


def parse_reset_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Reads the offsetTable of RESET_CONSUMER_CLIENT_OFFSET, which is a map (ResetOffsetBody) or a list
    (ResetOffsetBodyForC).

    Raises ProtocolViolation.
    """
    table = parse_object(body).get("offsetTable")
    if isinstance(table, dict):
        return {_queue(_pairs(key)): _whole(offset) for key, offset in table.items()}
    if isinstance(table, list):
        rows = [row for row in table if isinstance(row, dict)]
        return {_queue(row): _whole(row.get("offset")) for row in rows}
    raise ProtocolViolation("offsetTable is neither a map nor a list")


def table_by_queue(rows: Iterable[tuple[MessageQueue, object]]) -> str:
    """Returns the text that fastjson writes for a map with queues as keys."""
    return "{" + ",".join(f"{_key(queue)}:{json.dumps(value)}" for queue, value in rows) + "}"


def object_with_tables(members: Mapping[str, object], tables: Mapping[str, str]) -> bytes:
    """Returns a JSON object. `tables` are further members, whose texts table_by_queue has made."""
    parts = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members.items()]
    parts += [f"{json.dumps(name)}:{text}" for name, text in tables.items()]
    return ("{" + ",".join(parts) + "}").encode()


def _key(queue: MessageQueue) -> str:
    return json.dumps(
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}, separators=(",", ":")
    )


def _pairs(key: JsonKey) -> Mapping[JsonKey, object]:
    """Returns the JSON object that a key stands for. Newer brokers write this object as a text."""
    if isinstance(key, tuple):
        return dict(key)
    return dict(parse_object(str(key).encode()))


def _queue(row: Mapping[JsonKey, object]) -> MessageQueue:
    topic, broker_name = row.get("topic"), row.get("brokerName")
    if not isinstance(topic, str) or not isinstance(broker_name, str):
        raise ProtocolViolation(f"{str(row)[:200]} names no queue")
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=_whole(row.get("queueId")))


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ProtocolViolation(f"{str(value)[:80]} is no whole number")
    return value
