"""The last part of a round: judges messages again for which a group answers since its `since` was set earlier.

These messages were settled as BEFORE_SINCE, and nothing announces them again. Without a second look at these rows, a
person would wait for ever after an earlier time was set, by hand or by a rename. A row for which the group answers now
becomes OPEN again, and the next rounds judge it in full.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.judging.selection import is_closed
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import Candidate, Candidates

EARLIER_SINCE = Code("round.earlier-since", number=Field.NUMBER, first=Field.NAME)

#: Maximum number of pages of rows that one round reads.
PAGES_MAX = 10
#: The earlier verdicts of rows that lie before the time. Most rows had none.
_KINDS = (None, *sorted(LOSSES))


@dataclass(slots=True)
class _Walk:
    """The progress of this process' walk. After a restart the walk begins again, and finds only rows that are still
    settled."""

    since_ms: int | None
    kind: int = 0
    after: Candidate | None = None


class EarlierSince:
    """Walks the rows of each subscription once for each new `since`. Used by the thread of the rounds only."""

    def __init__(self, candidates: Candidates, *, skew_margin_seconds: float) -> None:
        self._candidates = candidates
        self._skew_margin_seconds = skew_margin_seconds
        self._walks: dict[Subscription, _Walk] = {}

    def has_ended(self, subscription: Subscription) -> bool:
        """Returns False while a walk has rows left to read."""
        walk = self._walks.get(subscription)
        return walk is None or walk.kind >= len(_KINDS)

    def open_again(self, topic: TopicPlan, plan: SubscriptionPlan, shards: Collection[int]) -> list[Fact]:
        """Walks a part of the rows in one round. Returns at most one fact for people. Raises DatabaseAway.

        `shards`: the shards of the round. While a full page of their rows is due already, no row is opened.
        """
        walk = self._walks.get(plan.subscription)
        if walk is None or walk.since_ms != plan.since_ms:
            walk = self._walks[plan.subscription] = _Walk(plan.since_ms)
        if walk.kind >= len(_KINDS):
            return []
        room = PAGE_KEYS - len(self._candidates.open_due(plan.subscription, shards=shards, limit=PAGE_KEYS))
        opened: list[str] = []
        for _ in range(PAGES_MAX):
            if walk.kind < len(_KINDS) and len(opened) < room:
                opened += self._page(topic, plan, walk)
        return [EARLIER_SINCE(number=len(opened), first=opened[0])] if opened else []

    def _page(self, topic: TopicPlan, plan: SubscriptionPlan, walk: _Walk) -> list[str]:
        loss_verdict: Verdict | None = _KINDS[walk.kind]
        page = self._candidates.before_since(plan.subscription, loss_verdict, after=walk.after, limit=PAGE_KEYS)
        wanted = [row for row in page if not is_closed(row, plan, skew_margin_seconds=self._skew_margin_seconds)]
        by_shard: dict[int, list[str]] = {}
        for row in wanted:
            by_shard.setdefault(topic.shard_of(row.unique_key), []).append(row.unique_key)
        for number in sorted(by_shard):
            shard = Shard(subscription=plan.subscription, number=number)
            self._candidates.answer_for(shard, sorted(by_shard[number]))
        if len(page) < PAGE_KEYS:
            walk.kind, walk.after = walk.kind + 1, None
        else:
            walk.after = page[-1]
        return [row.unique_key for row in wanted]
