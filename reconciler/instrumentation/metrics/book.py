"""The numbers of one process: Prometheus' client with a registry of its own. The one file that imports the client."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from reconciler.instrumentation.metrics.catalogue import METRICS, Metric, MetricKind, NumberSource, Sample

logger = logging.getLogger(__name__)

#: Reads values at a scrape. An exception costs its values only, and is logged.
Reader = Callable[[], Iterable[Sample]]


class MetricBook:
    """Counts, and reads at a scrape what is not counted. Shared by threads; several in one process are apart."""

    def __init__(self, command: str) -> None:
        """`command`: run, sweep or replay; metrics of other commands are not shown."""
        self.registry = CollectorRegistry(auto_describe=False)
        self._shown = [metric for metric in METRICS if command in metric.shown_by]
        self._counted = {m: self._made(m) for m in self._shown if m.source is NumberSource.EVENTS}
        self._readers: list[Reader] = []
        self._lock = threading.Lock()
        self.registry.register(_AtScrape(self._read))

    def begin(self, metric: Metric, *labels: str) -> None:
        """Shows a counter at 0: Prometheus sees no increase in a series that begins with its first event."""
        self._child(metric, labels)

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        """Adds to a counter."""
        child = self._child(metric, labels)
        if isinstance(child, Counter) and amount:
            child.inc(amount)

    def put(self, metric: Metric, *labels: str, value: float) -> None:
        """Sets a gauge."""
        child = self._child(metric, labels)
        if isinstance(child, Gauge):
            child.set(value)

    def observe(self, metric: Metric, *labels: str, value: float) -> None:
        """Adds a value to a histogram."""
        child = self._child(metric, labels)
        if isinstance(child, Histogram):
            child.observe(value)

    @contextmanager
    def reading(self, *readers: Reader) -> Iterator[None]:
        """Within the block each scrape asks these, too: what they read lives as long as the block."""
        with self._lock:
            self._readers += readers
        try:
            yield
        finally:
            with self._lock:
                self._readers = [one for one in self._readers if one not in readers]

    def page(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type, in a form that the scraper takes."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _made(self, metric: Metric) -> Counter | Gauge | Histogram:
        if metric.kind is MetricKind.COUNTER:
            return Counter(metric.name, metric.meaning, metric.labels, registry=self.registry)
        if metric.kind is MetricKind.GAUGE:
            return Gauge(metric.name, metric.meaning, metric.labels, registry=self.registry)
        return Histogram(metric.name, metric.meaning, metric.labels, registry=self.registry, buckets=metric.buckets)

    def _child(self, metric: Metric, labels: Sequence[str]) -> Counter | Gauge | Histogram:
        counted = self._counted[metric]
        return counted.labels(*labels) if labels else counted

    def _read(self) -> list[Family]:
        with self._lock:
            readers = tuple(self._readers)
        samples: dict[Metric, dict[tuple[str, ...], float]] = {}
        for reader in readers:
            try:
                for sample in reader():
                    samples.setdefault(sample.metric, {})[sample.labels] = sample.value
            except Exception:  # one reader's bug must not hide the others' values
                logger.exception("metrics_unread")
        return [_family(metric, samples[metric]) for metric in self._shown if metric in samples]


class _AtScrape:
    """prometheus_client's Collector."""

    def __init__(self, read: Callable[[], list[Family]]) -> None:
        self._read = read

    def collect(self) -> list[Family]:
        """All families that are read at a scrape."""
        return self._read()


def _family(metric: Metric, values: dict[tuple[str, ...], float]) -> Family:
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
