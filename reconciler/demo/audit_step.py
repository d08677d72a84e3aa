"""The demo's last step: the audit, in a process of its own, judges the whole run by the databases and the history.

Without the extra `audit` or without Java, the audit judges without Spark. One line on standard error then says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reconciler.demo.job import LATE_AFTER_SECONDS, DemoJob
from reconciler.demo.processes import Child, Children, DemoFailed
from reconciler.demo.truth import REFERENCE, connect
from reconciler.instrumentation.console import remark

#: Exit codes of an audit with an answer.
_ANSWERED = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnswer:
    """The audit's answer."""

    #: Verdict of the audit: clean or violations. None: no audit was requested.
    verdict: str | None
    #: Class -> number of its keys in both groups. Classes without keys are left out.
    classes: dict[str, int]


def window_of(job: DemoJob) -> tuple[int, int]:
    """Returns the window from the first key's time to the last key's time, in milliseconds, by the audit's rules.

    If a commit was seen late, the audit counts it at the time when it was seen.
    """
    with closing(connect(job.files.outbox)) as db:
        written = dict(db.execute("SELECT unique_key, created_at_ms FROM reconciler_outbox").fetchall())
    seen: dict[str, int] = {}
    for database, query in (
        (job.files.ledger, "SELECT unique_key, first_seen_ms FROM reconciler_candidate"),
        (job.files.inbox(REFERENCE), "SELECT unique_key, applied_at_ms FROM reconciler_inbox"),
    ):
        with closing(connect(database)) as db:
            for key, at_ms in db.execute(query):
                seen[key] = min(at_ms, seen.get(key, at_ms))
    late_ms = round(LATE_AFTER_SECONDS * 1000)
    # A transaction that rolled back is never seen, so its written time counts.
    times = [max(at_ms, seen[key] - late_ms) if key in seen else at_ms for key, at_ms in written.items()]
    return min(written.values()), max(times) + 1


def is_closed(job: DemoJob, end_ms: int) -> bool:
    """Returns True if every shard has had a round after the window's last time for an effect. The audit then knows all
    effects that were in time."""
    closes_ms = end_ms + round(LATE_AFTER_SECONDS * 1000)
    with closing(connect(job.files.ledger)) as db:
        rows = db.execute(
            "SELECT max(at_ms) FROM reconciler_round WHERE void = 0 GROUP BY consumer_group, shard"
        ).fetchall()
    return len(rows) == 2 * job.shards and all(at_ms >= closes_ms for (at_ms,) in rows)


def audit(
    job: DemoJob,
    children: Children,
    window: tuple[int, int],
    wait: Callable[[Callable[[], bool], str], None],
    *,
    groups: Sequence[str],
    more: Sequence[str | Path],
) -> AuditAnswer:
    """Runs the audit after all writes. Raises DemoFailed if it has no answer. `more`: further arguments of the
    audit."""
    start, end = (datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="milliseconds") for ms in window)
    files = job.files
    arguments: list[str | Path] = ["audit", "--window", f"{start}/{end}", "--subscriptions", files.settings]
    arguments += ["--from-configuration", "--out", files.audit, "--output", "json", *more]
    query = "SELECT key, count(*) FROM effects GROUP BY key"
    for group in groups:
        arguments += ["--effects", f"{job.topic}/{job.consumer_group(group)}=sqlite:///{files.inbox(group)}#{query}"]
    child, answer = _answered(children, arguments, wait)
    if answer.get("reason") == "configuration":
        remark(f"the audit judges without Spark: {answer.get('message')}")
        child, answer = _answered(children, [*arguments, "--engine", "here"], wait)
    if child.exit_code not in _ANSWERED:
        raise DemoFailed(f"the audit ended with {child.exit_code}:\n{child.tail()}")
    return AuditAnswer(
        verdict=str(answer["verdict"]), classes={name: count for name, count in answer["classes"].items() if count}
    )


def _answered(
    children: Children, arguments: Sequence[str | Path], wait: Callable[[Callable[[], bool], str], None]
) -> tuple[Child, dict[str, Any]]:
    child = children.start_module("audit", "reconciler", *arguments)
    wait(lambda: child.exit_code is not None, "the audit has ended")
    children.forget(child)
    for line in reversed(child.tail().splitlines()):
        if line.startswith("{"):
            return child, json.loads(line)
    return child, {}
