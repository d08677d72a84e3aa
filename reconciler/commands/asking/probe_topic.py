"""Looks whether each broker of a topic has the probe topic. Without this topic the broker proves no absence, and the
reconciler proves no loss of a message that the broker might have."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, partial
from itertools import chain

from reconciler.contract.facts import Fact
from reconciler.errors import ReconcilerError, TopicNotFound
from reconciler.evidence.horizon import no_probe_topic
from reconciler.rocketmq.wire.codes import AUTO_CREATE_TOPIC, Permission
from reconciler.wiring.connections import Connections
from reconciler.words import said

logger = logging.getLogger(__name__)


def missing_probe_topics(connections: Connections, topics: Iterable[str]) -> dict[str, list[Fact]]:
    """Returns, for each business topic, one fact for each of its masters that lacks the probe topic, and does not make
    topics by itself at their first message.

    Returns nothing while no name server answers, because other facts say this.
    """
    name = connections.settings.rocketmq.probe_topic
    having = cache(partial(_brokers_of, connections, name))
    making = cache(partial(_brokers_of, connections, AUTO_CREATE_TOPIC, permission=Permission.INHERIT))
    missing: dict[str, list[Fact]] = {}
    for topic in topics:
        with suppress(ReconcilerError):
            masters = connections.rocketmq.routes.masters(topic).keys()
            lacking = masters - having() if masters else set()
            missing[topic] = [no_probe_topic(broker, name) for broker in sorted(lacking - making() if lacking else ())]
    return missing


def _brokers_of(connections: Connections, topic: str, *, permission: int = 0) -> set[str]:
    """Returns the brokers that have the topic with this permission."""
    try:
        route = connections.rocketmq.routes.refresh(topic)
    except TopicNotFound:
        return set()
    return {queues.broker_name for queues in route.queues if queues.permission & permission == permission}


class ProbeTopicWatch:
    """Logs each missing probe topic once. Used by one thread only."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._logged: set[Fact] = set()

    def look(self) -> None:
        """Logs what is missing since the last look. Raises nothing."""
        topics = dict.fromkeys(one.topic for one in self._connections.settings.subscriptions)
        missing = dict.fromkeys(chain.from_iterable(missing_probe_topics(self._connections, topics).values()))
        for fact in missing:
            if fact not in self._logged:
                logger.warning("probe_topic_missing", extra={"detail": said(fact)})
        self._logged = set(missing)
