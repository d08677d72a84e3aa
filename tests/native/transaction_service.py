"""A service that sends transactional messages over rocketmq-client-python 2.0.0 and librocketmq 2.x, as a process.

Arguments: scenario, name servers, topic, probe topic, unique-key topic, database URL. Prints one JSON object a line.
"""

from __future__ import annotations

import base64
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.client_python import NativeProducer, open_native_producer
from checkback_producers.transaction import Transaction
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.contract.announcement import decode_announcement
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import outbox, outbox_metadata
from tests.native.saying import say, until

QUEUES = 4


class Service:
    """The service with its database."""

    def __init__(
        self, name_servers: str, topic: str, probe_topic: str, unique_key_topic: str, database_url: str
    ) -> None:
        self.topic, self.group = topic, "native_" + topic
        self.unique_key_topic, self.database_url = unique_key_topic, database_url
        self.engine = open_engine(database_url)
        outbox_metadata.create_all(self.engine)
        ensure_identity(self.engine)
        self.instance = ClientInstance(name_servers)
        self.name_servers, self.probe_topic = name_servers, probe_topic

    def producer(self, **options: Any) -> NativeProducer:
        route = AnnouncementRoute(environment="test", unique_key_topic=self.unique_key_topic, queues=QUEUES)
        return open_native_producer(
            group=self.group,
            environment="test",
            name_servers=self.name_servers,
            outbox_url=self.database_url,
            announcements=route,
            warm_up_topic=self.probe_topic,
            local_transaction_timeout_seconds=3.0,
            **options,
        )

    def message(self, name: str) -> Message:
        return Message(
            topic=self.topic, body=name.encode(), tags="paid", keys=(name[:20],), properties={"colour": "blue"}
        )

    def place(self, tx: Transaction) -> None:
        with self.engine.begin() as connection:
            tx.record(connection)

    def copies(self) -> dict[str, str]:
        """Unique key and body of every message that consumers see."""
        found: dict[str, str] = {}
        for queue in self.instance.routes.read_queues(self.topic):
            master = self.instance.routes.master_of(self.topic, queue.broker_name)
            request = PullRequest(queue=queue, offset=0, group="native_reader", maximum=32, subscription="*")
            for record in pull(self.instance.client, str(master), request).records:
                found[record.properties["UNIQ_KEY"]] = record.plain_body(maximum_bytes=1_000_000).decode()
        return found

    def announced(self) -> list[tuple[int, str]]:
        source = RemotingAnnouncementSource(self.instance.client, self.instance.routes)
        return [
            (queue.queue_id, key.unique_key)
            for queue in source.queues(self.unique_key_topic)
            for message in source.pull(queue, tag=self.topic, offset=0, max_messages=32).messages
            for key in decode_announcement(message.body).keys
        ]

    def report(self) -> None:
        with self.engine.connect() as connection:
            columns = (outbox.c.unique_key, outbox.c.state, outbox.c.half_commit_log_offset)
            rows = [list(row) for row in connection.execute(sa.select(*columns))]
        say("outbox", rows=rows)
        say("copies", found=self.copies())
        say("announced", found=self.announced())
        self.instance.close()
        self.engine.dispose()


def outcomes(service: Service) -> None:
    """Every way in which a local transaction ends."""
    with service.producer() as producer:
        addresses = service.instance.cluster_addresses()
        admin = Admin(service.instance.client)
        say("registered", everywhere=all(admin.producer_connections(a, service.group) for a in addresses))

        def send(name: str, local: Callable[[Transaction], object]) -> None:
            seen: list[Transaction] = []

            def watched(tx: Transaction) -> None:
                seen.append(tx)
                local(tx)

            raised = ""
            try:
                producer.send(service.message(name), watched)
            except BaseException as error:  # KeyboardInterrupt is one of the cases
                raised = type(error).__name__
            (tx,) = seen
            say("sent", name=name, key=tx.unique_key, outcome=tx.outcome, announced=tx.is_announced, raised=raised)

        def raising(error: BaseException) -> Callable[[Transaction], object]:
            def local(tx: Transaction) -> None:
                with service.engine.begin() as connection:
                    tx.record(connection)
                    raise error

            return local

        for number in range(5):
            send(f"commit-{number}", service.place)
        send("raises", raising(ValueError("no stock")))
        send("interrupted", raising(KeyboardInterrupt()))
        send("forgotten", lambda _tx: None)
        with service.engine.connect() as outer:
            send("open", lambda tx: tx.record(outer))
            outer.commit()
        until("check-back of the open one", lambda: "open" in service.copies().values())
        producer.send(service.message("x" * 100_000), service.place)
        until("the large one", lambda: any(len(body) == 100_000 for body in service.copies().values()))
    service.report()


def check_at_once(service: Service) -> None:
    """A half in the first second, whose END_TRANSACTION says UNKNOWN, and one that was not recorded."""
    with service.producer(completion="check") as producer:
        with producer.transaction(service.message("first")) as tx:
            service.place(tx)
        say("sent", name="first", key=tx.unique_key, outcome=tx.outcome)
        try:
            with producer.transaction(service.message("forgotten")) as tx:
                pass
        except Exception as error:  # said
            say("sent", name="forgotten", key=tx.unique_key, raised=type(error).__name__)

        def states() -> list[str]:
            with service.engine.connect() as connection:
                return sorted(connection.execute(sa.select(outbox.c.state)).scalars())

        until("the first one", lambda: "first" in service.copies().values())
        until("the tombstone of the other", lambda: "ROLLED_BACK" in states())
    service.report()


def memory(service: Service) -> None:
    """Many large messages: none may stay in the process."""

    def resident_bytes() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with service.producer() as producer:
        # The library keeps the compressed body: this one does not shrink much.
        sent = service.message(base64.b64encode(os.urandom(75_000)).decode())
        for _ in range(50):
            producer.send(sent, service.place)
        before = resident_bytes()
        for _ in range(500):
            producer.send(sent, service.place)
        say("grown", bytes=resident_bytes() - before)
    service.instance.close()
    service.engine.dispose()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    {"outcomes": outcomes, "check_at_once": check_at_once, "memory": memory}[sys.argv[1]](Service(*sys.argv[2:]))
    say("end")
