"""Offsets of queues and of groups in them, as brokers keep them (AdminBrokerProcessor, ConsumerManageProcessor)."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.errors import warn_of_former_paths
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.answers import number_field, require_success
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command


class Offsets:
    """Asks the broker at an address. Thread-safe, holds no state.

    Every call raises BrokerUnavailable, RequestTimeout, BrokerBusy, BrokerRefused or ProtocolViolation.
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    def maximum(self, address: str, queue: MessageQueue) -> int:
        """Offset that the next message gets."""
        return self._number(address, RequestCode.GET_MAX_OFFSET, _of(queue), "offset")

    def minimum(self, address: str, queue: MessageQueue) -> int:
        """Offset of the oldest message that is still there."""
        return self._number(address, RequestCode.GET_MIN_OFFSET, _of(queue), "offset")

    def at_time(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        """Offset of the message stored at or next to the time (SEARCH_OFFSET_BY_TIMESTAMP)."""
        fields = {**_of(queue), "timestamp": str(time_ms)}
        return self._number(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, "offset")

    def of_group(self, address: str, queue: MessageQueue, group: str) -> int | None:
        """Stored offset of the group; None if there is none (code 22).

        3.2.6 to 4.9 answer 0 also for a group they never heard of while the queue's first message is in memory.
        """
        fields = {**_of(queue), "consumerGroup": group, "setZeroIfNotFound": "false"}
        answer = self._client.request(address, Command(code=RequestCode.QUERY_CONSUMER_OFFSET, fields=fields))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = number_field(require_success(answer, f"offset of {group} in {queue.topic}"), "offset")
        return offset if offset >= 0 else None

    def store(self, address: str, queue: MessageQueue, group: str, offset: int, *, is_oneway: bool = False) -> None:
        """Stores the group's offset: the next message it wants (UPDATE_CONSUMER_OFFSET).

        One-way, it waits for nothing: without a connection it begins to make one and raises BrokerUnavailable.
        """
        command = _storing(queue, group, offset)
        if is_oneway:
            self._client.oneway_if_connected(address, command)
        else:
            require_success(self._client.request(address, command), f"storing the offset of {group} in {queue.topic}")

    def begin_store(
        self, address: str, queue: MessageQueue, group: str, offset: int, *, timeout_seconds: float
    ) -> Callable[[], None]:
        """Sends what store() does and returns what waits for its answer, until the time is over: many at once.

        Sending and what is returned raise as store() does.
        """
        clock = self._client.clock
        deadline = clock.monotonic_seconds() + timeout_seconds
        future = self._client.submit_soon(address, _storing(queue, group, offset), timeout_seconds)
        what = f"storing the offset of {group} in {queue.topic}"

        def wait() -> None:
            answer = self._client.wait(future, deadline - clock.monotonic_seconds(), f"{address}: {what}")
            require_success(answer, what)

        return wait

    def _number(self, address: str, code: RequestCode, fields: dict[str, str], name: str) -> int:
        answer = self._client.request(address, Command(code=code, fields=fields))
        return number_field(require_success(answer, f"{code.name} of {fields['topic']}"), name)


def _storing(queue: MessageQueue, group: str, offset: int) -> Command:
    fields = {**_of(queue), "consumerGroup": group, "commitOffset": str(offset)}
    return Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields)


def _of(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id)}


warn_of_former_paths(__name__, {"Offsets": "reconciler.rocketmq"})
