"""The simulated broker that pops: what was handed out and not acknowledged comes again."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from reconciler.rocketmq.wire.codes import MQVersion
from reconciler.rocketmq.wire.record import MessageRecord
from tests.simulation.broker import Broker, BrokerSettings
from tests.simulation.kernel import Kernel, Link
from tests.simulation.popping import INVISIBLE_SECONDS, PoppedMessages

GROUP, RETRY = "billing", "%RETRY%billing_ORDERS"


def broker_of(kernel: Kernel) -> Broker:
    settings = BrokerSettings(version=MQVersion.of_release("5.3.3"))
    link = Link(kernel, "broker", delay_seconds=0.002)
    return Broker(kernel, "broker-0", settings, host="10.0.0.1", link=link, skew_ms=0)


def store(broker: Broker, topic: str) -> MessageRecord:
    return broker.append(topic, 0, {"UNIQ_KEY": "7F00000100002A9F4D3B1C0000000001"}, b"order 1")


def acknowledges(popped: PoppedMessages, record: MessageRecord) -> None:
    popped.acknowledge(GROUP, record)


def wants_again(popped: PoppedMessages, record: MessageRecord) -> None:
    popped.change(GROUP, record, seconds=9.0)


@pytest.mark.parametrize("says", [acknowledges, wants_again])
def test_a_late_word_on_a_lost_record_leaves_the_hand_out_of_its_successor(
    says: Callable[[PoppedMessages, MessageRecord], None],
) -> None:
    kernel = Kernel(random.Random(1))
    broker = broker_of(kernel)
    kernel.run(10.0)
    store(broker, RETRY)
    (lost,) = broker.popped.pop(GROUP, RETRY, 0, maximum=16)
    assert broker.lose_tail(1.0) == 1
    kernel.run(20.0)
    (successor,) = broker.popped.pop(GROUP, RETRY, 0, maximum=16)
    assert (successor.queue_offset, successor.unique_key) == (lost.queue_offset, lost.unique_key)
    says(broker.popped, lost)
    kernel.run(20.0 + INVISIBLE_SECONDS + 1.0)
    (again,) = broker.popped.pop(GROUP, RETRY, 0, maximum=16)
    assert again.unique_key == successor.unique_key


def test_what_was_acknowledged_does_not_come_again() -> None:
    kernel = Kernel(random.Random(1))
    broker = broker_of(kernel)
    store(broker, "ORDERS")
    (record,) = broker.popped.pop(GROUP, "ORDERS", 0, maximum=16)
    broker.popped.acknowledge(GROUP, record)
    kernel.run(INVISIBLE_SECONDS + 1.0)
    assert broker.popped.pop(GROUP, RETRY, 0, maximum=16) == []
