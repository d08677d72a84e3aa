"""Finds the version of a broker in any answer of the broker. The version decides the other facts."""

from __future__ import annotations

import threading

from reconciler.clock import Clock
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.broker_facts import BrokerFacts, facts_of
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command

#: After this time a broker is asked again, because it may have been replaced by another version.
_REMEMBER_SECONDS = 600.0

#: A heartbeat without a group. Brokers of every version answer it, and register nothing for it.
_EMPTY_HEARTBEAT = b'{"clientID":"reconciler-family","producerDataSet":[],"consumerDataSet":[]}'


class Families:
    """Facts of brokers by address. A broker is asked again after a while. Threads may share this object, because a lock
    protects it."""

    def __init__(self, client: RemotingClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[BrokerFacts, float]] = {}

    def facts(self, address: str) -> BrokerFacts:
        """Returns the facts of the broker at the address. Raises BrokerUnavailable or RequestTimeout."""
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
        """Drops the facts, because another broker may have the address now."""
        with self._lock:
            self._known.pop(address, None)
