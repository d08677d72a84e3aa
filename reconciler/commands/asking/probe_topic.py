"""Looks whether each broker of a topic has the probe topic. Without this topic the broker proves no absence, and the
reconciler proves no loss of a message that the broker might have."""

from __future__ import annotations

import logging

from reconciler.contract.facts import Fact
from reconciler.errors import ReconcilerError, TopicNotFound
from reconciler.evidence.horizon import no_probe_topic
from reconciler.rocketmq.wire.codes import AUTO_CREATE_TOPIC, Permission
from reconciler.wiring.connections import Connections
from reconciler.words import said

logger = logging.getLogger(__name__)


def missing_probe_topics(connections: Connections, topic: str) -> list[Fact]:
    """Returns one fact for each master of a business topic that lacks the probe topic, and does not make topics by
    itself at their first message.

    Returns nothing while no name server answers, because other facts say this.
    """
    name = connections.settings.rocketmq.probe_topic
    try:
        masters = connections.rocketmq.routes.masters(topic)
        having = _brokers_of(connections, name) if masters else set()
        if having >= masters.keys():
            return []
        having |= _brokers_of(connections, AUTO_CREATE_TOPIC, permission=Permission.INHERIT)
    except ReconcilerError:
        return []
    return [no_probe_topic(broker, name) for broker in sorted(masters.keys() - having)]


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
        missing = dict.fromkeys(one for topic in topics for one in missing_probe_topics(self._connections, topic))
        for fact in missing:
            if fact not in self._logged:
                logger.warning("probe_topic_missing", extra={"detail": said(fact)})
        self._logged = set(missing)
