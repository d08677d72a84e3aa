"""The audit's ordered rules as one SQL statement that DuckDB and Spark both understand: what it is measured against.

It reads views named like the evidence tables and history streams (`left` is `leaving`) and two small tables:
subscription(sid, topic, consumer_group, grace_ms, late_ms, every_tag, outboxes_complete) and
taken(sid, tag). The answer has one row a subscription and class: sid, class, keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Later than all.
_NEVER = 2**62
#: Keys by (subscription's number, class).
Counts = dict[tuple[int, str], int]

#: View by folder below the evidence folder.
VIEWS: Mapping[str, str] = {
    "outbox": "outbox",
    "inbox": "inbox",
    "effects": "effects",
    "candidate": "candidate",
    "repair": "repair",
    "history/announced": "announced",
    "history/consumed": "consumed",
    "history/left": "leaving",
    "history/pending": "pending",
    "history/snapshot": "snapshot",
    "history/round": "round",
}

#: One row a fact; what a source does not know is NULL. Everything is a minimum or a maximum of its key's rows.
_COLUMNS = {
    "committed_ms": "min",
    "tombstone_ms": "min",
    "taken": "max",
    "applied_ms": "min",
    "incomplete": "max",
    "effects": "max",
    "announced_ms": "min",
    "newest_ms": "max",
    "shard": "max",
    "accounted": "max",
    "candidate": "max",
    "first_seen_ms": "min",
}


def _facts(source: str, **known: str) -> str:
    columns = [f"CAST({known.get(name, 'NULL')} AS BIGINT) AS {name}" for name in _COLUMNS]
    return f"SELECT r.key AS key, s.sid AS sid, {', '.join(columns)} FROM {source}"


def _of_group(view: str) -> str:
    return f"{view} r JOIN subscription s ON r.topic = s.topic AND r.consumer_group = s.consumer_group"


def _all_facts() -> str:
    """Every row of every source as one table."""
    facts = [
        _facts(
            "outbox r JOIN subscription s ON r.topic = s.topic LEFT JOIN taken t ON t.sid = s.sid AND t.tag = r.tag",
            committed_ms="CASE WHEN r.state <> 'ROLLED_BACK' THEN r.created_at_ms END",
            tombstone_ms="CASE WHEN r.state = 'ROLLED_BACK' THEN r.created_at_ms END",
            taken="CASE WHEN r.state <> 'ROLLED_BACK' AND (s.every_tag OR t.tag IS NOT NULL) THEN 1 ELSE 0 END",
        ),
        _facts(
            _of_group("inbox"),
            applied_ms="r.applied_at_ms",
            incomplete="CASE WHEN r.incomplete IS NOT NULL THEN 1 END",
            effects="1",
        ),
        _facts(_of_group("effects"), effects="r.effects"),
        _facts(_of_group("announced"), announced_ms="r.at_ms", newest_ms="r.at_ms", shard="r.shard"),
        _facts(_of_group("consumed"), accounted="1"),
        _facts(_of_group("leaving"), accounted="1"),
        _facts(
            _of_group("candidate"),
            accounted="1",
            candidate="CASE WHEN r.state = 'QUARANTINED' OR r.state = 'SETTLED' AND r.verdict IN "
            "('BEFORE_SINCE', 'COLLISION', 'DEAD_LETTERED', 'DELIVERED_NOT_APPLIED', 'INCOMPLETE', 'QUARANTINED') "
            "THEN 2 ELSE 1 END",
            first_seen_ms="r.first_seen_ms",
        ),
    ]
    return " UNION ALL ".join(facts)


def statement(start_ms: int, end_ms: int, skew_bound_ms: int) -> str:
    """The statement for a window."""
    aggregates = ", ".join(f"{how}({name}) AS {name}" for name, how in _COLUMNS.items())
    seen = ", ".join(f"coalesce({name}, {_NEVER})" for name in ("announced_ms", "applied_ms", "first_seen_ms"))
    return f"""
WITH known AS (SELECT key, sid, {aggregates} FROM ({_all_facts()}) facts GROUP BY key, sid),
seen AS (SELECT k.*, least({seen}) AS seen_ms, s.late_ms AS late_ms FROM known k JOIN subscription s ON s.sid = k.sid),
timed AS (
  SELECT *, CASE
    WHEN committed_ms IS NULL THEN coalesce(tombstone_ms, seen_ms)
    WHEN seen_ms = {_NEVER} OR seen_ms - committed_ms > late_ms + 86400000 THEN committed_ms + 2 * late_ms
    WHEN seen_ms - committed_ms > late_ms THEN seen_ms - late_ms
    ELSE committed_ms END AS time_ms
  FROM seen),
clock AS (
  SELECT sid, min(last_ms) AS as_of_ms FROM (
    SELECT s.sid AS sid, r.shard, max(r.at_ms) AS last_ms FROM {_of_group("round")} GROUP BY s.sid, r.shard
  ) shards GROUP BY sid),
snapshots AS (
  SELECT sid, shard, at_ms, coalesce(lag(at_ms) OVER (PARTITION BY sid, shard ORDER BY at_ms), 0) AS before_ms FROM (
    SELECT DISTINCT s.sid AS sid, r.shard AS shard, r.at_ms AS at_ms FROM {_of_group("snapshot")}
  ) taken_snapshots),
