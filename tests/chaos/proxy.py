"""A TCP proxy before a name server or a broker that loses END_TRANSACTION, delays, resets and half-closes.

Frames from clients are read one by one (u32 length, then the frame), so that single requests can be lost; bytes from
the server are passed on as they come, except that routes name the proxies instead of the brokers.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

END_TRANSACTION = 37
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
#: A client that sends more in one frame is broken.
FRAME_MAX = 16 * 1024 * 1024
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Listens on a free loopback port. Its faults are attributes that any thread may set."""

    def __init__(self, server_port: int, *, addresses: Mapping[int, int] | None = None, seed: int = 0) -> None:
        #: Share of END_TRANSACTION requests that get lost.
        self.lose_end = 0.0
        #: Every frame from clients waits as long as this.
        self.delay_seconds = 0.0
        #: Replaces ports in routes: the server's -> the proxy's.
        self.addresses = dict(addresses or {})
        self.counts: Counter[str] = Counter()
        #: Unique keys of the ENDs that got lost.
        self.lost_ends: list[str] = []
        self._server_port = server_port
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stops listening and drops every connection."""
        self._listening.close()
        self.reset()

    def reset(self) -> int:
        """RST on every connection; returns how many."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for client, server in pairs:
            for end in (client, server):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        return len(pairs)

    def half_close(self) -> int:
        """Clients see the end of the stream while what they send still passes; returns how many."""
        with self._lock:
            pairs = list(self._pairs)
        for client, _ in pairs:
            with suppress(OSError):
                client.shutdown(socket.SHUT_WR)
        return len(pairs)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            for target in (self._requests, self._replies):
                threading.Thread(target=self._run, args=(target, pair), daemon=True).start()

    def _run(self, target, pair) -> None:  # type: ignore[no-untyped-def]  # the two methods below
        with suppress(OSError, EOFError):
            target(*pair)
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        reader = client.makefile("rb")
        while True:
            frame = read_frame(reader)
            if self.delay_seconds:
                time.sleep(self.delay_seconds)
                self.counts["frames delayed"] += 1
            if self.lose_end and self._loses(frame):
                continue
            server.sendall(frame)

    def _loses(self, frame: bytes) -> bool:
        header = header_of(frame)
        if header.get("code") != END_TRANSACTION or self._dice.random() >= self.lose_end:
            return False
        fields = header.get("extFields", {})
        self.lost_ends.append(str(fields.get("transactionId") or fields.get("msgId")))  # the first from 4.3 on
        return True

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        reader = server.makefile("rb")
        while True:
            if not self.addresses:
                block = reader.read1(65536)
                if not block:
                    raise EOFError
                client.sendall(block)
            else:
                client.sendall(self._with_proxies(read_frame(reader)))

    def _with_proxies(self, frame: bytes) -> bytes:
        rest = frame[4:]
        for server, proxy in self.addresses.items():
            rest = rest.replace(f'127.0.0.1:{server}"'.encode(), f'127.0.0.1:{proxy}"'.encode())
        return struct.pack(">I", len(rest)) + rest


def read_frame(reader) -> bytes:  # type: ignore[no-untyped-def]  # a buffered reader
    """One frame with its length; raises EOFError at the end of the stream."""
    head = reader.read(4)
    if len(head) < 4:
        raise EOFError
    (length,) = struct.unpack(">I", head)
    if length > FRAME_MAX:
        raise EOFError
    body = reader.read(length)
    if len(body) < length:
        raise EOFError
    return bytes(head + body)


def header_of(frame: bytes) -> dict[str, Any]:
    """A request's header; empty for one that is not JSON."""
    header_length = int.from_bytes(frame[5:8], "big")
    if frame[4] != 0:
        return {}
    header = json.loads(frame[8 : 8 + header_length])
    return header if isinstance(header, dict) else {}
