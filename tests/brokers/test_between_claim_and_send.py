"""What happens on a real broker between the claim of a send by a query and its byte: a producer comes back, or the
broker puts the half back. By night."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.commands.once import run_once
from reconciler.evidence.lookup import Lookups
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.evidence import Recorded, SendAnswer, StoredMessage
from reconciler.policy.ports.asked import Asked
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.producer.ending import EndAnswer, EndRequest, end_soon
from reconciler.rocketmq.wire.codes import CHECK_GROUP, HALF_TOPIC
from reconciler.settings.file import load_settings
from tests.acceptance.command import reconciler
from tests.brokers.addresses import REAL
from tests.brokers.java_service import CLIENTS, JavaService
from tests.brokers.query_shop import Shop, make_orders, settings
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.services.redis_server import RedisServer
from tests.services.rocketmq import RocketMQCluster, marks
from tests.services.topics import create_topic, topic_name

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600), *marks(REAL)]

SECONDS = 120.0


@dataclass
class Sends:
    """Ends that this process sends, and what it does right before the first one."""

    act: Callable[[StoredMessage], object]
    #: What the first send was aimed at.
    first: list[StoredMessage] = field(default_factory=list)
    ends: list[EndRequest] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begin = RemotingBrokerRepairs.end_transaction

        def begins(
            sends: RemotingBrokerRepairs, half: StoredMessage, *, expected: Recorded, commit: bool
        ) -> Asked[Asked[SendAnswer]]:
            if not self.first:
                self.first.append(half)
                self.act(half)
            return begin(sends, half, expected=expected, commit=commit)

        def ends(client: RemotingClient, request: EndRequest) -> Asked[EndAnswer]:
            self.ends.append(request)
            return end_soon(client, request)

        monkeypatch.setattr(RemotingBrokerRepairs, "end_transaction", begins)
        monkeypatch.setattr("reconciler.evidence.repairs.end_soon", ends)


class Broker:
    """What the broker has of the half of an order."""

    def __init__(self, cluster: RocketMQCluster, instance: ClientInstance, shop: Shop) -> None:
        self._cluster, self._instance, self._shop, self.address = cluster, instance, shop, cluster.broker().address
        self._lookups = Lookups(instance.client, instance.routes, instance.families)
        (self._key,) = shop.keys
        self.stack = ExitStack()

    def halves(self) -> Sequence[StoredMessage]:
        return self._lookups.view_message(self._shop.topic, self._key)().records

    def copies(self) -> int:
        return len(self._lookups.committed_copies(self._shop.topic, self._key)().records)

    def producer_comes(self, _half: StoredMessage | None = None) -> None:
        """One of the stock Java client, which answers by its order's row when it is asked. Its broker knows it from the
        first message that it sends."""
        version = CLIENTS[self._cluster.version]
        java = JavaService("sell", self._cluster.name_servers, self._shop.topic, self._shop.folder, version=version)
        self.stack.callback(java.kill)
        java.sell([("back", "back", "paid")])
        self._shop.keys |= java.keys()
        admin = Admin(self._instance.client)
        eventually(lambda: admin.producer_connections(self.address, self._shop.group), within_seconds=SECONDS)

    def puts_back(self, half: StoredMessage) -> None:
        eventually(lambda: self.halves()[-1].queue_offset > half.queue_offset, within_seconds=25)

    def has_nothing_open(self) -> bool:
        """Its check service is at the end of the half queue."""
        (queue,) = {MessageQueue(topic=HALF_TOPIC, broker_name=one.broker, queue_id=0) for one in self.halves()}
        offsets = Offsets(self._instance.client)
        return offsets.of_group(self.address, queue, CHECK_GROUP) == offsets.maximum(self.address, queue)


@contextmanager
def running(config: Path) -> Iterator[Callable[[], None]]:
    """Rounds in this process; what is returned raises what they raised."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(run_once, load_settings(config, {}), stop, wait_seconds=4 * SECONDS)

        def looks_well() -> None:
            if done.done():
                done.result()

        try:
            yield looks_well
        finally:
            stop.set()
            done.result(SECONDS)


@pytest.mark.parametrize("accident", ["producer comes back", "half is put back"])
def test_what_happens_between_the_claim_of_a_send_and_its_byte_delivers_nothing_twice(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accident: str
) -> None:
    with (
        RocketMQCluster(REAL, properties={"transactionCheckMax": "200"}) as cluster,
        patient_instance(cluster.name_servers) as instance,
    ):
        port = cluster.broker().port
        topic = create_topic(port, topic_name("between"), name_server_port=cluster.name_server.port)
        make_orders(tmp_path, [("late", "PAID")])
        config = settings(
            tmp_path,
            name_servers=cluster.name_servers,
            topic=topic,
            redis_url=redis_server.url,
            repairs=f'repairs.topics."{topic}" = true',
            of_subscription="consumers_are_idempotent = true",
        )
        shop = Shop(instance, topic, tmp_path)
        shop.half("late")
        broker = Broker(cluster, instance, shop)
        eventually(lambda: bool(broker.halves()), within_seconds=SECONDS)
        accepted = reconciler("query", "accept", topic, "--config", str(config), "--reason", "few halves yet")
        assert accepted.exit_code == 0, accepted.stdout
        sends = Sends(broker.producer_comes if accident == "producer comes back" else broker.puts_back)
        sends.watch(monkeypatch)
        with broker.stack, shop.consumer.register_listener(shop.bill), running(config) as looks_well:

            def is_done() -> bool:
                looks_well()
                return shop.billed["late"] > 0 and shop.repairs().get("late", ("", 0))[0] == "DONE"

            eventually(is_done, within_seconds=2 * SECONDS)
            if accident == "half is put back":
                broker.producer_comes()
            eventually(broker.has_nothing_open, within_seconds=SECONDS)
            assert broker.copies() == 1
        assert shop.billed == Counter({"late": 1, "back": 1})
        (first,) = sends.first
        if accident == "producer comes back":
            assert not sends.ends, "its own answer delivers it"
        else:
            (end,) = sends.ends
            assert end.commit_log_offset > first.commit_log_offset, "END on the newest copy"
