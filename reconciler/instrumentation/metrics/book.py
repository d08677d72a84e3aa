"""Metric values of one process, in a registry for this process alone. Only this file imports Prometheus' client.

The book keeps its counts without the client's counters. If PROMETHEUS_MULTIPROC_DIR is set, the client keeps its
counters in files of that folder. Such a counter continues the counter of an older process with the same id, and fails
without the folder. The variable may be set for a service beside which `replay` runs.
"""

from __future__ import annotations

import logging
import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from reconciler.errors import InvariantViolation
from reconciler.instrumentation.metrics.catalogue import METRICS, Metric, MetricKind, NumberSource, Sample

logger = logging.getLogger(__name__)

#: Function that reads values at a scrape. If the function raises an exception, only its values are missing, and the
#: exception is logged.
Reader = Callable[[], Iterable[Sample]]


class MetricBook:
    """Counts, and values that are read at a scrape. Threads share a book. Several books of one process are
    independent."""

    def __init__(self, command: str) -> None:
        """`command`: run, sweep or replay. Metrics of other commands are not shown."""
        self.registry = CollectorRegistry(auto_describe=False)
        self._shown = [metric for metric in METRICS if command in metric.shown_by]
        #: Values by labels. A histogram has the count of each bucket, and the sum.
        self._counted: dict[Metric, dict[tuple[str, ...], list[float]]] = {
            metric: {} if metric.labels else {(): _zeros(metric)}
            for metric in self._shown
            if metric.source is NumberSource.EVENTS
        }
        self._readers: list[Reader] = []
        self._lock = threading.Lock()
        self.registry.register(_AtScrape(self._read))

    def begin(self, metric: Metric, *labels: str) -> None:
        """Shows a counter at 0, because Prometheus sees no increase in a series that begins with its first event."""
        with self._lock:
            self._values(metric, labels)

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        """Adds to a counter."""
        if metric.kind is MetricKind.COUNTER:
            with self._lock:
                self._values(metric, labels)[0] += amount

    def put(self, metric: Metric, *labels: str, value: float) -> None:
        """Sets a gauge."""
        if metric.kind is MetricKind.GAUGE:
            with self._lock:
                self._values(metric, labels)[0] = value

    def observe(self, metric: Metric, *labels: str, value: float) -> None:
        """Adds a value to a histogram."""
        if metric.kind is MetricKind.HISTOGRAM:
            with self._lock:
                values = self._values(metric, labels)
                values[bisect_left(metric.buckets, value)] += 1
                values[-1] += value

    @contextmanager
    def reading(self, *readers: Reader) -> Iterator[None]:
        """Adds readers to the scrapes within the block. The objects that the readers use live as long as the block."""
        with self._lock:
            self._readers += readers
        try:
            yield
        finally:
            with self._lock:
                self._readers = [one for one in self._readers if one not in readers]

    def page(self, accept: str) -> tuple[bytes, str]:
        """Returns the exposition in a format that the scraper accepts, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _values(self, metric: Metric, labels: Sequence[str]) -> list[float]:
        if len(labels) != len(metric.labels):
            raise InvariantViolation(f"{metric.name} has the labels {metric.labels}, not {len(labels)} values")
        return self._counted[metric].setdefault(tuple(labels), _zeros(metric))

    def _read(self) -> list[Family]:
        with self._lock:
            readers = tuple(self._readers)
            families = [_family(metric, values) for metric, values in self._counted.items()]
        samples: dict[Metric, dict[tuple[str, ...], list[float]]] = {}
        for reader in readers:
            try:
                for sample in reader():
                    samples.setdefault(sample.metric, {})[sample.labels] = [sample.value]
            except Exception:  # one reader's bug must not hide the others' values
                logger.exception("metrics_unread")
        return families + [_family(metric, samples[metric]) for metric in self._shown if metric in samples]


class _AtScrape:
    def __init__(self, read: Callable[[], list[Family]]) -> None:
        self._read = read

    def collect(self) -> list[Family]:
        """Returns all families that are read at a scrape."""
        return self._read()


def _zeros(metric: Metric) -> list[float]:
    return [0.0] * (len(metric.buckets) + 2 if metric.kind is MetricKind.HISTOGRAM else 1)


def _family(metric: Metric, values: Mapping[tuple[str, ...], Sequence[float]]) -> Family:
    if metric.kind is MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        bounds = [floatToGoString(bound) for bound in (*metric.buckets, math.inf)]  # type: ignore[no-untyped-call]  # of the client
        for labels, (*counts, total) in values.items():
            histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        return histogram
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, (value,) in values.items():
        family.add_metric(labels, value)
    return family
