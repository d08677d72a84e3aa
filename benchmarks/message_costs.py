"""What one message costs where the plug-ins run: statements, requests, commands, time and rows.

    python -m benchmarks.message_costs [--messages 300] [--turns 5] [--body 512] [--batch 32] [--out FILE]

PostgreSQL with fsync, redis-server and the embedded broker, one thread. The same business transaction (one INSERT) runs
bare and inside the producer's block, then bare and behind the consumer's decorator with a recorder, in turns.
Statements are those that PostgreSQL logged, BEGIN and COMMIT among them; requests are counted in the producer's
client, commands by Redis.
`completing` compares the decorator with one whose inbox lacks the column `incomplete`; `completing_batches` does so for
messages that share a transaction.
`times` is the median of each turn's ratio to bare, `added_ms` the median of what is added to a message: both belong to
the machine. Bytes are those of table and indexes, a row, once all rows are announced.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from redis import Redis

from benchmarks.load.postgres import ask, make_shop, tell
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import HandedOverMessage
from checkback_consumers.recorder import CommitRecorder
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import open_producer
from reconciler.contract.tables import INCOMPLETE, OUTBOX
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import Passage, RemotingClient
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.sql import schema
from tests.polling import eventually
from tests.services.postgres import PostgresServer
from tests.services.redis_server import RedisServer

INSERT_ORDER = sa.insert(sa.table("orders", sa.column("unique_key"), sa.column("amount")))
INSERT_EFFECT = sa.insert(sa.table("effects", sa.column("unique_key"), sa.column("amount")))
TOPIC, KEYS_TOPIC, SHARDS = "ORDERS", "RECONCILER_UNIQUE_KEY", 16
_LOGGED = ("statement: ", "execute ")


class Counted:
    """What happens between two glances, a message."""

    def __init__(self, server: PostgresServer, requests: Counter[str], redis: Redis) -> None:
        self._server, self._requests, self._redis = server, requests, redis

    def glance(self) -> Counter[str]:
        """Everything so far."""
        lines = self._server.log.read_text(encoding="utf-8", errors="replace").splitlines()
        counted = Counter({"statements": sum(any(kind in line for kind in _LOGGED) for line in lines)})
        stats: Any = self._redis.info("commandstats")
        counted["redis_sadd"] = stats.get("cmdstat_sadd", {}).get("calls", 0)
        return counted + self._requests

    def of(self, act: Callable[[], object], messages: int) -> dict[str, float]:
        """Counts a message."""
        before = self.glance()
        act()
        after = self.glance()
        return {name: round((after[name] - before[name]) / messages, 2) for name in after if after[name] > before[name]}


def compared(
    bare: Callable[[int], object], whole: Callable[[int], object], turns: int, messages: int
) -> dict[str, float]:
    """Time of one to the other, turn by turn."""
    times, added = [], []
    for _ in range(turns):
        one, other = (seconds(act, messages) for act in (bare, whole))
        times.append(other / one)
        added.append((other - one) / messages * 1_000)
    return {"times": round(statistics.median(times), 2), "added_ms": round(statistics.median(added), 2)}


def seconds(act: Callable[[int], object], messages: int) -> float:
    """What it takes."""
    start = time.perf_counter()
    act(messages)
    return time.perf_counter() - start


def producing(stack: ExitStack, url: str, counted: Counted, instance: ClientInstance, options: Any) -> dict[str, Any]:
    """The block, its outbox row kept without and with the body."""
    engine = sa.create_engine(url)
    stack.callback(engine.dispose)
    numbers = iter(range(1 << 40))

    def bare(messages: int) -> None:
        for _ in range(messages):
            with engine.begin() as connection:
                connection.execute(INSERT_ORDER, {"unique_key": f"{next(numbers):032X}", "amount": 100})

    def blocks(producer: TransactionalProducer, messages: int) -> None:
        for _ in range(messages):
            message = Message(topic=TOPIC, body=b"x" * options.body, tags="paid", keys=("order-7",))
            with producer.transaction(message) as transaction, engine.begin() as connection:
                transaction.record(connection)
                connection.execute(INSERT_ORDER, {"unique_key": transaction.unique_key, "amount": 100})

    def announced() -> bool:
        return ask(url, f"SELECT count(*) FROM {OUTBOX.name} WHERE state = 'NEW'")[0][0] == 0

    figures: dict[str, Any] = {}
    for keep_bodies in (False, True):
        producer = stack.enter_context(
            open_producer(
                group=f"order-service-{keep_bodies}",
                environment="costs",
                instance=instance,
                outbox_url=url,
                keep_bodies=keep_bodies,
            )
        )
        tell(url, f"TRUNCATE {OUTBOX.name}")
        blocks(producer, 20)
        eventually(announced, within_seconds=60)

        def all_of(producer: TransactionalProducer = producer) -> None:
            blocks(producer, options.messages)
            eventually(announced, within_seconds=60)

        if not keep_bodies:
            figures["bare"] = counted.of(lambda: bare(options.messages), options.messages)
            figures["block"] = counted.of(all_of, options.messages)
            figures |= compared(bare, lambda n, p=producer: blocks(p, n), options.turns, options.messages)
        else:
            all_of()
        eventually(announced, within_seconds=60)
        figures["row_bytes_with_body" if keep_bodies else "row_bytes"] = row_bytes(url, OUTBOX.name)
    return figures


def consuming(
    stack: ExitStack, url: str, older_url: str, counted: Counted, redis_url: str, options: Any
) -> dict[str, Any]:
    """The decorator with a recorder; and beside an inbox of an older release, whose rows are complete at once."""
    engine, older = sa.create_engine(url), sa.create_engine(older_url)
    stack.callback(engine.dispose)
    stack.callback(older.dispose)
    numbers = iter(range(1 << 40))
    recorder = stack.enter_context(
        CommitRecorder.open(redis_url, environment="costs", group="billing", topics=[TOPIC], shards=SHARDS)
    )

    def effect(message: Any, connection: sa.Connection) -> None:
        connection.execute(INSERT_EFFECT, {"unique_key": message.unique_key, "amount": 100})

    handle, at_once = (
        transactional_handler(database, group="billing", topics=TOPIC, recorder=recorder)(effect)
        for database in (engine, older)
    )

    def arriving() -> HandedOverMessage:
        key = f"{next(numbers):032X}"
        properties = {"UNIQ_KEY": key, "TAGS": "paid", "KEYS": "order-7", "BUSINESS_ID": "order-7"}
        return HandedOverMessage(topic=TOPIC, unique_key=key, body=b"x" * options.body, properties=properties)

    def bare(messages: int) -> None:
        for _ in range(messages):
            with engine.begin() as connection:
                connection.execute(INSERT_EFFECT, {"unique_key": arriving().unique_key, "amount": 100})

    def handled(messages: int, by: TransactionalHandler = handle) -> None:
        for _ in range(messages):
            by.apply(arriving())

    handled(20)
    handled(20, at_once)
    figures: dict[str, Any] = {
        "bare": counted.of(lambda: bare(options.messages), options.messages),
        "handler": counted.of(lambda: handled(options.messages), options.messages),
    }
    figures |= compared(bare, handled, options.turns, options.messages)
    together, together_at_once = (
        transactional_handler(database, group="billing", topics=TOPIC, recorder=recorder, is_batched=True)(effect)
        for database in (engine, older)
    )

    def in_batches(messages: int, by: TransactionalHandler) -> None:
        for first in range(0, messages, options.batch):
            batch = [arriving() for _ in range(min(options.batch, messages - first))]
            if by.listener(batch) is not ConsumeStatus.CONSUME_SUCCESS:
                raise SystemExit("a batch was not applied")

    turns = 2 * options.turns + 1
    figures["completing"] = compared(lambda n: handled(n, at_once), handled, turns, options.messages)
    figures["completing_batches"] = compared(
        lambda n: in_batches(n, together_at_once), lambda n: in_batches(n, together), turns, options.messages
    )
    return figures | {"row_bytes": row_bytes(url, "reconciler_inbox")}


def row_bytes(url: str, table: str) -> int:
    """Table and indexes, a row."""
    ((rows, size),) = ask(url, f"SELECT count(*), pg_total_relation_size('{table}') FROM {table}")
    return round(size / rows)


def counting(counts: Counter[str]) -> Passage:
    """Counts requests of a client to the broker, by name."""

    def count(_address: str, command: Command) -> Command:
        counts[RequestCode(command.code).name] += 1
        return command

    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--body", type=int, default=512, help="bytes")
    parser.add_argument("--batch", type=int, default=32, help="messages of one transaction")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    durable = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "log_statement": "all"}
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(options=durable))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="message-costs-")))
        redis_server = stack.enter_context(RedisServer(folder))
        broker = stack.enter_context(EmbeddedBroker())
        requests: Counter[str] = Counter()
        client = stack.enter_context(closing(RemotingClient(outgoing=counting(requests))))
        instance = stack.enter_context(ClientInstance(broker.name_servers, client=client))
        for topic, queues in ((TOPIC, 4), (KEYS_TOPIC, SHARDS)):
            Admin(instance.client).create_topic(broker.address, topic, queues=queues)
        orders, billing, _ = make_shop(server)
        schema.upgrade(orders, "outbox")
        schema.upgrade(billing, "inbox")
        older = make_shop(server)[1]
        schema.upgrade(older, "inbox")
        tell(older, f"ALTER TABLE reconciler_inbox DROP COLUMN {INCOMPLETE}")
        redis = Redis.from_url(redis_server.url)
        stack.callback(redis.close)
        counted = Counted(server, requests, redis)
        figures = {
            "messages": options.messages,
            "body_bytes": options.body,
            "producer": producing(stack, orders, counted, instance, options),
            "consumer": consuming(stack, billing, older, counted, redis_server.url, options),
        }
    text = json.dumps(figures, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
