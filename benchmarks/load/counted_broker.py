"""The embedded broker, which counts its requests: `python -m benchmarks.load.counted_broker COUNTS.json KNOB=VALUE...`.

The file has the number of requests so far, by their names, and is written anew at most twice a second.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from reconciler.embedded.channel import Channel
from reconciler.embedded.handlers.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS, Handler
from reconciler.embedded.reply import Reply
from reconciler.embedded.services import BrokerServices
from reconciler.embedded.serving import serve
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command

WRITTEN_EVERY_SECONDS = 0.5


class CountedRequests:
    """Of all brokers of this process. Confined to their loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: Counter[str] = Counter()
        self._written_at = 0.0

    def begin(self) -> None:
        """Every handler counts from now on."""
        for handlers in (BROKER_HANDLERS, NAME_SERVER_HANDLERS):
            handlers.update({code: self._counted(code, handler) for code, handler in handlers.items()})

    def _counted(self, code: int, handler: Handler) -> Handler:
        name = RequestCode(code).name if code in set(RequestCode) else f"CODE_{code}"

        def counted(services: BrokerServices, channel: Channel, request: Command) -> Reply | None:
            self._counts[name] += 1
            now = time.monotonic()
            if now - self._written_at >= WRITTEN_EVERY_SECONDS:
                self._written_at = now
                beside = self._path.with_suffix(".new")
                beside.write_text(json.dumps(self._counts))
                beside.replace(self._path)
            return handler(services, channel, request)

        return counted


if __name__ == "__main__":
    CountedRequests(Path(sys.argv[1])).begin()
    sys.exit(serve("127.0.0.1:0", knobs=sys.argv[2:]))
