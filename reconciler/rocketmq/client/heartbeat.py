"""One heartbeat for all producers and consumers of a client instance (HeartbeatData). The heartbeat is sent every 30 s
and after each change.

A broker asks only registered producers for the outcome of a transaction, and gives queues only to registered consumers.
A broker forgets a client after 120 s without a heartbeat, and at once when the connection closes.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.clock import Clock
from reconciler.errors import ReconcilerError, UsageError
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.step_thread import StepThread
from reconciler.rocketmq.client.topic_subscription import TopicSubscription
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 30.0
#: Seconds between two looks for brokers that do not know a group yet, such as a new broker or one that has come back. A
#: broker that does not know the group neither checks back nor delivers.
LOOK_SECONDS = 1.0
TIMEOUT_SECONDS = 3.0

#: A function that returns the addresses of brokers at which a group must be registered. Each heartbeat calls the
#: function, because routes change.
Addresses = Callable[[], Iterable[str]]
#: "producerGroup" or "consumerGroup", and the group.
_Member = tuple[str, str]


class ConsumeFrom(StrEnum):
    """The start of a group in a queue without an offset of the group
    (org.apache.rocketmq.common.consumer.ConsumeFromWhere)."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMembership:
    """What a heartbeat contains about a consumer."""

    group: str
    consume_from: ConsumeFrom
    subscriptions: Sequence[TopicSubscription]

    def to_heartbeat(self) -> dict[str, object]:
        """Returns the object in consumerDataSet (ConsumerData)."""
        return {
            "consumeFromWhere": str(self.consume_from),
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": self.group,
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [subscription.to_heartbeat() for subscription in self.subscriptions],
            "unitMode": False,
        }


def new_client_id() -> str:
    """Returns an id that is unique for each client instance of each process. Two members of a group with the same id
    would get the same queues."""
    return f"{socket.gethostname()}@{os.getpid()}#{secrets.token_hex(8)}"


