"""Counts events of the policy. Threads share the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from reconciler.contract.subscription import Subscription
from reconciler.contract.verdicts import LOSSES
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.book import MetricBook
from reconciler.policy.events import (
    BreakerOpened,
    Event,
    KeysNotTaken,
    OutageClosed,
    OutageScanned,
    RepairStepped,
    RoundFinished,
    RoundsVoided,
    ShardStopped,
    VerdictsWritten,
)

#: Reasons of outages, in lower case. A round, the look at Redis' settings, or announcements open an outage.
OUTAGE_REASONS = ("away", "memory_lost", "unsafe")


class EventMetrics:
    """EventSink that drops unique keys, shards and texts, because they have no bound."""

    def __init__(self, book: MetricBook) -> None:
        self._book = book

    def begin(self, subscriptions: Iterable[Subscription]) -> None:
        """Shows the counters of alerts at 0 from the beginning. Otherwise the first loss would be no increase."""
        for reason in OUTAGE_REASONS:
            self._book.begin(c.OUTAGES, reason)
        for subscription in subscriptions:
            self._book.begin(c.ROUNDS_VOIDED, *_place(subscription))
            self._book.begin(c.BREAKER_OPENINGS, subscription.topic)
            for verdict in LOSSES:
                self._book.begin(c.LOSSES, *_place(subscription), verdict.value.lower())

    def emit(self, event: Event) -> None:
        """Counts the event. An event without a metric of its own is left out."""
        match event:
            case RoundFinished():
                self._round(event)
            case VerdictsWritten():
                self._verdicts(event)
            case RepairStepped():
                self._repair(event)
            case KeysNotTaken():
                self._book.add(c.NOT_TAKEN, *_place(event.shard.subscription), amount=len(event.unique_keys))
            case BreakerOpened():
                self._book.add(c.BREAKER_OPENINGS, event.topic)
            case ShardStopped():
                self._book.add(c.SHARDS_STOPPED, *_place(event.shard.subscription))
            case RoundsVoided():
                self._book.add(c.ROUNDS_VOIDED, *_place(event.shard.subscription), amount=event.rounds)
            case OutageClosed() if event.reason.lower() in OUTAGE_REASONS:  # a damaged row has any text
                self._book.add(c.OUTAGES, event.reason.lower())
            case OutageScanned():
                for name, rows in event.by_subscription.items():
                    topic, _, group = name.partition("/")
                    self._book.add(c.RECOVERED, topic, group, amount=rows)
            case _:
                pass

    def suspended(self, subscription: Subscription) -> None:
        """Counts a round that did not run, because an outage is open."""
        self._book.add(c.ROUNDS, *_place(subscription), "suspended")

    def _round(self, event: RoundFinished) -> None:
        place = _place(event.subscription)
        self._book.add(c.ROUNDS, *place, "problems" if event.problems else "clean")
        self._book.observe(c.ROUND_DURATION, *place, value=event.duration_seconds)
        self._book.put(c.SHARDS_OWNED, *place, value=event.shards_run)
        self._book.add(c.ANNOUNCED, *place, amount=event.announced)
        self._book.add(c.MATCHED, *place, amount=event.matched)

    def _verdicts(self, event: VerdictsWritten) -> None:
        place = _place(event.shard.subscription)
        for verdict, count in Counter(v.verdict for v in event.entries).items():
            self._book.add(c.VERDICTS, *place, verdict.value.lower(), amount=count)
        for loss in event.new_losses:
            self._book.add(c.LOSSES, *place, loss.verdict.value.lower())
            self._book.observe(c.DETECTION, *place, value=loss.waited_seconds)

    def _repair(self, event: RepairStepped) -> None:
        self._book.add(c.REPAIR_STEPS, event.topic, event.rung.value, event.after.value.lower())
        if event.took_seconds is not None:
            self._book.observe(c.REPAIR_TIME, event.topic, value=event.took_seconds)


def _place(subscription: Subscription) -> tuple[str, str]:
    return subscription.topic, subscription.group
