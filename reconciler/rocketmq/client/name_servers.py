"""Asks name servers for routes of topics and for the brokers of the cluster (TopicRouteData, ClusterInfo)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from reconciler.errors import (
    BrokerUnavailable,
    InvalidValue,
    ProtocolViolation,
    TopicNotFound,
    TransientError,
)
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.address import bracketed, parse_addresses
from reconciler.rocketmq.wire.answers import refusal
from reconciler.rocketmq.wire.codes import MASTER_ID, Permission, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.properties import whole_number
from reconciler.rocketmq.wire.tolerant_json import JsonKey, JsonValue, parse_object

T = TypeVar("T")

#: Maximum number of queues that a route may name. No broker is configured with more, and a hostile route must not fill
#: the memory.
MAXIMUM_QUEUES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MessageQueue:
    """One queue. Queues sort in the order that rebalance needs (MessageQueue.compareTo)."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddresses:
    """The name of a broker, with the addresses of its master and slaves."""

    broker_name: str
    #: Name of the cluster. Brokers up to 3.2.6 send none, so the name is empty.
    cluster: str
    #: brokerId -> "host:port". The brokerId 0 is the master.
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        """The address of the master. None if the broker has no master."""
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerQueues:
    """The number of a topic's queues on one broker, and the permissions to read and write them."""

    broker_name: str
    read_queues: int
    write_queues: int
    permission: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """The brokers and queues of a topic."""

    topic: str
    queues: tuple[BrokerQueues, ...]
    brokers: Mapping[str, BrokerAddresses]
    #: Sorted names of all brokers in the route, with or without a master.
    broker_names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _masters: dict[str, str] = field(init=False, repr=False, compare=False)
    _writable: tuple[MessageQueue, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every send and every look-up needs these values, so they are computed once.
        names = tuple(sorted({queues.broker_name for queues in self.queues} | set(self.brokers)))
        masters = {name: broker.master for name, broker in sorted(self.brokers.items()) if broker.master is not None}
        writable = tuple(queue for queue in self._queues(Permission.WRITE) if queue.broker_name in masters)
        object.__setattr__(self, "broker_names", names)
        object.__setattr__(self, "_masters", masters)
        object.__setattr__(self, "_writable", writable)

    @property
    def masters(self) -> dict[str, str]:
        """Broker name -> address of the master. A broker without a master is left out."""
        return dict(self._masters)

    @property
    def readable_queues(self) -> list[MessageQueue]:
        """All readable queues in order, including the queues of brokers that have only slaves."""
        return self._queues(Permission.READ)

    @property
    def writable_queues(self) -> list[MessageQueue]:
        """All writable queues in order, on brokers that have a master."""
        return list(self._writable)

    def _queues(self, permission: Permission) -> list[MessageQueue]:
        return sorted(
            MessageQueue(topic=self.topic, broker_name=data.broker_name, queue_id=queue_id)
            for data in self.queues
            if data.permission & permission
            for queue_id in range(data.read_queues if permission is Permission.READ else data.write_queues)
        )


class NameServers:
    """Several name servers, such as "a;b". The first answer counts. The server that answered is asked first the next
    time.

    Threads may share this object, because a lock protects it.
    """

    def __init__(self, addresses: str, client: RemotingClient) -> None:
        self.addresses = parse_addresses(addresses)
        self._client = client
        self._lock = threading.Lock()
        self._preferred = random.randrange(len(self.addresses))

    def topic_route(self, topic: str) -> TopicRoute:
        """Returns the topic's route. Raises TopicNotFound if no server knows the topic. Raises BrokerUnavailable if no
        server answers.

        A topic counts as unknown only after the other servers were asked, too. A server that has just started knows no
        topics.
        """
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        command = Command(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=fields)
        return self._ask(command, f"route of {topic}", lambda body: _parse_route(topic, parse_object(body)))

    def brokers(self) -> dict[str, BrokerAddresses]:
        """Returns every broker of the cluster by name. Raises BrokerUnavailable if no name server answers."""
        command = Command(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        return self._ask(
            command,
            "cluster information",
            lambda body: _parse_brokers(_member_values(parse_object(body).get("brokerAddrTable"))),
        )

    def _ask(self, command: Command, what: str, parse: Callable[[bytes], T]) -> T:
        with self._lock:
            first = self._preferred
        failures: list[str] = []
        unknown: Command | None = None
        last: Exception | None = None
        for step in range(len(self.addresses)):
            number = (first + step) % len(self.addresses)
            try:
                answer = self._client.request(self.addresses[number], command)
                if answer.code == ResponseCode.SUCCESS:
                    parsed = parse(answer.body)
                    with self._lock:
                        self._preferred = number
                    return parsed
            except (TransientError, ProtocolViolation) as error:
                failures.append(f"{self.addresses[number]}: {error}")
                last = error
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                unknown = answer
            else:
                failures.append(str(refusal(answer, f"{what} at {self.addresses[number]}")))
        if unknown is not None:
            raise TopicNotFound(unknown.code, unknown.remark, request=what)
        raise BrokerUnavailable(f"{what}: no name server answers: {'; '.join(failures)}") from last


def _parse_route(topic: str, route: Mapping[JsonKey, JsonValue]) -> TopicRoute:
    queues = tuple(
        BrokerQueues(
            broker_name=_text(data.get("brokerName")),
            read_queues=_count(data.get("readQueueNums")),
            write_queues=_count(data.get("writeQueueNums")),
            permission=_count(data.get("perm")),
        )
        for data in _members(route.get("queueDatas"))
    )
    return TopicRoute(topic=topic, queues=queues, brokers=_parse_brokers(_members(route.get("brokerDatas"))))


def _parse_brokers(members: list[dict[JsonKey, JsonValue]]) -> dict[str, BrokerAddresses]:
    brokers: dict[str, BrokerAddresses] = {}
    for data in members:
        name = _text(data.get("brokerName"))
        addresses = data.get("brokerAddrs")
        if not isinstance(addresses, dict):
            raise ProtocolViolation("brokerAddrs in a route is no object")
        brokers[name] = BrokerAddresses(
            broker_name=name,
            cluster=str(data.get("cluster") or ""),
            addresses={_count(identity): _address(address) for identity, address in addresses.items()},
        )
    return brokers


def _members(value: JsonValue) -> list[dict[JsonKey, JsonValue]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ProtocolViolation("a route has another value where a list is expected")
    members = [member for member in value if isinstance(member, dict)]
    if len(members) != len(value):
        raise ProtocolViolation("a list in a route has members that are no objects")
    return members


def _member_values(value: JsonValue) -> list[dict[JsonKey, JsonValue]]:
    return _members(list(value.values()) if isinstance(value, dict) else value)


def _text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ProtocolViolation("a name or address in a route is no text")


def _address(value: object) -> str:
    try:
        return bracketed(_text(value))
    except InvalidValue as error:
        raise ProtocolViolation("a route has another value where an address is expected") from error


def _count(value: object) -> int:
    if isinstance(value, str):
        value = whole_number(value)
    if type(value) is int and 0 <= value <= MAXIMUM_QUEUES:
        return value
    raise ProtocolViolation("a route has another value where a number is expected")
