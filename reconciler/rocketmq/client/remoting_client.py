"""The remoting client: one per process is enough, shared by producers, consumers and look-ups.

One connection and one reader thread per address, requests multiplexed. A peer that misbehaves costs its connection; the
next request connects again, after a pause with jitter if that keeps failing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from functools import partial
from math import isinf
from typing import TypeAlias

from reconciler.clock import Backoff, Clock, SystemClock
from reconciler.errors import (
    AccessRefused,
    BrokerBusy,
    BrokerUnavailable,
    Lacking,
    ReconcilerError,
    RequestTimeout,
    UsageError,
)
from reconciler.rocketmq.client.connection import Connection, ConnectionLimits, PeerSilent
from reconciler.rocketmq.client.in_flight import RequestsInFlight
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.client.tls_context import TlsContext
from reconciler.rocketmq.wire.acl import AclCredentials, RequestSigner
from reconciler.rocketmq.wire.address import parse_address
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import FLAG_RESPONSE, Command, reply_to

logger = logging.getLogger(__name__)

#: Handles a request of a broker: address, request -> response; None: no response.
RequestHandler: TypeAlias = Callable[[str, Command], Command | None]
#: Sees every command on its way; None drops the command. It is for fault injection.
Passage: TypeAlias = Callable[[str, Command], Command | None]
#: Called with the address of a lost connection.
Disconnected: TypeAlias = Callable[[str], None]

RECONNECTS = Backoff(first_seconds=0.1, longest_seconds=5.0)


@dataclass(frozen=True, slots=True)
class _DeferredSend:
    """A request that is sent once its address is connected, and the callback for a failure to connect."""

    send: Callable[[Connection], None]
    failed: Callable[[ReconcilerError], None]


class _Peer:
    """One address: its connection, and when it may be tried again. Guarded by its lock; `deferred` by the other one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.deferring = threading.Lock()
        #: None: no thread is connecting for waiting requests.
        self.deferred: list[_DeferredSend] | None = None
        self.connection: Connection | None = None
        self.failures = 0
        #: Why the connection was last lost.
        self.failure: BrokerUnavailable | None = None
        self.not_before_seconds = 0.0


