"""Judges a run from the databases and the brokers alone, by SQL that shares nothing with the product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tests.chaos.job import GROUPS

#: Group-wise accidents: each must count 0.
_ACCIDENTS: Mapping[str, str] = {
    # Committed, and no effect in one of the groups.
    "lost": "SELECT count(*) FROM committed CROSS JOIN groups"
    " WHERE NOT EXISTS (SELECT 1 FROM effects e WHERE e.key = committed.key AND e.consumer_group = groups.name)",
    # More than one effect in a group.
    "double": "SELECT coalesce(sum(n - 1), 0) FROM"
    " (SELECT count(*) AS n FROM effects GROUP BY consumer_group, key HAVING count(*) > 1) AS d",
    # An effect of something that was rolled back or never committed.
    "phantom": "SELECT count(*) FROM effects WHERE key NOT IN (SELECT key FROM committed)"
    " OR key IN (SELECT key FROM attempts WHERE intent = 'roll-back')",
    # An effect of another body than the one that was meant.
    "body_differs": "SELECT count(*) FROM effects e JOIN attempts a USING (key) WHERE e.digest <> a.digest",
    # The business committed and the outbox does not say so, or the other way round.
    "unaccounted": "SELECT (SELECT count(*) FROM orders WHERE key NOT IN (SELECT key FROM committed))"
    " + (SELECT count(*) FROM committed WHERE key NOT IN (SELECT key FROM orders))"
    " + (SELECT count(*) FROM reconciler_candidate WHERE state <> 'SETTLED')"
    " + (SELECT count(*) FROM reconciler_repair WHERE state NOT IN ('DONE'))",
}
_FIGURES: Mapping[str, str] = {
    "committed": "SELECT count(*) FROM committed",
    "rolled_back": "SELECT count(*) FROM attempts WHERE intent = 'roll-back'",
    "attempts": "SELECT count(*) FROM attempts",
    "found": "SELECT count(DISTINCT unique_key) FROM reconciler_candidate WHERE loss_verdict IS NOT NULL",
    "repaired": "SELECT count(DISTINCT unique_key) FROM reconciler_repair WHERE attempts > 0",
    # Second copies of what was repaired: a repair in vain, or a zombie that woke up.
    "unnecessary_repairs": "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM copies WHERE key IN"
    " (SELECT unique_key FROM reconciler_repair WHERE attempts > 0) GROUP BY key) AS c",
}
#: The same for keys that were committed in a quiet window by a producer group that was dead afterwards.
_QUIET = """
SELECT r.created_at_ms - o.created_at_ms AS detected, max(e.at_ms) - o.created_at_ms AS repaired
FROM reconciler_outbox o JOIN reconciler_repair r USING (unique_key) JOIN effects e ON e.key = o.unique_key
WHERE o.producer_group = :producer_group AND o.created_at_ms BETWEEN :since AND :until AND r.attempts > 0
GROUP BY r.unique_key, r.created_at_ms, o.created_at_ms
"""
#: Milliseconds from the commit, of lost keys that were repaired: to the proof, and to the last group's effect.
_LATENCIES = """
SELECT r.created_at_ms - o.created_at_ms AS detected, max(e.at_ms) - o.created_at_ms AS repaired
FROM reconciler_repair r JOIN reconciler_outbox o USING (unique_key) JOIN effects e ON e.key = r.unique_key
WHERE r.attempts > 0 GROUP BY r.unique_key, r.created_at_ms, o.created_at_ms
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the databases say."""

    accidents: Mapping[str, int]
    figures: Mapping[str, int]
    latency_seconds: Mapping[str, Mapping[str, float]]


def _prepare(connection: sa.Connection) -> None:
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
    """A time in which ENDs of one producer group were lost and the group then stayed dead; milliseconds."""

    producer_group: str
    since_ms: int
    until_ms: int


def judge(engine: sa.Engine, quiet: Sequence[QuietWindow]) -> Judgement:
    """Everything, at the end of a run."""
    with engine.begin() as connection:
        _prepare(connection)
        accidents = {name: int(connection.execute(sa.text(sql)).scalar_one()) for name, sql in _ACCIDENTS.items()}
        figures = {name: int(connection.execute(sa.text(sql)).scalar_one()) for name, sql in _FIGURES.items()}
        rows = connection.execute(sa.text(_LATENCIES)).all()
        calm = [
            row
            for window in quiet
            for row in connection.execute(
                sa.text(_QUIET),
                {"producer_group": window.producer_group, "since": window.since_ms, "until": window.until_ms},
            )
        ]
        for table in ("committed", "groups"):
            connection.execute(sa.text(f"DROP TABLE {table}"))
    return Judgement(
        accidents=accidents,
        figures=figures,
        latency_seconds={
            "detected": percentiles([row.detected / 1000 for row in rows]),
            "repaired": percentiles([row.repaired / 1000 for row in rows]),
            "quiet_detected": percentiles([row.detected / 1000 for row in calm]),
            "quiet_repaired": percentiles([row.repaired / 1000 for row in calm]),
        },
    )


def percentiles(values: list[float]) -> dict[str, float]:
    """p50, p90, p99 and the largest."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }


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
