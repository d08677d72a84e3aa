"""Another client of Redis: `python -m benchmarks.load.probe PORT EVERY_MS OUT.json`.

Pings on one connection until SIGTERM and writes how long the answers took. On a busy machine the waiting for a
processor is in it, its own and the server's; Redis' own slow log tells commands apart (world.slowest_commands).
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from benchmarks.load.figures import percentile

#: Samples kept one by one: an hour at one a millisecond.
SAMPLES_MAX = 4_000_000


def main(port: int, every_ms: float, out: Path) -> int:
    """Runs until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    waits_ms: list[float] = []
    worst_ms, worst_at = 0.0, 0.0
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not stop.is_set():
            started = time.perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            waited_ms = (time.perf_counter() - started) * 1_000
            if len(waits_ms) < SAMPLES_MAX:
                waits_ms.append(waited_ms)
            if waited_ms > worst_ms:
                worst_ms, worst_at = waited_ms, time.time()
            time.sleep(every_ms / 1_000)
    waits_ms.sort()
    document = {
        "pings": len(waits_ms),
        "p50_ms": round(percentile(waits_ms, 50), 3),
        "p99_ms": round(percentile(waits_ms, 99), 3),
        "p999_ms": round(percentile(waits_ms, 99.9), 3),
        "longest_ms": round(worst_ms, 3),
        "longest_at_seconds": round(worst_at, 3),
        "over_20_ms": sum(waited > 20 for waited in waits_ms),
    }
    out.write_text(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])))
