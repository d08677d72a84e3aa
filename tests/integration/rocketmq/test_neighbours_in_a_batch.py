"""Messages delivered together over the wire: the fault of one costs its neighbours nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.push import TransactionalConsumer
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.message import Message
from tests.integration.rocketmq.conftest import new_topic
from tests.polling import eventually
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, sqlite_url

RETRIES = 2


@pytest.mark.parametrize("is_orderly", [False, True])
def test_the_neighbours_of_a_bad_message_are_never_sent_back_or_given_up_with_it(
    broker: EmbeddedBroker,
    instance: ClientInstance,
    tmp_path: Path,
    is_orderly: bool,
) -> None:
    topic = new_topic(instance, broker.address, queues=1)
    sender = instance.sender("P")
    bodies = [b"bad %d" % n if n % 3 == 0 else b"good %d" % n for n in range(30)]
    for body in bodies:
        sender.send(Message(topic=topic, body=body))
    came_back: list[bytes] = []
    order: list[bytes] = []
    with inbox_engine(sqlite_url(tmp_path)) as engine:

        @transactional_handler(engine, group="G-neighbours", topics=topic, is_batched=True)
        def bill(received: ConsumedMessage, connection: sa.Connection) -> None:
            if received.body.startswith(b"bad"):
                raise ValueError("the business says no")
            if received.reconsume_times:
                came_back.append(received.body)
            order.append(received.body)
            connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))

        settings = PushSettings(batch_size=32, max_reconsume_times=RETRIES, orderly_suspend_seconds=0.02)
        with TransactionalConsumer(bill, instance=instance, settings=settings, orderly=is_orderly):
            eventually(lambda: effect_count(engine) == 20, within_seconds=40)
    assert came_back == []
    if is_orderly:
        assert list(dict.fromkeys(order)) == [body for body in bodies if body.startswith(b"good")]
