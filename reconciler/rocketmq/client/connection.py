"""One TCP connection with its reader thread. Many requests can wait at a time, and an opaque number tells them
apart."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import TypeAlias

from reconciler.clock import Clock
from reconciler.errors import (
    AccessRefused,
    BrokerBusy,
    BrokerUnavailable,
    ProtocolViolation,
    ReconcilerError,
    RequestTimeout,
)
from reconciler.rocketmq.client.tls_context import TlsContext
from reconciler.rocketmq.client.tls_failures import (
    DO_AS_SAID,
    TlsFailure,
    alert_behind,
    demand_of_silent,
    hand_shake_failure,
)
from reconciler.rocketmq.client.tls_socket import TlsSocket
from reconciler.rocketmq.wire.access_refusal import access_refusal
from reconciler.rocketmq.wire.address import parse_address
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command, FrameReader, encode_frame

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 256 * 1024
#: Seconds between two checks of time-outs while nothing arrives.
_TICK_SECONDS = 0.25
_OPAQUE_MASK = 0x7FFF_FFFF
#: Maximum number of refusals that are logged for one connection.
_TOLD_MAX = 100
#: Response codes that may mean a refusal by access control.
_REFUSALS = frozenset({int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.NO_PERMISSION)})

Inbound: TypeAlias = Callable[["Connection", Command], None]
#: Is called on the reader thread for each refusal by access control. The function must be short and must not raise.
Refused: TypeAlias = Callable[[AccessRefused], None]
#: Is called once for each closed connection, on the thread that noticed the end. The function must be short and must
#: not raise.
Closed: TypeAlias = Callable[["Connection"], None]


class NotSent(BrokerUnavailable):
    """The connection was closed before the request was written. Nothing was sent."""


class ConnectionLost(BrokerUnavailable):
    """The connection broke after the request was written. The broker may have executed the request."""

    #: True if the peer ended a TLS connection without having sent anything. The peer may refuse this client's
    #: certificate.
    is_silent_over_tls = False


class PeerSilent(ConnectionLost):
    """A request was not answered in time, and nothing else has arrived since the request was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of one connection."""

    #: Maximum number of requests that wait for an answer. A further request is refused with BrokerBusy.
    in_flight: int = 8_192
    #: Longest time between the first and the last byte of a frame that arrives.
    frame_seconds: float = 30.0
    #: A socket that accepts no bytes for this time is closed.
    write_seconds: float = 10.0
    #: A connection without traffic for this time is closed. Brokers close an idle connection after 120 s, and a request
    #: could be under way at that moment.
    idle_seconds: float = 100.0


@dataclass(slots=True)
class _Waiting:
    """A request that waits for an answer. The lock of the connection protects this object."""

    future: Future[Command]
    sent_seconds: float
    deadline_seconds: float
    code: int
    #: The header fields of the request. The body is not kept, because it may be large.
    fields: Mapping[str, str]

    @property
    def what(self) -> str:
        return f"request {self.code}"


class Connection:
    """A connection that is opened by its constructor. The constructor raises BrokerUnavailable if connecting fails.
    Threads may share the object, because locks protect it.

    With `tls`, everything is sent over TLS. The constructor raises TlsFailure if the hand-shake fails.

    Every failure (closed, reset, bad frame, frame that arrives too slowly, stuck write) ends this connection alone. The
    waiting requests then fail with ConnectionLost, whose text says why. `is_closed` becomes True.
    """

    def __init__(
        self,
        address: str,
        *,
        clock: Clock,
        connect_timeout_seconds: float,
        on_request: Inbound,
        on_closed: Closed,
        on_refused: Refused,
        limits: ConnectionLimits,
        tls: TlsContext | None = None,
    ) -> None:
        self.address = address
        self._clock = clock
        self._limits = limits
        self._tls = tls
        self._on_request = on_request
        self._on_closed = on_closed
        self._on_refused = on_refused
        self._opaque = itertools.count(1)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._closed_because: BrokerUnavailable | None = None
        #: Refusals that were logged. Only the reader thread uses this set.
        self._told: set[str] = set()
        #: True once the peer has sent one good frame.
        self.has_spoken = False
        self.opened_at_seconds = clock.monotonic_seconds()
        self._last_traffic = self._last_received = self.opened_at_seconds
        self._socket = self._connect(connect_timeout_seconds)
        self._thread = threading.Thread(target=self._read, name=f"rocketmq-{address}", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """True if no request can be sent any more."""
        return self._closed_because is not None

    @property
    def closed_because(self) -> BrokerUnavailable | None:
        """The reason why the connection is closed. None while the connection is open."""
        return self._closed_because

    def submit(self, command: Command, timeout_seconds: float) -> Future[Command]:
        """Sends a two-way request. The future fails with RequestTimeout or ConnectionLost.

        Callbacks of the future run on the reader thread and must not block. Raises BrokerBusy if too many requests wait
        for an answer. Raises NotSent if the connection is closed. Nothing was sent in either case.
        """
        future: Future[Command] = Future()
        opaque = next(self._opaque) & _OPAQUE_MASK
        sent_seconds = self._clock.monotonic_seconds()
        deadline = sent_seconds + timeout_seconds
        frame = encode_frame(command, opaque=opaque, flag=command.flag & ~(FLAG_RESPONSE | FLAG_ONEWAY))
        with self._lock:
            if self._closed_because is not None:
                raise NotSent(str(self._closed_because)) from self._closed_because
            if len(self._waiting) >= self._limits.in_flight:
                raise BrokerBusy(f"{self.address}: {self._limits.in_flight} requests wait for their answer already")
            self._waiting[opaque] = _Waiting(future, sent_seconds, deadline, command.code, command.fields)
        self._write(frame, timeout_seconds, opaque)
        return future

    def send(self, command: Command, timeout_seconds: float) -> None:
        """Sends a one-way request or a response. Raises BrokerUnavailable or RequestTimeout."""
        if command.is_response:
            frame = encode_frame(command)
        else:
            opaque = next(self._opaque) & _OPAQUE_MASK
            frame = encode_frame(command, opaque=opaque, flag=command.flag | FLAG_ONEWAY)
        self._write(frame, timeout_seconds, None)

    def give_up(self, future: Future[Command]) -> None:
        """Gives up waiting for this answer.

        Closes the connection if the reader would close it at the next check for this request. Otherwise a request that
        is sent before this check would be lost. The time of a request begins when it is sent, so its deadline may lie
        after the caller's.
        """
        next_look = self._clock.monotonic_seconds() + _TICK_SECONDS
        with self._lock:
            mine = [waiting for waiting in self._waiting.values() if waiting.future is future]
        if any(one.deadline_seconds <= next_look and one.sent_seconds > self._last_received for one in mine):
            self._fail(self._silence())

    def close(self, reason: str = "closed by this client") -> None:
        """Closes the socket and fails all waiting requests. A second call and a call from the reader thread are
        allowed."""
        self._fail(ConnectionLost(f"{self.address}: {reason}"))
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ----------------------------------------------------------------- writing

    def _connect(self, timeout_seconds: float) -> socket.socket | TlsSocket:
        deadline = self._clock.monotonic_seconds() + timeout_seconds
        host, port = parse_address(self.address)
        try:
            connected = socket.create_connection((host, port), timeout=max(0.001, timeout_seconds))
        except OSError as error:
            raise BrokerUnavailable(f"{self.address}: {error}") from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._tls is not None:
            return self._encrypt(connected, host, self._tls, deadline - self._clock.monotonic_seconds())
        # The kernel's time-outs are set in place of settimeout, because reading and writing have different time-outs.
        connected.settimeout(None)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(_TICK_SECONDS))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(self._limits.write_seconds))
        return connected

    def _encrypt(self, connected: socket.socket, host: str, tls: TlsContext, timeout_seconds: float) -> TlsSocket:
        """Encrypts the socket. Closes the socket if the hand-shake fails."""
        connected.settimeout(max(0.001, timeout_seconds))
        try:
            encrypted = tls.current().wrap_socket(connected, server_hostname=host)
        except TimeoutError as error:
            connected.close()
            told = "the TLS hand-shake was not finished in time; correct the address, if another server has this port"
            raise TlsFailure(f"{self.address}: {told}") from error
        except OSError as error:
            connected.close()
            raise hand_shake_failure(error, self.address, host, tls.settings) from error
        except ValueError as error:  # no certificate can contain the host, for example because of an empty label
            connected.close()
            raise TlsFailure(f"{self.address}: no certificate can name this host: {error}") from error
        return TlsSocket(encrypted, read_seconds=_TICK_SECONDS, write_seconds=self._limits.write_seconds)

    def _write(self, frame: bytes, timeout_seconds: float, opaque: int | None) -> None:
        if not self._writing.acquire(timeout=max(0.0, timeout_seconds)):
            self._forget(opaque)
            raise BrokerBusy(f"{self.address}: the connection takes no bytes, nothing was sent")
        try:
            if self._closed_because is not None:
                self._forget(opaque)
                raise NotSent(str(self._closed_because)) from self._closed_because
            self._socket.sendall(frame)
            self._last_traffic = self._clock.monotonic_seconds()
        except OSError as error:
            self._forget(opaque)
            lost = self._lost(f"{error or type(error).__name__} while sending", error)
            self._fail(lost)
            raise lost from error
        finally:
            self._writing.release()

    def _forget(self, opaque: int | None) -> None:
        if opaque is not None:
            with self._lock:
                self._waiting.pop(opaque, None)

    # ----------------------------------------------------------------- reading

    def _read(self) -> None:
        reader = FrameReader()
        frame_began: float | None = None
        next_look = self._clock.monotonic_seconds() + _TICK_SECONDS
        try:
            while not self.is_closed:
                try:
                    data = self._socket.recv(_RECEIVE_BYTES)
                except (BlockingIOError, InterruptedError):
                    data = None
                now = self._clock.monotonic_seconds()
                if data is not None:
                    if not data:
                        raise self._lost("closed by the peer", None)  # noqa: TRY301 - read to its end
                    self._last_traffic = self._last_received = now
                    commands = reader.feed(data)
                    for command in commands:
                        self._receive(command)
                    if not reader.is_in_frame:
                        frame_began = None
                    elif commands or frame_began is None:
                        frame_began = now
                if now >= next_look:
                    next_look = now + _TICK_SECONDS
                    self._look_after_time(now, frame_began)
        except ReconcilerError as error:
            self._fail(error)
        except OSError as error:
            self._fail(self._lost(str(error), error))
        except Exception as error:  # for example no memory: threads that wait for an answer must get the error
            logger.exception("connection_failed: %s: reading ended", self.address)
            self._fail(ConnectionLost(f"{self.address}: reading ended: {type(error).__name__}: {error}"))
        finally:
            with self._writing:  # a file number in use must not become another file's
                self._socket.close()

    def _lost(self, what: str, error: OSError | None) -> BrokerUnavailable:
        """Returns the error for a lost connection. The error names the peer's demand if the peer sent one, or if the
        peer has answered nothing."""
        if self.has_spoken:
            return ConnectionLost(f"{self.address}: {what}")
        settings = None if self._tls is None else self._tls.settings
        refused = None if error is None else alert_behind(error, self.address, settings)
        if refused is not None:
            return refused
        demand = demand_of_silent(error, settings)
        lost = ConnectionLost(f"{self.address}: {what}{demand}")
        lost.is_silent_over_tls = settings is not None and bool(demand)
        lost.remedy = DO_AS_SAID if demand else ""
        return lost

    def _receive(self, command: Command) -> None:
        self.has_spoken = True
        if not command.is_response:
            self._on_request(self, command)
            return
        with self._lock:
            waiting = self._waiting.pop(command.opaque, None)
        if waiting is None:  # a late answer
            return
        # A refusal becomes an error here. Callers read some of these codes as "nothing found", and would take a refusal
        # for an answer.
        refusal = None
        if command.code in _REFUSALS:
            refusal = access_refusal(command, waiting.code, waiting.fields, self.address)
        if refusal is not None:
            self._on_refused(refusal)
            self._tell_once(refusal)
        _settle(waiting.future, refusal or command)

    def _tell_once(self, refusal: AccessRefused) -> None:
        """Logs each refusal once per connection. Callers may treat the broker as unreachable, go on, and report no
        refusal."""
        if str(refusal) in self._told or len(self._told) >= _TOLD_MAX:
            return
        self._told.add(str(refusal))
        about = {"cause": str(refusal.lacking), "user": refusal.user, "right": refusal.right}
        logger.warning("access_refused: %s", refusal, extra=about)

    def _look_after_time(self, now: float, frame_began: float | None) -> None:
        if frame_began is not None and now - frame_began > self._limits.frame_seconds:
            raise ProtocolViolation(f"a frame is not whole after {self._limits.frame_seconds} s")
        with self._lock:
            late = [opaque for opaque, waiting in self._waiting.items() if waiting.deadline_seconds <= now]
            timed_out = [self._waiting.pop(opaque) for opaque in late]
            is_idle = not self._waiting and now - self._last_traffic > self._limits.idle_seconds
        for waiting in timed_out:
            _settle(waiting.future, RequestTimeout(f"{self.address}: {waiting.what}: no answer in time"))
        if any(waiting.sent_seconds > self._last_received for waiting in timed_out):
            # Our own writes can keep a dead path open, for example through a load balancer that drops them. Only a new
            # connection shows that the path is dead. The Java client also closes its channel then
            # (NettyRemotingClient.invokeSync, closeSocketIfTimeout).
            raise self._silence()
        if is_idle:
            raise ConnectionLost(f"{self.address}: closed after {self._limits.idle_seconds} s without traffic")

    def _silence(self) -> PeerSilent:
        return PeerSilent(f"{self.address}: nothing came since a request that was not answered in time")

    def _fail(self, error: ReconcilerError) -> None:
        with self._lock:
            if self._closed_because is not None:
                return
            if isinstance(error, BrokerUnavailable):
                lost = error
            else:
                lost = ConnectionLost(f"{self.address}: closed because of what the peer sent: {error}")
                lost.__cause__ = error
                logger.warning("connection_lost: %s", lost)
            self._closed_because = lost
            in_flight = list(self._waiting.values())
            self._waiting.clear()
        # The reader thread closes the socket later. The suppressed error means that the peer closed the connection
        # first.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for waiting in in_flight:
            failure: ReconcilerError
            if isinstance(lost, TlsFailure):  # the peer refused before it read anything
                failure = TlsFailure(str(lost))
            else:
                failure = ConnectionLost(f"{lost} ({waiting.what} may have been executed)")
            failure.__cause__ = lost
            _settle(waiting.future, failure)
        self._on_closed(self)


def _settle(future: Future[Command], outcome: Command | ReconcilerError) -> None:
    with contextlib.suppress(InvalidStateError):  # its owner cancelled it
        if isinstance(outcome, Command):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return struct.pack("@ll", whole, int((seconds - whole) * 1_000_000))
