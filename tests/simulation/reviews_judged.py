"""The judge of reviews: whether a key without an outbox row may count as accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reconciler.contract.row_rules import is_unreviewed
from reconciler.contract.subscription import Subscription
from reconciler.contract.verdicts import Verdict
from tests.simulation.set_ups import has_first_half

if TYPE_CHECKING:
    from tests.simulation.world import World

#: A review is decided by what was read so long before it, at most.
READ_WITHIN_SECONDS = 60.0


class ReviewsJudged:
    """Told of each question that the ledger puts off."""

    def __init__(self, world: World, other: list[str]) -> None:
        self._world = world
        self._other = other
        candidates: Any = world.ledger.candidates
        self._ask_later = candidates.ask_later
        candidates.ask_later = self._asked

    def _asked(
        self,
        subscription: Subscription,
        unique_keys: Sequence[str],
        *,
        seconds: float | None,
        stays_unreviewed: bool = False,
    ) -> None:
        if not stays_unreviewed:
            for key in unique_keys:
                self._look(subscription.group, key)
        self._ask_later(subscription, unique_keys, seconds=seconds, stays_unreviewed=stays_unreviewed)

    def _look(self, group: str, key: str) -> None:
        row = self._world.candidate(group, key)
        if row is None or row.verdict is not Verdict.REJECTED or group not in self._world.inboxes:
            return
        if self._world.subscription(group).reads_halves:
            return  # a half announces its key before its transaction ends, so no commit is claimed
        if not is_unreviewed(row.ask_again_at_ms, updated_at_ms=row.updated_at_ms):
            return
        self._world.kernel.saw("rejection reviewed", key[-4:])
        if self._is_committed(key) and not self._world.inboxes[group].has_row(key) and self._shows_half(key):
            self._other.append(f"{key} counts as accounted for in {group}: it was committed, and its half says so")

    def _is_committed(self, key: str) -> bool:
        world = self._world
        return world.is_committed(key) and world.checkers.committed_at(key) < world.kernel.now - READ_WITHIN_SECONDS

    def _shows_half(self, key: str) -> bool:
        """Up to 4.2 no key finds a half."""
        brokers = [one for one in self._world.cluster.brokers.values() if one.facts.has_half_topic]
        return not self._world.checkers.was_rolled_back(key) and any(has_first_half(one, key) for one in brokers)
