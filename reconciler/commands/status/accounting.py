"""Asks outboxes, brokers, ledger and Redis how far each has come. account.py turns the answers into one time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

from reconciler.announcing.rules import half_tag
from reconciler.commands.asking.availability import BROKER_AWAY, broker_away, broker_name
from reconciler.commands.asking.environment import traces_of
from reconciler.commands.asking.probe_topic import missing_probe_topics
from reconciler.commands.status.standstill import limit_seconds
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.keyspace import broker_of, half_queue, is_half_queue
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import InvariantViolation, ReconcilerError, RedisAway, TopicNotFound
from reconciler.evidence.queue_ends import QueueEnd, QueueEnds
from reconciler.evidence.witness_role import no_sweep
from reconciler.halves.announced import HalfQueues
from reconciler.policy.evidence import Watermark
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.evidence import InboxEvidence
from reconciler.policy.ports.ledger import Candidates
from reconciler.policy.ports.rounds import ShardMemory, ShardReading
from reconciler.policy.shard_rounds import LONG_REST_SECONDS_MAX
from reconciler.rocketmq.wire.codes import HALF_TOPIC
from reconciler.telling.account import (
    RUN_LIVES_MS,
    Account,
    Link,
    OutboxReading,
    QueueReading,
    account_of,
    due_for_long_until_ms,
    memory_link,
    never_link,
    oldest_unlisted,
    outbox_link,
    queue_link,
    rounds_link,
    unheard_link,
    unreviewed_link,
    verdicts_link,
)
from reconciler.telling.ports.reports import StoredRound
from reconciler.telling.undecided_keys import (
    COUNTED_MAX,
    UndecidedKeys,
    none_undecided,
    read_undecided,
    undecided_link,
)
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import EvidenceDatabase, inbox_databases, outbox_databases_of_topics
from reconciler.wiring.evidence import inspect_outbox

OUTBOX_SILENT = Code("status.outbox-silent", database=Field.FACT, why=Field.TEXT)
NO_TOPIC = Code("status.no-topic", topic=Field.NAME)
ANNOUNCEMENTS_UNREADABLE = Code("status.announcements-unreadable", why=Field.TEXT)
NO_OFFSETS = Code("status.no-offsets", broker=Field.NAME, topic=Field.NAME, why=Field.TEXT)
QUEUE_UNREADABLE = Code(
    "status.queue-unreadable", broker=Field.NAME, queue=Field.NUMBER, topic=Field.NAME, why=Field.TEXT
)
SHARD_STOPPED = Code("status.shard-stopped", shard=Field.NAME, why=Field.TEXT)


class Accounting:
    """Makes the accounts for one run of `status`. Each outbox is asked once for each topic. Used by one thread only."""

    def __init__(
        self,
        connections: Connections,
        memory: ShardMemory,
        inbox: InboxEvidence,
        *,
        readings: Mapping[Shard, ShardReading] | None = None,
        undecided_in: Container[Subscription] | None = None,
        rejected_in: Container[Subscription] | None = None,
        asked_ms: int,
        within_seconds: float | None,
        away: Mapping[str, Fact] | None = None,
    ) -> None:
        """`asked_ms`: the ledger's time before the first question. Later commits do not count.

        `readings`: the shards that could be read together. The shards were read after the ledger's rounds.
        `undecided_in`, `rejected_in`: subscriptions that may have UNKNOWN or REJECTED keys. None: any subscription may
        have such keys.
        `within_seconds`: the time that a monitor names. None: the default.
        `away`: name -> the fact for a dependency that is known not to answer.
        """
        self._settings = connections.settings
        self._connections = connections
        self._memory = memory
        self._readings = readings or {}
        self._undecided_in = undecided_in
        self._rejected_in = rejected_in
        self._inbox = inbox
        self._is_given = within_seconds is not None
        self._margin_ms = round(self._settings.rounds.skew_margin_seconds * 1000)
        self._within_ms = round(limit_seconds(self._settings, within_seconds) * 1000) + self._margin_ms
        self._asked_ms = asked_ms
        #: Name -> the fact for a dependency that does not answer. Brokers that only the rounds know are added later.
        self.away = dict(away or {})
        self._ends = QueueEnds(connections.rocketmq.client, connections.rocketmq.routes)
        #: All subscriptions of a topic share one unique-key topic, so one reading of its queues usually serves all.
        self._ends_of = cache(lambda name, known: self._ends.of_topic(name, dict(known)))
        halves = HalfQueues(
            connections.rocketmq.client,
            connections.rocketmq.routes,
            shards=self._settings.unique_key_topic.queues,
        )
        self._halves_of = cache(lambda topic, taken: halves.of_topic(topic, dict(taken)))
        self._outboxes_of = outbox_databases_of_topics(self._settings)
        self._outboxes = cache(self._look_into_outboxes)
        #: Subscription -> the names of its inboxes.
        self._inboxes_of: dict[str, list[str]] = {}
        for one in inbox_databases(self._settings):
            self._inboxes_of.setdefault(one.owner, []).append(one.name)
        self._traces = cache(lambda: traces_of(connections, before_ms=asked_ms - RUN_LIVES_MS))
        topics = dict.fromkeys(one.topic for one in self._settings.subscriptions)
        self._probe_topics = cache(lambda: missing_probe_topics(connections, topics))
        #: UNKNOWN keys of the subscriptions whose account was made.
        self.undecided: dict[Subscription, UndecidedKeys] = {}

    def of(
        self, topic: TopicPlan, plan: SubscriptionPlan, rounds: Sequence[StoredRound], watermark: Watermark
    ) -> Account:
        """Returns the account of one subscription. `rounds`: the newest round of every shard, retired shards included.

        Raises DatabaseAway if the ledger is away. If another witness does not answer, the account has no time.
        """
        links = [link for _, _, link in self._outboxes(topic.topic)]
        links += self._half_links(topic, rounds) if plan.reads_halves else self._queue_links(topic, rounds)
        ours = [stored for stored in rounds if stored.done.shard.number < topic.shards]
        if ours:
            links.append(rounds_link(ours, shards=topic.shards, asked_ms=self._asked_ms))
            links += self._memory_links(ours)
        else:
            links.append(never_link(plan.subscription, self._traces()))
        links += self._verdict_links(topic, plan, watermark)
        links += [
            Link(until_ms=None, cause=fact, needs=("rocketmq",)) for fact in self._probe_topics().get(topic.topic, ())
        ]
        links.append(self._undecided_link(topic, plan))
        links += self._unreviewed_links(topic, plan)
        return account_of(
            plan.subscription,
            links,
            asked_ms=self._asked_ms,
            within_ms=self._within_ms + self._hidden_ms(),
            is_given=self._is_given,
            away=self.away,
        )

    def _hidden_ms(self) -> int:
        """Returns the time by which rounds may be older because this login may not read which shards are at rest."""
        is_hidden = not self._is_given and self._connections.ledger.reports.rests_are_hidden()
        return round(LONG_REST_SECONDS_MAX * 1000) if is_hidden else 0

    def _undecided_link(self, topic: TopicPlan, plan: SubscriptionPlan) -> Link:
        subscription, alarm_seconds = plan.subscription, plan.lag_alarm_seconds
        if self._undecided_in is None or subscription in self._undecided_in:
            candidates = self._connections.ledger.candidates
            found = read_undecided(
                candidates,
                subscription,
                asked_ms=self._asked_ms,
                within_ms=self._within_ms,
                handed_out_ms=round(alarm_seconds * 1000) + self._margin_ms if alarm_seconds else None,
            )
        else:
            found = none_undecided(subscription)
        self.undecided[subscription] = found
        return undecided_link(found, asked_ms=self._asked_ms, witnesses=self._witnesses(topic, subscription))

    def _unreviewed_links(self, topic: TopicPlan, plan: SubscriptionPlan) -> Iterator[Link]:
        """Yields one link where an outbox proves commits. Where halves announce, an announcement claims no commit."""
        subscription = plan.subscription
        is_rejecting = self._rejected_in is None or subscription in self._rejected_in
        if is_rejecting and topic.evidence.has_outbox and not plan.reads_halves:
            found = self._connections.ledger.candidates.unreviewed_rows(subscription, most=COUNTED_MAX)
            yield unreviewed_link(found, asked_ms=self._asked_ms)

    def _witnesses(self, topic: TopicPlan, subscription: Subscription) -> tuple[str, ...]:
        """Returns the names of all witnesses of a subscription. Any broker may have the message, so all count."""
        brokers = [name for name, gone in self.away.items() if gone.code is BROKER_AWAY]
        outboxes = [database.name for database in self._outboxes_of.get(topic.topic, ())]
        return ("rocketmq", *brokers, *outboxes, *self._inboxes_of.get(str(subscription), ()))

    def weaker(self, topic: TopicPlan) -> Iterator[Fact]:
        """Yields what the outboxes of a topic cannot prove."""
        if any(seen is not None and seen.swept_at_ms is None for _, seen, _ in self._outboxes(topic.topic)):
            yield no_sweep()

    def _look_into_outboxes(self, topic: str) -> Sequence[tuple[EvidenceDatabase, OutboxReading | None, Link]]:
        sweep = self._settings.sweep
        pace_ms = round((sweep.sweep_after_seconds + sweep.interval_seconds) * 1000)
        found: list[tuple[EvidenceDatabase, OutboxReading | None, Link]] = []
        for database in self._outboxes_of.get(topic, ()):
            try:
                outbox = inspect_outbox(self._connections, database.url)
                seen = outbox.oldest_unannounced(producer_group=database.owner, topic=topic)
            except ReconcilerError as error:
                found.append((database, None, _silent(database, error)))
            else:
                found.append((database, seen, outbox_link(seen, asked_ms=self._asked_ms, pace_ms=pace_ms)))
        return found

    def _half_links(self, topic: TopicPlan, rounds: Sequence[StoredRound]) -> Iterator[Link]:
        """Yields one link for each shard and each broker's half queue. A shard takes only its own halves."""
        retired = self._settings.rocketmq.retired_brokers
        taken = {
            (broker_of(name), shard): offset
            for (name, shard), offset in _taken(rounds, retired=[half_queue(one) for one in retired]).items()
            if is_half_queue(name)
        }
        first: dict[str, int] = {}
        for (broker, _), offset in taken.items():
            first[broker] = min(offset, first.get(broker, offset))
        try:
            found, silent = self._halves_of(topic.topic, tuple(sorted(first.items())))
        except ReconcilerError as error:
            yield _unreadable(topic.topic, error)
            return
        yield from self._silent_brokers(silent, HALF_TOPIC)
        for shard in sorted({stored.done.shard.number for stored in rounds} & set(range(topic.shards))):
            for broker, waiting in found.items():
                place = taken.get((broker, shard))
                tag = half_tag(topic.topic, shard)
                seen = QueueReading(
                    queue=AnnouncementQueue(unique_key_topic=HALF_TOPIC, broker=broker, queue_id=0),
                    begin=waiting.begin,
                    end=waiting.end,
                    taken=place,
                    waiting_since_ms=waiting.waiting_since_ms(tag, waiting.begin if place is None else place),
                    has_halves=True,
                )
                yield queue_link(seen, asked_ms=self._asked_ms)

    def _silent_brokers(self, silent: Mapping[str, str], topic: str) -> Iterator[Link]:
        for broker, why in sorted(silent.items()):
            if broker not in self._settings.rocketmq.retired_brokers:
                self.away.setdefault(broker_name(broker), broker_away(broker, why))
                cause = NO_OFFSETS(broker=broker, topic=topic, why=why)
                yield Link(until_ms=None, cause=cause, needs=("rocketmq", broker_name(broker)))

    def _queue_links(self, topic: TopicPlan, rounds: Sequence[StoredRound]) -> Iterator[Link]:
        name = self._settings.unique_key_topic.name_for(topic.topic)
        taken = _taken(rounds, retired=self._settings.rocketmq.retired_brokers)
        known: dict[str, list[int]] = {}
        for broker, number in taken:
            if is_half_queue(broker):  # the offset is from an earlier time, when the subscription read halves
                continue
            known.setdefault(broker, []).append(number)
        try:
            ends, silent = self._ends_of(name, tuple((one, tuple(sorted(known[one]))) for one in sorted(known)))
        except ReconcilerError as error:
            yield _unreadable(name, error)
            return
        yield from self._silent_brokers(silent, name)
        having = {stored.done.shard.number for stored in rounds}
        for end in ends:
            is_extra = end.queue.queue_id >= topic.shards
            if is_extra and end.is_taken_away:  # the shard of this queue was taken away, too
                continue
            if end.queue.queue_id in having or (having and is_extra):  # rounds_link() reports missing shards
                offset = taken.get((end.queue.broker_name, end.queue.queue_id))
                yield self._queue_link(end, offset, tag=topic.topic, is_extra=is_extra)

    def _queue_link(self, end: QueueEnd, taken: int | None, *, tag: str, is_extra: bool) -> Link:
        broker, number, topic = end.queue.broker_name, end.queue.queue_id, end.queue.topic
        waiting_since_ms = None
        first = end.begin if taken is None else taken  # the first announcements of a new broker may be young
        if end.begin <= first < end.end:
            try:
                tag = "*" if taken is None else tag
                waiting_since_ms = self._ends.waiting_since_ms(end, first, tag=tag)
            except ReconcilerError as error:
                cause = QUEUE_UNREADABLE(broker=broker, queue=number, topic=topic, why=str(error))
                return Link(until_ms=None, cause=cause, needs=("rocketmq", broker_name(broker)))
        seen = QueueReading(
            queue=AnnouncementQueue(unique_key_topic=topic, broker=broker, queue_id=number),
            begin=end.begin,
            end=end.end,
            taken=taken,
            waiting_since_ms=waiting_since_ms,
            is_extra=is_extra,
        )
        return queue_link(seen, asked_ms=self._asked_ms)

    def _memory_links(self, rounds: Sequence[StoredRound]) -> Iterator[Link]:
        with suppress(RedisAway):  # `away` has a fact about Redis
            for stored in rounds:
                try:
                    reading = self._readings.get(stored.done.shard)
                    state = self._memory.state(stored.done.shard) if reading is None else reading.state
                except InvariantViolation as error:
                    cause = SHARD_STOPPED(shard=str(stored.done.shard), why=str(error))
                    yield Link(until_ms=None, cause=cause, is_of_rounds=True)
                else:
                    yield memory_link(stored.done, state, asked_ms=self._asked_ms)

    def _verdict_links(self, topic: TopicPlan, plan: SubscriptionPlan, watermark: Watermark) -> Iterator[Link]:
        until_ms = due_for_long_until_ms(
            watermark,
            asked_ms=self._asked_ms,
            grace_ms=round(plan.grace_period_seconds * 1000),
            margin_ms=round(self._settings.rounds.skew_margin_seconds * 1000),
            within_ms=self._within_ms,
        )
        if until_ms is None:
            return
        candidates = self._connections.ledger.candidates
        with suppress(RedisAway):  # `away` has a fact about Redis
            unlisted = [
                oldest_unlisted(self._memory, candidates, shard, seen_until_ms=until_ms)
                if self._may_have(shard, seen_until_ms=until_ms)
                else None
                for shard in topic.shards_of(plan.subscription)
            ]
            yield from (verdicts_link(one, asked_ms=self._asked_ms) for one in unlisted)
            # Outboxes have the unlisted keys, too, and would report each of these keys a second time.
            if not any(unlisted):
                yield from self._unheard_links(topic, plan, candidates, until_ms)

    def _may_have(self, shard: Shard, *, seen_until_ms: int) -> bool:
        """Returns True if the shard may have pending keys that were first seen by this time."""
        reading = self._readings.get(shard)
        return reading is None or (reading.oldest_pending_ms is not None and reading.oldest_pending_ms <= seen_until_ms)

    def _unheard_links(
        self, topic: TopicPlan, plan: SubscriptionPlan, candidates: Candidates, until_ms: int
    ) -> Iterator[Link]:
        """Yields one link for each outbox. Yields none if no inbox is configured that can prove a missing effect."""
        if not self._inbox.is_configured(plan.subscription):
            return
        for database, seen, _ in self._outboxes(topic.topic):
            if seen is None:
                continue
            ahead_ms = seen.now_ms - self._asked_ms
            try:
                found = inspect_outbox(self._connections, database.url).oldest_unheard(
                    producer_group=seen.producer_group,
                    plan=plan,
                    inbox=self._inbox,
                    candidates=candidates,
                    until_ms=until_ms + ahead_ms,
                )
            except ReconcilerError as error:
                yield _silent(database, error)
            else:
                yield unheard_link(found, asked_ms=self._asked_ms, ahead_ms=ahead_ms)


def _unreadable(topic: str, error: ReconcilerError) -> Link:
    is_missing = isinstance(error, TopicNotFound)
    cause = NO_TOPIC(topic=topic) if is_missing else ANNOUNCEMENTS_UNREADABLE(why=str(error))
    return Link(until_ms=None, cause=cause, needs=("rocketmq",))


def _silent(database: EvidenceDatabase, error: ReconcilerError) -> Link:
    cause = OUTBOX_SILENT(database=database.fact, why=str(error))
    return Link(until_ms=None, cause=cause, needs=(database.name,))


def _taken(rounds: Sequence[StoredRound], *, retired: Sequence[str]) -> dict[tuple[str, int], int]:
    """Returns (broker, queue) -> next offset in the last round of its shard. Retired brokers are left out."""
    found: dict[tuple[str, int], int] = {}
    for stored in rounds:
        for queue, offset in stored.done.offsets.items():
            broker, _, number = queue.rpartition("/")
            if broker not in retired and number == str(stored.done.shard.number):
                found[broker, stored.done.shard.number] = offset
    return found
