"""What producers count, for Prometheus: opt-in, with the registry that the service has already.

    from checkback_producers.metrics import register_metrics

    register_metrics(prometheus_client.REGISTRY, producers=[producer])

prometheus_client is no dependency of the plug-in: it is loaded by this call only. The label is the producer group;
numbers are read at the scrape, so that a transaction costs nothing more.
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

#: Name of a count -> meaning; the metric has the name of the count in it.
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
    """prometheus_client.CollectorRegistry, as far as it is needed."""

    def register(self, collector: Any) -> None:
        """Takes a collector."""
        ...


def register_metrics(
    registry: _Registry, *, producers: Iterable[TransactionalProducer | AsyncTransactionalProducer]
) -> None:
    """Shows the counts of these at each scrape of the registry, groups together. Call it once a registry.

    Raises MissingDependency if prometheus_client is not installed, ValueError (of its registry) if that has the names
    already.
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
        """The names, so that a registry refuses them a second time."""
        return self.collect()

    def collect(self) -> Iterator[Any]:
        """All families, with the sums of each group."""
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
