"""A service on the native client that sends no transactional messages: run as a process of its own.

With the Python of the wheel's environment, or with rocketmq-client-python 2.0.0 on PYTHONPATH. Arguments: scenario,
then what it needs. Prints one JSON object a line; the caller asserts on them. It ends like any program does: hanging
or crashing at exit is one of the accidents.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from checkback_consumers.client_python import NativeConsumer
from checkback_consumers.handler import transactional_handler
from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.client_python import open_native_producer
from checkback_producers.client_python_halves import NativeHalves
from checkback_producers.client_python_plain import NativeAnnouncements, PlainProducer
from checkback_producers.ports import Outcome
from reconciler.announcing.rules import AdmittedKeys, AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.contract.announcement import AnnouncedKey
from reconciler.contract.properties import BUSINESS_ID
from reconciler.errors import MissingDependency, ReconcilerError
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.native_client import load_library, new_instance_name
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox, inbox_metadata
from tests.native.saying import say, until

MESSAGES = 10


def plain_producer(name_servers: str, group: str, **options: Any) -> PlainProducer:
    return PlainProducer(
        load_library(transactions=False),
        group=group,
        name_servers=name_servers,
        instance_name=new_instance_name(group, name_servers),
        **options,
    )


def consume(name_servers: str, first_topic: str, second_topic: str, database_url: str) -> None:
    """Two topics on one consumer; one message is refused once, another one's handler raises once."""
    engine = open_engine(database_url)
    inbox_metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE effects (topic TEXT, body TEXT, business_id TEXT)"))
    group, failed = "native_group_" + first_topic, set[bytes]()

    def effect(message: Any, connection: Any) -> str | None:
        if message.body in {b"raises 3", b"refused 3"} and message.body not in failed:
            failed.add(message.body)
            if message.body.startswith(b"refused"):
                return "RECONSUME_LATER"
            raise ValueError("the first time it does not work")
        connection.execute(
            sa.text("INSERT INTO effects VALUES (:t, :b, :i)"),
            {"t": message.topic, "b": message.body.decode(), "i": message.business_id},
        )
        say(
            "applied",
            topic=message.topic, unique_key=message.unique_key, body=message.body.decode(), tags=message.tags,
            keys=message.keys, colour=message.known_properties.get("colour"), times=message.reconsume_times,
            properties=message.properties,
        )  # fmt: skip
        return None

    handlers = [
        transactional_handler(engine, group=group, topics=topic)(effect) for topic in (first_topic, second_topic)
    ]
    consumer = NativeConsumer(*handlers, name_servers=name_servers, threads=2, property_names=("colour", "absent"))
    with consumer, ClientInstance(name_servers) as instance:
        sender = instance.sender("native_sender")
        for number in range(MESSAGES):
            for topic, word in ((first_topic, "raises"), (second_topic, "refused")):
                sent = Message(
                    topic=topic,
                    body=f"{word} {number}".encode(),
                    tags="paid",
                    keys=(f"k-{number}",),
                    properties={"colour": "blue", BUSINESS_ID: f"order-{number}"},
                )
                say("sent", unique_key=sender.send(sent).unique_key, topic=topic)
        until("all effects", lambda: sum(handler.counts.applied for handler in handlers) >= 2 * MESSAGES)
        members = [a for a in instance.cluster_addresses() if Admin(instance.client).consumer_connections(a, group)]
        say("members", brokers=len(members))
    with engine.connect() as connection:
        rows = connection.execute(sa.select(inbox.c.topic, inbox.c.unique_key, inbox.c.content_digest)).all()
        effects = connection.execute(sa.text("SELECT topic, body, business_id FROM effects")).all()
    say("inbox", rows=[[row.topic, row.unique_key, row.content_digest is not None] for row in rows])
    say("effects", rows=sorted([list(row) for row in effects]))
    say("failures", count=consumer.failures, failed=sum(handler.counts.failed for handler in handlers))
    engine.dispose()


