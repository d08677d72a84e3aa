"""A client instance, whose connection pool, route table and heartbeat are shared by producers and consumers of a
process.

Two members of one consumer group need two instances, because brokers tell members apart by client id.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar, cast

from reconciler.clock import Clock, SystemClock
from reconciler.errors import BrokerRefused, TransientError, UsageError
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.heartbeat import INTERVAL_SECONDS, HeartbeatService, new_client_id
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient, RequestHandler
from reconciler.rocketmq.client.routes import NameServers, Routes, TopicRoute
from reconciler.rocketmq.client.sending import Sender
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command, reply_to
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator

logger = logging.getLogger(__name__)


class SharedPart(Protocol):
    """A shared part of a client instance. A higher layer makes the part, for example the answers to check-back."""

    def close(self) -> None:
        """Ends the work of this part."""


PartT = TypeVar("PartT", bound=SharedPart)


class ClientInstance:
    """Thread-safe. Use the instance as a context manager, or call close(). A client that was passed in stays open.

    A client that was passed in belongs to one instance, which takes over the client's handlers for brokers' requests
    and for lost connections. A broker forgets a client whose connection is lost. So the broker gets a heartbeat at once
    after the loss. `acl` and `tls` are for the client that the instance makes.
    """

    def __init__(
        self,
        name_servers: str,
        *,
        client: RemotingClient | None = None,
        acl: AclCredentials | None = None,
        tls: TlsSettings | None = None,
        clock: Clock | None = None,
        heartbeat_interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        refuse_security_of_shared("client", client, acl=acl, tls=tls)
        self.clock = clock or (client.clock if client is not None else SystemClock())
        self._owns_client = client is None
        self.client = client or RemotingClient(clock=self.clock, acl=acl, tls=tls)
        self.routes = Routes(NameServers(name_servers, self.client), clock=self.clock)
        self.families = Families(self.client, clock=self.clock)
        self.offsets = Offsets(self.client)
        self.unique_keys = UniqueKeyGenerator(self.clock)
        self.client_id = new_client_id()
        self.heartbeats = HeartbeatService(
            self.client, client_id=self.client_id, clock=self.clock, interval_seconds=heartbeat_interval_seconds
        )
        self.client.on_disconnect(self.heartbeats.doubt)
        self._shared: dict[Callable[[ClientInstance], SharedPart], SharedPart] = {}
        self._group_handlers: dict[tuple[int, str], RequestHandler] = {}
        self._lock = threading.Lock()

    def sender(self, group: str, *, client: RemotingClient | None = None) -> Sender:
        """Makes a sender for a producer group. The sender uses the connections of `client`, by default those of this
        instance's client."""
        return Sender(client or self.client, self.routes, self.families, group=group, unique_keys=self.unique_keys)

    def master_addresses(self, topics: Iterable[str]) -> set[str]:
        """Returns the addresses of masters in the topics' routes. A topic without a route is left out."""
        routes = (self._route(topic) for topic in topics)
        return {address for route in routes if route is not None for address in route.masters.values()}

    def broker_addresses(self, topics: Iterable[str]) -> set[str]:
        """Returns the addresses of masters and slaves in the topics' routes."""
        routes = (self._route(topic) for topic in topics)
        brokers = (broker for route in routes if route is not None for broker in route.brokers.values())
        return {address for broker in brokers for address in broker.addresses.values()}

    def cluster_addresses(self) -> set[str]:
        """Returns the addresses of all masters of the cluster. Raises BrokerUnavailable if no name server answers."""
        return {broker.master for broker in self.routes.brokers().values() if broker.master is not None}

    def on_group_request(self, code: RequestCode, group: str, handler: RequestHandler) -> None:
        """Handles brokers' requests whose field `consumerGroup` or `group` names this consumer group."""
        with self._lock:
            self._group_handlers[int(code), group] = handler
        self.client.on_request(code, self._dispatch)

    def forget_group(self, group: str) -> None:
        """Removes the group's handlers."""
        with self._lock:
            for key in [key for key in self._group_handlers if key[1] == group]:
                del self._group_handlers[key]

    def shared(self, make: Callable[[ClientInstance], PartT]) -> PartT:
        """Returns the single part that `make` makes for this instance. All members of the instance share the part. The
        instance closes the part."""
        with self._lock:
            part = self._shared.get(make)
            if part is None:
                part = self._shared[make] = make(self)
        return cast("PartT", part)

    def close(self) -> None:
        """Unregisters every group. Closes the shared parts, and the client if the instance made the client."""
        self.heartbeats.close()
        for part in self._shared.values():
            part.close()
        if self._owns_client:
            self.client.close()

    def __enter__(self) -> ClientInstance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _route(self, topic: str) -> TopicRoute | None:
        try:
            return self.routes.route(topic)
        except (BrokerRefused, TransientError) as error:
            logger.info("route_unknown: no route of %s yet: %s", topic, error)
            return None

    def _dispatch(self, address: str, request: Command) -> Command | None:
        group = request.fields.get("consumerGroup") or request.fields.get("group") or ""
        handler = self._group_handlers.get((request.code, group))
        if handler is None:
            logger.info(
                "request_for_stranger: request %d of %s for group %r, which is not here", request.code, address, group
            )
            return reply_to(request, ResponseCode.SYSTEM_ERROR, remark=f"the consumer group[{group}] is not here")
        return handler(address, request)


def refuse_security_of_shared(
    name: str, shared: object | None, *, acl: AclCredentials | None, tls: TlsSettings | None
) -> None:
    """Raises UsageError if `acl` or `tls` is given together with a shared object, which has its own."""
    if shared is not None and (acl is not None or tls is not None):
        raise UsageError(f"{name} has its own acl and tls: give them where it is made")
