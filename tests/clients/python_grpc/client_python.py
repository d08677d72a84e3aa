"""A service with the stock gRPC client for Python, run by a Python of its own.

tests/clients/foreign_client.py has the lines that it takes and prints.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

MARK = "RECONCILER_OUTBOX"
RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}
PRINTING = threading.Lock()
TO_CHECKS: dict[str, str] = {}


def say(event: str, key: str, body: str) -> None:
    with PRINTING:
        sys.stdout.write(json.dumps({"event": event, "key": key, "body": body}) + "\n")
        sys.stdout.flush()


class Checker(TransactionChecker):  # type: ignore[misc]  # another Python has the package
    def check(self, message: Any) -> Any:
        say("check", message.message_id, message.body.decode())
        return RESOLUTIONS[TO_CHECKS.get(message.message_id, "unknown")]


def message_of(topic: str, body: str) -> Any:
    message = Message()
    message.topic, message.body = topic, body.encode()
    message.tag, message.keys = "paid", "order-1"
    return message


def receive(consumer: Any) -> None:
    while True:
        try:
            messages = consumer.receive(16, 30)
        except Exception as error:  # no message is one, and so are settings that have not come yet
            sys.stderr.write(f"{error!r}\n")
            continue
        for message in messages:
            say("received", message.message_id, message.body.decode())
            consumer.ack(message)


def main(endpoints: str, topic: str, group: str) -> None:
    configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=10)
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()}, 5)
    consumer.startup()
    producer = Producer(configuration, (topic,), Checker())
    producer.startup()
    threading.Thread(target=receive, args=(consumer,), daemon=True).start()
    transactions: dict[str, Any] = {}
    bodies: dict[str, str] = {}
    say("ready", "", "")
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "send":
            say("sent", producer.send(message_of(topic, words[0])).message_id, words[0])
        elif verb == "half":
            message, transaction = message_of(topic, words[0]), producer.begin_transaction()
            message.add_property(MARK, words[1])
            key = producer.send(message, transaction).message_id
            transactions[key], bodies[key] = transaction, words[0]
            say("half", key, words[0])
        elif verb == "answer":
            key, word, TO_CHECKS[words[0]] = words
            if word != "unknown":
                getattr(transactions[key], word)()
            say("ended", key, bodies[key])
        else:
            raise ValueError(line)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[4])