class RemotingClient:
    """Thread-safe. It belongs to the process that made it: after a fork the child makes its own.

    `outgoing` sees every request before it is sent, and `incoming` every request of a broker before its handler; they
    may change a command, or drop it by returning None. A dropped two-way request fails at once with RequestTimeout.
    `acl` signs every request, to brokers and to name servers, after `outgoing` has seen it; `tls` encrypts connections.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        acl: AclCredentials | None = None,
        tls: TlsSettings | None = None,
        connect_timeout_seconds: float = 3.0,
        request_timeout_seconds: float = 3.0,
        handler_threads: int = 4,
        handler_queue: int = 2_000,
        limits: ConnectionLimits | None = None,
        outgoing: Passage | None = None,
        incoming: Passage | None = None,
        silence_pauses: Backoff = RECONNECTS,
        in_flight: RequestsInFlight | None = None,
    ) -> None:
        """`silence_pauses`: pauses before a silent address is tried again; until then requests to it fail at once. By
        default it is tried as soon as after any other failure. `in_flight`: the limit of pipeline(), shared with other
        clients."""
        self.clock: Clock = clock or SystemClock()
        self.request_timeout_seconds = request_timeout_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._limits = limits or ConnectionLimits()
        self._tls = None if tls is None else TlsContext(tls)
        self._signer = None if acl is None else RequestSigner(acl)
        self._outgoing = outgoing
        self._incoming = incoming
        self._silence_pauses = silence_pauses
        self._in_flight = in_flight or RequestsInFlight()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._peers: dict[str, _Peer] = {}
        self._is_closed = False
        self._handlers: Mapping[int, RequestHandler] = {}
        self._disconnected: Disconnected = lambda _address: None
        self._pool = ThreadPoolExecutor(max_workers=handler_threads, thread_name_prefix="rocketmq-request")
        self._room = threading.BoundedSemaphore(handler_queue)
        #: Requests of brokers that were dropped because the pool's queue was full.
        self.dropped_requests = 0

    def request(self, address: str, command: Command, *, timeout_seconds: float | None = None) -> Command:
        """Sends and returns the answer; an answer with an error code is returned, too.

        Raises BrokerUnavailable (its kind ConnectionLost: may have been executed; its kind AccessRefused: a refusal by
        access control), RequestTimeout or BrokerBusy.
        """
        timeout = self.request_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = self.clock.monotonic_seconds() + timeout
        passed = self._pass_out(address, command)
        if passed is None:
            raise _dropped(address, command)
        connection = self._connected(address, timeout)
        future = connection.submit(passed, timeout)
        try:
            return self.wait(future, deadline - self.clock.monotonic_seconds(), f"{address}: request {command.code}")
        except RequestTimeout:
            connection.give_up(future)
            raise

    def wait(self, future: Future[Command], timeout_seconds: float, what: str) -> Command:
        """Returns the answer of a submitted request. Raises what request() raises; gives up the request after the
        time."""
        try:
            return future.result(max(0.0, timeout_seconds))
        except FutureTimeoutError as error:
            future.cancel()
            raise RequestTimeout(f"{what}: no answer in time") from error

    def submit(self, address: str, command: Command, timeout_seconds: float | None = None) -> Future[Command]:
        """Sends without waiting for the answer; may wait for connecting. The future fails with what request() raises.

        Callbacks of the future run on the connection's reader thread: they must be short and not block.
        """
        timeout = self.request_timeout_seconds if timeout_seconds is None else timeout_seconds
        passed = self._pass_out(address, command)
        if passed is None:
            dropped: Future[Command] = Future()
            dropped.set_exception(_dropped(address, command))
            return dropped
        return self._connected(address, timeout).submit(passed, timeout)

    def pipeline(self, address: str, command: Command) -> Future[Command]:
        """Does submit() for one of many requests: first waits until few of them wait for answers of the address."""
        timeout = self.request_timeout_seconds
        self._in_flight.enter(address, command, timeout)
        try:
            future = self.submit(address, command, timeout)
        except BaseException:
            self._in_flight.leave(address, command, None)
            raise
        future.add_done_callback(partial(self._in_flight.leave, address, command))
        return future

    def submit_soon(self, address: str, command: Command, timeout_seconds: float | None = None) -> Future[Command]:
        """Does submit(), but a separate thread of the address connects: for threads that serve many brokers.

        A host that swallows packets then costs only its own requests the time-out for connecting. They fail with
        BrokerUnavailable, and nothing was sent; a request that is cancelled before is not sent. The time for the answer
        counts from the sending.
        """
        timeout = self.request_timeout_seconds if timeout_seconds is None else timeout_seconds
        promised: Future[Command] = Future()

        def send(connection: Connection) -> None:
            if promised.cancelled():
                return
            passed = self._pass_out(address, command)
            if passed is None:
                raise _dropped(address, command)
            connection.submit(passed, timeout).add_done_callback(lambda answered: _hand_on(answered, promised))

        self._send_soon(address, _DeferredSend(send, lambda error: _fail(promised, error)))
        return promised

    def oneway_if_connected(self, address: str, command: Command) -> None:
        """Does oneway(), but without a connection raises BrokerUnavailable at once, and starts connecting.

        Nothing is sent late: for requests that are repeated anyway and would be outdated by then.
        """
        connection = self._peer(address).connection
        if connection is None or connection.is_closed:
            self._send_soon(address, _DeferredSend(lambda _connection: None, lambda _error: None))
            raise BrokerUnavailable(f"{address}: not connected yet")
        passed = self._pass_out(address, command)
        if passed is not None:
            connection.send(passed, self.request_timeout_seconds)

    def oneway(self, address: str, command: Command) -> None:
        """Sends a request without an answer. Raises BrokerUnavailable, RequestTimeout or BrokerBusy."""
        passed = self._pass_out(address, command)
        if passed is not None:
            timeout = self.request_timeout_seconds
            self._connected(address, timeout).send(passed, timeout)

    def on_request(self, code: int, handler: RequestHandler) -> None:
        """Handles requests of this code that brokers send. Runs on a bounded pool; a new handler replaces the old."""
        with self._lock:
            self._handlers = {**self._handlers, int(code): handler}

    def on_disconnect(self, callback: Disconnected) -> None:
        """Calls a function when a connection is lost, but not because of close(); a new function replaces the old one.

        It runs on the thread that noticed, often the connection's reader: it must be short, not block and not raise.
        """
        self._disconnected = callback

    def disconnect(self, address: str) -> None:
        """Closes the connection to the address, if there is one; the next request connects again."""
        with self._lock:
            peer = self._peers.get(address)
        if peer is not None and peer.connection is not None:
            peer.connection.close()

    def close(self) -> None:
        """Closes every connection and waits for the handlers that run. Safe to call twice."""
        with self._lock:
            self._is_closed = True
            peers, self._peers = list(self._peers.values()), {}
        if os.getpid() != self._process:
            return
        for peer in peers:
            # without the lock, because a connection that is just being made is closed by its maker
            connection = peer.connection
            if connection is not None:
                connection.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> RemotingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------- connections

    def _pass_out(self, address: str, command: Command) -> Command | None:
        passed = command if self._outgoing is None else self._outgoing(address, command)
        return passed if passed is None or self._signer is None else self._signer.sign(passed)

    def _send_soon(self, address: str, deferred: _DeferredSend) -> None:
        peer = self._peer(address)
        with peer.deferring:
            connection = peer.connection if peer.deferred is None else None
            if connection is None or connection.is_closed:
                waiting = peer.deferred or []
                if len(waiting) >= self._limits.in_flight:
                    raise BrokerBusy(f"{address}: {len(waiting)} requests wait for the connection already")
                if peer.deferred is None:
                    # Started before any request waits for it, because no thread may be available.
                    _start(f"rocketmq-connect-{address}", lambda: self._connect_for_deferred(address, peer))
                peer.deferred = [*waiting, deferred]
                return
        deferred.send(connection)

    def _connect_for_deferred(self, address: str, peer: _Peer) -> None:
        connection: Connection | None = None
        failure: ReconcilerError = BrokerUnavailable(f"{address}: not connected")
        try:
            connection = self._connected(address, self._connect_timeout_seconds)
        except ReconcilerError as error:
            failure = error
        except Exception as error:  # for example no memory: the waiting threads must get the error
            logger.exception("connecting_failed: %s: connecting ended", address)
            failure = BrokerUnavailable(f"{address}: {type(error).__name__}: {error}")
        while waiting := self._next_deferred(peer):
            for deferred in waiting:
                if connection is None:
                    deferred.failed(failure)
                    continue
                try:
                    deferred.send(connection)
                except ReconcilerError as error:
                    deferred.failed(error)
                except Exception as error:  # for example no memory: the others still wait
                    logger.exception("request_unsent: %s: a request that waited was not sent", address)
                    deferred.failed(BrokerUnavailable(f"{address}: {type(error).__name__}: {error}"))

    def _next_deferred(self, peer: _Peer) -> list[_DeferredSend]:
        """Returns the waiting requests in order; once there are none, requests go to the connection directly."""
        with peer.deferring:
            waiting = peer.deferred or []
            peer.deferred = [] if waiting else None
            return waiting

    def _connected(self, address: str, timeout_seconds: float) -> Connection:
        peer = self._peer(address)
        connection = peer.connection
        if connection is not None and not connection.is_closed:
            return connection
        if not peer.lock.acquire(timeout=max(0.0, timeout_seconds)):
            raise BrokerUnavailable(f"{address}: still connecting after {timeout_seconds} s")
        try:
            return self._connect(address, peer, timeout_seconds)
        finally:
            peer.lock.release()

    def _peer(self, address: str) -> _Peer:
        with self._lock:
            if self._is_closed:
                raise UsageError("this client is closed")
            if os.getpid() != self._process:
                raise UsageError("this client belongs to the parent process: make a RemotingClient after the fork")
            peer = self._peers.get(address)
            if peer is None:
                parse_address(address)
                peer = self._peers[address] = _Peer()
            return peer

    def _connect(self, address: str, peer: _Peer, timeout_seconds: float) -> Connection:
        old = peer.connection
        now = self.clock.monotonic_seconds()
        if old is not None:
            if not old.is_closed:
                return old
            peer.connection = None
            peer.failure = old.closed_because
            # A connection that was useless counts as a failure, because otherwise a hostile peer would be called
            # without end. One that only carried one-way requests for a while was useful.
            is_good = old.has_spoken or now - old.opened_at_seconds > RECONNECTS.longest_seconds
            self._note_outcome(peer, is_good=is_good)
        if now < peer.not_before_seconds:
            raise _not_yet(address, peer, peer.not_before_seconds - now)
        try:
            peer.connection = Connection(
                address,
                clock=self.clock,
                connect_timeout_seconds=min(self._connect_timeout_seconds, timeout_seconds),
                on_request=self._dispatch,
                on_closed=self._note_disconnected,
                on_refused=self._note_refused,
                limits=self._limits,
                tls=self._tls,
            )
        except BrokerUnavailable as error:
            peer.failure = error
            self._note_outcome(peer, is_good=False)
            raise
        with self._lock:
            is_closed = self._is_closed
        if is_closed:
            peer.connection.close()
            raise UsageError("this client is closed")
        return peer.connection

    def _note_disconnected(self, connection: Connection) -> None:
        if not self._is_closed:
            self._disconnected(connection.address)

    def _note_refused(self, refusal: AccessRefused) -> None:
        if self._signer is not None and refusal.lacking is Lacking.SECRET:
            self._signer.note_refusal()

    def _note_outcome(self, peer: _Peer, *, is_good: bool) -> None:
        """Notes a silence also for an address that worked until then, if silence has its own pauses."""
        is_silent = self._silence_pauses is not RECONNECTS and _is_silence(peer.failure)
        if is_good:
            peer.failures, peer.not_before_seconds = 0, 0.0
            if not is_silent:
                return
        peer.failures += 1
        pauses = self._silence_pauses if is_silent else RECONNECTS
        pause = pauses.pause_seconds(peer.failures - 1)
        peer.not_before_seconds = self.clock.monotonic_seconds() + pause * random.uniform(0.5, 1.0)

    # ----------------------------------------------------------------- requests of brokers

    def _dispatch(self, connection: Connection, command: Command) -> None:
        """Called on the reader thread: passes the request to the pool, or drops it when the pool's queue is full."""
        if not self._room.acquire(blocking=False):
            self.dropped_requests += 1
            logger.warning(
                "request_dropped: request %d of %s dropped: the handlers are busy", command.code, connection.address
            )
            return
        try:
            self._pool.submit(self._handle, connection, command)
        except RuntimeError:
            self._room.release()  # the client is closing

    def _handle(self, connection: Connection, command: Command) -> None:
        try:
            answer = self._answer(connection.address, command)
            if answer is not None and not command.is_oneway:
                connection.send(
                    replace(answer, opaque=command.opaque, flag=FLAG_RESPONSE, serialization=command.serialization),
                    self.request_timeout_seconds,
                )
        except ReconcilerError as error:
            logger.warning(
                "request_unanswered: request %d of %s not answered: %s", command.code, connection.address, error
            )
        finally:
            self._room.release()

    def _answer(self, address: str, command: Command) -> Command | None:
        passed = command if self._incoming is None else self._incoming(address, command)
        if passed is None:
            return None
        handler = self._handlers.get(passed.code)
        if handler is None:
            remark = f"request code {passed.code} is not supported by this client"
            return reply_to(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            return handler(address, passed)
        except Exception as error:  # a handler is foreign code: its failure costs only one answer
            logger.warning("request_handler_failed: handler of request %d failed", passed.code, exc_info=True)
            return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _start(name: str, work: Callable[[], None]) -> None:
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:  # the process has as many threads as it may
        raise BrokerUnavailable(f"{name}: {error}") from error


def _is_silence(failure: BrokerUnavailable | None) -> bool:
    """Returns True if no answer came in time, to a request or to a new connection."""
    return isinstance(failure, PeerSilent) or (failure is not None and isinstance(failure.__cause__, TimeoutError))


def _not_yet(address: str, peer: _Peer, pause_seconds: float) -> BrokerUnavailable:
    if isinf(pause_seconds):
        text = f"{address}: it is not asked again"
    else:
        text = f"{address}: failed {peer.failures} times, next try in {pause_seconds:.1f} s"
    if peer.failure is None:
        return BrokerUnavailable(text)
    failure = BrokerUnavailable(f"{text}; the last failure: {peer.failure}")
    failure.__cause__ = peer.failure
    return failure


def _dropped(address: str, command: Command) -> RequestTimeout:
    return RequestTimeout(f"{address}: request {command.code} was dropped on its way out")


def _hand_on(answered: Future[Command], promised: Future[Command]) -> None:
    error = answered.exception()
    with contextlib.suppress(InvalidStateError):  # its owner cancelled it
        if error is not None:
            promised.set_exception(error)
        else:
            promised.set_result(answered.result())


def _fail(promised: Future[Command], error: ReconcilerError) -> None:
    with contextlib.suppress(InvalidStateError):  # its owner cancelled it
        promised.set_exception(error)
