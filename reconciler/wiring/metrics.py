"""Wiring of the metrics. Metrics and prometheus_client are loaded only if the setting metrics.listen exists."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from reconciler.clock import Clock
from reconciler.contract.extras import install
from reconciler.contract.release import release, revision
from reconciler.errors import MissingDependency
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.catalogue import Sample
from reconciler.policy.ports.evidence import BrokerEvidence
from reconciler.settings.schema import Settings, SubscriptionSettings
from reconciler.wiring.subscriptions import subscription_of

if TYPE_CHECKING:
    from checkback_consumers.replay_worker import ReplayWorker
    from checkback_producers.sweeper import SweepReport
    from reconciler.announcing.port import AnnouncementQueueState
    from reconciler.history.service import HistoryService
    from reconciler.instrumentation.metrics.book import MetricBook, Reader
    from reconciler.instrumentation.metrics.events import EventMetrics
    from reconciler.instrumentation.metrics.pages import Readiness
    from reconciler.wiring.scheduler import TickRunner


class AnnouncementStates(Protocol):
    """The part of an announcement consumer that metrics read."""

    def states(self) -> Iterable[AnnouncementQueueState]:
        """Returns the state of every queue that had a step."""
        ...


class Metering:
    """The measurements of one process. A process makes one such object.

    When a part of the process begins, it adds readers of its state. When it ends, they are removed.
    """

    def __init__(self, book: MetricBook, events: EventMetrics, *, clock: Clock) -> None:
        self.book = book
        self.events = events
        self._clock = clock

    def before(self, brokers: BrokerEvidence) -> BrokerEvidence:
        """Returns a witness that counts and times the answers of `brokers`."""
        from reconciler.instrumentation.metrics.look_ups import MeasuredBrokerEvidence

        return MeasuredBrokerEvidence(brokers, self.book, clock=self._clock)

    @contextmanager
    def serving(self, listen: str, *, readiness: Readiness, readers: Iterable[Reader]) -> Iterator[tuple[str, int]]:
        """Serves the pages over HTTP within the block, and yields the address.

        Raises ConfigurationError for an address in use.
        """
        from reconciler.instrumentation.metrics.pages import MetricPages
        from reconciler.instrumentation.metrics.serving import serving

        with (
            self.book.reading(build_samples, *readers),
            serving(MetricPages(self.book, readiness=readiness), listen) as where,
        ):
            yield where

    def reading_service(
        self, *, runner: TickRunner, consumer: AnnouncementStates, history: HistoryService | None
    ) -> AbstractContextManager[None]:
        """Reads schedule, announcements and history of `reconciler run` within the block."""
        return self.book.reading(
            lambda: schedule_samples(runner),
            lambda: announcement_samples(consumer.states()),
            lambda: () if history is None else history_samples(history.counters.as_dict()),
        )

    def reading_schedule(self, runner: TickRunner) -> AbstractContextManager[None]:
        """Reads the schedule of `reconciler sweep` within the block."""
        return self.book.reading(lambda: schedule_samples(runner))

    def reading_worker(self, worker: ReplayWorker, configured: SubscriptionSettings) -> AbstractContextManager[None]:
        """Reads the counts of `reconciler replay` within the block."""
        place = (configured.topic, configured.group)
        return self.book.reading(
            lambda: [Sample(c.HAND_OVERS, (*place, name), n) for name, n in asdict(worker.counts).items()]
        )

    def reading_spans(self, counts: Callable[[], Mapping[str, int]]) -> AbstractContextManager[None]:
        """Reads the numbers of spans of `reconciler run`, by outcome, within the block."""
        return self.book.reading(lambda: [Sample(c.SPANS, (name,), n) for name, n in counts().items()])

    def swept(self, report: SweepReport, *, took_seconds: float) -> None:
        """Counts one sweep. Only a successful sweep sets the time of the last good sweep."""
        book = self.book
        book.add(c.SWEEPS, "problems" if report.problems else "clean")
        book.observe(c.SWEEP_DURATION, value=took_seconds)
        if not report.failed_sources:
            book.put(c.LAST_SWEEP, value=self._clock.now_ms() / 1000)
        for outcome in SWEPT_OUTCOMES:
            book.add(c.SWEPT_ROWS, outcome, amount=getattr(report, outcome))
        book.put(c.SWEEP_WALK, value=report.walk_rows)

    def announced_due(self, report: SweepReport) -> None:
        """Counts the rows that were announced between two sweeps. The time of the last sweep is not set."""
        self.book.add(c.SWEPT_ROWS, "announced", amount=report.announced)


#: Fields of a sweep's report that are numbers of rows.
SWEPT_OUTCOMES = (
    "announced", "settled", "announced_again", "unsettled", "differing", "unprovable", "deleted", "doubled", "damaged",
    "reopened",
)  # fmt: skip


def open_metering(settings: Settings, command: str, *, clock: Clock) -> Metering | None:
    """Makes the metering of a command. None: metrics.listen is not set. Raises MissingDependency."""
    return None if settings.metrics.listen is None else new_metering(settings, command, clock=clock)


def new_metering(settings: Settings, command: str, *, clock: Clock) -> Metering:
    """Makes the metering of a command, even if metrics.listen is not set. Raises MissingDependency."""
    require_prometheus_client()
    from reconciler.instrumentation.metrics.book import MetricBook
    from reconciler.instrumentation.metrics.events import EventMetrics

    book = MetricBook(command)
    events = EventMetrics(book)
    if command == "run":
        events.begin(subscription_of(settings, configured) for configured in settings.subscriptions)
    return Metering(book, events, clock=clock)


def require_prometheus_client() -> None:
    """Raises MissingDependency if prometheus_client is not installed."""
    try:
        import prometheus_client  # noqa: F401 - only metrics need it
    except ImportError as error:
        raise MissingDependency(
            "metrics.listen is set, and prometheus-client, which writes them, is not installed: "
            f"{install('metrics')}, or remove metrics.listen"
        ) from error


def build_samples() -> Iterator[Sample]:
    """Yields the release that runs."""
    yield Sample(c.BUILD_INFO, (release(), revision(), platform.python_version()), 1)


def schedule_samples(runner: TickRunner) -> Iterator[Sample]:
    """Yields the numbers of turns that did no work, and how long each job's next turn is overdue."""
    for (job, reason), count in tuple(runner.skipped.items()):
        yield Sample(c.TURNS_MISSED, (job, reason), count)
    for job, seconds in runner.lateness_seconds().items():
        yield Sample(c.LATENESS, (job,), seconds)


def announcement_samples(states: Iterable[AnnouncementQueueState]) -> Iterator[Sample]:
    """Yields one sum over all queues of a subscription, because samples have no label for a queue."""
    sums: Counter[tuple[c.Metric, tuple[str, ...]]] = Counter()
    for one in states:
        place = (one.subscription.topic, one.subscription.group)
        sums[c.ADMITTED, place] += one.admitted_keys
        sums[c.REFUSED, place] += one.refused
        sums[c.REWINDS, place] += one.rewinds
        if one.behind is not None:
            sums[c.ANNOUNCEMENTS_BEHIND, place] += one.behind
        if one.kind is not None:
            sums[c.ANNOUNCEMENT_QUEUES, (*place, one.kind.value.lower())] += 1
    for (metric, labels), value in sums.items():
        yield Sample(metric, labels, value)


def history_samples(counters: Mapping[str, Any]) -> Iterator[Sample]:
    """Yields the numbers of rows and rounds that the history's threads wrote, dropped or missed."""
    yield Sample(c.HISTORY_WRITTEN, (), counters["rows_spooled"])
    yield Sample(c.HISTORY_DROPPED, (), counters["rows_dropped"])
    yield Sample(c.HISTORY_MISSED, (), counters["rounds_missed"])
