"""Tables keyed by queues, in the dialects that brokers write."""

from __future__ import annotations

import json

import pytest

from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.admin_bodies import object_with_tables, parse_reset_offsets, table_by_queue
from reconciler.rocketmq.wire.tolerant_json import parse_object

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=3)
KEY = '{"brokerName":"b","queueId":3,"topic":"T"}'


@pytest.mark.parametrize(
    "body",
    [
        f'{{"offsetTable":{{{KEY}:42}}}}',
        json.dumps({"offsetTable": {KEY: 42}}),
        json.dumps({"offsetTable": [{"brokerName": "b", "queueId": 3, "topic": "T", "offset": 42}]}),
    ],
)
def test_every_dialect_of_an_offset_table_is_read(body: str) -> None:
    assert parse_reset_offsets(body.encode()) == {QUEUE: 42}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        '{"offsetTable":1}',
        '{"offsetTable":{"x":1}}',
        '{"offsetTable":[{"topic":"T"}]}',
        f'{{"offsetTable":{{{KEY}:"x"}}}}',
    ],
)
def test_anything_else_is_a_violation(body: str) -> None:
    with pytest.raises(ProtocolViolation):
        parse_reset_offsets(body.encode())


def test_tables_are_written_as_stock_tools_read_them() -> None:
    text = object_with_tables({"a": 1}, {"t": table_by_queue([(QUEUE, 7)])})
    assert text == b'{"a":1,"t":{{"brokerName":"b","queueId":3,"topic":"T"}:7}}'
    key = (("brokerName", "b"), ("queueId", 3), ("topic", "T"))
    assert parse_object(text) == {"a": 1, "t": {key: 7}}
