"""A network of a given length between a client and brokers on this machine, as a process of its own.

    python -m benchmarks.distance --round-trip-ms 2 10911 9876

Takes connections on a port for each port of a server, and prints those ports in this order. Every byte arrives at the
server as long as a round trip takes after it was sent, and several requests are on their way at the same time. What the
servers answer names these ports instead of their own, so that clients who ask for a route come by here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tests.chaos.proxy import read_frame
from tests.services.relay import Relay, shut


class Distance(Relay):
    """Between clients and one server."""

    def __init__(self, port: int, *, seconds: float) -> None:
        super().__init__(port)
        self._seconds = seconds
        #: What answers name -> what they shall name.
        self.renamed: dict[bytes, bytes] = {}

    def serve(self, client: socket.socket, server: socket.socket) -> None:
        """There with a delay, and back without."""
        on_the_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        self.spawn(self._take, client, on_the_way)
        self.spawn(self._arrive, server, on_the_way)
        self.spawn(self._back, server, client)

    def _take(self, client: socket.socket, on_the_way: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"?"
        while data:
            data = b""
            with contextlib.suppress(OSError):
                data = client.recv(256 * 1024)
            on_the_way.put((time.monotonic() + self._seconds, data))

    def _arrive(self, server: socket.socket, on_the_way: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        while True:
            due, data = on_the_way.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                return shut(server)
            with contextlib.suppress(OSError):
                server.sendall(data)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), server.makefile("rb") as reader:
            while True:
                frame = read_frame(reader)[4:]
                for named, shall in self.renamed.items():
                    frame = frame.replace(named, shall)
                client.sendall(len(frame).to_bytes(4, "big") + frame)
        shut(client)


@contextlib.contextmanager
def far_away(ports: Sequence[int], *, round_trip_ms: float) -> Iterator[list[int]]:
    """The ports to go to instead of these."""
    command = [sys.executable, "-m", "benchmarks.distance", "--round-trip-ms", str(round_trip_ms), *map(str, ports)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin, process.stdout:
        yield json.loads(process.stdout.readline())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--round-trip-ms", type=float, required=True)
    options = parser.parse_args()
    distances = [Distance(port, seconds=options.round_trip_ms / 1000) for port in options.ports]
    renamed = {
        f'127.0.0.1:{port}"'.encode(): f'127.0.0.1:{distance.port}"'.encode()
        for port, distance in zip(options.ports, distances, strict=True)
    }
    for distance in distances:
        distance.renamed = renamed
        distance.start()
    print(json.dumps([distance.port for distance in distances]), flush=True)
    sys.stdin.read()  # until who started it is gone
    return 0


if __name__ == "__main__":
    sys.exit(main())
