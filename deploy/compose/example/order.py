"""Places one order and ends: `order.py NUMBER`. The service itself is docs/examples/order_service.py.

With `--kill` the process ends as if it was killed: its transaction has committed, and END_TRANSACTION is never sent.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from order_service import place_order  # type: ignore[import-not-found]  # mounted beside this file

from checkback_producers import open_producer
from reconciler.sql.engines import open_engine

#: What a shell says of a process that was killed. SIGKILL itself does nothing to the first process of a container.
KILLED = 137


class EndedAfterCommit:
    """An engine whose process ends with its first commit."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """As the engine's, until the commit."""
        with self._engine.begin() as connection:
            yield connection
        os._exit(KILLED)


def main(number: int, *, is_killed: bool) -> None:
    """Prints the message's unique key."""
    url = Path("/run/secrets/order_outbox_url").read_text().strip()
    database: Any = open_engine(url)
    producer = open_producer(
        group="order-service",
        environment="compose",  # as in reconciler.toml
        name_servers="namesrv:9876",
        outbox_url=url,
    )
    with producer:
        unique_key = place_order(producer, EndedAfterCommit(database) if is_killed else database, number)
    sys.stdout.write(f"{unique_key}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), is_killed="--kill" in sys.argv)
