"""Counts of handlers and recorders for Prometheus, in the registry of the service. Only services that call
register_metrics() have these metrics.

    from checkback_consumers.metrics import register_metrics

    register_metrics(prometheus_client.REGISTRY, handlers=[handler], recorders=[recorder])

prometheus_client is no dependency of the plug-in. Only this call loads prometheus_client. Labels are consumer groups
and words of closed lists. The numbers are read at the scrape, so consuming costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from checkback_consumers.handler import TransactionalHandler
from checkback_consumers.recorder import CommitRecorder
from reconciler.errors import MissingDependency

__all__ = ["register_metrics"]

#: Name of the metric -> its meaning. Counters end in `_total`.
METRICS = {
    "reconciler_handled_messages_total": "Messages by outcome: applied, duplicate (the inbox had the key), failed.",
    "reconciler_handler_collisions_total": "Of the failed ones, keys that the inbox has with another content.",
    "reconciler_handler_incomplete_total": "Of the failed ones, keys whose inbox row is incomplete: its handler ended "
    "the transaction before it returned.",
    "reconciler_handler_unrecorded_total": "Messages acknowledged although the recorder could not confirm.",
    "reconciler_consumptions_recorded_total": "Keys that were put into commit sets.",
    "reconciler_consumptions_missed_total": "Keys that the recorder gave up; each costs a look-up in the inbox.",
    "reconciler_consumptions_waiting_keys": "Keys that are not in their commit sets yet.",
    "reconciler_recorder_redis_up": "1: the recorder's Redis took its last batch; 0: it is away.",
}


class _Registry(Protocol):
    """The part of prometheus_client.CollectorRegistry that is needed here."""

    def register(self, collector: Any) -> None:
        """Registers a collector."""
        ...


def register_metrics(
    registry: _Registry,
    *,
    handlers: Iterable[TransactionalHandler] = (),
    recorders: Iterable[CommitRecorder] = (),
) -> None:
    """Shows the counts of handlers and recorders at each scrape of the registry, summed by group. Call this function
    once per registry.

    Raises MissingDependency if prometheus_client is not installed. The registry raises ValueError if the names are
    registered already.
    """
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError as error:
        raise MissingDependency(
            "register_metrics needs prometheus-client, which made the registry: pip install prometheus-client"
        ) from error

    def family(name: str, labels: Sequence[str]) -> Any:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        return kind(name, METRICS[name], labels=labels)

    registry.register(_Collector(tuple(handlers), tuple(recorders), family))


class _Collector:
    def __init__(
        self,
        handlers: Sequence[TransactionalHandler],
        recorders: Sequence[CommitRecorder],
        family: Callable[[str, Sequence[str]], Any],
    ) -> None:
        self._handlers = handlers
        self._recorders = recorders
        self._family = family

    def describe(self) -> Iterator[Any]:
        """Yields the names, so that a registry refuses to register them twice."""
        return self.collect()

    def collect(self) -> Iterator[Any]:
        """Yields all families with the sums of each group."""
        sums: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in METRICS}
        for name, labels, value in self._values():
            of = sums[name]
            of[labels] = min(of.get(labels, 1), value) if name.endswith("_up") else of.get(labels, 0) + value
        for name, values in sums.items():
            more = ("outcome",) if name == "reconciler_handled_messages_total" else ()
            family = self._family(name, ("consumer_group", *more))
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family

    def _values(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        for handler in self._handlers:
            group, counts = handler.group, handler.counts
            handled = {"applied": counts.applied, "duplicate": counts.duplicates, "failed": counts.failed}
            for outcome, number in handled.items():
                yield "reconciler_handled_messages_total", (group, outcome), number
            yield "reconciler_handler_collisions_total", (group,), counts.collisions
            yield "reconciler_handler_incomplete_total", (group,), counts.incomplete
            yield "reconciler_handler_unrecorded_total", (group,), counts.unrecorded
        for recorder in self._recorders:
            place, state = (recorder.group,), recorder.state()
            yield "reconciler_consumptions_recorded_total", place, state.recorded
            yield "reconciler_consumptions_missed_total", place, state.missed
            yield "reconciler_consumptions_waiting_keys", place, state.waiting
            yield "reconciler_recorder_redis_up", place, int(not state.is_away)
