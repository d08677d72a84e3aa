"""Pulls that wait for a message (PullRequestHoldService). Only the broker's loop uses this module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reconciler.clock import Clock
from reconciler.embedded.channel import Channel
from reconciler.embedded.consumers import SubscriptionData
from reconciler.embedded.store import MessageStore

MOST_HELD = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldPull:
    """A pull that found nothing."""

    channel: Channel
    topic: str
    queue_id: int
    offset: int
    deadline_seconds: float
    subscription: SubscriptionData
    answer: Callable[[], None]  # pulls again, and answers with the result


class LongPolling:
    """Holds pulls until a message arrives or their time is over."""

    def __init__(self, clock: Clock, store: MessageStore) -> None:
        self._clock = clock
        self._store = store
        self._held: dict[tuple[str, int], list[HeldPull]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        """Number of waiting pulls."""
        return self._count

    def hold(self, pull: HeldPull) -> bool:
        """Keeps a pull. Returns False if too many pulls wait already."""
        if self._count >= MOST_HELD:
            return False
        self._held.setdefault((pull.topic, pull.queue_id), []).append(pull)
        self._count += 1
        return True

    def notify(self, arrived: Iterable[tuple[str, int, int]]) -> None:
        """Answers the pulls that the arrived messages may satisfy (notifyMessageArriving). Each message is (topic,
        queue, tags code)."""
        if not self._count:
            return
        codes: dict[tuple[str, int], set[int]] = {}
        for topic, queue_id, code in arrived:
            if (topic, queue_id) in self._held:
                codes.setdefault((topic, queue_id), set()).add(code)
        for key, new in codes.items():
            self._release(key, lambda pull, new=new: any(map(pull.subscription.matches, new)))  # type: ignore[misc]  # mypy cannot infer a default of a lambda

    def scan(self) -> None:
        """Answers pulls whose time is over, or whose queue has new messages (checkHoldRequest). The tags of these
        messages do not matter."""
        now = self._clock.monotonic_seconds()
        for topic, queue_id in list(self._held):
            queue = self._store.queues.find(topic, queue_id)
            newest = queue.max_offset if queue is not None else 0
            self._release(
                (topic, queue_id),
                lambda pull, newest=newest: newest > pull.offset or now >= pull.deadline_seconds,  # type: ignore[misc]  # as above
            )

    def release_all(self) -> None:
        """Answers every held pull. Call it before the broker stops."""
        for key in list(self._held):
            self._release(key, lambda _pull: True)

    def drop_channel(self, channel: Channel) -> None:
        """Forgets the pulls of a lost connection."""
        for key in list(self._held):
            kept = [pull for pull in self._held[key] if pull.channel is not channel]
            self._count -= len(self._held[key]) - len(kept)
            self._keep(key, kept)

    def _release(self, key: tuple[str, int], due: Callable[[HeldPull], bool]) -> None:
        waiting = self._held.get(key, [])
        released = [pull for pull in waiting if due(pull)]
        if not released:
            return
        kept = [pull for pull in waiting if not due(pull)]
        self._count -= len(released)
        self._keep(key, kept)
        for pull in released:
            pull.answer()

    def _keep(self, key: tuple[str, int], kept: list[HeldPull]) -> None:
        if kept:
            self._held[key] = kept
        else:
            self._held.pop(key, None)
