"""When a run is quiet: what the last fault broke is whole again, and all processes keep up with the load.

Nothing of a loss that is measured afterwards is looked at here: a phase begins when this says so, and what gets lost in
it counts, however long it takes.
"""

from __future__ import annotations

from collections.abc import Mapping

import redis
import sqlalchemy as sa

from tests.chaos.job import (
    GRACE_SECONDS,
    GROUPS,
    ROUND_SECONDS,
    SKEW_SECONDS,
    SWEEP_AFTER_SECONDS,
    SWEEP_SECONDS,
    ChaosJob,
)
from tests.chaos.truth import NOW_MS

#: A message takes effect within this, or the gate shuts: messages of a group that lags are not repaired, on purpose.
KEEPS_UP_SECONDS = GRACE_SECONDS - SKEW_SECONDS - ROUND_SECONDS
#: Commits are looked at for so long.
LOOK_BACK_SECONDS = 30.0
#: A row is announced by its producer or the sweepers within this, or they do not work yet.
ANNOUNCED_SECONDS = SWEEP_AFTER_SECONDS + 4 * SWEEP_SECONDS
#: Every shard of every group has rounds, none is waiting for the lease of a dead owner.
ROUND_MISSING_SECONDS = 3 * ROUND_SECONDS
#: A key of pending is looked at within this. After Redis came back with an old copy everything since then is announced
#: again, and what was consumed long ago is told by the inbox, key by key, before new keys have their turn.
LOOKED_AT_SECONDS = GRACE_SECONDS + 3 * ROUND_SECONDS

#: What is wrong -> how many. Each must be 0.
_SIGNS: Mapping[str, str] = {
    "repairs to be sent": "SELECT count(*) FROM reconciler_repair WHERE state IN ('OPEN', 'SENDING')",
    "open outages": "SELECT count(*) FROM reconciler_outage WHERE closed_at_ms IS NULL",
    "rows to be announced": "SELECT count(*) FROM reconciler_outbox"
    f" WHERE state = 'NEW' AND created_at_ms < {NOW_MS} - :announced_ms",
    "shards without a round": "SELECT :shards - count(DISTINCT (consumer_group, shard)) FROM reconciler_round"
    f" WHERE environment = :environment AND stored_at_ms > {NOW_MS} - :round_ms",
    "effects that are late": "SELECT count(*) FROM reconciler_outbox o"
    " CROSS JOIN (SELECT unnest(CAST(:groups AS TEXT[])) AS name) g"
    f" WHERE o.created_at_ms BETWEEN {NOW_MS} - :back_ms AND {NOW_MS} - :keeps_up_ms AND o.state <> 'ROLLED_BACK'"
    " AND NOT EXISTS (SELECT 1 FROM reconciler_inbox i WHERE i.unique_key = o.unique_key"
    " AND i.consumer_group = g.name)",
}
_LOOKED_AT = "SELECT count(*) FROM reconciler_candidate WHERE state = 'OPEN'"


def still_recovering(engine: sa.Engine, client: redis.Redis, job: ChaosJob) -> str:
    """What is not whole yet, in words; empty when a quiet phase may begin."""
    values = {
        "announced_ms": round(ANNOUNCED_SECONDS * 1000),
        "round_ms": round(ROUND_MISSING_SECONDS * 1000),
        "back_ms": round(LOOK_BACK_SECONDS * 1000),
        "keeps_up_ms": round(KEEPS_UP_SECONDS * 1000),
        "shards": len(GROUPS) * job.shards,
        "groups": list(GROUPS),
        "environment": job.environment,
    }
    with engine.connect() as connection:
        found = {what: int(connection.execute(sa.text(sql), values).scalar_one()) for what, sql in _SIGNS.items()}
        looked_at = int(connection.execute(sa.text(_LOOKED_AT)).scalar_one())
    found["keys nobody has looked at"] = max(0, pending_keys(client, for_seconds=LOOKED_AT_SECONDS) - looked_at)
    return ", ".join(f"{number} {what}" for what, number in found.items() if number)


def pending_keys(client: redis.Redis, *, for_seconds: float | None = None) -> int:
    """Announced keys of all shards that are neither matched nor settled, for `for_seconds` at least."""
    until: int | str = "+inf"
    if for_seconds is not None:
        seconds, microseconds = client.time()
        until = seconds * 1000 + microseconds // 1000 - round(for_seconds * 1000)
    return sum(int(client.zcount(name, "-inf", until)) for name in client.scan_iter("reconciler:*:pending"))
