"""Runs the whole demo: makes its folder, starts broker and Redis, and returns the result."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ulid import ULID

from reconciler.clock import SystemClock
from reconciler.contract.tables import Rung
from reconciler.demo.audit_step import AuditAnswer
from reconciler.demo.job import DemoJob
from reconciler.demo.plan import plan_messages
from reconciler.demo.processes import Children, start_redis, wait_for_line
from reconciler.demo.scenario import Scenario
from reconciler.demo.truth import DemoCounts, DemoFiles
from reconciler.errors import InvalidValue
from reconciler.instrumentation.console import remark

SHARDS = 4
MEANINGS = {
    "committed": "messages whose local transaction committed",
    "rolled_back": "messages that were rolled back on purpose",
    "lost": "committed, but invisible to consumers before the repairs",
    "delivered_before": "committed and consumed before the repairs",
    "healed_by_broker": "lost ones that the broker's own check-back brought back",
    "found": "keys that the reconciler proved to be lost",
    "repaired": "lost ones that took effect after a repair",
    "delivered_after": "committed and consumed in the end, in every group",
    "double_effects": "effects that happened twice (must be 0)",
    "unnecessary_repairs": "repairs of messages that were not lost (must be 0)",
    "rolled_back_delivered": "rolled back messages that took effect (must be 0)",
    "audit": "the independent answer from databases and history",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The demo's result."""

    counts: DemoCounts
    audit: AuditAnswer
    seconds: int
    holds: bool

    @property
    def exit_code(self) -> int:
        """0 if every count is as promised, otherwise 1."""
        return 0 if self.holds else 1

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        audit = {"verdict": self.audit.verdict or "skipped", "classes": self.audit.classes}
        return {**self.counts.as_dict(), "seconds": self.seconds, "audit": audit}

    def rows(self) -> list[tuple[str, object, str]]:
        """Returns rows for people."""
        counted = [(name.replace("_", " "), value, MEANINGS[name]) for name, value in self.counts.as_dict().items()]
        classes = ", ".join(f"{count} {name}" for name, count in self.audit.classes.items())
        judged = [] if self.audit.verdict is None else [("audit", self.audit.verdict, classes or MEANINGS["audit"])]
        return [*counted, *judged]


def run_demo(
    *,
    messages: int,
    lose: int,
    seed: int,
    repair: str,
    keep: Path | None,
    name_servers: str | None,
    redis_url: str | None,
    family: str,
    is_audited: bool = True,
) -> DemoResult:
    """Runs the demo. Raises DemoFailed, with the end of a child's output, if a part fails."""
    plan_messages(messages, lose, seed)  # refuses impossible numbers before any process is started
    clock = SystemClock()
    began = clock.monotonic_seconds()
    with demo_folder(keep) as folder:
        children = Children(files=DemoFiles(folder), clock=clock)
        try:
            embedded = name_servers is None
            if name_servers is None:
                name_servers = start_broker(children, family)
            is_real_redis = True
            if redis_url is None:
                _, redis_url, is_real_redis = start_redis(children)
            if not is_real_redis:
                _admit_fake_redis(embedded=embedded)
            job = DemoJob(
                run=str(ULID())[-10:],
                folder=str(folder),
                name_servers=name_servers,
                redis_url=redis_url,
                messages=messages,
                lose=lose,
                seed=seed,
                shards=SHARDS,
                repair_order=_repair_order(repair),
                accept_unverified_redis=not is_real_redis,
                is_audited=is_audited,
            )
            counts, audit = Scenario(job, children, clock).run()
        finally:
            children.stop_all()
    seconds = round(clock.monotonic_seconds() - began)
    holds = counts.holds(messages=messages, lose=lose) and audit.verdict in (None, "clean")
    return DemoResult(counts=counts, audit=audit, seconds=seconds, holds=holds)


def _repair_order(repair: str) -> tuple[str, ...]:
    match repair:
        case "off":
            return ()
        case "ladder":
            return (Rung.END.value, Rung.REPUBLISH.value, Rung.HAND_OVER.value)
        case _:
            return (repair,)


@contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """Yields the empty folder to keep, or one that is deleted at the end. Raises InvalidValue for a folder with
    contents."""
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="reconciler-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    keep = keep.resolve()
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise InvalidValue("--keep", str(keep), "name an empty or a new folder")
    yield keep


def start_broker(children: Children, family: str) -> str:
    """Starts the embedded broker as a child, and returns its address."""
    broker = children.start_module("broker", "reconciler", "broker", "--listen", "127.0.0.1:0", "--family", family)
    return str(json.loads(wait_for_line(broker, "{", children.clock))["listen"])


def _admit_fake_redis(*, embedded: bool) -> None:
    if not embedded:
        raise InvalidValue(
            "--namesrv", "given", "needs a real Redis: install redis-server, or name one with --redis-url"
        )
    remark("redis-server is not on PATH: using fakeredis, whose safety nothing can verify")
