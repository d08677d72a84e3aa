"""Offsets of queues, and offsets of consumer groups in queues (AdminBrokerProcessor, ConsumerManageProcessor)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from reconciler.errors import warn_of_former_paths
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.answers import number_field, require_success
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command

T = TypeVar("T")

#: The address of a broker, and a queue of this broker.
Placed = tuple[str, MessageQueue]

#: Maximum number of requests that are sent before the first answer is awaited.
SENT_AT_ONCE = 64
#: Seconds that the connection may take to fail a request whose time is over.
_GIVEN_UP_WITHIN_SECONDS = 1.0


class Offsets:
    """Asks the broker at an address. Thread-safe, without state.

    Every call can raise BrokerUnavailable, RequestTimeout, BrokerBusy, BrokerRefused or ProtocolViolation.
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    def maximum(self, address: str, queue: MessageQueue) -> int:
        """Returns the offset of the next message."""
        return self._number(address, _bound(RequestCode.GET_MAX_OFFSET, queue))

    def maxima(self, asked: Sequence[Placed]) -> list[int]:
        """Returns what maximum() returns for each queue. All requests are under way together."""
        return self._together(asked, partial(_bound, RequestCode.GET_MAX_OFFSET), _number_in)

    def minimum(self, address: str, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message that still exists."""
        return self._number(address, _bound(RequestCode.GET_MIN_OFFSET, queue))

    def minima(self, asked: Sequence[Placed]) -> list[int]:
        """Returns what minimum() returns for each queue. All requests are under way together."""
        return self._together(asked, partial(_bound, RequestCode.GET_MIN_OFFSET), _number_in)

    def at_time(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        """Returns the offset of the message whose store time is the given time or next to it
        (SEARCH_OFFSET_BY_TIMESTAMP)."""
        fields = {**_of(queue), "timestamp": str(time_ms)}
        return self._number(address, Command(code=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields=fields))

    def of_group(self, address: str, queue: MessageQueue, group: str) -> int | None:
        """Returns the group's stored offset. Returns None if the broker has no offset of the group (code 22).

        Brokers 3.2.6 to 4.9 answer 0 for an unknown group while the queue's first message is in memory.
        """
        command = _asking(group, queue)
        return _stored_in(self._client.request(address, command), command)

    def all_of_group(self, asked: Sequence[Placed], group: str) -> list[int | None]:
        """Returns what of_group() returns for each queue. All requests are under way together."""
        return self._together(asked, partial(_asking, group), _stored_in)

    def store(self, address: str, queue: MessageQueue, group: str, offset: int, *, is_oneway: bool = False) -> None:
        """Stores the group's offset, which is the position of the next message for the group (UPDATE_CONSUMER_OFFSET).

        With `is_oneway`, the call waits for nothing. Without a connection, the call then begins to connect and raises
        BrokerUnavailable.
        """
        command = _storing(queue, group, offset)
        if is_oneway:
            self._client.oneway_if_connected(address, command)
        else:
            require_success(self._client.request(address, command), f"storing the offset of {group} in {queue.topic}")

    def begin_store(
        self, address: str, queue: MessageQueue, group: str, offset: int, *, timeout_seconds: float
    ) -> Callable[[], None]:
        """Sends what store() sends, so that many requests can be under way. Returns a function that awaits the answer
        until the time is over.

        This call and the returned function raise what store() raises.
        """
        clock = self._client.clock
        deadline = clock.monotonic_seconds() + timeout_seconds
        future = self._client.submit_soon(address, _storing(queue, group, offset), timeout_seconds)
        what = f"storing the offset of {group} in {queue.topic}"

        def wait() -> None:
            answer = self._client.wait(future, deadline - clock.monotonic_seconds(), f"{address}: {what}")
            require_success(answer, what)

        return wait

    def _number(self, address: str, command: Command) -> int:
        return _number_in(self._client.request(address, command), command)

    def _together(
        self,
        asked: Sequence[Placed],
        command_of: Callable[[MessageQueue], Command],
        read: Callable[[Command, Command], T],
    ) -> list[T]:
        """Sends a page of requests, then awaits their answers. Raises the error of the first request that fails."""
        client, found = self._client, list[T]()
        for first in range(0, len(asked), SENT_AT_ONCE):
            sent = []
            for address, queue in asked[first : first + SENT_AT_ONCE]:
                command = command_of(queue)
                sent.append((address, command, client.submit(address, command)))
            for address, command, future in sent:
                within_seconds = client.request_timeout_seconds + _GIVEN_UP_WITHIN_SECONDS
                answer = client.wait(future, within_seconds, f"{address}: request {command.code}")
                found.append(read(answer, command))
        return found


def _bound(code: RequestCode, queue: MessageQueue) -> Command:
    return Command(code=code, fields=_of(queue))


def _number_in(answer: Command, asked: Command) -> int:
    what = f"{RequestCode(asked.code).name} of {asked.fields['topic']}"
    return number_field(require_success(answer, what), "offset")


def _asking(group: str, queue: MessageQueue) -> Command:
    fields = {**_of(queue), "consumerGroup": group, "setZeroIfNotFound": "false"}
    return Command(code=RequestCode.QUERY_CONSUMER_OFFSET, fields=fields)


def _stored_in(answer: Command, asked: Command) -> int | None:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    what = f"offset of {asked.fields['consumerGroup']} in {asked.fields['topic']}"
    offset = number_field(require_success(answer, what), "offset")
    return offset if offset >= 0 else None


def _storing(queue: MessageQueue, group: str, offset: int) -> Command:
    fields = {**_of(queue), "consumerGroup": group, "commitOffset": str(offset)}
    return Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields)


def _of(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id)}


warn_of_former_paths(__name__, {"Offsets": "reconciler.rocketmq"})
