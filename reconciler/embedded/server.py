"""EmbeddedBroker runs a broker on a thread of its own, for synchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from reconciler.clock import Clock, SystemClock
from reconciler.contract.urls import address_of
from reconciler.embedded.access_control import BrokerUser
from reconciler.embedded.broker import Broker
from reconciler.embedded.families import DEFAULT_FAMILY, Family, family_named
from reconciler.embedded.faults import Faults
from reconciler.embedded.layout import BrokerMessage
from reconciler.embedded.listening import Listening, bind_ports, parse_address
from reconciler.embedded.services import BrokerServices
from reconciler.embedded.settings import BrokerSettings
from reconciler.embedded.tls import ServerTls
from reconciler.errors import InvariantViolation, UsageError, warn_of_former_paths
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.client.tls_context import TlsContext

T = TypeVar("T")

_STOP_SECONDS = 10.0


class EmbeddedBroker:
    """``with EmbeddedBroker(family="5.x") as broker: ... broker.address``.

    Any thread may call the methods. All work happens on the broker's thread. A call of ``start`` after ``stop`` listens
    on the same port again. The messages in the folder ``data`` are then there again. Without ``data``, the broker is
    empty after a restart. ``name_servers``, such as "host:port;host:port", registers the broker at these servers, over
    ``name_server_tls`` if given. Without ``name_servers``, the broker is its own name server. ``tls`` encrypts
    connections of clients. One of ``users`` must sign each request. With None, every client is admitted.
    """

    def __init__(
        self,
        *,
        family: str = DEFAULT_FAMILY,
        data: Path | str | None = None,
        faults: Faults | None = None,
        settings: BrokerSettings | None = None,
        listen: str = "127.0.0.1:0",
        advertise: str | None = None,
        name_servers: str | None = None,
        name_server_tls: TlsSettings | None = None,
        clock: Clock | None = None,
        is_broker: bool = True,
        tls: ServerTls | None = None,
        users: Iterable[BrokerUser] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._family = family_named(family)
        self._data = Path(data) if data is not None else None
        self._host, self._port = parse_address(listen)
        self._advertise = advertise
        self._register_with = [
            parse_address(text, field_name="name_servers") for text in (name_servers or "").split(";") if text
        ]
        self._name_server_tls = name_server_tls
        self._is_broker = is_broker
        self._tls = tls
        self._users = None if users is None else tuple(users)
        self.faults = faults or Faults(self._clock)
        self.settings = settings or BrokerSettings()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: Listening | None = None
        self._stopping: asyncio.Event | None = None

    # -- life --------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the broker, and returns when clients can connect. Raises ConfigurationError if a port or the folder is
        taken."""
        if self._thread is not None:
            raise UsageError("the embedded broker is running already")
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="embedded-broker", daemon=True)
        self._thread.start()
        try:
            ready.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise

    def stop(self) -> None:
        """Closes every connection and releases the ports. Does nothing if the broker does not run."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None:
            return
        loop.call_soon_threadsafe(stopping.set)
        thread.join(_STOP_SECONDS)
        if thread.is_alive():
            raise InvariantViolation(f"the embedded broker did not stop within {_STOP_SECONDS} s")
        self._thread = self._loop = self._listening = self._stopping = None

    def _run(self, ready: Future[None]) -> None:
        # The broker has a loop of its own, because the loop policy may be that of the service under test. Transports of
        # uvloop are no asyncio.Transport.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._main(ready))

    async def _main(self, ready: Future[None]) -> None:
        try:
            listening = await self._open()
        except BaseException as error:  # noqa: BLE001 - start() raises it
            ready.set_exception(error)
            return
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._stopping = asyncio.Event()
        ready.set_result(None)
        await self._stopping.wait()
        await listening.stop()

    async def _open(self) -> Listening:
        if self._tls is not None:
            self._tls.context()  # before a port is taken, because its files may be wrong
        name_server_tls = None if self._name_server_tls is None else TlsContext(self._name_server_tls)
        sockets = bind_ports(self._host, self._port, with_vip=self._is_broker)
        try:
            broker = Broker(
                family=self._family,
                settings=self.settings,
                faults=self.faults,
                clock=self._clock,
                data=self._data,
                is_broker=self._is_broker,
                registers_itself=not self._register_with,
                users=self._users,
            )
        except BaseException:
            for listener in sockets:
                listener.close()
            raise
        self._port = sockets[0].getsockname()[1]
        listening = Listening(
            broker=broker,
            sockets=sockets,
            advertise=self._advertise,
            name_servers=self._register_with,
            name_server_tls=name_server_tls,
            tls=self._tls,
        )
        await listening.start()
        return listening

    # -- addresses ---------------------------------------------------------------------------------
    @property
    def family(self) -> Family:
        """The family that this broker imitates."""
        return self._family

    @property
    def address(self) -> str:
        """Address of the broker, as "host:port"."""
        return address_of(self._advertise or self._host, self._port)

    @property
    def name_servers(self) -> str:
        """Addresses of the name servers for the configuration of clients. Each is "host:port", with semicolons between
        them."""
        if self._register_with:
            return ";".join(address_of(host, port) for host, port in self._register_with)
        return self.address

    # -- looking inside, for tests -----------------------------------------------------------------
    def call(self, function: Callable[[BrokerServices], T]) -> T:
        """Runs a function in the broker's loop and returns its result."""

        async def run(broker: Broker) -> T:
            result = function(broker.services)
            broker.commit()
            return result

        return self._in_loop(run)

    def _in_loop(self, function: Callable[[Broker], Awaitable[T]]) -> T:
        if self._loop is None or self._listening is None:
            raise UsageError("the embedded broker is not running")
        broker = self._listening.broker

        async def run() -> T:
            return await function(broker)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def check_now(self) -> None:
        """Runs one check round at once."""
        self._in_loop(Broker.check_now)

    def pass_time(self) -> None:
        """Does at once the work that is due after the clock was moved. Delivers delayed messages, and runs one check
        round."""
        self._in_loop(Broker.pass_time)

    def drop_connections(self) -> None:
        """Closes every connection. Clients have to connect again."""

        async def close_all(broker: Broker) -> None:
            broker.channels.close_all()

        self._in_loop(close_all)

    def stored(self, topic: str) -> list[BrokerMessage]:
        """Returns the messages of a topic that consumers can see, sorted by queue and offset."""
        return self.call(lambda broker: _stored(broker, topic))


def _stored(broker: BrokerServices, topic: str) -> list[BrokerMessage]:
    found = []
    for name, _queue_id, queue in sorted(broker.store.queues, key=lambda item: item[:2]):
        if name == topic:
            for offset in range(queue.min_offset, queue.max_offset):
                message = broker.store.message_in(queue, offset)
                if message is not None:
                    found.append(message)
    return found


warn_of_former_paths(__name__, {"EmbeddedBroker": "reconciler.testing"})
