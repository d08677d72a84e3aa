"""The wheel rocketmq 0.4.4 with keys: sends until its push consumer has a message.

Arguments: name servers, access key, secret key.
"""

import os
import sys
import time

from rocketmq.client import Message, Producer, PushConsumer  # noqa: TID253  # runs in an environment of its own

DEADLINE_SECONDS = 60


def main() -> None:
    name_servers, access_key, secret_key = sys.argv[1:]
    consumer, producer = PushConsumer("native-consumers"), Producer("native-producers")
    received: list[str] = []
    for client in (consumer, producer):
        client.set_namesrv_addr(name_servers)
        client.set_session_credentials(access_key, secret_key, "")
    consumer.subscribe("ORDERS", lambda message: received.append(message.id))  # the message ends with the callback
    consumer.start()
    producer.start()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not received and time.monotonic() < deadline:  # a new group starts at the end of its queues
        message = Message("ORDERS")
        message.set_body("signed")
        producer.send_sync(message)
        time.sleep(0.2)
    # While both clients are still referred to: the library crashes where one is collected before its shutdown, and
    # may hang in the shutdown.
    os._exit(0 if received else 1)


if __name__ == "__main__":
    main()
