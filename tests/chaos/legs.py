"""Where a loss spent its time: the way from commit to last effect, cut where databases have noted a moment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

#: Legs in their order, and what ends each.
LEGS: Mapping[str, str] = {
    "announced": "the producer or the sweeper has announced the key",
    "seen": "a round has found it in the half set",
    "judged": "grace period and gate are over, the first verdict is written",
    "proved": "the verdict is a loss",
    "sent": "the repair was sent for the first time",
    "effect": "the last group has its effect",
}
#: Stories of so many are told.
SLOWEST = 5
_MOMENTS = """
SELECT o.unique_key AS key, o.created_at_ms AS committed, o.announced_at_ms AS announced,
 (SELECT min(c.first_seen_ms) FROM reconciler_candidate c WHERE c.unique_key = o.unique_key) AS seen,
 (SELECT min(v.at_ms) FROM verdicts v WHERE v.key = o.unique_key) AS judged,
 r.created_at_ms AS proved, r.first_sent_at_ms AS sent,
 (SELECT max(e.at_ms) FROM effects e WHERE e.key = o.unique_key) AS effect
FROM reconciler_outbox o LEFT JOIN reconciler_repair r ON r.unique_key = o.unique_key AND r.scope = '*'
WHERE o.unique_key = ANY(:keys)
"""
_VERDICTS = "SELECT at_ms, consumer_group, verdict, evidence FROM verdicts WHERE key = :key ORDER BY at_ms"
_STEPS = "SELECT at_ms, state, rung, attempts, token, answer FROM repair_steps WHERE key = :key ORDER BY number"
_ROUNDS = """
SELECT d.consumer_group, d.shard, max(d.gap) AS gap FROM (
 SELECT c.consumer_group, c.shard, n.at_ms - lag(n.at_ms, 1, CAST(:since AS BIGINT))
  OVER (PARTITION BY n.consumer_group, n.shard ORDER BY n.at_ms) AS gap
 FROM reconciler_candidate c JOIN reconciler_round n ON n.consumer_group = c.consumer_group AND n.shard = c.shard
  AND n.at_ms BETWEEN :since AND :until
 WHERE c.unique_key = :key) AS d GROUP BY d.consumer_group, d.shard ORDER BY d.consumer_group
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One lost key. A moment that was not noted (the effect came otherwise) is left out: its time is in the next."""

    key: str
    committed_ms: int
    total_seconds: float
    #: Leg -> seconds, in the order of LEGS.
    legs: Mapping[str, float]

    @property
    def effect_ms(self) -> int:
        """When the last group had its effect."""
        return self.committed_ms + round(self.total_seconds * 1000)


def way_of(key: str, moments: Mapping[str, int | None]) -> Way:
    """Cuts the way at the moments that are noted and not later than the effect; raises KeyError without a commit."""
    committed, effect = moments["committed"], moments["effect"]
    if committed is None or effect is None:
        raise KeyError(f"{key} has no commit or no effect")
    legs: dict[str, float] = {}
    before = committed
    for leg in LEGS:
        at = moments.get(leg)
        if at is not None and at <= effect:
            # A key that was announced by producer and sweeper can be seen before its newest announcement.
            legs[leg] = round(max(0, at - before) / 1000, 2)
            before = max(before, at)
    return Way(key=key, committed_ms=committed, total_seconds=round((effect - committed) / 1000, 2), legs=legs)


def ways_of(connection: sa.Connection, keys: Sequence[str]) -> list[Way]:
    """Slowest first."""
    rows = connection.execute(sa.text(_MOMENTS), {"keys": list(keys)}).mappings()
    ways = [way_of(row["key"], {name: row[name] for name in ("committed", *LEGS)}) for row in rows]
    return sorted(ways, key=lambda way: (-way.total_seconds, way.key))


def story_of(connection: sa.Connection, way: Way) -> str:
    """One slow loss, for people: its legs, every verdict, every step of its repair, the longest pause of its rounds."""
    legs = ", ".join(f"{leg} +{seconds:g}" for leg, seconds in way.legs.items())
    lines = [f"{way.key}: {way.total_seconds:g} s = {legs}"]
    lines += verdict_lines(connection, way.key, way.committed_ms)
    lines += repair_lines(connection, way.key, way.committed_ms)
    span = {"key": way.key, "since": way.committed_ms, "until": way.effect_ms}
    pauses = [
        f"{row.consumer_group}/{row.shard} {row.gap / 1000:.2f} s" for row in connection.execute(sa.text(_ROUNDS), span)
    ]
    lines.append(f"  longest pause between rounds: {', '.join(pauses) or 'no round'}")
    return "\n".join(lines)


def verdict_lines(connection: sa.Connection, key: str, since_ms: int) -> list[str]:
    """What was found about a key, and when, in seconds after the given time."""
    lines: list[str] = []
    for row in connection.execute(sa.text(_VERDICTS), {"key": key}):
        evidence: dict[str, Any] = json.loads(row.evidence)
        told = {name: _short(value) for name, value in evidence.items() if name != "reason"}
        at = f"{(row.at_ms - since_ms) / 1000:8.2f} s"
        lines.append(f"  {at}  {row.consumer_group}: {row.verdict}, {evidence.get('reason', 'no reason')} {told}")
    return lines


def repair_lines(connection: sa.Connection, key: str, since_ms: int) -> list[str]:
    """Every step of a key's repair."""
    return [
        f"  {(row.at_ms - since_ms) / 1000:8.2f} s  repair: {row.state} {row.rung}, attempts {row.attempts},"
        f" {row.answer or 'no answer yet'} ({row.token or 'free'})"
        for row in connection.execute(sa.text(_STEPS), {"key": key})
    ]


def _short(value: Any) -> Any:
    if isinstance(value, dict) and value.get("presence") == "UNKNOWN":
        return f"UNKNOWN: {value.get('detail', '')[:200]}"
    return value.get("presence") if isinstance(value, dict) else value
