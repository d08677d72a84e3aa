"""What `reconciler group rename` reads and changes at brokers and in inboxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from reconciler.commands.asking.brokers import masters
from reconciler.contract.facts import Fact
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import BrokerUnavailable, InvalidValue, ReconcilerError, RedisAway
from reconciler.evidence.broker_configs import BrokerConfigs
from reconciler.evidence.pop_groups import PopGroups
from reconciler.evidence.waiting_retries import WaitingRetries, waiting_retries
from reconciler.policy.evidence import ConsumeMode, QueuePosition
from reconciler.policy.shard_rounds import REST_SECONDS_MAX
from reconciler.rocketmq.client.name_servers import MessageQueue
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX, retry_topic
from reconciler.settings.schema import Settings, SubscriptionSettings
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.sql.renamed_group import RenamedRows
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import effect_evidence
from reconciler.wiring.evidence import broker_evidence
from reconciler.wiring.subscriptions import subscription_of


def sections_of(settings: Settings, group: str) -> Sequence[SubscriptionSettings]:
    """Returns the [[subscriptions]] sections of a group. Raises InvalidValue if there are none."""
    found = [one for one in settings.subscriptions if one.group == group]
    if not found:
        raise InvalidValue("OLD", group, "no [[subscriptions]] section has this group: rename before you change them")
    return found


def renamed_rows(
    connections: Connections, sections: Sequence[SubscriptionSettings], *, urls: Sequence[Secret], old: str, new: str
) -> tuple[Sequence[RenamedRows], Sequence[RenamedRows]]:
    """Returns the inboxes of the group twice: by `urls`, and by the settings.

    `urls`: the inboxes with logins that may write. Without `urls`, the first result has the inboxes of the settings,
    and the second result has none. Raises InvalidValue if the group has no inbox.
    """
    effects = effect_evidence(connections.settings)
    of_section = {s.topic: effects.inboxes_of(subscription_of(connections.settings, s)) for s in sections}
    configured = list(dict.fromkeys(url for inboxes in of_section.values() for url in inboxes))
    databases = list(dict.fromkeys(urls)) or configured
    without = [topic for topic, inboxes in of_section.items() if not inboxes]
    if not databases or (without and not urls):
        raise InvalidValue(
            "inbox_url",
            f"{', '.join(without)}/{old}",
            "it has none. An inbox in Redis cannot get another name: keep the group's. One in a database: --url",
        )
    compared = configured if urls and not without else []

    def rows(url: Secret) -> RenamedRows:
        return RenamedRows(connections.engine(url), old=old, new=new)

    return [rows(url) for url in databases], [rows(url) for url in compared]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueue:
    """One queue of a topic of the group, and the offset at which the new name continues."""

    topic: str
    broker: str
    queue_id: int
    #: The old name's offset, which is that of the next message. None: the old name has stored no offset.
    offset: int | None
    #: The new name's offset before the rename.
    offset_before: int | None
    #: Messages that the old name has not passed.
    waiting: int

    @property
    def is_retry(self) -> bool:
        """True for a queue of the old name's retry topic. The new name never reads this topic."""
        return self.topic.startswith(RETRY_TOPIC_PREFIX)

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} on {self.broker}"


