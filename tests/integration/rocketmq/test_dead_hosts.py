"""Hosts that are off while name servers still list them: their queues stand still, those of the others do not."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client import heartbeat
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.heartbeat import ConsumeFrom
from reconciler.rocketmq.client.name_servers import BrokerAddresses, BrokerQueues, MessageQueue, TopicRoute
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.consumer.process_queue import ProcessQueue
from reconciler.rocketmq.consumer.push_consumer import PushConsumer, PushSettings
from tests.integration.rocketmq.conftest import Collector, held_queues, new_topic, send
from tests.polling import eventually

#: Far more than the test waits for a message.
CONNECT_SECONDS = 600.0


@pytest.fixture
def dead_hosts() -> Iterator[list[str]]:
    """Addresses that drop SYNs: listeners whose queue of connections is full."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for _ in range(3):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for filler in [stack.enter_context(socket.socket()) for _ in range(3)]:
                filler.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    filler.connect(listener.getsockname())
            addresses.append(f"127.0.0.1:{listener.getsockname()[1]}")
        yield addresses


def test_dead_hosts_hold_up_neither_the_queues_nor_the_heartbeats_of_others(
    broker: EmbeddedBroker, instance: ClientInstance, dead_hosts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "TIMEOUT_SECONDS", 0.5)
    topic = new_topic(instance, broker.address, queues=1)
    got = Collector()
    settings = PushSettings(consume_from=ConsumeFrom.FIRST, offset_commit_interval_seconds=0.2)
    with (
        RemotingClient(connect_timeout_seconds=CONNECT_SECONDS) as client,
        ClientInstance(broker.name_servers, client=client, heartbeat_interval_seconds=0.5) as own,
        PushConsumer("G", instance=own, settings=settings).subscribe(topic).register_listener(got) as consumer,
    ):
        eventually(lambda: held_queues(consumer, topic) == [0], within_seconds=60)
        told = own.routes.route(topic)
        dead = {
            f"dead-{n}": BrokerAddresses(broker_name=f"dead-{n}", cluster="C", addresses={0: address})
            for n, address in enumerate(dead_hosts)
        }
        queues = [BrokerQueues(broker_name=name, read_queues=4, write_queues=4, permission=6) for name in dead]
        route = TopicRoute(topic=topic, queues=(*told.queues, *queues), brokers={**told.brokers, **dead})
        monkeypatch.setattr(own.routes, "_get", lambda name, *_, **__: route if name == topic else told)
        running = consumer._running
        assert running is not None
        for name in dead:  # held since before the hosts went off
            for number in range(4):
                queue = MessageQueue(topic=topic, broker_name=name, queue_id=number)
                held = ProcessQueue(queue, start_offset=0)
                running.assignment._held[queue] = held
                running._pulling.pull_soon(held)
        for number in range(3):
            beat = own.heartbeats._last_beat
            send(instance, topic, [str(number)])
            eventually(lambda n=number: len(got.bodies) == n + 1, within_seconds=60)  # type: ignore[misc]
            eventually(lambda b=beat: own.heartbeats._last_beat > b, within_seconds=60)  # type: ignore[misc]
        eventually(lambda: broker.address in own.heartbeats._taken, within_seconds=60)
        running.assignment._held.clear()
