"""What the pull loop does with an answer that comes after something else has happened to its queue."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from reconciler.rocketmq.client.name_servers import BrokerAddresses, MessageQueue, TopicRoute
from reconciler.rocketmq.client.topic_subscription import EVERY_TAG, subscribe_to
from reconciler.rocketmq.consumer.process_queue import ProcessQueue
from reconciler.rocketmq.consumer.pull_loop import PullLoop
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)
ROUTE = TopicRoute(
    topic="T", queues=(), brokers={"b": BrokerAddresses(broker_name="b", cluster="", addresses={0: "127.0.0.1:1"})}
)


class Broker:
    """Client, route and thread of the loop in one: each pull is answered by its test."""

    request_timeout_seconds = 1.0

    def __init__(self) -> None:
        self.pulls: list[tuple[int, Future[Command]]] = []

    def submit_soon(self, _address: str, command: Command, _timeout_seconds: float) -> Future[Command]:
        self.pulls.append((int(command.fields["queueOffset"]), Future()))
        return self.pulls[-1][1]

    def route(self, _topic: str) -> TopicRoute:
        return ROUTE

    def soon(self, step: Callable[[], object]) -> None:
        step()

    def later(self, _delay_seconds: float, step: Callable[[], object]) -> None:
        step()

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.pulls]


@pytest.mark.parametrize(("reset_to", "goes_on_at"), [(None, 50), (5, 5)], ids=["no reset", "reset meanwhile"])
def test_an_offset_that_a_broker_corrects_undoes_no_reset_that_came_meanwhile(
    reset_to: int | None, goes_on_at: int
) -> None:
    broker = cast("Any", Broker())
    moved: list[ProcessQueue] = []
    loop = PullLoop(
        broker,
        broker,
        group="CG",
        settings=PushSettings(),
        subscriptions={"T": subscribe_to("T", EVERY_TAG, version=1)},
        steps=broker,
        consumption=broker,
        on_doubt=lambda _: None,
        on_offset_moved=moved.append,
        give_back=lambda _: True,
    )
    queue = ProcessQueue(QUEUE, start_offset=100)
    loop.pull_soon(queue)
    if reset_to is not None:
        queue.seek(reset_to)
    fields = {"nextBeginOffset": "50", "minOffset": "0", "maxOffset": "50"}
    broker.pulls[0][1].set_result(Command(code=ResponseCode.PULL_OFFSET_MOVED, fields=fields))
    assert broker.offsets == [100, goes_on_at]
    assert queue.committable() == goes_on_at
    assert moved == ([queue] if reset_to is None else [])