class HeartbeatService:
    """The heartbeats of one client instance. Producers and consumers of the instance share this object. A lock and a
    step thread protect it."""

    def __init__(
        self, client: RemotingClient, *, client_id: str, clock: Clock, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self.client_id = client_id
        self._client = client
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._producers: dict[str, Addresses] = {}
        self._consumers: dict[str, tuple[Callable[[], ConsumerMembership], Addresses]] = {}
        self._steps = StepThread("rocketmq-heartbeat", clock)
        self._is_started = False
        #: Broker address -> the last heartbeat that the broker accepted.
        self._taken: dict[str, bytes] = {}
        #: Broker address -> number of doubts about that broker. An answer from before the last doubt proves nothing.
        self._doubts: Counter[str] = Counter()
        self._failing: set[str] = set()
        self._last_beat = clock.monotonic_seconds()

    def join_producer(self, group: str, addresses: Addresses) -> None:
        """Registers the producer group from the next heartbeat on. Raises UsageError if the group is registered
        already."""
        with self._lock:
            if group in self._producers:
                raise UsageError(
                    f"producer group {group} is registered twice at one client instance: start one producer of it once"
                )
            self._producers[group] = addresses
        self._start()

    def join_consumer(self, group: str, membership: Callable[[], ConsumerMembership], addresses: Addresses) -> None:
        """Registers the consumer from the next heartbeat on. Raises UsageError if the consumer's group is registered
        already."""
        with self._lock:
            if group in self._consumers:
                raise UsageError(f"consumer group {group}: a second member needs a client instance of its own")
            self._consumers[group] = (membership, addresses)
        self._start()

    def leave_producer(self, group: str) -> None:
        """Unregisters the group at its brokers. A broker that cannot be reached forgets the group when its connection
        closes."""
        with self._lock:
            addresses = self._producers.pop(group, None)
        if addresses is not None:
            self._unregister(("producerGroup", group), addresses)

    def leave_consumer(self, group: str) -> None:
        """Unregisters the consumer at its brokers, so that the other members get its queues at once."""
        with self._lock:
            member = self._consumers.pop(group, None)
        if member is not None:
            self._unregister(("consumerGroup", group), member[1])

    def beat(self) -> dict[str, ReconcilerError | None]:
        """Sends one heartbeat to every broker in use and awaits the answers. Returns broker address -> error, with None
        for a broker that accepted the heartbeat."""
        with self._lock:
            self._last_beat = self._clock.monotonic_seconds()
        members = self._members()
        return self._send(self._bodies(), members)

    def doubt(self, address: str) -> None:
        """Sends this broker a heartbeat at once. After an error the broker may have forgotten its clients."""
        with self._lock:
            self._doubts[address] += 1
            was_taken = self._taken.pop(address, None) is not None
        if was_taken:
            self._steps.soon(self._look)

    def close(self) -> None:
        """Unregisters all groups and stops the heartbeats."""
        self._steps.close(timeout_seconds=2 * TIMEOUT_SECONDS)
        with self._lock:
            producers, consumers = list(self._producers), list(self._consumers)
        for group in producers:
            self.leave_producer(group)
        for group in consumers:
            self.leave_consumer(group)

    def _start(self) -> None:
        with self._lock:
            if self._is_started:
                return
            self._is_started = True
        self._steps.start()
        self._steps.every(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Sends a heartbeat if the next one is due, or if a broker does not know its groups yet."""
        with self._lock:
            is_time = self._clock.monotonic_seconds() - self._last_beat >= self._interval_seconds
            taken = dict(self._taken)
        if is_time:
            self.beat()
            return
        members = self._members()
        missing = {address: body for address, body in self._bodies().items() if taken.get(address) != body}
        if missing:
            self._send(missing, members)

    def _send(
        self, bodies: Mapping[str, bytes], members: Mapping[_Member, Addresses]
    ) -> dict[str, ReconcilerError | None]:
        """Sends the bodies, which name `members`. A member that leaves during the sending is unregistered again
        afterwards."""
        answers: dict[str, ReconcilerError | None] = {}
        pending = {}
        with self._lock:
            doubts = {address: self._doubts[address] for address in bodies}
        for address, body in bodies.items():
            try:
                pending[address] = self._client.submit_soon(
                    address, Command(code=RequestCode.HEART_BEAT, body=body), TIMEOUT_SECONDS
                )
            except ReconcilerError as error:
                answers[address] = error
        # One deadline holds for all answers, because the next heartbeat must be sent even if connections hang.
        deadline = self._client.clock.monotonic_seconds() + 2 * TIMEOUT_SECONDS
        for address, future in pending.items():
            try:
                left_seconds = deadline - self._client.clock.monotonic_seconds()
                answer = self._client.wait(future, left_seconds, f"heartbeat at {address}")
                require_success(answer, f"heartbeat at {address}")
                answers[address] = None
            except ReconcilerError as error:
                answers[address] = error
        with self._lock:
            for address, failure in answers.items():
                if failure is None and self._doubts[address] == doubts[address]:
                    self._taken[address] = bodies[address]
                else:
                    self._taken.pop(address, None)
            failing = {address for address, failure in answers.items() if failure is not None}
            newly_failing = failing - self._failing
            self._failing = (self._failing - set(answers)) | failing
        for address in newly_failing:
            logger.warning("heartbeat_failed: no heartbeat to %s, trying on: %s", address, answers[address])
        for member in members.keys() - self._members().keys():
            self._unregister(member, members[member])
        return answers

    def _members(self) -> dict[_Member, Addresses]:
        with self._lock:
            members: dict[_Member, Addresses] = {("producerGroup", group): at for group, at in self._producers.items()}
            return members | {("consumerGroup", group): at for group, (_, at) in self._consumers.items()}

    def _bodies(self) -> dict[str, bytes]:
        """Returns broker address -> heartbeat with the groups that use this broker."""
        with self._lock:
            producers, consumers = list(self._producers.items()), list(self._consumers.items())
        by_address: dict[str, tuple[list[object], list[object]]] = {}
        for group, addresses in producers:
            for address in _asked(addresses):
                by_address.setdefault(address, ([], []))[0].append({"groupName": group})
        for _, (membership, addresses) in consumers:
            data = membership().to_heartbeat()
            for address in _asked(addresses):
                by_address.setdefault(address, ([], []))[1].append(data)
        return {
            address: json.dumps(
                {"clientID": self.client_id, "producerDataSet": producer_data, "consumerDataSet": consumer_data}
            ).encode()
            for address, (producer_data, consumer_data) in by_address.items()
        }

    def _unregister(self, member: _Member, addresses: Addresses) -> None:
        fields = {"clientID": self.client_id, member[0]: member[1]}
        for address in _asked(addresses):
            command = Command(code=RequestCode.UNREGISTER_CLIENT, fields=fields)
            try:
                self._client.request(address, command, timeout_seconds=TIMEOUT_SECONDS)
            except ReconcilerError as error:
                logger.info("unregistering_failed: not unregistered at %s: %s", address, error)


def _asked(addresses: Addresses) -> set[str]:
    try:
        return set(addresses())
    except ReconcilerError as error:
        logger.warning("route_unknown: no route for a heartbeat: %s", error)
        return set()
