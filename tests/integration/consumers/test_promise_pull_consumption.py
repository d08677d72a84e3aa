"""A service that pulls by itself: the same handler, and offsets that it reports after its inbox commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from reconciler.evidence.watermark import CONSUMED, Watermarks
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import received
from reconciler.words import said
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.patient_instance import patient_instance
from tests.services.topics import create_topic, topic_name
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, sqlite_url

GROUP = "pulling-billing"


class PullingService:
    """Pulls one queue with an offset of its own."""

    def __init__(self, broker: EmbeddedBroker, instance: ClientInstance, handler: TransactionalHandler) -> None:
        self.topic = create_topic(broker.port, topic_name("PULL"), queues=1, name_server_port=broker.port)
        self.queue = MessageQueue(topic=self.topic, broker_name=broker.broker_name, queue_id=0)
        self._address = broker.name_servers
        self._instance = instance
        self._handler = handler
        self.offset = 0

    def send(self, *bodies: bytes) -> None:
        sender = self._instance.sender("orders")
        for body in bodies:
            sender.send(Message(topic=self.topic, body=body), queue=self.queue)

    def work(self) -> None:
        """Until the end of the queue, or the first message that must come again."""
        while True:
            request = PullRequest(queue=self.queue, offset=self.offset, group=GROUP)
            pulled = pull(self._instance.client, self._address, request)
            for record in pulled.records:
                if self._handler(received(record)) is not ConsumeStatus.CONSUME_SUCCESS:
                    return
                self.offset = record.queue_offset + 1
            if not pulled.records:
                return

    def report(self) -> None:
        Offsets(self._instance.client).store(self._address, self.queue, GROUP, self.offset)

    def watermark(self) -> Watermark:
        watermarks = Watermarks(self._instance.client, self._instance.routes, self._instance.families)
        return watermarks.watermark(self.topic, GROUP, skew_margin_seconds=0.0)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        yield opened


def test_a_pull_consumer_is_judged_once_it_reports_its_offset(engine: sa.Engine) -> None:
    fails = {b"second"}

    @transactional_handler(engine, group=GROUP)
    def pay(message: ConsumedMessage, connection: sa.Connection) -> None:
        connection.execute(effects.insert().values(unique_key=message.unique_key, amount=1))
        if message.body in fails:
            raise RuntimeError("not today")

    with EmbeddedBroker() as broker, patient_instance(broker.name_servers) as instance:
        service = PullingService(broker, instance, pay)
        service.send(b"first", b"second", b"third")
        service.work()
        assert (effect_count(engine), service.offset) == (1, 1)
        assert service.watermark().state is WatermarkState.UNKNOWN, "nobody told the broker"

        service.report()
        held_back = service.watermark()
        assert held_back.state is WatermarkState.KNOWN
        assert said(held_back.detail).endswith("at 1 of 3")

        fails.clear()
        service.offset = 0  # a restart from an older place repeats nothing
        service.work()
        service.report()
        assert (effect_count(engine), pay.counts.duplicates) == (3, 1)
        assert service.watermark().at_ms > held_back.at_ms
        assert service.watermark().detail == CONSUMED()
