"""The remoting client. Producers, consumers and look-ups of a process can share one client.

Each address has one connection and one reader thread, which all requests share. The connection to a misbehaving peer is
closed. The next request connects again. If connecting keeps failing, requests fail at once during a pause of random
length.
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
from typing import TypeAlias, TypeVar

from reconciler.clock import Backoff, Clock, SystemClock
from reconciler.errors import (
    AccessRefused,
    BrokerBusy,
    BrokerUnavailable,
    Lacking,
    ReconcilerError,
    RequestTimeout,
    UsageError,
    told_error,
)
from reconciler.rocketmq.client.connection import Connection, ConnectionLimits, NotSent, PeerSilent
from reconciler.rocketmq.client.in_flight import RequestsInFlight
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.client.tls_context import TlsContext
from reconciler.rocketmq.wire.acl import AclCredentials, RequestSigner
from reconciler.rocketmq.wire.address import parse_address
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import FLAG_RESPONSE, Command, reply_to

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: A function that handles a request of a broker. The arguments are the broker's address and the request. The function
#: returns the response, or None for no response.
RequestHandler: TypeAlias = Callable[[str, Command], Command | None]
#: A function for fault injection, which sees every command on its way. The function returns the command to pass on, or
#: None to drop the command.
Passage: TypeAlias = Callable[[str, Command], Command | None]
#: A function that is called with the address of a lost connection.
Disconnected: TypeAlias = Callable[[str], None]

RECONNECTS = Backoff(first_seconds=0.1, longest_seconds=5.0)


@dataclass(frozen=True, slots=True)
class _DeferredSend:
    """A request that is sent as soon as its address is connected. `failed` is called if connecting fails."""

    send: Callable[[Connection], None]
    failed: Callable[[ReconcilerError], None]


class _Peer:
    """The connection to one address, and the time of the next try. `deferring` protects `deferred`, and `lock` protects
    the rest."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.deferring = threading.Lock()
        #: Requests that wait for the connection. None if no thread is connecting for waiting requests.
        self.deferred: list[_DeferredSend] | None = None
        self.connection: Connection | None = None
        self.failures = 0
        #: The reason for the last loss of the connection.
        self.failure: BrokerUnavailable | None = None
        self.not_before_seconds = 0.0


