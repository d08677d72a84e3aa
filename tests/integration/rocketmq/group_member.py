"""A member of a consumer group as a process of its own: prints one line for each message, until it is killed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from reconciler.rocketmq.consumer.push_consumer import (
    ConsumeFrom,
    ConsumeStatus,
    PushConsumer,
    PushSettings,
    ReceivedMessage,
)


def main(name_servers: str, group: str, topic: str) -> None:
    settings = PushSettings(
        consume_from=ConsumeFrom.FIRST,
        threads=2,
        offset_commit_interval_seconds=0.1,
        rebalance_interval_seconds=1.0,
        suspend_seconds=2.0,
    )

    def listener(messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        for message in messages:
            sys.stdout.write(message.body.decode() + "\n")
            sys.stdout.flush()
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(group, name_servers=name_servers, settings=settings)
    consumer.subscribe(topic).register_listener(listener).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
