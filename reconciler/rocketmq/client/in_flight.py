"""Limits the number of pipelined requests that wait for answers of one broker."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from reconciler.errors import BrokerBusy, RequestTimeout
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command

#: Maximum number of requests to one broker at the same time.
REQUESTS_MAX = 64
#: Maximum number of bytes in the bodies of the waiting requests. A request with a larger body is sent alone.
BYTES_MAX = 16 * 1024 * 1024


@dataclass(slots=True)
class _Address:
    """The requests that wait for answers of one address. The lock of RequestsInFlight protects this object."""

    #: Number of requests that may wait at once. An overloaded broker halves this number. The number grows by one when
    #: as many requests were answered.
    allowed: float
    requests: int = 0
    size: int = 0


class RequestsInFlight:
    """Limits the requests under way to each address by number and bytes. Thread-safe: several clients of a process may
    share one object."""

    def __init__(self, requests_max: int = REQUESTS_MAX) -> None:
        self._requests_max = requests_max
        self._changed = threading.Condition()
        self._addresses: dict[str, _Address] = {}

    def enter(self, address: str, command: Command, timeout_seconds: float) -> None:
        """Waits until the request may be sent. Raises BrokerBusy if the time is over before that. Nothing was sent
        then."""
        size = len(command.body)
        with self._changed:
            at = self._addresses.setdefault(address, _Address(allowed=self._requests_max))

            def has_room() -> bool:
                return not at.requests or (at.requests < int(at.allowed) and at.size + size <= BYTES_MAX)

            if not self._changed.wait_for(has_room, timeout_seconds):
                raise BrokerBusy(f"{address}: {at.requests} requests wait for their answer already")
            at.requests += 1
            at.size += size

    def leave(self, address: str, command: Command, answered: Future[Command] | None) -> None:
        """Records that the request waits no more. `answered` is None for a request that was not sent."""
        with self._changed:
            at = self._addresses[address]
            at.requests -= 1
            at.size -= len(command.body)
            if answered is not None:
                if _is_strained(answered):
                    at.allowed = max(1.0, at.allowed / 2)
                else:
                    at.allowed = min(self._requests_max, at.allowed + 1 / at.allowed)
            self._changed.notify_all()


def _is_strained(answered: Future[Command]) -> bool:
    if answered.cancelled():  # given up after its time
        return True
    error = answered.exception()
    if error is not None:
        return isinstance(error, RequestTimeout)
    return answered.result().code == ResponseCode.SYSTEM_BUSY
