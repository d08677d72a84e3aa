"""Routes of topics, kept for a while. The table also remembers brokers that have left a route."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from reconciler.clock import Clock
from reconciler.errors import TopicNotFound, TransientError
from reconciler.rocketmq.client.name_servers import (
    BrokerAddresses,
    BrokerQueues,
    MessageQueue,
    NameServers,
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
#: Two forced refreshes within this time share one answer of the name servers.
_FORCED_PAUSE_SECONDS = 0.5
#: Sends and pulls go on using a route for this time after name servers no longer know the topic. A name server that has
#: just started knows no topics until its brokers register again, within 30 s (BrokerConfig.registerNameServerPeriod).
#: The Java client also keeps its route (MQClientInstance.updateTopicRouteInfoFromNameServer).
KEEP_MISSING_SECONDS = 120.0
#: Time for which a broker that left a route is remembered. This time is the brokers' default retention
#: (fileReservedTime).
_REMEMBER_SECONDS = 72 * 3_600.0
#: People read this text as the reason for a key that stays UNKNOWN.
_GONE = "left the route and is not registered; if it never comes back: rocketmq.retired_brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """A broker that may hold messages of a topic. `master` is None if the broker cannot be asked now."""

    broker_name: str
    master: str | None
    #: The reason why the broker cannot be asked.
    detail: str = ""
    #: The reason why another broker may answer at this address. With a doubt, found records still count, but a missing
    #: record proves nothing.
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedRoute:
    """The newest route that a name server has returned."""

    route: TopicRoute
    #: Time of the last question to name servers, with or without an answer.
    asked_at: float
    #: Time since which the name servers do not know the topic. None if their last answer was this route.
    missing_since: float | None = None

    def is_usable(self, now: float, *, as_evidence: bool) -> bool:
        """Returns True if the route may be used without asking again."""
        if self.missing_since is None:
            return True
        return not as_evidence and now - self.missing_since < KEEP_MISSING_SECONDS


class Routes:
    """A thread-safe table of routes. A call that finds a route too old refreshes the route. No thread refreshes routes
    in the background.

    While no name server can be reached, the last known route is used. If the name servers no longer know the topic,
    sends and pulls still use the route for KEEP_MISSING_SECONDS. whereabouts() and seen() do not, because their answers
    prove absences.
    """

    def __init__(self, name_servers: NameServers, *, clock: Clock, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self.name_servers = name_servers
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._lock = threading.Lock()
        self._routes: dict[str, _CachedRoute] = {}
        self._seen: dict[str, dict[str, float]] = {}
        self._expected: dict[str, frozenset[str]] = {}
        self._known_cluster: tuple[Mapping[str, BrokerAddresses], float] | None = None

    def route(self, topic: str) -> TopicRoute:
        """Returns the topic's route. Raises TopicNotFound or BrokerUnavailable."""
        return self._get(topic, self._refresh_seconds)

    def refresh(self, topic: str) -> TopicRoute:
        """Asks for the route again after a failed send or a broker's refusal. Raises what route() raises."""
        return self._get(topic, min(_FORCED_PAUSE_SECONDS, self._refresh_seconds))

    def masters(self, topic: str) -> dict[str, str]:
        """Returns broker name -> address of its master."""
        return self.route(topic).masters

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Returns the writable queues on brokers that have a master."""
        return self.route(topic).writable_queues

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Returns the readable queues."""
        return self.route(topic).readable_queues

    def master_of(self, topic: str, broker_name: str) -> str | None:
        """Returns the address of the broker's master. Returns None if the route names no master of this broker."""
        return self.route(topic).masters.get(broker_name)

    def brokers(self) -> Mapping[str, BrokerAddresses]:
        """Returns every broker of the cluster. Raises BrokerUnavailable."""
        return self.name_servers.brokers()

    def whereabouts(self, topic: str) -> list[Whereabouts]:
        """Returns every broker that may hold messages of the topic. Look-ups need all of them to prove that a message
        is absent.

        The list has the brokers of the route, the brokers of the last 72 hours, and the brokers that expect() named. A
        dead broker leaves the route, but its messages come back with the broker. A topic that moved to another broker
        leaves messages behind. Raises TopicNotFound or BrokerUnavailable.
        """
        route = self._get(topic, self._refresh_seconds, as_evidence=True)
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
        return _doubted(found)

    def seen(self, topic: str) -> frozenset[str] | None:
        """Returns all brokers that the route has had since the last expect(). Returns None if no name server
        answers."""
        try:
            self._get(topic, self._refresh_seconds, as_evidence=True)
        except TopicNotFound:
            pass  # this is an answer: no broker has the topic now
        except TransientError:
            return None
        with self._lock:
            return frozenset(self._seen.get(topic, ()))

    def expect(self, topic: str, broker_names: Collection[str]) -> None:
        """Sets the brokers that the caller remembers. The caller's list outlives the process, and replaces the brokers
        that this object has seen."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._routes.get(topic)
            self._expected[topic] = frozenset(broker_names)
            is_known = known is not None and known.missing_since is None
            self._seen[topic] = dict.fromkeys(known.route.broker_names, now) if known is not None and is_known else {}

    def _cluster(self) -> Mapping[str, BrokerAddresses]:
        """Returns the brokers of the cluster. The answer is kept as long as a route, because look-ups need it for every
        key."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._known_cluster
        if known is not None and now - known[1] < self._refresh_seconds:
            return known[0]
        brokers = self.name_servers.brokers()
        with self._lock:
            self._known_cluster = (brokers, now)
        return brokers

    def _get(self, topic: str, maximum_age_seconds: float, *, as_evidence: bool = False) -> TopicRoute:
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._routes.get(topic)
        usable = known if known is not None and known.is_usable(now, as_evidence=as_evidence) else None
        if usable is not None and now - usable.asked_at < maximum_age_seconds:
            return usable.route
        try:
            route = self.name_servers.topic_route(topic)
        except TransientError as error:
            if usable is None:
                raise
            logger.warning("route_stale: route of %s is not refreshed, the last one is used: %s", topic, error)
            if usable.missing_since is not None:
                return self._missing(topic, usable, now)
            route = usable.route
        except TopicNotFound:
            if known is None or not known.is_usable(now, as_evidence=False):
                with self._lock:
                    self._routes.pop(topic, None)
                raise
            kept = self._missing(topic, known, now)
            if as_evidence:
                raise
            return kept
        with self._lock:
            self._routes[topic] = _CachedRoute(route=route, asked_at=now)
            self._seen.setdefault(topic, {}).update(dict.fromkeys(route.broker_names, now))
        return route

    def _missing(self, topic: str, known: _CachedRoute, now: float) -> TopicRoute:
        since = now if known.missing_since is None else known.missing_since
        if known.missing_since is None:
            logger.warning(
                "topic_forgotten: no name server knows %s any more, its last route is used for %g s",
                topic,
                KEEP_MISSING_SECONDS,
            )
        with self._lock:
            self._routes[topic] = _CachedRoute(route=known.route, asked_at=now, missing_since=since)
        return known.route


def _doubted(places: list[Whereabouts]) -> list[Whereabouts]:
    """Returns the places, with a doubt for each address that two brokers share. Only one of these brokers can exist,
    because another host may have taken over the address of a dead host.

    Name servers keep both brokers until the registration of the dead broker is two minutes old
    (RouteInfoManager.scanNotActiveBroker).
    """
    names: dict[str, list[str]] = {}
    for place in places:
        if place.master is not None:
            names.setdefault(place.master, []).append(place.broker_name)
    return [
        place
        if place.master is None or len(names[place.master]) == 1
        else replace(place, doubt=f"{' and '.join(names[place.master])} are both said to be at {place.master}")
        for place in places
    ]