class RemotingClient:
    """A thread-safe client. Each process makes its own client, and so does a child after a fork.

    `outgoing` sees every request before the sending. `incoming` sees every request of a broker before the handler.
    `outgoing` and `incoming` may change a command, or return None to drop the command. A dropped two-way request fails
    at once with RequestTimeout. `acl` signs every request to brokers and name servers after `outgoing` has seen the
    request. `tls` encrypts connections.
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
        """`silence_pauses` are the pauses before a silent address is tried again. Requests to the address fail at once
        during a pause. By default, silence has the same pauses as any other failure. `in_flight` is the limit of
        pipeline(), which other clients may share."""
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
        """Sends the request and returns the answer. An answer with an error code is also returned.

        Raises BrokerUnavailable, RequestTimeout or BrokerBusy. The subclass ConnectionLost of BrokerUnavailable means
        that the broker may have executed the request. The subclass AccessRefused means a refusal by access control.
        """
        timeout = self.request_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = self.clock.monotonic_seconds() + timeout
        passed = self._pass_out(address, command)
        if passed is None:
            raise _dropped(address, command)
        connection, future = self._sent(address, timeout, lambda over: (over, over.submit(passed, timeout)))
        try:
            return self.wait(future, deadline - self.clock.monotonic_seconds(), f"{address}: request {command.code}")
        except RequestTimeout:
            connection.give_up(future)
            raise

    def wait(self, future: Future[Command], timeout_seconds: float, what: str) -> Command:
        """Returns the answer of a submitted request. Raises what request() raises. Cancels the request if the time is
        over."""
        try:
            return future.result(max(0.0, timeout_seconds))
        except FutureTimeoutError as error:
            future.cancel()
            raise RequestTimeout(f"{what}: no answer in time") from error

    def submit(self, address: str, command: Command, timeout_seconds: float | None = None) -> Future[Command]:
        """Sends the request and does not wait for the answer. The call may wait for the connection. The future fails
        with what request() raises.

        Callbacks of the future run on the connection's reader thread. Callbacks must be short and must not block.
        """
        timeout = self.request_timeout_seconds if timeout_seconds is None else timeout_seconds
        passed = self._pass_out(address, command)
        if passed is None:
            dropped: Future[Command] = Future()
            dropped.set_exception(_dropped(address, command))
            return dropped
        return self._sent(address, timeout, lambda over: over.submit(passed, timeout))

    def pipeline(self, address: str, command: Command) -> Future[Command]:
        """Does what submit() does, for one of many requests. The call first waits until fewer requests wait for answers
        of the address."""
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
        """Does what submit() does for a thread that serves many brokers. Another thread connects to the address.

        For a host that drops all packets, only the requests to this host wait for the time-out of connecting. Such
        requests then fail with BrokerUnavailable, and nothing was sent. A request that is cancelled before the sending
        is not sent. The time for the answer counts from the sending.
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
        """Does what oneway() does if the address is connected. Otherwise begins to connect, and raises
        BrokerUnavailable at once.

        The request is never sent later. This suits requests that are repeated anyway, because a late one would be
        outdated.
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
            self._sent(address, timeout, lambda over: over.send(passed, timeout))

    def on_request(self, code: int, handler: RequestHandler) -> None:
        """Handles brokers' requests with this code. Handlers run on a bounded pool. A new handler replaces the old
        one."""
        with self._lock:
            self._handlers = {**self._handlers, int(code): handler}

    def on_disconnect(self, callback: Disconnected) -> None:
        """Calls the function when a connection is lost. A connection that close() ends does not count. A new function
        replaces the old one.

        The function runs on the thread that noticed the loss, often the reader of the connection. The function must be
        short, must not block and must not raise.
        """
        self._disconnected = callback

    def disconnect(self, address: str) -> None:
        """Closes the connection to the address, if one is open. The next request connects again."""
        with self._lock:
            peer = self._peers.get(address)
        if peer is not None and peer.connection is not None:
            peer.connection.close()

    def close(self) -> None:
        """Closes every connection and waits for running handlers. A second call does no harm."""
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
                    # The thread starts before a request waits for it. Starting fails if the process may have no more
                    # threads.
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
        """Returns the waiting requests in order. After an empty answer, further requests go to the connection
        directly."""
        with peer.deferring:
            waiting = peer.deferred or []
            peer.deferred = [] if waiting else None
            return waiting

    def _sent(self, address: str, timeout_seconds: float, send: Callable[[Connection], _T]) -> _T:
        """Sends a request. If its connection was closed at that moment, sends it once over a fresh connection.

        A connection that has brought no answer is not replaced here, because its address may have to pause.
        """
        connection = self._connected(address, timeout_seconds)
        try:
            return send(connection)
        except NotSent:
            if self._is_closed or not connection.has_spoken:
                raise
        return send(self._connected(address, timeout_seconds))

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
                raise UsageError(
                    "the client was opened before a fork and belongs to the parent process: call open_producer, and "
                    "open the consumer, after the fork (gunicorn: in post_fork)"
                )
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
            # A useless connection counts as a failure, because otherwise this client would connect to a hostile peer
            # without end. A connection that carried only one-way requests for a while was useful.
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
        """Records whether the connection was good, which decides the next pause. If silence has its own pauses, a
        silence also starts one for an address that worked until then."""
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
        """Passes the request to the pool, or drops the request if the pool's queue is full. Runs on the reader
        thread."""
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
            return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=told_error(error))


def _start(name: str, work: Callable[[], None]) -> None:
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:  # the process has as many threads as it may
        raise BrokerUnavailable(f"{name}: {error}") from error


def _is_silence(failure: BrokerUnavailable | None) -> bool:
    """Returns True if the peer did not answer a request or a new connection in time."""
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
