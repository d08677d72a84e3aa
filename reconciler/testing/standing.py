"""Finds out how far each commit has come. This module reads outboxes and inboxes, and names the step that a commit
without effect has reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import sqlalchemy as sa

from reconciler.contract.keyspace import SHARDS_DEFAULT
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, OutboxState
from reconciler.contract.unique_key import shard_of
from reconciler.embedded.layout import BrokerMessage
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.wire.codes import dead_letter_topic, retry_topic
from reconciler.sql.tables import inbox, outbox
from reconciler.testing.by_hand import Receiving, ReconcilerByHand, Sending
from reconciler.testing.memory_shards import MemoryShards
from reconciler.testing.offsets import members_of

#: The step of a commit in a topic without a subscription.
UNFOLLOWED = (
    "END_TRANSACTION did not reach the broker, and the reconciler follows subscriptions: name a group that receives it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRow:
    """A committed row of an outbox."""

    topic: str
    unique_key: str
    business_id: str
    tag: str | None
    state: OutboxState


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingEffect:
    """A commit without effect in a group that takes it."""

    topic: str
    #: The group that lacks the effect. Empty: no group receives the topic in this test, and the message has not reached
    #: the topic.
    group: str
    unique_key: str
    business_id: str
    #: The step that the message has reached, and the event that it waits for.
    step: str

    def __str__(self) -> str:
        lacking = f"had no effect in {self.group}" if self.group else "not reached its topic"
        return f"{self.topic} {self.unique_key} ({self.business_id}) has {lacking}: {self.step}"


def commits_of(engines: Mapping[str, sa.Engine], sendings: Iterable[Sending]) -> list[CommittedRow]:
    """Returns the committed rows of the producer groups. The rows of each group begin with the oldest row."""
    columns = (outbox.c.topic, outbox.c.unique_key, outbox.c.business_id, outbox.c.tag, outbox.c.state)
    found = []
    for sending in sendings:
        query = sa.select(*columns).where(
            outbox.c.producer_group == sending.group, outbox.c.state != OutboxState.ROLLED_BACK.value
        )
        with engines[sending.url].connect() as connection:
            rows = connection.execute(query.order_by(outbox.c.created_at_ms, outbox.c.unique_key)).all()
        found += [
            CommittedRow(topic=topic, unique_key=key, business_id=name or "", tag=tag, state=OutboxState(state))
            for topic, key, name, tag, state in rows
        ]
    return found


def effects_of(engines: Mapping[str, sa.Engine], receivings: Iterable[Receiving]) -> set[tuple[str, str]]:
    """Returns (group, unique key) of each complete inbox row."""
    found: set[tuple[str, str]] = set()
    for url, group in {(receiving.url, receiving.group) for receiving in receivings}:
        query = sa.select(inbox.c.unique_key).where(inbox.c.consumer_group == group, inbox.c.incomplete.is_(None))
        with engines[url].connect() as connection:
            found |= {(group, key) for key in connection.scalars(query)}
    return found


class Standings:
    """Finds the step that each commit without effect has reached."""

    def __init__(self, broker: EmbeddedBroker, by_hand: ReconcilerByHand, shards: MemoryShards) -> None:
        self._broker = broker
        self._by_hand = by_hand
        self._shards = shards

    def lacking(
        self, commits: Sequence[CommittedRow], receivings: Sequence[Receiving], effects: Set[tuple[str, str]]
    ) -> Iterator[LackingEffect]:
        """Yields one value for each commit without effect in a group that takes it."""
        received_topics = {receiving.topic for receiving in receivings}
        for commit in commits:
            if commit.topic not in received_topics and self._copy(commit.topic, commit.unique_key) is None:
                yield _lacking(commit, "", UNFOLLOWED)
            for receiving in receivings:
                if receiving.topic != commit.topic or not receiving.takes(commit.tag):
                    continue
                if (receiving.group, commit.unique_key) not in effects:
                    yield _lacking(commit, receiving.group, self._step(commit, receiving))

    def _step(self, commit: CommittedRow, receiving: Receiving) -> str:
        copy = self._copy(commit.topic, commit.unique_key)
        if copy is None:
            return f"END_TRANSACTION did not reach the broker; {self._repair(commit, receiving)}"
        if self._copy(dead_letter_topic(receiving.group), commit.unique_key) is not None:
            return f"its handler failed too often, and it lies in {dead_letter_topic(receiving.group)}"
        if not self._broker.call(lambda broker: members_of(broker, receiving.group)):
            return "its copy waits in the topic, and no consumer of the group is there"
        consumed = self._broker.call(
            lambda broker: broker.state.offset_of(receiving.group, commit.topic, copy.queue_id) or 0
        )
        if consumed <= copy.queue_offset:
            return "its copy waits in the topic for a consumer that is there"
        if self._copy(retry_topic(receiving.group), commit.unique_key) is not None:
            return "its handler has failed, and it comes again"
        return "its copy was acknowledged without an effect, or its handler failed and it comes again later"

    def _copy(self, topic: str, unique_key: str) -> BrokerMessage | None:
        stored = self._broker.stored(topic)
        return next((one for one in stored if one.properties.get("UNIQ_KEY") == unique_key), None)

    def _repair(self, commit: CommittedRow, receiving: Receiving) -> str:
        if commit.state is OutboxState.NEW:
            return "nobody has announced the key yet: settle() lets a sweep do it"
        repairs = self._by_hand.ledger.repairs.of_keys(self._by_hand.environment, commit.topic, [commit.unique_key])
        for repair in repairs.get(commit.unique_key, ()):
            if repair.scope in (EVERY_GROUP, receiving.group):
                answer = repair.answer or "nothing is sent yet"
                return f"its repair by {repair.rung.value} is {repair.state.value}: {answer}"
        return self._verdict(commit, receiving)

    def _verdict(self, commit: CommittedRow, receiving: Receiving) -> str:
        subscription = self._by_hand.subscription_of(receiving)
        found = self._by_hand.ledger.candidates.of_keys(subscription, [commit.unique_key]).get(commit.unique_key)
        if found is not None:
            return f"the verdict on it is {found.verdict.value}, {found.state.value}"
        if not self._is_pending(subscription, commit.unique_key):
            return "its key is announced, and no round has taken it yet: settle() runs rounds"
        gate = self._by_hand.events.gates.get(subscription)
        return f"its key is pending: {gate or 'it is younger than the grace period'}"

    def _is_pending(self, subscription: Subscription, unique_key: str) -> bool:
        shard = Shard(subscription=subscription, number=shard_of(unique_key, SHARDS_DEFAULT))
        return any(key == unique_key.encode() for page in self._shards.snapshot(shard).pages for key, _ in page)


def _lacking(commit: CommittedRow, group: str, step: str) -> LackingEffect:
    return LackingEffect(
        topic=commit.topic, group=group, unique_key=commit.unique_key, business_id=commit.business_id, step=step
    )
