"""Requests to brokers for the members of a consumer group, and for the locks of queues."""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Iterable, Sequence

from reconciler.clock import Clock
from reconciler.errors import BrokerUnavailable, ReconcilerError
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.tolerant_json import JsonValue, parse_object

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 3.0
#: A broker's lock lasts 60 s (RebalanceLockManager). This member trusts a confirmed lock for half of this time
#: (ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME). So two members never both believe that they hold one lock.
LOCK_COUNTS_SECONDS = 30.0


def group_members(client: RemotingClient, routes: Routes, *, group: str, topic: str) -> list[str]:
    """Returns the client ids of the group's members. Any broker of the topic may answer (GET_CONSUMER_LIST_BY_GROUP).

    Raises BrokerUnavailable if no broker answers with a list.
    """
    masters = list(routes.masters(topic).items())
    random.shuffle(masters)
    failures: list[str] = []
    command = Command(code=RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields={"consumerGroup": group})
    for name, address in masters:
        try:
            answer = client.request(address, command, timeout_seconds=TIMEOUT_SECONDS)
            found = parse_object(require_success(answer, f"members of {group} at {name}").body).get("consumerIdList")
        except ReconcilerError as error:
            failures.append(f"{name}: {error}")
            continue
        if isinstance(found, list):
            return [str(member) for member in found]
        failures.append(f"{name}: a reply without consumerIdList")
    raise BrokerUnavailable(f"members of {group}: no broker of {topic} tells: {'; '.join(failures) or 'no master'}")


class BrokerQueueLocks:
    """Locks of queues for one member of a group (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ). Threads may share this object,
    because a mutex protects it."""

    def __init__(self, client: RemotingClient, routes: Routes, *, group: str, client_id: str, clock: Clock) -> None:
        self._client = client
        self._routes = routes
        self._group = group
        self._client_id = client_id
        self._clock = clock
        self._lock = threading.Lock()
        self._confirmed_at: dict[MessageQueue, float] = {}

    def holds(self, queue: MessageQueue) -> bool:
        """Returns True if the lock was confirmed recently enough."""
        with self._lock:
            at = self._confirmed_at.get(queue)
        return at is not None and self._clock.monotonic_seconds() - at < LOCK_COUNTS_SECONDS

    def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Takes or renews the locks of the queues. Returns the queues that are locked now. A broker that cannot be
        reached grants no lock.

        The caller renews the locks of its assigned queues every 20 s. Locks of other queues must be able to expire.
        """
        held: set[MessageQueue] = set()
        for address, wanted in self._by_broker(queues).items():
            asked_at = self._clock.monotonic_seconds()
            command = Command(code=RequestCode.LOCK_BATCH_MQ, body=self._body(wanted))
            try:
                answer = self._client.request(address, command, timeout_seconds=TIMEOUT_SECONDS)
                granted = _queues_of(parse_object(require_success(answer, "LOCK_BATCH_MQ").body).get("lockOKMQSet"))
            except ReconcilerError as error:
                logger.warning("queues_not_locked: no locks of %s from %s: %s", self._group, address, error)
                continue
            with self._lock:
                for queue in wanted:
                    if queue in granted:
                        self._confirmed_at[queue] = asked_at
                        held.add(queue)
                    else:
                        self._confirmed_at.pop(queue, None)
        return held

    def unlock(self, queue: MessageQueue) -> None:
        """Gives up one lock. If the broker cannot be reached, the lock expires."""
        self.unlock_all([queue])

    def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        """Gives up locks for good, so that the next owner need not wait until they expire."""
        queues = list(queues)
        with self._lock:
            for queue in queues:
                self._confirmed_at.pop(queue, None)
        for address, given_up in self._by_broker(queues).items():
            command = Command(code=RequestCode.UNLOCK_BATCH_MQ, body=self._body(given_up))
            try:
                self._client.request(address, command, timeout_seconds=TIMEOUT_SECONDS)
            except ReconcilerError as error:
                logger.info("queues_not_unlocked: not unlocked at %s: %s", address, error)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            try:
                address = self._routes.master_of(queue.topic, queue.broker_name)
            except ReconcilerError as error:
                logger.info("route_unknown: no route for the lock of %s: %s", queue, error)
                continue
            if address is not None:
                by_address.setdefault(address, []).append(queue)
        return by_address

    def _body(self, queues: Sequence[MessageQueue]) -> bytes:
        rows = [{"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id} for queue in queues]
        return json.dumps({"consumerGroup": self._group, "clientId": self._client_id, "mqSet": rows}).encode()


def _queues_of(value: JsonValue) -> set[MessageQueue]:
    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    return {
        MessageQueue(
            topic=str(row.get("topic")), broker_name=str(row.get("brokerName")), queue_id=_number(row.get("queueId"))
        )
        for row in rows
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1
