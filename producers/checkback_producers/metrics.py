"""Counts of producers for Prometheus, in the registry of the service. Only services that call register_metrics() have
these metrics.

    from checkback_producers.metrics import register_metrics

    register_metrics(prometheus_client.REGISTRY, producers=[producer])

prometheus_client is no dependency of the plug-in. Only this call loads prometheus_client. The label is the producer
group. The numbers are read at the scrape, so a transaction costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from checkback_producers.counts import Count
from checkback_producers.producer import TransactionalProducer
from reconciler.errors import MissingDependency

if TYPE_CHECKING:
    from checkback_producers.asynchronous import AsyncTransactionalProducer

__all__ = ["register_metrics"]

#: Name of a count -> its meaning. The metric's name contains the name of the count.
MEANINGS: Mapping[Count, str] = {
    "halves": "Halves that were to be sent.",
    "halves_failed": "Halves whose send failed: the block was not entered.",
    "halves_not_safe": "Halves that the broker took without being safe: rolled back, the block was not entered.",
    "committed": "Blocks whose outbox row was seen committed.",
    "rolled_back": "Blocks that were seen rolled back.",
    "unknown": "Blocks whose outcome could not be read: check-back or the reconciler finishes them.",
    "left_to_check_back": "Blocks that were left to the broker's check-back on purpose.",
    "not_recorded": "Blocks that recorded no outbox row.",
    "not_committed": "Blocks whose row was not committed at their end.",
    "ends_failed": "END_TRANSACTION that was not confirmed.",
    "announcements_failed": "Announcements that were not confirmed: the sweeper makes them good.",
}


class _Registry(Protocol):
    """The part of prometheus_client.CollectorRegistry that is needed here."""

    def register(self, collector: Any) -> None:
        """Registers a collector."""
        ...


def register_metrics(
    registry: _Registry, *, producers: Iterable[TransactionalProducer | AsyncTransactionalProducer]
) -> None:
    """Shows the counts of these producers at each scrape of the registry, summed by group. Call this function once per
    registry.

    Raises MissingDependency if prometheus_client is not installed. The registry raises ValueError if the names are
    registered already.
    """
    try:
        from prometheus_client.core import CounterMetricFamily
    except ImportError as error:
        raise MissingDependency(
            "register_metrics needs prometheus-client, which made the registry: pip install prometheus-client"
        ) from error
    registry.register(_Collector(tuple(producers), CounterMetricFamily))


class _Collector:
    def __init__(self, producers: Sequence[TransactionalProducer | AsyncTransactionalProducer], family: Any) -> None:
        self._producers = producers
        self._family = family

    def describe(self) -> Iterator[Any]:
        """Yields the names, so that a registry refuses to register them twice."""
        return self.collect()

    def collect(self) -> Iterator[Any]:
        """Yields all families with the sums of each group."""
        sums: dict[str, dict[str, int]] = {}
        for producer in self._producers:
            of = sums.setdefault(producer.group, {})
            for name, number in producer.counts.as_dict().items():
                of[name] = of.get(name, 0) + number
        for name, meaning in MEANINGS.items():
            family = self._family(f"reconciler_producer_{name}_total", meaning, labels=("producer_group",))
            for group, numbers in sums.items():
                family.add_metric((group,), numbers[name])
            yield family
