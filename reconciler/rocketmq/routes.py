"""Routes kept for a while, with a memory of brokers that have left them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from reconciler.clock import Clock
from reconciler.errors import TransientError
from reconciler.rocketmq.name_servers import (
    BrokerAddresses,
    BrokerQueues,
    MessageQueue,
    NameServers,
    TopicNotFound,
    TopicRoute,
)

__all__ = [
    "BrokerAddresses",
    "BrokerQueues",
    "MessageQueue",
    "NameServers",
    "Routes",
    "TopicNotFound",
    "TopicRoute",
    "Whereabouts",
]

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 30.0
#: A forced refresh within this time of the last one is answered from memory.
_FORCED_PAUSE_SECONDS = 0.5
#: Longest retention that brokers have by default (fileReservedTime).
_REMEMBER_SECONDS = 72 * 3_600.0
#: What a person reads who asks why a key stays UNKNOWN.
_GONE = "left the route and is not registered; if it never comes back: rocketmq.retired_brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """A broker that may hold messages of a topic. `master` is None where it cannot be asked now."""

    broker_name: str
    master: str | None
    #: Why it cannot be asked.
    detail: str = ""


class Routes:
    """Thread-safe; confined by its lock. No thread of its own: whoever asks late refreshes.

    While name servers are away the last known route stands.
    """

    def __init__(self, name_servers: NameServers, *, clock: Clock, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self.name_servers = name_servers
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._lock = threading.Lock()
        self._routes: dict[str, tuple[TopicRoute, float]] = {}
        self._seen: dict[str, dict[str, float]] = {}
        self._expected: dict[str, frozenset[str]] = {}
        self._known_cluster: tuple[Mapping[str, BrokerAddresses], float] | None = None

    def route(self, topic: str) -> TopicRoute:
        """The topic's route. Raises TopicNotFound or BrokerUnavailable."""
        return self._get(topic, self._refresh_seconds)

    def refresh(self, topic: str) -> TopicRoute:
        """The route as it is now: after a send failed or a broker refused. Raises as route() does."""
        return self._get(topic, min(_FORCED_PAUSE_SECONDS, self._refresh_seconds))

    def masters(self, topic: str) -> dict[str, str]:
        """Broker name -> address of its master."""
        return self.route(topic).masters

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that may be written, on brokers that have a master."""
        return self.route(topic).writable_queues

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that may be read."""
        return self.route(topic).readable_queues

    def master_of(self, topic: str, broker_name: str) -> str | None:
        """Address of the broker's master; None if the route has none."""
        return self.route(topic).masters.get(broker_name)

    def brokers(self) -> Mapping[str, BrokerAddresses]:
        """Every broker of the cluster. Raises BrokerUnavailable."""
        return self.name_servers.brokers()

    def whereabouts(self, topic: str) -> list[Whereabouts]:
        """Every broker that may hold messages of the topic, for look-ups whose "absent" must mean something.

        Brokers of the route, those seen in it within the last 72 hours, and those that expect() names: a dead broker
        drops out of its routes though its messages will be back with it, and a topic that moved leaves messages where
        it was. Raises TopicNotFound or BrokerUnavailable.
        """
        route = self.route(topic)
        now = self._clock.monotonic_seconds()
        with self._lock:
            seen = dict(self._seen.get(topic, {}))
            expected = self._expected.get(topic, frozenset())
        remembered = {name for name, at in seen.items() if now - at < _REMEMBER_SECONDS} | expected
        gone = remembered.difference(route.broker_names)
        elsewhere = self._cluster() if gone else {}
        found = [
            Whereabouts(broker_name=name, master=route.masters.get(name), detail="no master in the route")
            for name in route.broker_names
        ]
        for name in sorted(gone):
            broker = elsewhere.get(name)
            master = broker.master if broker is not None else None
            found.append(Whereabouts(broker_name=name, master=master, detail=_GONE))
        return found

    def seen(self, topic: str) -> frozenset[str] | None:
        """Brokers of the route, now and since the last expect(); None if no name server answers."""
        try:
            self.route(topic)
        except TopicNotFound:
            pass  # an answer: no broker has the topic now
        except TransientError:
            return None
        with self._lock:
            return frozenset(self._seen.get(topic, ()))

    def expect(self, topic: str, broker_names: Collection[str]) -> None:
        """Somebody keeps a memory of brokers that outlives this process: it takes the place of the own one."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._routes.get(topic)
            self._expected[topic] = frozenset(broker_names)
            self._seen[topic] = {} if known is None else dict.fromkeys(known[0].broker_names, now)

    def _cluster(self) -> Mapping[str, BrokerAddresses]:
        """Brokers of the cluster, kept like a route: look-ups ask for every key."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._known_cluster
        if known is not None and now - known[1] < self._refresh_seconds:
            return known[0]
        brokers = self.name_servers.brokers()
        with self._lock:
            self._known_cluster = (brokers, now)
        return brokers

    def forget_broker(self, broker_name: str) -> None:
        """An operator says that this broker will not come back."""
        with self._lock:
            for seen in self._seen.values():
                seen.pop(broker_name, None)
            self._expected = {topic: names - {broker_name} for topic, names in self._expected.items()}

    def _get(self, topic: str, maximum_age_seconds: float) -> TopicRoute:
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._routes.get(topic)
        if known is not None and now - known[1] < maximum_age_seconds:
            return known[0]
        try:
            route = self.name_servers.topic_route(topic)
        except TransientError as error:
            if known is None:
                raise
            logger.warning("route of %s is not refreshed, the last one stands: %s", topic, error)
            route = known[0]
        except TopicNotFound:
            with self._lock:
                self._routes.pop(topic, None)
            raise
        with self._lock:
            self._routes[topic] = (route, now)
            self._seen.setdefault(topic, {}).update(dict.fromkeys(route.broker_names, now))
        return route