waiting AS (SELECT DISTINCT r.key AS key, s.sid AS sid, r.at_ms AS at_ms FROM {_of_group("pending")}),
repairs AS (
  SELECT r.key AS key, s.sid AS sid, max(CASE WHEN r.first_sent_at_ms IS NOT NULL THEN r.first_sent_at_ms
    WHEN r.attempts = 1 THEN r.sent_at_ms END) AS first_sent_ms
  FROM repair r JOIN subscription s ON r.topic = s.topic AND (r.scope = '*' OR r.scope = s.consumer_group)
  WHERE r.attempts > 0 GROUP BY r.key, s.sid),
differing AS (
  SELECT DISTINCT p.key AS key, p.sid AS sid FROM repairs p JOIN subscription s ON s.sid = p.sid
  JOIN outbox o ON o.key = p.key AND o.topic = s.topic
  JOIN inbox i ON i.key = p.key AND i.topic = s.topic AND i.consumer_group = s.consumer_group
  WHERE o.content_digest <> i.content_digest AND o.state <> 'ROLLED_BACK'),
judged AS (
  SELECT k.sid AS sid, CASE
    WHEN k.incomplete = 1 THEN 'EFFECT_INCOMPLETE'
    WHEN k.effects > 0 AND k.committed_ms IS NULL AND s.outboxes_complete THEN 'EFFECT_WITHOUT_COMMIT'
    WHEN k.effects > 1 THEN 'DOUBLE_EFFECT'
    WHEN k.effects > 0 AND d.key IS NOT NULL THEN 'REPAIR_DIFFERS'
    WHEN k.effects > 0 AND p.first_sent_ms > k.applied_ms + {skew_bound_ms} THEN 'UNNECESSARY_REPAIR'
    WHEN k.taken = 1 AND k.effects IS NULL AND k.announced_ms IS NULL AND k.candidate IS NULL
      AND c.as_of_ms - k.committed_ms > s.grace_ms THEN 'NOT_ANNOUNCED_NOT_FOUND'
    WHEN n.at_ms IS NOT NULL AND w.key IS NULL AND (k.committed_ms IS NULL OR k.taken = 1) THEN 'UNACCOUNTED'
    WHEN k.taken = 1 AND k.effects IS NULL AND coalesce(k.candidate, 0) < 2
      AND c.as_of_ms - k.committed_ms > s.grace_ms THEN 'LOST'
    WHEN k.candidate = 2 THEN 'QUARANTINED'
    WHEN k.effects > 0 AND p.key IS NOT NULL THEN 'REPAIRED'
    WHEN k.effects > 0 AND k.applied_ms - k.committed_ms > s.late_ms THEN 'EFFECT_LATE'
    WHEN k.effects > 0 THEN 'EFFECT_IN_TIME'
    WHEN k.committed_ms IS NOT NULL AND k.taken = 0 THEN 'FILTERED'
    WHEN k.committed_ms IS NULL AND k.tombstone_ms IS NULL THEN 'REJECTED'
    WHEN k.committed_ms IS NULL THEN 'ROLLED_BACK'
    ELSE 'PENDING' END AS class
  FROM timed k
  JOIN subscription s ON s.sid = k.sid
  JOIN clock c ON c.sid = k.sid
  LEFT JOIN snapshots n ON n.sid = k.sid AND n.shard = k.shard AND k.accounted IS NULL
    AND k.newest_ms >= n.before_ms AND k.newest_ms < n.at_ms
  LEFT JOIN waiting w ON w.key = k.key AND w.sid = k.sid AND w.at_ms = n.at_ms
  LEFT JOIN repairs p ON p.key = k.key AND p.sid = k.sid
  LEFT JOIN differing d ON d.key = k.key AND d.sid = k.sid
  WHERE k.time_ms >= {start_ms} AND k.time_ms < {end_ms})
SELECT sid, class, count(*) AS keys FROM judged GROUP BY sid, class ORDER BY sid, class
"""


def subscriptions(evidence: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Rows of the table `subscription`."""
    given = set(evidence["outboxes"])
    return [
        (
            sid,
            asked["topic"],
            asked["group"],
            round(1_000 * asked["grace_period_seconds"]),
            round(1_000 * asked["late_after_seconds"]),
            asked["tags"] is None,
            given.issuperset(asked["producer_groups"]),
        )
        for sid, asked in enumerate(evidence["subscriptions"])
    ]


def taken_tags(evidence: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Rows of the table `taken`."""
    return [(sid, tag) for sid, asked in enumerate(evidence["subscriptions"]) for tag in asked["tags"] or ()]


def read_evidence(folder: Path) -> Mapping[str, Any]:
    """evidence.json."""
    document: Mapping[str, Any] = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    return document


def expected_counts(folder: Path) -> Counts:
    """What the generator planted, classes without keys left out."""
    document = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return {
        (sid, name): keys
        for sid, asked in enumerate(document["subscriptions"])
        for name, keys in asked["classes"].items()
        if keys
    }
