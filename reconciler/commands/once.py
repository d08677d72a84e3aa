"""`reconciler once`: a single pass of rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from reconciler.clock import Clock, SystemClock
from reconciler.commands.asking.availability import require_all_dependencies
from reconciler.commands.safety import require_safe_redis
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import RepairState
from reconciler.contract.verdicts import LOSSES
from reconciler.policy.environment import EnvironmentGuard
from reconciler.policy.plan import TopicPlan
from reconciler.policy.round import RoundReport
from reconciler.settings.schema import Settings
from reconciler.wiring.announcements import AnnouncementConsumer, build_announcement_consumer
from reconciler.wiring.connections import Connections
from reconciler.wiring.environment import enter_environment, environment_guard
from reconciler.wiring.history import history_sink, writing_history
from reconciler.wiring.rounds import RoundAssembly
from reconciler.wiring.subscriptions import require_past_since
from reconciler.wiring.tracing import traced_by, tracing
from reconciler.words import said_and_coded

#: Longest time that `once` waits until every repair is verified.
WAIT_SECONDS_DEFAULT = 60.0
_PAUSE_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class OnceReport:
    """What `reconciler once` did in all its rounds together."""

    #: Subscription -> its rounds. The oldest round comes first.
    rounds: dict[str, list[RoundReport]] = field(default_factory=dict)
    repairs_unfinished: int = 0
    repairs_failed: int = 0

    columns = ("announced", "matched", "pending", "verified", "losses", "repaired", "problems")

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 0: nothing is pending or open.
        Exit code 4: something failed, is held, waits, or did not run.
        """
        last = [reports[-1] for reports in self.rounds.values()]
        is_partial = (
            not last
            or self.repairs_unfinished
            or self.repairs_failed
            or any(r.event is None or r.event.pending_after or r.event.problems for r in last)
        )
        return 4 if is_partial else 0

    def rows(self) -> list[tuple[object, ...]]:
        """Returns rows for people."""
        names = ("topic", "group", *self.columns)
        return [
            tuple("; ".join(cell) if isinstance(cell, list) else cell for cell in (line[name] for name in names))
            for line in self._lines()
        ]

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        return {
            "subscriptions": self._lines(),
            "repairs_unfinished": self.repairs_unfinished,
            "repairs_failed": self.repairs_failed,
        }

    def _lines(self) -> list[dict[str, object]]:
        lines: list[dict[str, object]] = []
        for reports in self.rounds.values():
            events = [report.event for report in reports if report.event is not None]
            lost = {
                judged.suspect.unique_key
                for report in reports
                for judged in report.judged
                if judged.entry.verdict in LOSSES
            }
            last = reports[-1]
            problems = (last.suspended,) if last.suspended else last.event.problems if last.event else ()
            sentences, facts = said_and_coded({"problems": problems})
            lines.append(
                {
                    "topic": last.subscription.topic,
                    "group": last.subscription.group,
                    "announced": sum(event.announced for event in events),
                    "matched": sum(event.matched for event in events),
                    "pending": last.event.pending_after if last.event else None,
                    "verified": sum(event.verified for event in events),
                    "losses": len(lost),
                    "repaired": sum(event.repairs.get("done", 0) for event in events),
                    "problems": sentences["problems"],
                    "facts": facts,
                }
            )
        return lines


def run_once(settings: Settings, stop: threading.Event, *, wait_seconds: float = WAIT_SECONDS_DEFAULT) -> OnceReport:
    """Reads all announcements. Then runs rounds until nothing is pending or open, or the time is over.

    Raises TransientError at once for a dependency that is away. Raises ConfigurationError as `run` does.
    """
    clock = SystemClock()
    require_past_since(settings, now_ms=clock.now_ms())
    deadline = clock.monotonic_seconds() + wait_seconds
    report = OnceReport()
    with Connections(settings, clock=clock) as connections, ExitStack() as stack:
        sink = history_sink(settings, clock)
        spans = stack.enter_context(tracing(settings, clock=clock))
        assembly = RoundAssembly(connections, history=sink, spans=spans)
        require_all_dependencies(connections)
        require_safe_redis(assembly)
        guard = environment_guard(connections)
        if not enter_environment(connections, guard, stop=stop):
            return report
        stack.enter_context(writing_history(assembly, sink=sink, clock=clock))
        rounds = [(topic, assembly.rounds_of(topic)) for topic in assembly.plans]
        recovery = assembly.recovery()
        consumer = build_announcement_consumer(connections)
        consumer.start()
        try:
            _await_announcements(consumer, assembly, guard, stop, clock, deadline)
            while True:
                guard.keep()
                recovery.run(settings.environment)
                for topic, topic_rounds in rounds:
                    _one_round(assembly, topic, traced_by(spans, topic_rounds.run), report)
                _count_repairs(assembly, report)
                if report.exit_code == 0 or stop.is_set() or clock.monotonic_seconds() >= deadline:
                    return report
                clock.wait(stop, _PAUSE_SECONDS)
        finally:
            consumer.stop()
            for _, topic_rounds in rounds:
                topic_rounds.release()


def _await_announcements(
    consumer: AnnouncementConsumer,
    assembly: RoundAssembly,
    guard: EnvironmentGuard,
    stop: threading.Event,
    clock: Clock,
    deadline: float,
) -> None:
    """Waits until the announcements of every shard are read or suspended, or the time is over."""
    expected = sum(topic.shards * len(topic.subscriptions) for topic in assembly.plans)
    while not stop.is_set() and clock.monotonic_seconds() < deadline:
        if consumer.settled_queues() >= expected:
            return
        guard.keep()
        clock.wait(stop, 0.05)


def _one_round(
    assembly: RoundAssembly, topic: TopicPlan, run: Callable[[Subscription], RoundReport], report: OnceReport
) -> None:
    for plan in topic.subscriptions:
        if assembly.shard_numbers.keep(plan.subscription) is not None:
            continue
        report.rounds.setdefault(str(plan.subscription), []).append(run(plan.subscription))


def _count_repairs(assembly: RoundAssembly, report: OnceReport) -> None:
    counts = assembly.ledger.reports.repair_counts(assembly.settings.environment)
    report.repairs_unfinished = sum(c.count for c in counts if c.state not in FINISHED_REPAIRS)
    report.repairs_failed = sum(c.count for c in counts if c.state is RepairState.FAILED)
