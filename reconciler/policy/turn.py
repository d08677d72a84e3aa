"""Begins a turn for all topics at once: looks at every shard, and asks the ledger what is due.

The ledger is asked before the look, because the look renews leases. A process that cannot write rounds must leave its
leases to others.

A topic is *calm* if rounds of its subscriptions would have nothing to do. Then no shard has changed, no key is old
enough or set apart, no row and no repair is due, and neither an outage nor the breaker is open. A calm topic has no
rounds. Some work waits for the next rounds, for at most a minute: closed rows that are asked about again, rows that
were written before a clock was set back, and a look at the queues of a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.clock import Clock
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import HoldKind
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.ledger import Candidates, Holds, Outages, Repairs
from reconciler.policy.shard_rounds import REST_SECONDS_MAX, ShardRounds, share_of_rest


class Turn:
    """Says which topics of an environment have rounds in a turn. One thread calls `begin`."""

    def __init__(
        self,
        topics: Sequence[TopicPlan],
        *,
        shards: ShardRounds,
        outages: Outages,
        holds: Holds,
        candidates: Candidates,
        repairs: Repairs,
        clock: Clock,
        rest_seconds: float = REST_SECONDS_MAX,
    ) -> None:
        """`rest_seconds`: the longest pause between the rounds of a calm topic."""
        self._topics = topics
        self._shards = shards
        self._outages = outages
        self._holds = holds
        self._candidates = candidates
        self._repairs = repairs
        self._clock = clock
        self._rest_seconds = rest_seconds
        #: Topic -> when its last rounds ended without an error, in monotonic seconds.
        self._ended: dict[str, float] = {}

    def begin(self) -> Sequence[TopicPlan]:
        """Returns the topics whose subscriptions have rounds now. Raises DatabaseAway. If the ledger was away from the
        beginning, no lease was renewed."""
        environment = self._topics[0].environment
        # While the breaker is open, its calm rounds are counted.
        broken = {topic for topic, kinds in self._holds.active(environment).items() if HoldKind.BREAKER in kinds}
        shards = {plan.subscription: t.shards_of(plan.subscription) for t in self._topics for plan in t.subscriptions}
        self._shards.look([shard for of in shards.values() for shard in of])
        calm = self._calm(shards) - broken
        to_run = [topic for topic in self._topics if topic.topic not in calm]
        for topic in to_run:
            self._ended.pop(topic.topic, None)  # stays removed until the topic's rounds have ended well
        return to_run

    def ended(self, topic: TopicPlan) -> None:
        """Records that the rounds of all subscriptions of the topic ended without an error and have nothing left to
        do."""
        self._ended[topic.topic] = self._clock.monotonic_seconds()

    def _rests(self, topic: TopicPlan) -> bool:
        ended_at = self._ended.get(topic.topic)
        now = self._clock.monotonic_seconds()
        if ended_at is None or now - ended_at >= self._rest_seconds * share_of_rest(topic.topic):
            return False
        return all(
            self._shards.are_calm(topic.shards_of(plan.subscription), grace_seconds=plan.grace_period_seconds)
            for plan in topic.subscriptions
        )

    def _calm(self, shards: Mapping[Subscription, Sequence[Shard]]) -> set[str]:
        """Returns the topics that have nothing to do. The cost is three statements, and a transaction for rows of rest,
        however many shards rest. After the look, asks whether an outage is open, because nothing rests during an
        outage."""
        environment = self._topics[0].environment
        if self._outages.current(environment) is not None:
            return set()
        self._shards.keep_rests(shards)
        resting = {topic.topic for topic in self._topics if self._rests(topic)}
        if not resting:
            return set()
        of_rows = {subscription.topic for subscription in self._candidates.due_subscriptions(environment)}
        return resting - of_rows - set(self._repairs.due_topics(environment))
