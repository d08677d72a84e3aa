"""Which version a broker has: found from any of its answers, with the facts that follow from it."""

from __future__ import annotations

import threading

from reconciler.clock import Clock
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.broker_facts import BrokerFacts, facts_of
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command

#: A broker may be replaced by another version: ask again after this time.
_REMEMBER_SECONDS = 600.0

#: A heartbeat of nobody: every version answers it, and it registers nothing.
_EMPTY_HEARTBEAT = b'{"clientID":"reconciler-family","producerDataSet":[],"consumerDataSet":[]}'


class Families:
    """Facts of brokers by address, asked once in a while. Shared; confined by its lock."""

    def __init__(self, client: RemotingClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[BrokerFacts, float]] = {}

    def facts(self, address: str) -> BrokerFacts:
        """Facts of the broker at the address. Raises BrokerUnavailable or RequestTimeout."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._known.get(address)
        if known is not None and now - known[1] < _REMEMBER_SECONDS:
            return known[0]
        answer = self._client.request(address, Command(code=RequestCode.HEART_BEAT, body=_EMPTY_HEARTBEAT))
        facts = facts_of(answer.version)
        with self._lock:
            self._known[address] = (facts, now)
        return facts

    def forget(self, address: str) -> None:
        """The broker at the address may be another one now."""
        with self._lock:
            self._known.pop(address, None)
