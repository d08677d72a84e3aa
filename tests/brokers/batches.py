"""Several messages in one request, as other clients send them: SEND_BATCH_MESSAGE (4.1 and newer)."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.answers import refusal
from reconciler.rocketmq.wire.batch import BatchEntry
from reconciler.rocketmq.wire.codes import AUTO_CREATE_TOPIC, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.properties import encode_properties


def encode_batch(entries: Sequence[BatchEntry]) -> bytes:
    """The request's body (MessageDecoder.encodeMessages)."""
    encoded = b""
    for entry in entries:
        properties = encode_properties(entry.properties).encode()
        total = 22 + len(entry.body) + len(properties)
        encoded += struct.pack(">iiiii", total, 0, 0, entry.flag, len(entry.body)) + entry.body
        encoded += struct.pack(">h", len(properties)) + properties
    return encoded


def send_batch(
    instance: ClientInstance, messages: Sequence[Message], *, queue: MessageQueue, timeout_seconds: float | None = None
) -> Command:
    """The answer to messages that have unique keys. Raises BrokerRefused, and as RemotingClient.request()."""
    entries = [
        BatchEntry(body=one.body, properties=one.wire_properties(str(one.unique_key)), flag=one.flag)
        for one in messages
    ]
    now_ms = str(time.time_ns() // 1_000_000)
    words = ("PG", queue.topic, AUTO_CREATE_TOPIC, "4", str(queue.queue_id), "0", now_ms, "0", "", "0", "false", "true")
    fields = dict(zip("abcdefghijkm", words, strict=True))
    command = Command(code=RequestCode.SEND_BATCH_MESSAGE, fields=fields, body=encode_batch(entries))
    address = instance.routes.master_of(queue.topic, queue.broker_name)
    assert address is not None
    answer = instance.client.request(address, command, timeout_seconds=timeout_seconds)
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, f"batch to {queue.topic}")
    return answer