class GroupOnBrokers:
    """A consumer group under two names, on every broker and in rounds.

    Methods raise BrokerUnavailable and what a request raises.
    """

    def __init__(
        self, connections: Connections, topics: Sequence[str], *, old: str, new: str, english: Callable[[Fact], str]
    ) -> None:
        """`topics`: the group's topics in the settings. The group may read further topics.

        `english`: returns the text of a fact, for reasons why offsets are not known.
        """
        self._connections = connections
        self._topics = topics
        self._old, self._new = old, new
        self._english = english
        self._masters = masters(connections)
        self._offsets = Offsets(connections.rocketmq.client)

    def members(self) -> list[str]:
        """Returns the clients that are connected to any broker under either name, as "group: client on broker"."""
        return sorted(
            {
                f"{group}: {one.client_id} on {broker}"
                for broker, address in self._masters.items()
                for group in (self._old, self._new)
                for one in self._connections.admin.consumer_connections(address, group)
            }
        )

    def rounds_at_work(self) -> list[str]:
        """Returns the subscriptions of either name whose rounds run in some process, as "topic/group: process".

        Leases in Redis show the process. While Redis is away, the age of the newest round in the ledger decides. A
        round counts as running if it is as young as a lease, or as the last round of a shard at rest may be.
        """
        connections, settings = self._connections, self._connections.settings
        both = [self._subscription(topic, group) for topic in self._topics for group in (self._old, self._new)]
        leases, numbers = RedisRoundLeases(connections.redis), range(settings.unique_key_topic.queues)
        try:
            shards = [Shard(subscription=one, number=number) for one in both for number in numbers]
            holders = {(shard.subscription, leases.holder(shard)) for shard in shards}
            return sorted(f"{subscription}: {holder}" for subscription, holder in holders if holder)
        except RedisAway:
            young_seconds = max(settings.rounds.lease_seconds, 2 * REST_SECONDS_MAX)
            since_ms = connections.ledger_now_ms() - round(young_seconds * 1000)
            recent = connections.ledger.reports.shards_since(settings.environment, since_ms=since_ms)
            return sorted({str(shard.subscription) for shard in recent if shard.subscription in both})

    def all_topics(self) -> list[str]:
        """Returns all topics of the group that brokers show. Topics that the settings lack are included."""
        found = set(self._topics)
        for address in self._masters.values():
            found.update(self._topics_at(address))
        return sorted(topic for topic in found if not topic.startswith(RETRY_TOPIC_PREFIX))

    def _topics_at(self, address: str) -> Sequence[str]:
        """Returns the topics that one broker shows for the group.

        Returns nothing before 5.0, because such a broker shows only the groups of a topic. Returns nothing, too, if a
        right is missing.
        """
        admin = self._connections.admin
        with suppress(ReconcilerError):
            return admin.topics_of_group(address, self._old)
        with suppress(ReconcilerError):
            return [name for name in admin.topics(address) if self._old in admin.groups_of_topic(address, name)]
        return ()

    def delayed(self) -> list[WaitingRetries]:
        """Returns the old name's failed messages that wait for their next try, broker by broker.

        The caller asks for `delayed` before `queues`, so that no message is missed.
        """
        client, topic = self._connections.rocketmq.client, retry_topic(self._old)
        return [waiting_retries(client, address, broker, topic) for broker, address in sorted(self._masters.items())]

    def queues(self, topics: Sequence[str]) -> list[GroupQueue]:
        """Returns every queue of the topics and of the old name's retry topics, ordered by topic, broker and number."""
        found: dict[tuple[str, str, int], GroupQueue] = {}
        for topic in topics:
            for position in self._positions(topic, self._old):
                place = (position.topic, position.broker, position.queue_id)
                is_retry = position.topic.startswith(RETRY_TOPIC_PREFIX)
                found[place] = GroupQueue(
                    topic=position.topic,
                    broker=position.broker,
                    queue_id=position.queue_id,
                    offset=position.consumer_offset,
                    offset_before=None if is_retry else self._of_new(position),
                    waiting=position.waiting,
                )
        return [found[place] for place in sorted(found)]

    def consume_modes(self, topics: Sequence[str]) -> dict[str, ConsumeMode]:
        """Returns topic -> how the old name consumes the topic.

        The offset of a group that pops passes messages that were never acknowledged. From 5.0 on, a broker shows PULL
        only for a group with connected members.
        """
        brokers = self._connections.shared(broker_evidence)
        return {topic: brokers.consume_mode(self._subscription(topic)) for topic in topics}

    def popped_by_new(self, topics: Sequence[str]) -> list[str]:
        """Returns the topics that the new name has popped in the last minutes.

        Brokers do not show members behind a proxy, so only popping shows these members.
        """
        rocketmq, admin, clock = self._connections.rocketmq, self._connections.admin, self._connections.clock
        configs = BrokerConfigs(admin, clock=clock)
        signs = PopGroups(admin, rocketmq.routes, rocketmq.families, configs, clock=clock)
        return [
            topic
            for topic in topics
            if any(
                signs.has_popped(address, self._subscription(topic, self._new)) for address in self._masters.values()
            )
        ]

    def make_group(self) -> list[str]:
        """Creates the new group on each master that lacks it, and returns these masters.

        From 5.0 on, a broker stores no offsets of an unknown group. The group gets the values with which brokers create
        groups by themselves.
        """
        admin = self._connections.admin
        lacking = [name for name, address in self._masters.items() if self._new not in admin.groups(address)]
        for name in lacking:
            admin.create_group(self._masters[name], self._new)
        return lacking

    def move(self, queue: GroupQueue) -> None:
        """Makes the new name continue where the old name stopped, and reads the offset back.

        The old name must have an offset in the queue. Raises BrokerUnavailable if the offset differs afterwards.
        """
        address, place = self._place(queue.topic, queue.broker, queue.queue_id)
        self._offsets.store(address, place, self._new, queue.offset or 0)
        stored = self._offsets.of_group(address, place, self._new)
        if stored != queue.offset:
            raise BrokerUnavailable(f"{queue}: {self._new} is at {stored} after it was set to {queue.offset}")

    def _positions(self, topic: str, group: str) -> Sequence[QueuePosition]:
        brokers, subscription = self._connections.shared(broker_evidence), self._subscription(topic, group)
        settings, ledger = self._connections.settings, self._connections.ledger
        # A broker that has left the route counts, too. That broker may come back with messages that the group has not
        # passed.
        seen, keep = brokers.brokers_seen(topic), settings.rounds.retention_seconds
        known = ledger.brokers.note(settings.environment, topic, seen, keep_seconds=keep)
        brokers.expect(topic, known - frozenset(settings.rocketmq.retired_brokers))
        positions = brokers.positions(subscription)
        if positions is None:
            why = self._english(brokers.watermark(subscription).detail)
            raise BrokerUnavailable(f"the offsets of {group} in {topic} are not all known: {why}")
        return positions

    def _of_new(self, position: QueuePosition) -> int | None:
        address, place = self._place(position.topic, position.broker, position.queue_id)
        return self._offsets.of_group(address, place, self._new)

    def _place(self, topic: str, broker: str, queue_id: int) -> tuple[str, MessageQueue]:
        address = self._masters.get(broker)
        if address is None:
            raise BrokerUnavailable(f"broker {broker} has no master")
        return address, MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)

    def _subscription(self, topic: str, group: str | None = None) -> Subscription:
        environment = self._connections.settings.environment
        return Subscription(environment=environment, topic=topic, group=group or self._old)
