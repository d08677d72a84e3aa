"""The original design, unchanged, for comparison.

The design has two sets, one scheduled difference that empties both, viewMessage under the real topic, and a hand-over
to the business. Up to RocketMQ 4.2 the design repairs lost messages. Its failures are listed in
docs/explanation/how-it-works.md, and shown step by step in docs/explanation/stories.md: messages that are lost, doubled
or handed over in vain. The design has no grace period, generations, evidence, claims or ledger. Only this process has
the keys of a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.subscription import Subscription
from reconciler.errors import TransientError
from reconciler.policy.evidence import Lookup, StoredMessage
from reconciler.policy.ports.announcing import AnnouncementQueue

#: Maximum number of pulls of one turn, so that announcements delay the scheduled difference for a limited time.
PULLS_MAX = 1_000

#: viewMessage(topic, unique key): finds any message with the key under the real topic, prepared or committed.
ViewMessage = Callable[[str, str], Lookup[StoredMessage]]
#: Hands the message over to the group's business code, which recognises duplicates by the unique key.
HandOver = Callable[[Subscription, StoredMessage], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicBatch:
    """Announcements of one pull."""

    queue: AnnouncementQueue
    unique_keys: tuple[str, ...]
    #: The group's offset at the broker after the acknowledgement.
    next_offset: int


class ClassicAnnouncements(Protocol):
    """The unique-key topic as an ordinary consumer group reads it, with its offset at the broker. Raises
    TransientError."""

    def pull(self, subscription: Subscription) -> Sequence[ClassicBatch]:
        """Returns batches after the group's stored offsets, at most one per queue. Empty: nothing is new."""
        ...

    def acknowledge(self, subscription: Subscription, batch: ClassicBatch) -> None:
        """Moves the group's offset past the batch."""
        ...


class ClassicSets(Protocol):
    """The pair of Redis sets of one subscription. Raises RedisAway."""

    def add_announced(self, subscription: Subscription, unique_keys: Sequence[str]) -> None:
        """Adds the keys to half (SADD)."""
        ...

    def take_difference(self, subscription: Subscription) -> list[str]:
        """Runs MULTI; SDIFF half commit; DEL half commit; EXEC. Afterwards only the reply has the keys."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicReport:
    """The report of one scheduled difference of a subscription."""

    subscription: Subscription
    #: Number of keys in half that are not in commit. The original design calls all of them lost.
    missing: int
    #: Number of keys that viewMessage found and that were handed over to the business.
    handed_over: int
    #: Keys that were not found, or whose look-up failed. The original design cannot distinguish these cases, and
    #: forgets the keys after this round.
    not_found: tuple[str, ...]
    #: Keys whose message was found, but on which the business code failed. These keys are forgotten after this round,
    #: too.
    refused: tuple[str, ...]


class ClassicRound:
    """The original's scheduled job and announcement consumer. Used by one thread.

    If `view_message` or `hand_over` raises TransientError, the round forgets the key.
    """

    def __init__(
        self,
        *,
        announcements: ClassicAnnouncements,
        sets: ClassicSets,
        view_message: ViewMessage,
        hand_over: HandOver,
    ) -> None:
        self._announcements = announcements
        self._sets = sets
        self._view_message = view_message
        self._hand_over = hand_over

    def consume_announcements(self, subscription: Subscription) -> int:
        """Adds keys to half, then acknowledges them, until nothing is new. Returns the number of keys. After a crash in
        between, a batch is repeated."""
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
        """Runs one difference. Raises RedisAway if the reply was lost. If the difference has run, its keys are lost
        then.

        A crash after the first line loses every key that was not handed over yet.
        """
        missing = self._sets.take_difference(subscription)
        handed_over = 0
        not_found: list[str] = []
        refused: list[str] = []
        for unique_key in missing:
            try:
                found = self._view_message(subscription.topic, unique_key)
            except TransientError:
                not_found.append(unique_key)
                continue
            if not found.is_found:
                not_found.append(unique_key)
                continue
            try:
                self._hand_over(subscription, found.records[0])
            except TransientError:
                refused.append(unique_key)
            else:
                handed_over += 1
        return ClassicReport(
            subscription=subscription,
            missing=len(missing),
            handed_over=handed_over,
            not_found=tuple(not_found),
            refused=tuple(refused),
        )
