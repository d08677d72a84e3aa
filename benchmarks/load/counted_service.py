"""The installed command with its requests to brokers counted: `python -m benchmarks.load.counted_service LOG run ...`.

Nothing of the product is changed: the client's `submit` is wrapped, and every QUERY_MESSAGE becomes a line of LOG
(milliseconds and topic), before it is sent.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from pathlib import Path

from reconciler.__main__ import main as reconciler
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command


def main(log: Path, arguments: list[str]) -> None:
    """Never returns: the command exits."""
    submit = RemotingClient.submit
    lines = log.open("a", buffering=1)

    def counted(
        self: RemotingClient, address: str, command: Command, timeout_seconds: float | None = None
    ) -> Future[Command]:
        if command.code == RequestCode.QUERY_MESSAGE:
            lines.write(f"{int(time.time() * 1_000)} {command.fields['topic']}\n")
        return submit(self, address, command, timeout_seconds)

    RemotingClient.submit = counted  # type: ignore[method-assign]  # what is counted is the point
    sys.argv = ["reconciler", *arguments]
    reconciler()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
