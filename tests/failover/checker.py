"""Judges by the load's own log, by what Redis holds, and by the ledger's rows; never by the product's counters."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.unique_key import key_of
from tests.failover.load import Load
from tests.services.redis_cluster import ReplicatedRedis, ask


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that a judgement rests on."""

    committed: frozenset[str]
    never_consumed: frozenset[str]
    consumed: frozenset[str]
    #: In K:pending of the primaries that serve now.
    pending: frozenset[str]
    #: In K:half: no round has taken them.
    untaken: int
    #: Has a row in the ledger, and has one that says it was lost.
    verified: frozenset[str]
    reported_lost: frozenset[str]

    def accidents(self) -> dict[str, int]:
        """Each must be 0."""
        return {
            "lost": len(self.never_consumed - self.reported_lost),
            "vanished": len(self.never_consumed - self.pending - self.verified),
            "wrongly_reported": len(self.reported_lost & self.consumed),
            "left_pending": len(self.pending & self.consumed),
            "not_delivered": len(self.committed - self.never_consumed - self.consumed),
        }

    def is_at_rest(self) -> bool:
        """Nothing is on its way any more."""
        return not self.untaken and not any(self.accidents().values()) and self.pending == self.never_consumed


def find(load: Load, servers: ReplicatedRedis, ledger: Path) -> Found | None:
    """Looks once; None while no server serves a shard."""
    pending: set[str] = set()
    untaken = 0
    for keys in load.shards:
        members, waiting = _members(servers, keys)
        if members is None or waiting is None:
            return None
        pending |= {key_of(member) for member in members}
        untaken += int(waiting)
    with closing(sqlite3.connect(ledger, timeout=30)) as db:
        rows = db.execute("SELECT unique_key, loss_verdict FROM reconciler_candidate").fetchall()
    log = load.log
    return Found(
        committed=frozenset(log.committed),
        never_consumed=frozenset(log.never_consumed),
        consumed=frozenset(log.consumed),
        pending=frozenset(pending),
        untaken=untaken,
        verified=frozenset(key for key, _ in rows),
        reported_lost=frozenset(key for key, verdict in rows if verdict is not None),
    )


def _members(servers: ReplicatedRedis, keys: ShardKeys) -> tuple[Any, Any]:
    server = servers.server_of(keys.pending)
    if server is None:
        return None, None
    return ask(server, "ZRANGE", keys.pending, 0, -1), ask(server, "SCARD", keys.half)
