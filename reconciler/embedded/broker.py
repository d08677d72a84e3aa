"""The broker, with its parts, its request loop and its periodic work. All of them run in one asyncio loop.

``commit`` keeps the order of the steps in a turn of the loop: handle requests, write the log, wake waiting pulls, write
answers. So kill -9 loses nothing that was answered or delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from reconciler.clock import Clock
from reconciler.embedded import log_file
from reconciler.embedded.access_control import AccessControl, BrokerUser
from reconciler.embedded.channel import Channel, Channels
from reconciler.embedded.check_service import CheckService
from reconciler.embedded.consumers import ClientRegistry, ConsumerGroup, RebalanceLocks
from reconciler.embedded.delay import DelayService
from reconciler.embedded.families import Family
from reconciler.embedded.faults import Faults
from reconciler.embedded.handlers.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS
from reconciler.embedded.handlers.transaction import ask_producer
from reconciler.embedded.layout import BrokerMessage, packed_host
from reconciler.embedded.long_polling import LongPolling
from reconciler.embedded.reply import Reply, unsupported
from reconciler.embedded.routes import RegisteredBroker, RouteTable
from reconciler.embedded.services import BrokerServices
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
    """One broker and name server. With ``is_broker=False``, it is only a name server."""

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
        users: Iterable[BrokerUser] | None = None,
    ) -> None:
        settings.complete(family)
        self._access = None if users is None else AccessControl(users, family, cluster=settings.cluster_name)
        self._is_broker = is_broker
        self._registers_itself = registers_itself
        self._log = log_file.LogFolder(data, segment_bytes=settings.segment_bytes) if data is not None else None
        state = BrokerState(family=family, settings=settings, log=self._log)
        store = MessageStore(family=family, settings=settings, clock=clock, faults=faults, log=self._log)
        checks = CheckService(
            family=family,
            settings=settings,
            clock=clock,
            store=store,
            state=state,
            ask=self._ask_producer,
            commit=self.commit,
            fails=faults.fails_check_round,
        )
        self.services = BrokerServices(
            family=family,
            settings=settings,
            faults=faults,
            clock=clock,
            started_ms=clock.now_ms(),
            state=state,
            store=store,
            transactions=Transactions(family=family, settings=settings, clock=clock, faults=faults, store=store),
            checks=checks,
            clients=ClientRegistry(clock, self._notify_members),
            locks=RebalanceLocks(clock, settings.lock_expiry_seconds),
            polling=LongPolling(clock, store),
            routes=RouteTable(family),
            later=self._later,
        )
        self.channels = Channels(
            family=family, faults=faults, on_request=self._handle, on_lost=self._forget_client, commit=self.commit
        )
        self._delay = DelayService(settings=settings, clock=clock, store=store, state=state)
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
    def start(self, host: str, port: int) -> None:
        """Begins to work under this address. Call it in the loop, after the ports are bound."""
        services = self.services
        services.host, services.port = host, port
        services.store.store_host = packed_host(host, port)
        if not self._is_broker:
            return
        if self._registers_itself:
            settings = services.settings
            own = RegisteredBroker(
                name=settings.broker_name, cluster=settings.cluster_name, topics=services.state.topics
            )
            services.routes.register(own, broker_id=0, address=services.address)
        services.store.on_delayed = self._wake_delay.set
        self._spawn(self._tick())
        self._spawn(self._slow_tick())
        self._spawn(self._scan_held_pulls())
        self._spawn(self._deliver_delayed())
        if services.family.has_half_topic:
            self._spawn(self._check())

    async def stop(self) -> None:
        """Stops the periodic work, then closes the connections and the log."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.services.transactions.write_finished_batch()
        self.services.polling.release_all()
        self.commit()
        self.channels.close_all()
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
                self.services.store.restore(payload)
            elif kind == log_file.STATE:
                self._recover_change(json.loads(payload))
            elif kind == log_file.SNAPSHOT:
                snapshot = json.loads(payload)
                self.services.state.restore(snapshot)
                self.services.store.next_offset = max(self.services.store.next_offset, snapshot["next_offset"])
                for topic, queue_id, offset in snapshot["queues"]:
                    self.services.store.queues.queue(topic, queue_id).skip_to(offset)
        self.services.store.arrived.clear()
        self.services.store.retire()
        self._log.open(self._snapshot())

    def _recover_change(self, change: dict[str, Any]) -> None:
        if change["t"] == "tail":
            self.services.store.cut(change["v"])
            return
        deleted = self.services.state.apply(change)
        if deleted is not None:
            self.services.store.queues.drop_topic(deleted)

    def _snapshot(self) -> dict[str, Any]:
        queues = [[topic, queue_id, queue.max_offset] for topic, queue_id, queue in self.services.store.queues]
        return self.services.state.snapshot() | {"next_offset": self.services.store.next_offset, "queues": queues}

    # -- requests ----------------------------------------------------------------------------------
    def _handle(self, channel: Channel, request: Command) -> None:
        """Handles one request. The next ``commit`` writes its answer."""
        family, faults = self.services.family, self.services.faults
        self.services.store.lose_tail(faults.take_lost_tail())
        if request.serialization is Serialization.ROCKETMQ and not family.knows_binary_headers:
            channel.close()
            return
        if faults.is_silent():
            return
        if faults.is_busy(request.code):
            remark = "[REJECTREQUEST]system busy, start flow control for a while"
            channel.reply(request, Reply(ResponseCode.SYSTEM_BUSY, remark))
            return
        if request.code not in NAME_SERVER_HANDLERS and faults.is_refused(request.code):
            channel.reply(request, Reply(ResponseCode.NO_PERMISSION, "username cannot be null."))
            return
        if self._access is not None and request.code not in NAME_SERVER_HANDLERS:
            refusal = self._access.refusal(request, channel.peer)
            if refusal is not None:
                channel.reply(request, refusal)
                return
        channel.reply(request, self._answer(channel, request))

    def _answer(self, channel: Channel, request: Command) -> Reply | None:
        family = self.services.family
        handler = NAME_SERVER_HANDLERS.get(request.code)
        if handler is None and self._is_broker:
            handler = BROKER_HANDLERS.get(request.code)
        if handler is None or (request.code == RequestCode.SEND_BATCH_MESSAGE and not family.has_batch_send):
            return unsupported(request, family)
        try:
            return handler(self.services, channel, request)
        except (MalformedInput, UnicodeError) as error:
            return Reply(ResponseCode.SYSTEM_ERROR, str(error))
        except Exception as error:  # a real broker, too, answers code 1 with the exception's text
            logger.exception("request_failed: request %d of %s", request.code, channel.peer)
            return Reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    # -- clients -----------------------------------------------------------------------------------
    def _forget_client(self, channel: Channel) -> None:
        """Forgets the groups, waiting pulls and registrations of a lost connection."""
        self.services.polling.drop_channel(channel)
        self.services.clients.drop_channel(channel)
        self.services.routes.drop_owner(channel)
        self.commit()

    def _notify_members(self, group: ConsumerGroup) -> None:
        """Notifies every member of the group, including the new one (DefaultConsumerIdsChangeListener)."""
        for channel in group.members:
            channel.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})

    def _ask_producer(self, half: BrokerMessage) -> None:
        ask_producer(self.services, half)

    # -- the end of a turn -------------------------------------------------------------------------
    def commit(self) -> None:
        """Writes the log, wakes waiting pulls, then writes the answers."""
        try:
            while True:
                if self._log is not None and self._log.flush():
                    self._log.roll(self._snapshot())
                if not self.services.store.arrived:
                    break
                arrived, self.services.store.arrived = self.services.store.arrived, []
                self.services.polling.notify(arrived)
        except OSError:
            logger.exception("log_unwritable: the log cannot be written; sends are refused from now on")
            self.services.store.is_unwritable = True
            self.channels.drop_output()
        self.channels.write_out()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Runs an action later, if the broker still runs."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            action()
            self.commit()

        self._tasks = [task for task in self._tasks if not task.done()]
        self._spawn(wait())

    # -- periodic work -----------------------------------------------------------------------------
    async def check_now(self) -> None:
        """Runs one check round. Rounds never overlap."""
        async with self._check_lock:
            await self.services.checks.run_round()

    async def pass_time(self) -> None:
        """Does the work that is due after a clock was moved. Writes ends, delivers delayed messages, and checks
        halves."""
        self.services.transactions.write_finished_batch()
        self._delay.deliver_due()
        self.commit()
        await self.check_now()

    async def _check(self) -> None:
        last = self.services.clock.monotonic_seconds()
        while not self._stopped:
            await asyncio.sleep(min(_TICK_SECONDS, self.services.settings.check_interval))
            if self.services.clock.monotonic_seconds() - last < self.services.settings.check_interval:
                continue
            last = self.services.clock.monotonic_seconds()
            try:
                await self.check_now()
            except Exception:  # like "Check error" of a real broker: the next round tries again
                logger.exception("check_round_failed: check round")

    async def _tick(self) -> None:
        while not self._stopped:
            await asyncio.sleep(_TICK_SECONDS)
            self.services.transactions.write_finished_when_due()
            self.services.store.retire(most=_RETIRED_A_TICK)
            self.services.store.index.drain()
            self.commit()

    async def _slow_tick(self) -> None:
        while not self._stopped:
            await asyncio.sleep(_SLOW_TICK_SECONDS)
            self.services.clients.expire(self.services.settings.channel_expiry_seconds)
            self.services.locks.expire()
            self.commit()

    async def _scan_held_pulls(self) -> None:
        while not self._stopped:
            await asyncio.sleep(self.services.settings.suspend_scan_interval_seconds)
            self.services.polling.scan()
            self.commit()

    async def _deliver_delayed(self) -> None:
        while not self._stopped:
            self._wake_delay.clear()
            pause = self._delay.deliver_due()
            self.commit()
            # wait_for is not used here. In Python 3.11 it loses a cancellation that comes at the same time as the
            # event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.001)):
                    await self._wake_delay.wait()
