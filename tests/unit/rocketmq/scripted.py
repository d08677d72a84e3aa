"""Name servers and brokers whose every answer a test scripts: for what a real broker does once in a blue moon."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from reconciler.clock import Clock, SystemClock
from reconciler.evidence.lookup import Lookups
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import NameServers, Routes
from reconciler.rocketmq.client.sending import Sender
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command, reply_to
from reconciler.rocketmq.wire.record import MessageRecord
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.peers import Peer, answering

Handler = Callable[[Command], Command | bytes | None]

READ_WRITE = 6


class ScriptedBroker:
    """Answers by request code; anything else gets "not supported". Its version is that of the family under test."""

    def __init__(self, name: str = "broker-a", *, version: int = 479) -> None:
        self.name = name
        self.version = version
        self.handlers: dict[int, Handler] = {RequestCode.HEART_BEAT: self.success}
        self.asked: list[Command] = []
        self._peer = Peer(answering(self._answer))
        self.address = self._peer.address

    def close(self) -> None:
        """Stops listening."""
        self._peer.close()

    def on(self, code: RequestCode, handler: Handler) -> None:
        """Scripts the answer to a request."""
        self.handlers[code] = handler

    def success(self, request: Command, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        """Code 0."""
        return reply_to(request, 0, fields=fields or {}, body=body, language="JAVA", version=self.version)

    def refuse(self, request: Command, code: int, remark: str | None = "") -> Command:
        """Any other code."""
        return reply_to(request, code, remark=remark, language="JAVA", version=self.version)

    def answers_queries(self, records: Mapping[str, list[MessageRecord]]) -> None:
        """QUERY_MESSAGE by topic, for any key, as a hash collision would."""

        def handler(request: Command) -> Command:
            found = records.get(request.fields["topic"], [])
            if not found:
                return self.refuse(request, ResponseCode.QUERY_NOT_FOUND, "can not find message")
            return self.success(request, body=b"".join(map(encode_record, found)))

        self.on(RequestCode.QUERY_MESSAGE, handler)

    def _answer(self, request: Command) -> Command | bytes | None:
        self.asked.append(request)
        handler = self.handlers.get(request.code)
        return self.refuse(request, 3, "not supported") if handler is None else handler(request)


class ScriptedNameServer(ScriptedBroker):
    """Knows the topics and brokers that a test tells it."""

    def __init__(self) -> None:
        super().__init__("name-server")
        #: topic -> broker name -> (addresses by brokerId, read queues, write queues, permission)
        self.routes: dict[str, dict[str, tuple[dict[int, str], int, int, int]]] = {}
        self.cluster: dict[str, dict[int, str]] = {}
        self.writes_integer_keys = True
        self.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        self.on(RequestCode.GET_BROKER_CLUSTER_INFO, self._cluster)

    def place(self, topic: str, broker: ScriptedBroker, *, queues: int = 1, permission: int = READ_WRITE) -> None:
        """The topic has queues on the broker, which is registered."""
        self.routes.setdefault(topic, {})[broker.name] = ({0: broker.address}, queues, queues, permission)
        self.cluster[broker.name] = {0: broker.address}

    def _route(self, request: Command) -> Command:
        topic = request.fields["topic"]
        brokers = self.routes.get(topic)
        if brokers is None:
            return self.refuse(request, ResponseCode.TOPIC_NOT_EXIST, f"No topic route info for {topic}")
        route = {
            "brokerDatas": [self._broker(name, data[0]) for name, data in brokers.items()],
            "queueDatas": [
                {"brokerName": name, "readQueueNums": data[1], "writeQueueNums": data[2], "perm": data[3]}
                for name, data in brokers.items()
            ],
        }
        return self.success(request, body=self._json(route))

    def _cluster(self, request: Command) -> Command:
        table = {name: self._broker(name, addresses) for name, addresses in self.cluster.items()}
        return self.success(request, body=self._json({"brokerAddrTable": table}))

    def _broker(self, name: str, addresses: dict[int, str]) -> dict[str, object]:
        return {"brokerName": name, "cluster": "C", "brokerAddrs": {str(k): v for k, v in addresses.items()}}

    def _json(self, value: object) -> bytes:
        text = json.dumps(value, separators=(",", ":"))
        if self.writes_integer_keys:
            for number in range(4):
                text = text.replace(f'"{number}":"', f'{number}:"')
        return text.encode()


class ScriptedCluster:
    """A client with a scripted name server and scripted brokers; use it as a context manager."""

    def __init__(
        self, *, versions: tuple[int, ...] = (479,), topic: str = "Orders", clock: Clock | None = None
    ) -> None:
        self.topic = topic
        self.clock = clock or SystemClock()
        self.name_server = ScriptedNameServer()
        self.brokers = [
            ScriptedBroker(f"broker-{letter}", version=version)
            for letter, version in zip("abcdef", versions, strict=False)
        ]
        for broker in self.brokers:
            self.name_server.place(topic, broker)
        self.client = RemotingClient(clock=self.clock, request_timeout_seconds=3.0)
        self.routes = Routes(NameServers(self.name_server.address, self.client), clock=self.clock, refresh_seconds=0.0)
        self.families = Families(self.client, clock=self.clock)
        self.unique_keys = UniqueKeyGenerator(self.clock)
        self.lookups = Lookups(self.client, self.routes, self.families)

    def be_impatient(self) -> None:
        """Before a broker stays silent: requests wait for their answers a short time only."""
        self.client.request_timeout_seconds = 0.2

    @property
    def broker(self) -> ScriptedBroker:
        """The first one."""
        return self.brokers[0]

    def sender(self, group: str = "PG") -> Sender:
        """Sends over this cluster."""
        return Sender(self.client, self.routes, self.families, group=group, unique_keys=self.unique_keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for peer in (self.name_server, *self.brokers):
                stack.callback(peer.close)
            stack.callback(self.client.close)
