"""What Redis loses of acknowledged writes by how it is made persistent, under load, and what the service makes of it.

`python -m tests.failover.persistence` prints one JSON object. A kill -9 leaves what the kernel has been handed; a power
cut is imitated by cutting the append-only file back to the size that it had a second earlier, which is what everysec
promises at worst.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import redis

from tests.acceptance.deployment import Deployment
from tests.failover.load import SHARDS, Load
from tests.failover.loops import Loops
from tests.failover.recovery import Recovery, running_load
from tests.failover.run import SETTINGS, at_rest
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_cluster import ask, connected
from tests.services.redis_server import RedisServer

LOAD_SECONDS = 8.0
POWER_CUT_SECONDS = 1.0
RDB_SECONDS = 10
PROBE = "failover:probe"
#: What the service's log says when it finds Redis behind itself -> event or a part of it.
NOTICED = ("rounds_voided", "MEMORY_LOST", "REWOUND")


@dataclass(frozen=True, slots=True, kw_only=True)
class Persistence:
    """One way to run Redis, and how it dies."""

    name: str
    options: dict[str, str]
    is_power_cut: bool = False


WAYS = (
    Persistence(name="AOF always, kill -9", options={"appendfsync": "always"}),
    Persistence(name="AOF everysec, kill -9", options={"appendfsync": "everysec"}),
    Persistence(name="AOF everysec, power cut", options={"appendfsync": "everysec"}, is_power_cut=True),
    Persistence(name=f"RDB every {RDB_SECONDS} s, kill -9", options={"appendonly": "no", "save": f"{RDB_SECONDS} 1"}),
    Persistence(name="none, kill -9", options={"appendonly": "no"}),
)


class OneRedis:
    """ReplicatedRedis of one server."""

    def __init__(self, server: RedisServer) -> None:
        self.servers = [server]
        self.url = server.url

    def server_of(self, key: str) -> RedisServer | None:
        """The only one."""
        return self.servers[0]

    def replicas_of(self, primary: RedisServer) -> list[RedisServer]:
        """None."""
        return []

    def fail_over(self, primary: RedisServer) -> None:
        """No server can take over."""

    def rejoin(self, server: RedisServer) -> None:
        """With what it has on disk."""
        server.start()

    def is_whole(self) -> bool:
        """Whether it answers."""
        return self.servers[0].answers()


@dataclass
class Probe:
    """Writes one number after the other and remembers when each was acknowledged; watches the AOF's size."""

    server: RedisServer
    #: (monotonic seconds, number)
    acknowledged: list[tuple[float, int]] = field(default_factory=list)
    #: (monotonic seconds, bytes)
    sizes: list[tuple[float, int]] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Writes and watches while the block lasts."""
        with Loops(self._write, self._watch, name="probe"):
            yield self

    @property
    def file(self) -> Path | None:
        """The file that grows."""
        return max(self.server.folder.glob("data/appendonlydir/*.incr.aof"), default=None)

    def _write(self, stop: threading.Event) -> None:
        with connected(self.server) as client:
            number = 0
            while not stop.wait(0.002):
                try:
                    client.set(PROBE, number)
                except (redis.RedisError, OSError):
                    return
                self.acknowledged.append((time.monotonic(), number))
                number += 1

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(0.02):
            if (file := self.file) is not None:
                self.sizes.append((time.monotonic(), file.stat().st_size))

    def cut_back(self, *, to: float) -> None:
        """The file as it was then."""
        file = self.file
        assert file is not None
        size = max(bytes_ for at, bytes_ in self.sizes if at <= to)
        with file.open("r+b") as opened:
            opened.truncate(size)

    def lost(self, *, killed_at: float) -> tuple[int, float]:
        """Acknowledged writes that are gone, and how many seconds before the end the first of them was acknowledged."""
        stored = ask(self.server, "GET", PROBE)
        last = -1 if stored is None else int(stored)
        gone = [at for at, number in self.acknowledged if number > last]
        return len(gone), round(killed_at - gone[0], 2) if gone else 0.0


def measure(folder: Path, way: Persistence) -> dict[str, Any]:
    """One death under load."""
    with (
        RedisServer(folder / "redis", options=way.options) as server,
        EmbeddedBroker() as broker,
        Deployment(
            folder / "deployment",
            redis_url=server.url,
            name_servers=broker.name_servers,
            shards=SHARDS,
            settings=SETTINGS,
        ) as deployed,
    ):
        service = deployed.run("run")
        servers = OneRedis(server)
        with running_load(deployed, servers, per_second=60.0) as (load, instance):
            with Probe(server).running() as probe:
                time.sleep(LOAD_SECONDS)
                load.is_accident = True
                announced = _announced(server, load)
                killed_at = time.monotonic()
                server.kill()
            if way.is_power_cut:
                probe.cut_back(to=killed_at - POWER_CUT_SECONDS)
            server.start()
            lost_writes, lost_seconds = probe.lost(killed_at=killed_at)
            rewound = {name: announced[name] - offset for name, offset in _announced(server, load).items()}
            recovery = Recovery(load, servers, instance)
            eventually(recovery.look, within_seconds=60, message="everything goes on")
            found = at_rest(load, servers, deployed.ledger)
            log = service.output
            return {
                "persistence": way.name,
                "acknowledged_writes_lost": lost_writes,
                "seconds_lost": lost_seconds,
                "announcements_to_read_again": sum(rewound.values()),
                "noticed": [word for word in NOTICED if word in log],
                "goes_on_after_seconds": round(max(recovery.seen.values()) - killed_at, 1),
                "ids": len(load.log.committed),
                "never_consumed": len(load.log.never_consumed),
                **({} if found is None else found.accidents()),
                "at_rest": found is not None and found.is_at_rest(),
            }


def _announced(server: RedisServer, load: Load) -> Counter[str]:
    offsets: Counter[str] = Counter()
    for keys in load.shards:
        offsets[keys.offsets] = sum(map(int, (ask(server, "HGETALL", keys.offsets) or {}).values()))
    return offsets


def main() -> int:
    """0 if nothing was lost for good."""
    logging.basicConfig(level=logging.ERROR)
    results = []
    for way in WAYS:
        with tempfile.TemporaryDirectory(prefix="reconciler-persistence-") as folder:
            results.append(measure(Path(folder), way))
        sys.stderr.write(json.dumps(results[-1]) + "\n")
    sys.stdout.write(json.dumps({"ways": results}) + "\n")
    return 0 if all(result["at_rest"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