def announce(name_servers: str, topic: str, queues: str) -> None:
    """Announcements through the native producer, read back through the remoting client."""
    route = AnnouncementRoute(
        environment="test", unique_key_topic=topic, queues=int(queues), signature_secret=b"secret"
    )
    producer = plain_producer(name_servers, "native_announcer_" + topic)
    producer.start()
    announcer = Announcer(NativeAnnouncements(producer, queues=int(queues)), route)
    with ClientInstance(name_servers) as instance:
        keys = [
            AnnouncedKey(unique_key=instance.unique_keys.next_key(), tag="paid", committed_at_ms=1) for _ in range(60)
        ]
        confirmed: set[str] = set()

        def rest_is_sent() -> bool:  # as the sweeper does: the library says "No route info" when a machine is slow, too
            rest = [key for key in keys if key.unique_key not in confirmed]
            announced = announcer.announce("ORDERS", "orders", rest)
            confirmed.update(announced.unique_keys)
            return announced.error is None

        until("all announcements", rest_is_sent, seconds=180.0)
        say("announced", keys=sorted(confirmed))
        source = RemotingAnnouncementSource(instance.client, instance.routes)
        rules = AnnouncementRules(environment="test", topic="ORDERS", signature_secret=b"secret")
        for queue in source.queues(topic):
            batch = source.pull(queue, tag="ORDERS", offset=source.earliest(queue), max_messages=32)
            for message in batch.messages:
                admitted = rules.judge(queue, message)
                told = list(admitted.unique_keys) if isinstance(admitted, AdmittedKeys) else None
                say("queue", number=queue.queue_id, admitted=told)
    say("shut down", ended=producer.shutdown())


def register(name_servers: str, topic: str) -> None:
    """The warm-up, with an ordinary producer in the place of the transactional one, which the wheel lacks."""
    wheel = load_library(transactions=False)
    group = "native_registered_" + topic
    client = SimpleNamespace(**vars(wheel.client))
    client.TransactionMQProducer = lambda name, _check: wheel.client.Producer(name)
    library = type(wheel)(client=client, ffi=wheel.ffi, exceptions=wheel.exceptions)
    with ClientInstance(name_servers) as instance:

        def known(name: str) -> bool:
            admin = Admin(instance.client)
            return all(admin.producer_connections(address, name) for address in instance.cluster_addresses())

        cold = plain_producer(name_servers, "native_cold_" + topic)
        cold.start()
        halves = NativeHalves(
            library,
            group=group,
            name_servers=name_servers,
            instance_name=new_instance_name(group, name_servers),
            instance=instance,
            warm_up_topic=topic,
        )
        halves.start(lambda _half: Outcome.UNKNOWN)
        say("registered", warm=known(group), cold=known("native_cold_" + topic))
        halves.shutdown()
        cold.shutdown()


def two_clusters(first: str, second: str, topic: str) -> None:
    """The library's default would send the second producer's message to the first cluster."""
    for name_servers in (first, second):
        producer = plain_producer(name_servers, "native_same_group")
        producer.start()
        producer.send(Message(topic=topic, body=name_servers.encode()), choose=lambda _count: 0)
        say("sent", name_servers=name_servers)


def forgotten(name_servers: str, topic: str) -> None:
    """It is not shut down."""
    producer = plain_producer(name_servers, "native_forgotten_" + topic)
    producer.start()
    producer.send(Message(topic=topic, body=b"one"), choose=lambda _count: 0)


def black_hole(name_servers: str, topic: str) -> None:
    """Name servers that accept connections and never answer."""
    producer = plain_producer(name_servers, "native_black_hole", send_timeout_seconds=1.0)
    producer.start()
    began = time.monotonic()
    try:
        producer.send(Message(topic=topic, body=b"one"), choose=lambda _count: 0)
    except ReconcilerError as error:
        say("refused", kind=type(error).__name__, seconds=time.monotonic() - began)
    producer._native._shutdown_timeout_seconds = 1.0
    began = time.monotonic()
    say("shut down", ended=producer.shutdown(), seconds=time.monotonic() - began)


def no_transactions(name_servers: str, topic: str) -> None:
    try:
        open_native_producer(group="orders", environment="test", name_servers=name_servers, without_outbox=True)
    except MissingDependency as error:
        say("missing", text=str(error))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    scenarios: dict[str, Callable[..., None]] = {
        scenario.__name__: scenario
        for scenario in (consume, announce, register, two_clusters, forgotten, black_hole, no_transactions)
    }
    scenarios[sys.argv[1]](*sys.argv[2:])
    say("end")
