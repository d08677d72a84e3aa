"""Browsers that poll: `python -m benchmarks.load.browsers URL BROWSERS EVERY_SECONDS OUT.json`, until SIGTERM.

Each has a connection of its own, keeps it, and asks for the live part of the console's first page. Their first requests
are spread over one interval, as those of people are.
"""

from __future__ import annotations

import http.client
import json
import signal
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.load.figures import percentile


class Browser(threading.Thread):
    """One browser; its figures are read when it has ended."""

    def __init__(self, url: str, *, first_seconds: float, every_seconds: float, stop: threading.Event) -> None:
        super().__init__(name="browser")
        asked = urlsplit(url)
        self._path = asked.path or "/"
        self._connection = http.client.HTTPConnection(asked.hostname or "", asked.port, timeout=60)
        self._first_seconds = first_seconds
        self._every_seconds = every_seconds
        self._stop_asked = stop
        self.waits_ms: list[float] = []
        self.failures: list[str] = []

    def run(self) -> None:
        """Polls until the stop."""
        due = time.monotonic() + self._first_seconds
        while not self._stop_asked.wait(max(0.0, due - time.monotonic())):
            self._ask()
            due = max(due + self._every_seconds, time.monotonic())
        self._connection.close()

    def _ask(self) -> None:
        began = time.perf_counter()
        try:
            self._connection.request("GET", self._path, headers={"HX-Request": "true"})
            answer = self._connection.getresponse()
            answer.read()
        except OSError as error:
            self.failures.append(repr(error))
            self._connection.close()
            return
        if answer.status == http.client.OK:
            self.waits_ms.append((time.perf_counter() - began) * 1_000)
        else:
            self.failures.append(str(answer.status))


def main(url: str, browsers: int, every_seconds: float, out: Path) -> int:
    """Polls until SIGTERM, and writes what was seen."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    began = time.monotonic()
    all_of_them = [
        Browser(url, first_seconds=number * every_seconds / browsers, every_seconds=every_seconds, stop=stop)
        for number in range(browsers)
    ]
    for one in all_of_them:
        one.start()
    for one in all_of_them:
        one.join()
    waits = sorted(wait for one in all_of_them for wait in one.waits_ms)
    failures = [failure for one in all_of_them for failure in one.failures]
    document = {
        "browsers": browsers,
        "answers": len(waits),
        "answers_per_second": round(len(waits) / (time.monotonic() - began), 1),
        "failures": len(failures),
        "first_failures": failures[:5],
        "p50_ms": round(percentile(waits, 50), 1),
        "p95_ms": round(percentile(waits, 95), 1),
        "longest_ms": round(waits[-1], 1) if waits else 0.0,
    }
    part = out.with_suffix(".part")
    part.write_text(json.dumps(document))
    part.rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])))
