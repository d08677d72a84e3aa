"""Judges a run from the databases and the brokers alone, by SQL that shares nothing with the product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tests.chaos.in_vain import Blow, InVain, repairs_in_vain
from tests.chaos.job import GROUPS
from tests.chaos.legs import LEGS, SLOWEST, Way, story_of, ways_of

#: Group-wise accidents: each must count 0.
_ACCIDENTS: Mapping[str, str] = {
    # Committed, and no effect in one of the groups.
    "lost": "SELECT count(*) FROM committed CROSS JOIN groups"
    " WHERE NOT EXISTS (SELECT 1 FROM effects e WHERE e.key = committed.key AND e.consumer_group = groups.name)",
    # More than one effect in a group.
    "double": "SELECT coalesce(sum(n - 1), 0) FROM"
    " (SELECT count(*) AS n FROM effects GROUP BY consumer_group, key HAVING count(*) > 1) AS d",
    # An effect of something that was rolled back or never committed.
    "phantom": "SELECT count(*) FROM effects e WHERE NOT EXISTS (SELECT 1 FROM committed c WHERE c.key = e.key)"
    " OR EXISTS (SELECT 1 FROM attempts a WHERE a.key = e.key AND a.intent = 'roll-back')",
    # An effect of another body than the one that was meant.
    "body_differs": "SELECT count(*) FROM effects e JOIN attempts a USING (key) WHERE e.digest <> a.digest",
    # The business committed and the outbox does not say so, or the other way round.
    "unaccounted": "SELECT"
    " (SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM committed c WHERE c.key = o.key))"
    " + (SELECT count(*) FROM committed c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.key = c.key))"
    " + (SELECT count(*) FROM reconciler_candidate WHERE state <> 'SETTLED')"
    " + (SELECT count(*) FROM reconciler_repair WHERE state NOT IN ('DONE'))",
}
_FIGURES: Mapping[str, str] = {
    "committed": "SELECT count(*) FROM committed",
    "planned": "SELECT count(*) FROM attempts",
    "found": "SELECT count(DISTINCT unique_key) FROM reconciler_candidate WHERE loss_verdict IS NOT NULL",
    "repaired": "SELECT count(DISTINCT unique_key) FROM reconciler_repair WHERE attempts > 0",
}
#: Milliseconds from the commit of lost messages: to the proof (NULL: the broker asked back first), and to the last
#: group's effect.
_LATENCIES = """
SELECT o.unique_key AS key, min(r.created_at_ms) - o.created_at_ms AS detected,
 max(e.at_ms) - o.created_at_ms AS repaired
FROM reconciler_outbox o JOIN effects e ON e.key = o.unique_key
LEFT JOIN reconciler_repair r ON r.unique_key = o.unique_key AND r.attempts > 0
WHERE {lost} GROUP BY o.unique_key, o.created_at_ms
"""
_REPAIRED = "r.attempts > 0"
#: In a quiet window: lost on the way, or never sent because the producer had died.
_LOST_IN_WINDOW = (
    "(r.attempts > 0 OR o.unique_key IN (SELECT key FROM lost_ends))"
    " AND o.created_at_ms BETWEEN :since AND :until AND (o.producer_group = :dead_group) = :is_dead"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the databases say."""

    accidents: Mapping[str, int]
    figures: Mapping[str, int]
    #: "detected" and "repaired": everything that was repaired. "quiet_...": committed in a quiet window, and the
    #: producer was dead from its end on. "quiet_living_...": the same, and the producers lived.
    latency_seconds: Mapping[str, Mapping[str, float]]
    #: Leg -> percentiles of the time that quiet losses of the dead group spent in it.
    legs_seconds: Mapping[str, Mapping[str, float]]
    #: Their slowest, and what is known of them.
    slowest: tuple[tuple[Way, str], ...]
    in_vain: InVain


