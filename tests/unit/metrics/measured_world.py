"""The policy's world in memory with everything measured, and what a scraper then sees of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from reconciler.clock import ManualClock
from reconciler.commands.metrics import status_samples
from reconciler.commands.status.report import StatusReport, SubscriptionStatus
from reconciler.contract.subscription import Subscription
from reconciler.instrumentation.metrics.book import MetricBook
from reconciler.instrumentation.metrics.catalogue import Metric, Sample
from reconciler.instrumentation.metrics.events import EventMetrics
from reconciler.instrumentation.metrics.look_ups import MeasuredBrokerEvidence
from reconciler.policy.events import Event
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.telling.account import account_of, rounds_link
from tests.unit.policy.fake_broker import FakeBroker
from tests.unit.policy.world import Events, World

EXAMPLE = Path(__file__).parents[3] / "config/reconciler.toml"


class MeasuredEvents(Events):
    """Keeps all, and counts them."""

    def __init__(self, metrics: EventMetrics) -> None:
        super().__init__()
        self.metrics = metrics

    def emit(self, event: Event) -> None:
        super().emit(event)
        self.metrics.emit(event)


class _SlowBroker:
    """A broker whose look-ups take a second of the test's clock, and are measured; all else is the world's."""

    def __init__(self, broker: FakeBroker, book: MetricBook, clock: ManualClock) -> None:
        self._broker = broker
        self._measured = MeasuredBrokerEvidence(broker, book, clock=clock)
        broker_committed = broker.committed_copies

        def slowly(*args: Any, **kwargs: Any) -> Any:
            clock.advance(1.0)
            return broker_committed(*args, **kwargs)

        broker.committed_copies = slowly  # type: ignore[method-assign]  # the world's broker answers later

    def __getattr__(self, name: str) -> Any:
        is_asked = name.endswith("_copies")
        return getattr(self._measured if is_asked else self._broker, name)


class Measured:
    """A world and the book of the one process in it."""

    def __init__(self, **options: Any) -> None:
        self.world = World(**options)
        self.book = MetricBook("run")
        self.events = EventMetrics(self.book)
        self.world.events = MeasuredEvents(self.events)
        self.world.broker = _SlowBroker(self.world.broker, self.book, self.world.clock)  # type: ignore[assignment]

    def state(self) -> list[Sample]:
        """What `status` would say of the world, as numbers."""
        return list(status_samples(self.report(), settings()))

    def report(self) -> StatusReport:
        """The report over the ledger and the sets in memory."""
        world, reports = self.world, self.world.ledger.reports
        now_ms = world.clock.now_ms()
        return StatusReport(
            subscriptions=tuple(self._subscription(s, now_ms) for s in world.subscriptions),
            verdicts=tuple(reports.verdict_counts("test")),
            repairs=tuple(reports.repair_counts("test")),
            holds=tuple(reports.holds("test")),
            outages=tuple(reports.outages("test", limit=5).rows),
            away=(),
            asked_ms=now_ms,
        )

    def _subscription(self, subscription: Subscription, now_ms: int) -> SubscriptionStatus:
        world = self.world
        sizes = [world.shards.pending_size(shard) for shard in world.topic.shards_of(subscription)]
        last = world.ledger.reports.last_rounds(subscription)
        link = rounds_link(last, shards=world.topic.shards, asked_ms=now_ms)
        return SubscriptionStatus(
            subscription=subscription,
            pending=sum(size for size, _ in sizes),
            oldest_pending_ms=min((at for _, at in sizes if at is not None), default=None),
            watermark=world.broker.watermark(subscription),
            last_round_ms=max((r.done.at_ms for r in last), default=None),
            accounted=account_of(subscription, [link], asked_ms=now_ms, within_ms=300_000, is_given=False),
            weaker=(),
        )

    def page(self, samples: Iterable[Sample] = ()) -> dict[str, float]:
        """The page that a scraper gets."""
        return scraped(self.book, samples)


def settings() -> Settings:
    """The example's, which has the world's topic."""
    return load_settings(EXAMPLE, {}, {})


def scraped(book: MetricBook, samples: Iterable[Sample] = ()) -> dict[str, float]:
    """`name{label=value,...}` -> value."""
    kept = list(samples)
    with book.reading(lambda: kept):
        body, _ = book.page("text/plain")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def total(page: dict[str, float], metric: Metric) -> float:
    """The sum over all labels; of a histogram, what was observed."""
    names = {metric.name, f"{metric.name}_sum"}
    return sum(value for shown, value in page.items() if shown.partition("{")[0] in names)
