"""The broker: its parts, its request loop and its periodic work. Everything here runs in one asyncio loop.

Order within a turn of the loop, kept by ``commit``: handle requests, write the log, wake waiting pulls, write
answers. So nothing is answered or delivered that kill -9 could take back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from reconciler.clock import Clock
from reconciler.embedded import log_file
from reconciler.embedded.check_service import CheckService
from reconciler.embedded.connection import Connection
from reconciler.embedded.consumers import Channel, ClientRegistry, ConsumerGroup, RebalanceLocks
from reconciler.embedded.delay import DelayService
from reconciler.embedded.families import Family
from reconciler.embedded.faults import Faults
from reconciler.embedded.handlers.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS
from reconciler.embedded.handlers.transaction import ask_producer
from reconciler.embedded.layout import packed_host
from reconciler.embedded.long_polling import LongPolling
from reconciler.embedded.reply import Reply
from reconciler.embedded.routes import RegisteredBroker, RouteTable
from reconciler.embedded.settings import BrokerSettings
from reconciler.embedded.state import BrokerState
from reconciler.embedded.store import MessageStore
from reconciler.embedded.transactions import Transactions
from reconciler.errors import MalformedInput
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command, Serialization

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
_SLOW_TICK_SECONDS = 1.0
_RETIRED_A_TICK = 500


class Broker:
    """One broker and name server (``is_broker=False``: a name server only)."""

    def __init__(
        self,
        *,
        family: Family,
        settings: BrokerSettings,
        faults: Faults,
        clock: Clock,
        data: Path | None = None,
        is_broker: bool = True,
        registers_itself: bool = True,
    ) -> None:
        settings.complete(family)
        self.family = family
        self.settings = settings
        self.faults = faults
        self.clock = clock
        self.started_ms = clock.now_ms()
        self.host, self.port = "127.0.0.1", 0
        self.store_is_broken = False
        self._is_broker = is_broker
        self._registers_itself = registers_itself
        self._log = log_file.LogFolder(data, segment_bytes=settings.segment_bytes) if data is not None else None
        self.state = BrokerState(family=family, settings=settings, log=self._log)
        self.store = MessageStore(family=family, settings=settings, clock=clock, faults=faults, log=self._log)
        self.transactions = Transactions(family=family, settings=settings, clock=clock, faults=faults, store=self.store)
        self.checks = CheckService(
            family=family,
            settings=settings,
            clock=clock,
            store=self.store,
            state=self.state,
            ask=lambda half: ask_producer(self, half),
            commit=self.commit,
        )
        self.delay = DelayService(settings=settings, clock=clock, store=self.store, state=self.state)
        self.clients = ClientRegistry(clock, self._notify_members)
        self.locks = RebalanceLocks(clock, settings.lock_expiry_seconds)
        self.polling = LongPolling(clock, self.store)
        self.routes = RouteTable(family)
        self._connections: set[Connection] = set()
        self._with_output: list[Connection] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._wake_delay = asyncio.Event()
        self._check_lock = asyncio.Lock()
        self._stopped = False
        try:
            self._recover()
        except BaseException:
            if self._log is not None:
                self._log.close()
            raise

    # -- life --------------------------------------------------------------------------------------
    @property
    def address(self) -> str:
        """host:port as clients reach it."""
        return f"{self.host}:{self.port}"

    def start(self, host: str, port: int) -> None:
        """Begins to work under this address; called in the loop, after the ports are bound."""
        self.host, self.port = host, port
        self.store.store_host = packed_host(host, port)
        if not self._is_broker:
            return
        if self._registers_itself:
            own = RegisteredBroker(
                name=self.settings.broker_name, cluster=self.settings.cluster_name, topics=self.state.topics
            )
            self.routes.register(own, broker_id=0, address=self.address)
        self.store.on_delayed = self._wake_delay.set
        self._spawn(self._tick())
        self._spawn(self._slow_tick())
        self._spawn(self._scan_held_pulls())
        self._spawn(self._deliver_delayed())
        if self.family.has_half_topic:
            self._spawn(self._check())

    async def stop(self) -> None:
        """Stops the periodic work, closes connections and the log."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.transactions.write_finished_batch()
        self.polling.release_all()
        self.commit()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)  # lets connection_lost run
        if self._log is not None:
            self._log.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    # -- recovery ----------------------------------------------------------------------------------
    def _recover(self) -> None:
        if self._log is None:
            return
        for kind, payload in self._log.recover():
            if kind == log_file.MESSAGE:
                self.store.restore(payload)
            elif kind == log_file.STATE:
                deleted = self.state.apply(json.loads(payload))
                if deleted is not None:
                    self.store.queues.drop_topic(deleted)
            elif kind == log_file.SNAPSHOT:
                snapshot = json.loads(payload)
                self.state.restore(snapshot)
                self.store.next_offset = max(self.store.next_offset, snapshot["next_offset"])
                for topic, queue_id, offset in snapshot["queues"]:
                    self.store.queues.queue(topic, queue_id).skip_to(offset)
        self.store.arrived.clear()
        self.store.retire()
        self._log.open(self._snapshot())

    def _snapshot(self) -> dict[str, Any]:
        queues = [[topic, queue_id, queue.max_offset] for topic, queue_id, queue in self.store.queues]
        return self.state.snapshot() | {"next_offset": self.store.next_offset, "queues": queues}

    # -- requests ----------------------------------------------------------------------------------
    def handle(self, connection: Connection, request: Command) -> None:
        """One request; its answer is written by the next ``commit``."""
        if request.serialization is Serialization.ROCKETMQ and not self.family.knows_binary_headers:
            connection.close()
            return
        if self.faults.is_silent():
            return
        if self.faults.is_busy(request.code):
            remark = "[REJECTREQUEST]system busy, start flow control for a while"
            connection.reply(request, Reply(ResponseCode.SYSTEM_BUSY, remark))
            return
        if request.code not in NAME_SERVER_HANDLERS and self.faults.is_refused(request.code):
            connection.reply(request, Reply(ResponseCode.NO_PERMISSION, "username cannot be null."))
            return
        connection.reply(request, self._answer(connection, request))

    def _answer(self, connection: Connection, request: Command) -> Reply | None:
        handler = NAME_SERVER_HANDLERS.get(request.code)
        if handler is None and self._is_broker:
            handler = BROKER_HANDLERS.get(request.code)
        if handler is None or (request.code == RequestCode.SEND_BATCH_MESSAGE and not self.family.knows_batches):
            return self.unsupported(request)
        try:
            return handler(self, connection, request)
        except (MalformedInput, UnicodeError) as error:
            return Reply(ResponseCode.SYSTEM_ERROR, str(error))
        except Exception as error:  # a real broker too answers code 1 with the exception's text
            logger.exception("request_failed: request %d of %s", request.code, connection.peer)
            return Reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    def unsupported(self, request: Command) -> Reply | None:
        """An unknown request code: code 3, or silence up to 4.4."""
        if not self.family.answers_unknown_codes:
            return None
        remark = f" request type {request.code} not supported"
        return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def help_text(self) -> str:
        """FAQUrl.suggestTodo."""
        return f"\nSee {self.family.help_address} for further details."

    def new_unique_key(self) -> str:
        """A UNIQ_KEY for a message whose producer sent none (5.x)."""
        return uuid.uuid4().hex.upper()

    # -- connections -------------------------------------------------------------------------------
    def connected(self, connection: Connection) -> None:
        """A client has connected."""
        self._connections.add(connection)

    def disconnected(self, connection: Connection) -> None:
        """A client is gone: its groups, waiting pulls and registrations go with it."""
        self._connections.discard(connection)
        self.polling.drop_channel(connection)
        self.clients.drop_channel(connection)
        self.routes.drop_owner(connection)
        self.commit()

    def drop_connections(self) -> None:
        """Closes every connection, as a network fault would."""
        for connection in list(self._connections):
            connection.close()

    def connection_of(self, channel: Channel | None) -> Connection | None:
        """The connection behind a channel of the registry."""
        return channel if isinstance(channel, Connection) and channel.is_open else None

    def producer_channel(self, group: str) -> Connection | None:
        """A connection of this producer group, or None if nobody is there."""
        return self.connection_of(self.clients.available_channel(group))

    def _notify_members(self, group: ConsumerGroup) -> None:
        """DefaultConsumerIdsChangeListener: every member of the group, the new one too."""
        for channel in group.members:
            connection = self.connection_of(channel)
            if connection is not None:
                connection.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})

    # -- the end of a turn -------------------------------------------------------------------------
    def has_output(self, connection: Connection) -> None:
        """This connection has answers that ``commit`` is to write."""
        self._with_output.append(connection)

    def commit(self) -> None:
        """Writes the log, wakes waiting pulls, writes the answers."""
        try:
            while True:
                if self._log is not None and self._log.flush():
                    self._log.roll(self._snapshot())
                if not self.store.arrived:
                    break
                arrived, self.store.arrived = self.store.arrived, []
                self.polling.notify(arrived)
        except OSError:
            logger.exception("log_unwritable: the log cannot be written; sends are refused from now on")
            self.store_is_broken = True
            for connection in self._with_output:
                connection.close()
        ready, self._with_output = self._with_output, []
        for connection in ready:
            connection.write_out()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Runs something later, if the broker still runs then."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            action()
            self.commit()

        self._tasks = [task for task in self._tasks if not task.done()]
        self._spawn(wait())

    # -- periodic work -----------------------------------------------------------------------------
    async def check_now(self) -> None:
        """One check round; rounds never overlap."""
        async with self._check_lock:
            await self.checks.run_round()

    async def _check(self) -> None:
        last = self.clock.monotonic_seconds()
        while not self._stopped:
            await asyncio.sleep(min(_TICK_SECONDS, self.settings.check_interval))
            if self.clock.monotonic_seconds() - last < self.settings.check_interval:
                continue
            last = self.clock.monotonic_seconds()
            try:
                await self.check_now()
            except Exception:  # "Check error": the next round tries again
                logger.exception("check_round_failed: check round")

    async def _tick(self) -> None:
        while not self._stopped:
            await asyncio.sleep(_TICK_SECONDS)
            self.transactions.write_finished_when_due()
            self.store.retire(most=_RETIRED_A_TICK)
            self.store.index.drain()
            self.commit()

    async def _slow_tick(self) -> None:
        while not self._stopped:
            await asyncio.sleep(_SLOW_TICK_SECONDS)
            self.clients.expire(self.settings.channel_expiry_seconds)
            self.locks.expire()
            self.commit()

    async def _scan_held_pulls(self) -> None:
        while not self._stopped:
            await asyncio.sleep(self.settings.suspend_scan_interval_seconds)
            self.polling.scan()
            self.commit()

    async def _deliver_delayed(self) -> None:
        while not self._stopped:
            self._wake_delay.clear()
            pause = self.delay.deliver_due()
            self.commit()
            # Not wait_for: in Python 3.11 it swallows a cancellation that meets the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.001)):
                    await self._wake_delay.wait()
