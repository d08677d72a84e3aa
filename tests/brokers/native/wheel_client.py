"""The wheel rocketmq 0.4.4 (librocketmq) against a broker: run by its own Python, never imported.

Arguments: scenario, name servers, topic. Prints one JSON object a line; the caller asserts on them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer  # noqa: TID253 - this file is for that package

PRINTING = threading.Lock()


def say(event: str, **fields: Any) -> None:
    with PRINTING:
        sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stdout.flush()


def until(what: str, condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            say("late", what=what)
            os._exit(3)
        time.sleep(0.05)


def started_producer(name_servers: str, topic: str) -> Any:
    producer = Producer("native_sender_" + topic)
    producer.set_namesrv_addr(name_servers)
    producer.start()
    return producer


def consumer(name_servers: str, topic: str, *, orderly: bool) -> Any:
    created = PushConsumer("native_group_" + topic, orderly=orderly)
    created.set_namesrv_addr(name_servers)
    created.set_thread_count(2)
    return created


def push(name_servers: str, topic: str) -> None:
    """Messages with tags, keys and a property, sent one by one and consumed once each."""
    received: list[str] = []

    def on_message(message: Any) -> None:
        say(
            "received",
            id=message.id,
            body=message.body.decode(),
            tags=message.tags.decode(),
            keys=message.keys.decode(),
            colour=message.get_property("colour").decode(),
            unique_key=message.get_property("UNIQ_KEY").decode(),
        )
        received.append(message.id)

    push_consumer = consumer(name_servers, topic, orderly=False)
    push_consumer.subscribe(topic, on_message)
    push_consumer.start()
    producer = started_producer(name_servers, topic)
    for number in range(20):
        message = Message(topic)
        message.set_keys(f"key-{number}")
        message.set_tags("TagA")
        message.set_property("colour", "blue")
        message.set_body(f"body-{number}")
        result = producer.send_sync(message)
        say("sent", id=result.msg_id, status=result.status.name, offset=result.offset)
    until("20 messages", lambda: len(set(received)) == 20)
    producer.shutdown()
    push_consumer.shutdown()


def orderly(name_servers: str, topic: str) -> None:
    """Four shards, each in order."""
    seen: dict[str, list[int]] = {}

    def on_message(message: Any) -> None:
        shard, number = message.body.decode().split(":")
        seen.setdefault(shard, []).append(int(number))

    push_consumer = consumer(name_servers, topic, orderly=True)
    push_consumer.subscribe(topic, on_message)
    push_consumer.start()
    producer = started_producer(name_servers, topic)
    for number in range(10):
        for shard in range(4):
            message = Message(topic)
            message.set_keys(f"{shard}-{number}")
            message.set_body(f"{shard}:{number}")
            producer.send_orderly(message, shard)
    until("40 messages", lambda: sum(map(len, seen.values())) >= 40)
    for name in sorted(seen):
        say("shard", name=name, order=seen[name])
    producer.shutdown()
    push_consumer.shutdown()


if __name__ == "__main__":
    {"push": push, "orderly": orderly}[sys.argv[1]](sys.argv[2], sys.argv[3])
    say("end")
    os._exit(0)  # the library's destructors are known to abort
