"""A run: a world with a Redis that fails over again and again, under load, and a judgement at its end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler.rocketmq.client.client_instance import ClientInstance
from tests.acceptance.deployment import Deployment
from tests.chaos.checker import percentiles
from tests.failover.accidents import ACCIDENTS, cluster_or_sentinel
from tests.failover.checker import Found, find
from tests.failover.load import SHARDS, Load
from tests.failover.recovery import PATIENCE_SECONDS, Recovery, running_load
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_cluster import WHOLE_SECONDS, ReplicatedRedis
from tests.services.redis_server import RedisServer

SETTINGS = """
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5
lease_seconds = 3.0

[repairs]
enabled = false
check_back_wait_seconds = 0
breaker_candidates_min = 1000000
"""
#: Two, so that leases pass from one to the other and both meet stale primaries.
SERVICES = 2
REST_SECONDS = 120.0

Tell = Callable[[str], None]


class FailoverRun:
    """Confined to the thread that runs it."""

    def __init__(
        self, servers: ReplicatedRedis, load: Load, instance: ClientInstance, *, seed: int, tell: Tell
    ) -> None:
        self._servers, self._load, self._instance = servers, load, instance
        self._dice = random.Random(f"failover-{seed}")
        self._tell = tell
        self.failovers: Counter[str] = Counter()
        self.stalled: list[str] = []
        #: What -> seconds from the accident until it went on, in all shards; redis: until there was one primary.
        self.seconds: dict[str, list[float]] = {name: [] for name in ("redis", "rounds", "announcements", "recorder")}

    def run(self, failovers: int, kinds: tuple[str, ...]) -> None:
        """Every kind in turn, in the seed's order; between two of them Redis becomes whole."""
        order: list[str] = []
        for _ in range(failovers):
            if not order:
                order = self._dice.sample(kinds, k=len(kinds))
            self._fail_over(order.pop())

    def _fail_over(self, kind: str) -> None:
        slot_owner = self._dice.choice(self._load.shards).pending
        primary = eventually(lambda: self._servers.server_of(slot_owner), within_seconds=WHOLE_SECONDS)
        self._load.is_accident = True
        struck = ACCIDENTS[kind](self._servers, primary)

        def promoted() -> RedisServer | None:
            found = self._servers.server_of(slot_owner)
            return found if found is not primary else None

        eventually(promoted, within_seconds=PATIENCE_SECONDS, message=f"{kind}: a new primary")
        struck.when_promoted()
        seconds = {"redis": time.monotonic() - struck.at}
        seconds |= {name: at - struck.at for name, at in self._recover(kind).items()}
        struck.heal()
        self._load.is_accident = False
        eventually(self._servers.is_whole, within_seconds=WHOLE_SECONDS, message=f"{kind}: Redis is whole again")
        self.failovers[kind] += 1
        for name, value in seconds.items():
            self.seconds[name].append(value)
        told = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())
        self._tell(f"{sum(self.failovers.values())} {kind}: {told} s; {len(self._load.log.committed)} ids")

    def _recover(self, kind: str) -> dict[str, float]:
        recovery = Recovery(self._load, self._servers, self._instance)
        try:
            eventually(recovery.look, within_seconds=PATIENCE_SECONDS)
        except AssertionError:
            missing = sorted({"rounds", "announcements", "recorder"} - set(recovery.seen))
            self.stalled.append(f"fail-over {sum(self.failovers.values()) + 1}, {kind}: {', '.join(missing)}")
            self._tell(f"STALLED after {self.stalled[-1]}")
        return recovery.seen


def at_rest(load: Load, servers: ReplicatedRedis, ledger: Path) -> Found | None:
    """Ends the load and waits until nothing is on its way; returns what there is then, or when patience ends."""
    load.stop_sending()
    deadline = time.monotonic() + REST_SECONDS
    while True:
        found = find(load, servers, ledger)
        if (found is not None and found.is_at_rest()) or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def failover(
    folder: Path,
    *,
    kind: str,
    failovers: int,
    seed: int,
    tell: Tell,
    per_second: float = 60.0,
    kinds: tuple[str, ...] = tuple(ACCIDENTS),
) -> dict[str, Any]:
    """Starts everything, runs, and returns the figures."""
    with (
        cluster_or_sentinel(kind)(folder / "redis") as servers,
        EmbeddedBroker() as broker,
        Deployment(
            folder / "deployment",
            redis_url=servers.url,
            name_servers=broker.name_servers,
            shards=SHARDS,
            settings=SETTINGS,
        ) as deployed,
    ):
        for _ in range(SERVICES):
            deployed.run("run")
        with running_load(deployed, servers, per_second=per_second) as (load, instance):
            tell(f"{kind}: everything runs")
            run = FailoverRun(servers, load, instance, seed=seed, tell=tell)
            run.run(failovers, kinds)
            found = at_rest(load, servers, deployed.ledger)
            return {"kind": kind, "seed": seed} | _figures(run, load, found)


def _figures(run: FailoverRun, load: Load, found: Found | None) -> dict[str, Any]:
    log = load.log
    return {
        "failovers": sum(run.failovers.values()),
        "failovers_by_kind": dict(sorted(run.failovers.items())),
        "ids": len(log.committed),
        "never_consumed": len(log.never_consumed),
        "recorded": len(log.recorded),
        "unrecorded": len(log.unrecorded - set(log.recorded)),
        "failed_blocks": len(log.failed),
        **({"unjudged": 1} if found is None else found.accidents()),
        "at_rest": found is not None and found.is_at_rest(),
        "stalled": run.stalled,
        "recovery_seconds": {
            name: {part: value for part, value in percentiles(values).items() if part in ("p50", "max")}
            for name, values in run.seconds.items()
        },
    }


def is_right(result: dict[str, Any]) -> bool:
    """Nothing lost, nothing vanished, nothing stalled, everything at rest."""
    zeros = ("lost", "vanished", "wrongly_reported", "left_pending", "not_delivered")
    return result["at_rest"] and not result["stalled"] and all(result[name] == 0 for name in zeros)
