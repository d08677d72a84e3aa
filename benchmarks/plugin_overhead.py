"""What the consumer plug-in adds to a handler, a message: the inbox's database and Redis left out.

    python -m benchmarks.plugin_overhead [--messages 20000] [--repeat 7] [--properties 4] [--body 512]

The same handler is called bare and behind TransactionalHandler whose inbox writes nothing, in turns on one thread, with
the remoting client's own message class. `recorded` adds a recorder that answers at once: what the real one waits for is
its batch in Redis (benchmarks/recorder.py). Prints one JSON line: the median over all turns of the microseconds a
message that are added, by processor time of the thread, and the share of a handler that takes one millisecond.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from checkback_consumers.effect import Effect
from checkback_consumers.handler import TransactionalHandler
from checkback_consumers.inbox import InboxAnswer, InboxEntry
from checkback_consumers.message import ConsumedMessage, HandedOverMessage


class NoInbox:
    """Runs the effect, writes nothing."""

    is_weaker = False

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        del entry
        effect(None)
        return InboxAnswer.NEW


class NoRecorder:
    """Has every key at once."""

    def record(self, topic: str, unique_key: str) -> bool:
        del topic, unique_key
        return True


def business(message: ConsumedMessage, connection: object) -> None:
    """A handler that does nothing: all time is the plug-in's."""


def messages(count: int, *, properties: int, body: int) -> list[HandedOverMessage]:
    """Messages as they arrive: reserved properties, and some of the user's."""
    reserved = {"TAGS": "paid", "WAIT": "true", "PGROUP": "order-service", "TRAN_MSG": "true", "MSG_REGION": "main"}
    users = {f"trace-{number}": f"value of {number}" for number in range(properties)}
    return [
        HandedOverMessage(
            topic="ORDERS",
            unique_key=(key := f"{number:032X}"),
            body=b"x" * body,
            properties=reserved | users | {"UNIQ_KEY": key, "KEYS": f"order-{number}"},
        )
        for number in range(count)
    ]


def seconds(handle: Callable[[HandedOverMessage], object], arrived: Sequence[HandedOverMessage]) -> float:
    """Processor seconds of this thread for all messages."""
    start = time.thread_time()
    for message in arrived:
        handle(message)
    return time.thread_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--properties", type=int, default=4, help="user properties a message")
    parser.add_argument("--body", type=int, default=512, help="bytes")
    options = parser.parse_args()
    arrived = messages(options.messages, properties=options.properties, body=options.body)
    ways: dict[str, Callable[[HandedOverMessage], object]] = {
        "plain": TransactionalHandler(business, NoInbox(), group="billing", topics=["ORDERS"]),
        "recorded": TransactionalHandler(
            business, NoInbox(), group="billing", topics=["ORDERS"], recorder=NoRecorder()
        ),
    }
    added: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.repeat):
        bare = seconds(lambda message: business(message, None), arrived)
        for name, handle in ways.items():
            added[name].append((seconds(handle, arrived) - bare) / len(arrived) * 1e6)
    medians = {name: statistics.median(found) for name, found in added.items()}
    print(
        json.dumps(
            {
                "messages": options.messages,
                "turns": options.repeat,
                "user_properties": options.properties,
                "body_bytes": options.body,
                "added_microseconds": {name: round(value, 2) for name, value in medians.items()},
                "percent_of_a_millisecond": {name: round(value / 10, 2) for name, value in medians.items()},
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
