"""The metrics of `run`, `sweep` and `replay`: the report of `status` as numbers, and which dependencies answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from reconciler.clock import Clock
from reconciler.commands.asking.availability import ask_brokers, ask_databases, ask_ledger, ask_redis, results_of
from reconciler.commands.status.reading import read_status
from reconciler.commands.status.report import StatusReport, SubscriptionStatus
from reconciler.commands.status.standstill import require_rounds
from reconciler.contract.tables import CandidateState, HoldKind
from reconciler.errors import DatabaseAway
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.catalogue import Sample
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.policy.evidence import WatermarkState
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.metrics import Metering, open_metering

#: Reading of `reconciler status` that parts of a process share. None: the ledger is away.
StatusReading: TypeAlias = LatestReading[StatusReport | None]


def _ask_rounds(connections: Connections) -> dict[str, Callable[[], object]]:
    return {"rounds": lambda: require_rounds(connections)}


#: Command -> questions to the dependencies that the command needs.
_ASKED: Mapping[str, tuple[Callable[[Connections], dict[str, Callable[[], object]]], ...]] = {
    "run": (ask_ledger, ask_redis, ask_databases, ask_brokers, _ask_rounds),
    "web": (ask_ledger, ask_redis, ask_databases, ask_brokers),
    "sweep": (ask_databases, ask_brokers),
    "replay": (ask_ledger,),
}


#: Pause between two readings of `status` while somebody looks at the console.
STATUS_SECONDS = 10.0
#: Pause between two readings without scrapes. Notices need this to report an accounted-until time that does not
#: advance.
_UNSCRAPED_SECONDS = 30.0


def status_reading(settings: Settings, *, clock: Clock) -> StatusReading:
    """Makes the reading of `reconciler status` that metrics, notices and console of `run` share. The value is None if
    the ledger is away.

    Only a console shows check services, so without one they are left out.
    """
    has_console = settings.web.listen is not None

    def read() -> StatusReport | None:
        try:
            with Connections.for_people(settings, clock=clock) as connections:
                return read_status(connections, sees_check_services=has_console)
        except DatabaseAway:
            return None

    is_scraped = settings.metrics.listen is not None
    interval_seconds = settings.metrics.read_interval_seconds if is_scraped else _UNSCRAPED_SECONDS
    return LatestReading(read, clock=clock, interval_seconds=interval_seconds)


@contextmanager
def measuring(
    settings: Settings, command: str, *, clock: Clock, status: StatusReading | None = None
) -> Iterator[Metering | None]:
    """Serves the command's metrics within the block. Yields None if metrics.listen is not set.

    `status`: a reading whose numbers are served, too. The command serves metrics before it reaches any dependency, so a
    process that waits for dependencies can be seen. Raises MissingDependency. Raises ConfigurationError for an address
    in use.
    """
    metering = open_metering(settings, command, clock=clock)
    if metering is None or settings.metrics.listen is None:
        yield metering
        return
    interval = settings.metrics.read_interval_seconds
    dependencies = LatestReading(lambda: _own_dependencies(settings, command), clock=clock, interval_seconds=interval)
    readers: list[Callable[[], Iterable[Sample]]] = [lambda: dependency_samples(dependencies.get())]
    if status is not None:
        readers += [lambda: report_samples(status, settings)]
    with metering.serving(settings.metrics.listen, readiness=dependencies.get, readers=readers):
        yield metering


def _own_dependencies(settings: Settings, command: str) -> dict[str, str | None]:
    with Connections.for_people(settings) as connections:
        return dependencies_of(connections, command)


def dependencies_of(connections: Connections, command: str) -> dict[str, str | None]:
    """Returns dependency of the command -> what is wrong. None: the dependency answered. Raises nothing."""
    asked: dict[str, Callable[[], object]] = {}
    for ask in _ASKED[command]:
        asked |= ask(connections)
    return results_of(asked)


def dependency_samples(results: Mapping[str, str | None] | None) -> Iterator[Sample]:
    """Yields one sample for each dependency. `results` None: nothing is known, so every value is absent."""
    for name, problem in (results or {}).items():
        yield Sample(c.DEPENDENCY_UP, (name,), int(problem is None))


def report_samples(reading: StatusReading, settings: Settings) -> Iterator[Sample]:
    """Yields samples of the newest reading. If nothing could be read, values are absent and never 0."""
    report = reading.get()
    yield Sample(c.STATE_UP, (), int(report is not None))
    if reading.took_seconds is not None:
        yield Sample(c.STATE_READ, (), reading.took_seconds)
    yield from () if report is None else status_samples(report, settings)


def status_samples(report: StatusReport, settings: Settings) -> Iterator[Sample]:
    """Yields the report of `reconciler status` as numbers."""
    for one in report.subscriptions:
        yield from _of_subscription(one, report)
    yield from _verdicts(report)
    yield Sample(c.UNSWEPT, (), len(report.unswept))
    repairs: Counter[tuple[str, str, str]] = Counter()
    for r in report.repairs:
        repairs[r.topic, r.rung.value, r.state.value.lower()] += r.count
    yield from (Sample(c.REPAIR_ROWS, labels, count) for labels, count in repairs.items())
    held = {(hold.topic, hold.kind) for hold in report.holds}
    for topic in dict.fromkeys(s.topic for s in settings.subscriptions):
        yield Sample(c.HOLD, (topic,), int((topic, HoldKind.HOLD) in held))
        yield Sample(c.BREAKER_OPEN, (topic,), int((topic, HoldKind.BREAKER) in held))
    yield Sample(c.OUTAGE_OPEN, (), int(any(outage.closed_at_ms is None for outage in report.outages)))
    if report.history is not None:
        yield Sample(c.HISTORY_SPOOL, (), report.history.spool_bytes)
        for h in report.history.subscriptions:
            if h.captured_until_ms is not None:
                place = (h.subscription.topic, h.subscription.group)
                yield Sample(c.HISTORY_UNTIL, place, h.captured_until_ms / 1000)


def _of_subscription(one: SubscriptionStatus, report: StatusReport) -> Iterator[Sample]:
    place = (one.subscription.topic, one.subscription.group)
    if one.accounted.until_ms is not None:
        yield Sample(c.ACCOUNTED_UNTIL, place, one.accounted.until_ms / 1000)
    if one.pending is not None:
        yield Sample(c.PENDING, place, one.pending)
        since_ms = report.asked_ms if one.oldest_pending_ms is None else one.oldest_pending_ms
        yield Sample(c.OLDEST_PENDING, place, max(0, report.asked_ms - since_ms) / 1000)
    if one.watermark.state is WatermarkState.KNOWN and one.watermark.at_ms is not None:
        yield Sample(c.WATERMARK, place, one.watermark.at_ms / 1000)
    if one.last_round_ms is not None:
        yield Sample(c.LAST_ROUND, place, one.last_round_ms / 1000)


def _verdicts(report: StatusReport) -> Iterator[Sample]:
    """Yields values for every subscription. The ledger has answered, so a missing count is a known 0."""
    sums: Counter[tuple[c.Metric, tuple[str, ...]]] = Counter()
    for v in report.verdicts:
        place = (v.subscription.topic, v.subscription.group)
        if v.state is CandidateState.OPEN:
            sums[c.OPEN, (*place, v.verdict.value.lower())] += v.count
            sums[c.LOST, place] += v.count if v.is_open_loss else 0
        elif v.state is CandidateState.QUARANTINED:
            sums[c.QUARANTINED, place] += v.count
        elif v.is_repaired_loss:
            sums[c.REPAIRED, place] += v.count
    for one in report.subscriptions:
        place = (one.subscription.topic, one.subscription.group)
        yield from (
            Sample(metric, place, sums.pop((metric, place), 0)) for metric in (c.LOST, c.QUARANTINED, c.REPAIRED)
        )
    yield from (Sample(metric, labels, count) for (metric, labels), count in sums.items())
