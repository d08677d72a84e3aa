"""A service with librocketmq, as the wheel rocketmq 0.4.4 carries it, run by a Python of its own. It knows no halves.

tests/clients/foreign_client.py has the lines that it takes and prints.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer

PRINTING = threading.Lock()


def say(event: str, key: str, body: str) -> None:
    with PRINTING:
        sys.stdout.write(json.dumps({"event": event, "key": key, "body": body}) + "\n")
        sys.stdout.flush()


def on_message(message: Any) -> None:
    say("received", message.get_property("UNIQ_KEY").decode(), message.body.decode())


def main(name_servers: str, topic: str, group_that_sends: str, group: str) -> None:
    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(name_servers)
    consumer.subscribe(topic, on_message)
    consumer.start()
    producer = Producer(group_that_sends)
    producer.set_namesrv_addr(name_servers)
    producer.start()
    say("ready", "", "")
    for line in sys.stdin:
        verb, body = line.split()
        if verb != "send":
            raise ValueError(line)
        message = Message(topic)
        message.set_keys("order-1")
        message.set_tags("paid")
        message.set_body(body)
        say("sent", producer.send_sync(message).msg_id, body)


if __name__ == "__main__":
    main(*sys.argv[1:])
