"""Brokers as a witness. Each question about a key is counted and timed. Answers are passed on unchanged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from reconciler.clock import Clock
from reconciler.contract.subscription import Subscription
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.book import MetricBook
from reconciler.policy.evidence import (
    ConsumeMode,
    FilterKind,
    HalfQuestions,
    Lookup,
    OutboxRow,
    ProducerLook,
    QueuePosition,
    StoredMessage,
    Watermark,
)
from reconciler.policy.ports.asked import Asked
from reconciler.policy.ports.evidence import BrokerEvidence, Horizon

T = TypeVar("T")


class MeasuredBrokerEvidence:
    """Wraps a BrokerEvidence and measures its answers. Threads may share the wrapper if they may share the wrapped
    object."""

    def __init__(self, brokers: BrokerEvidence, book: MetricBook, *, clock: Clock) -> None:
        self._brokers = brokers
        self._book = book
        self._clock = clock
        # These questions are not about one key, so nothing measures them.
        self.brokers_seen: Callable[[str], frozenset[str] | None] = brokers.brokers_seen
        self.expect: Callable[[str, Collection[str]], None] = brokers.expect
        self.watermark: Callable[[Subscription], Watermark] = brokers.watermark
        self.positions: Callable[[Subscription], Sequence[QueuePosition] | None] = brokers.positions
        self.consume_mode: Callable[[Subscription], ConsumeMode] = brokers.consume_mode
        self.is_deserted: Callable[[Subscription], bool] = brokers.is_deserted
        self.filter_kind: Callable[[Subscription], FilterKind] = brokers.filter_kind
        self.horizon: Callable[[str], Horizon] = brokers.horizon
        self.check_back_wait_seconds: Callable[[StoredMessage], float] = brokers.check_back_wait_seconds
        self.rollback_evident_after_seconds: Callable[[StoredMessage], float | None] = (
            brokers.rollback_evident_after_seconds
        )
        self.is_past_check: Callable[[StoredMessage], bool | None] = brokers.is_past_check
        self.check_back_of: Callable[[StoredMessage], HalfQuestions | None] = brokers.check_back_of
        self.producers_of: Callable[[StoredMessage], ProducerLook] = brokers.producers_of

    def committed_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Asks for committed copies."""
        ask = self._brokers.committed_copies
        return self._one(
            topic, "committed", lambda: ask(topic, unique_key, horizon=horizon, not_before_ms=not_before_ms)
        )

    def messages_of_key(
        self, topic: str, key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Asks for committed copies of other messages."""
        ask = self._brokers.messages_of_key
        return self._one(topic, "committed", lambda: ask(topic, key, horizon=horizon, not_before_ms=not_before_ms))

    def half_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int, outbox: OutboxRow | None
    ) -> Asked[Lookup[StoredMessage]]:
        """Asks for copies of the half."""
        ask = self._brokers.half_copies
        return self._one(
            topic, "half", lambda: ask(topic, unique_key, horizon=horizon, not_before_ms=not_before_ms, outbox=outbox)
        )

    def parked_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Asks for copies that the broker gave up."""
        ask = self._brokers.parked_copies
        return self._one(topic, "parked", lambda: ask(topic, unique_key, horizon=horizon, not_before_ms=not_before_ms))

    def group_copies(
        self, subscription: Subscription, unique_key: str, *, horizon: Horizon
    ) -> Asked[Mapping[str, Lookup[StoredMessage]]]:
        """Asks for copies in the group's own topics; each counts."""
        asked = self._timed("group", lambda: self._brokers.group_copies(subscription, unique_key, horizon=horizon))

        def hear() -> Mapping[str, Lookup[StoredMessage]]:
            found = asked()
            for lookup in found.values():
                self._count(subscription.topic, "group", lookup)
            return found

        return hear

    def _one(
        self, topic: str, kind: str, ask: Callable[[], Asked[Lookup[StoredMessage]]]
    ) -> Asked[Lookup[StoredMessage]]:
        asked = self._timed(kind, ask)

        def hear() -> Lookup[StoredMessage]:
            lookup = asked()
            self._count(topic, kind, lookup)
            return lookup

        return hear

    def _timed(self, kind: str, ask: Callable[[], Asked[T]]) -> Asked[T]:
        """Measures the time from a question until its answer is read. Answers to earlier questions are read first and
        add to this time."""
        began = self._clock.monotonic_seconds()
        asked = ask()

        def hear() -> T:
            answer = asked()
            self._book.observe(c.LOOK_UP_DURATION, kind, value=self._clock.monotonic_seconds() - began)
            return answer

        return hear

    def _count(self, topic: str, kind: str, lookup: Lookup[StoredMessage]) -> None:
        self._book.add(c.LOOK_UPS, topic, kind, lookup.presence.value.lower())
