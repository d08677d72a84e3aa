"""The original design as it was written, for comparison (mode = "classic").

Two sets, one scheduled difference that empties both, viewMessage under the real topic, replay to the business. It
repairs lost messages up to RocketMQ 4.2; docs/how-it-works.md lists where it loses, doubles or replays in vain, and
docs/stories.md shows it step by step. Nothing of round.py's is used: no grace period, no generations, no
evidence, no claim, no ledger. The keys of a difference live in this process only.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.classic.ports import ClassicAnnouncements, ClassicBroker, ClassicBusiness, ClassicSets
from reconciler.contract.subscription import Subscription
from reconciler.errors import TransientError

#: Pulls of one turn: bounds how long announcements keep the scheduled difference waiting.
PULLS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicReport:
    """One scheduled difference of a subscription."""

    subscription: Subscription
    #: Keys in half and not in commit: the original calls all of them lost.
    missing: int
    #: Found by viewMessage and handed to the business.
    replayed: int
    #: Not found, or nobody answered, which the original cannot tell apart. Nobody remembers them after this round.
    not_found: tuple[str, ...]
    #: Found, but the business could not take them. Nobody remembers these either.
    refused: tuple[str, ...]


class ClassicRound:
    """The scheduled job and the announcement consumer of the original. Confined to one thread."""

    def __init__(
        self,
        *,
        announcements: ClassicAnnouncements,
        sets: ClassicSets,
        broker: ClassicBroker,
        business: ClassicBusiness,
    ) -> None:
        self._announcements = announcements
        self._sets = sets
        self._broker = broker
        self._business = business

    def consume_announcements(self, subscription: Subscription) -> int:
        """SADD half, then acknowledge, until nothing is new; returns the keys. A crash in between repeats a batch."""
        added = 0
        for _ in range(PULLS_MAX):
            batches = self._announcements.pull(subscription)
            for batch in batches:
                if batch.unique_keys:
                    self._sets.add_announced(subscription, batch.unique_keys)
                self._announcements.acknowledge(subscription, batch)
                added += len(batch.unique_keys)
            if not batches:
                break
        return added

    def run(self, subscription: Subscription) -> ClassicReport:
        """One difference. Raises RedisAway if it got no answer; whether it ran, and what it held, nobody knows then.

        A crash after its first line loses every key that was not replayed yet.
        """
        missing = self._sets.take_difference(subscription)
        replayed = 0
        not_found: list[str] = []
        refused: list[str] = []
        for unique_key in missing:
            try:
                found = self._broker.view_message(subscription.topic, unique_key)
            except TransientError:
                not_found.append(unique_key)
                continue
            if not found.is_found:
                not_found.append(unique_key)
                continue
            try:
                self._business.replay(subscription, found.records[0])
            except TransientError:
                refused.append(unique_key)
            else:
                replayed += 1
        return ClassicReport(
            subscription=subscription,
            missing=len(missing),
            replayed=replayed,
            not_found=tuple(not_found),
            refused=tuple(refused),
        )