def _prepare(connection: sa.Connection) -> None:
    # What does not fit is compared row by row: at 140 000 messages that took longer than the run.
    connection.execute(sa.text("SET LOCAL work_mem = '256MB'"))
    names = ", ".join(f"('{group}')" for group in GROUPS)
    connection.execute(sa.text(f"CREATE TEMP TABLE groups AS SELECT * FROM (VALUES {names}) AS g (name)"))
    connection.execute(
        sa.text(
            "CREATE TEMP TABLE committed AS"
            " SELECT unique_key AS key FROM reconciler_outbox WHERE state <> 'ROLLED_BACK'"
        )
    )
    for table in ("committed", "effects", "copies"):
        connection.execute(sa.text(f"CREATE INDEX IF NOT EXISTS chaos_{table} ON {table} (key)"))
        connection.execute(sa.text(f"ANALYZE {table}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietWindow:
    """A time in which ENDs were lost and no other fault was made, and after which one producer group stayed dead."""

    producer_group: str
    since_ms: int
    until_ms: int


def judge(engine: sa.Engine, quiet: Sequence[QuietWindow], blows: Sequence[Blow] = ()) -> Judgement:
    """Everything, at the end of a run. `blows` are for stories only."""
    with engine.begin() as connection:
        _prepare(connection)
        accidents = {name: int(connection.execute(sa.text(sql)).scalar_one()) for name, sql in _ACCIDENTS.items()}
        figures = {name: int(connection.execute(sa.text(sql)).scalar_one()) for name, sql in _FIGURES.items()}
        latencies = _percentiles_of(_losses(connection, _REPAIRED, [{}]), prefix="")
        dead = _losses(connection, _LOST_IN_WINDOW, _windows(quiet, is_dead=True))
        living = _losses(connection, _LOST_IN_WINDOW, _windows(quiet, is_dead=False))
        latencies |= _percentiles_of(dead, prefix="quiet_") | _percentiles_of(living, prefix="quiet_living_")
        ways = ways_of(connection, [loss.key for loss in dead])
        slowest = tuple((way, story_of(connection, way)) for way in ways[:SLOWEST])
        in_vain = repairs_in_vain(connection, blows)
        for table in ("committed", "groups"):
            connection.execute(sa.text(f"DROP TABLE {table}"))
    return Judgement(
        accidents=accidents,
        figures=figures,
        latency_seconds=latencies,
        legs_seconds={leg: percentiles([way.legs[leg] for way in ways if leg in way.legs]) for leg in LEGS},
        slowest=slowest,
        in_vain=in_vain,
    )


def _windows(quiet: Sequence[QuietWindow], *, is_dead: bool) -> list[dict[str, Any]]:
    return [
        {"dead_group": w.producer_group, "since": w.since_ms, "until": w.until_ms, "is_dead": is_dead} for w in quiet
    ]


def _losses(connection: sa.Connection, lost: str, windows: Sequence[Mapping[str, Any]]) -> list[sa.Row[Any]]:
    query = sa.text(_LATENCIES.format(lost=lost))
    return [row for window in windows for row in connection.execute(query, window)]


def _percentiles_of(losses: Sequence[sa.Row[Any]], *, prefix: str) -> dict[str, dict[str, float]]:
    return {
        f"{prefix}detected": percentiles([row.detected / 1000 for row in losses if row.detected is not None]),
        f"{prefix}repaired": percentiles([row.repaired / 1000 for row in losses]),
    }


def percentiles(values: list[float]) -> dict[str, float]:
    """How many, p50, p90, p99 and the largest."""
    if not values:
        return {"n": 0}
    ordered = sorted(values)
    return {"n": len(ordered)} | {
        name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }


def flows(engine: sa.Engine) -> bool:
    """Whether every group has effects, more than one broker's queues could have given."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM effects GROUP BY consumer_group HAVING count(*) >= 100) AS g"
    with engine.connect() as connection:
        return int(connection.execute(sa.text(sql)).scalar_one()) == len(GROUPS)


def missing_effects(engine: sa.Engine, window: QuietWindow) -> int:
    """Effects that the window's committed messages still lack."""
    sql = (
        "SELECT count(*) FROM reconciler_outbox o CROSS JOIN (SELECT unnest(CAST(:groups AS TEXT[])) AS name) g"
        " WHERE o.created_at_ms BETWEEN :since AND :until"
        " AND o.state <> 'ROLLED_BACK' AND NOT EXISTS (SELECT 1 FROM reconciler_inbox i"
        " WHERE i.unique_key = o.unique_key AND i.consumer_group = g.name)"
    )
    values = {
        "groups": list(GROUPS),
        "since": window.since_ms,
        "until": window.until_ms,
    }
    with engine.connect() as connection:
        return int(connection.execute(sa.text(sql), values).scalar_one())


def unfinished(engine: sa.Engine) -> str:
    """What is still to be done, in words; empty when everything has come to rest."""
    questions = {
        "keys without effect": "SELECT count(*) FROM reconciler_outbox o CROSS JOIN"
        f" (VALUES {', '.join(f'({chr(39)}{g}{chr(39)})' for g in GROUPS)}) AS g (name) WHERE o.state <> 'ROLLED_BACK'"
        " AND NOT EXISTS (SELECT 1 FROM reconciler_inbox i"
        " WHERE i.unique_key = o.unique_key AND i.consumer_group = g.name)",
        "open candidates": "SELECT count(*) FROM reconciler_candidate WHERE state = 'OPEN'",
        "open repairs": "SELECT count(*) FROM reconciler_repair WHERE state NOT IN ('DONE', 'FAILED')",
    }
    with engine.connect() as connection:
        found = {what: int(connection.execute(sa.text(sql)).scalar_one()) for what, sql in questions.items()}
    return ", ".join(f"{number} {what}" for what, number in found.items() if number)
