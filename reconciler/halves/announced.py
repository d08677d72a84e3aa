"""Halves as announcements. This adapter of AnnouncementSource reads the half topics of brokers.

A broker has one half queue for all topics. Each shard has a position of its own in this queue, and one reader serves
all shards. Reading leaves no trace at the broker, as in half_topic.py. A half announces a key but proves no commit. The
ledger stores each half, because a row of the business may belong to any half with its key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from zlib import crc32

from reconciler.announcing.port import AnnouncementSource, PulledBatch, PullUnderWay, SeenRecord
from reconciler.announcing.reader import PULL_MESSAGES_MAX
from reconciler.announcing.rules import PulledAnnouncement, half_tag
from reconciler.announcing.source import RemotingPull, batch_of, seen_at
from reconciler.contract.facts import Fact
from reconciler.contract.keyspace import broker_of, half_queue
from reconciler.contract.queue_proof import record_of
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import is_unique_key
from reconciler.errors import BrokerUnavailable, ConfigurationError, ReconcilerError, TopicNotFound
from reconciler.evidence.stored_message import real_topic
from reconciler.halves.business_key import business_key
from reconciler.halves.half_topic import TOOLS_GROUP, why_unread
from reconciler.policy.commit_query import UNREAD, CommitQuery, digest_of, digest_of_key, halves_left
from reconciler.policy.evidence import as_foreign
from reconciler.policy.ports.announcing import AnnouncementQueue, HalfSets
from reconciler.policy.ports.ledger import NAMED_BY_PLACE, NotedHalf
from reconciler.rocketmq.client.demands import explained
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes, Whereabouts
from reconciler.rocketmq.consumer.pulling import PullRequest, PullResult, pull, submit_pull
from reconciler.rocketmq.wire.codes import HALF_TOPIC
from reconciler.rocketmq.wire.record import MessageRecord

#: Maximum number of halves of one queue that are read to find the oldest waiting half.
WAITING_READ_MAX = 2_000


class HalfTopicSource:
    """Pulls halves from masters under a consumer group that every broker has. Threads may share this object if they may
    share its client and routes."""

    def __init__(
        self,
        client: RemotingClient,
        routes: Routes,
        *,
        queries: Mapping[str, CommitQuery],
        shards: int,
        note: Callable[[str, Sequence[NotedHalf]], bool],
    ) -> None:
        """`queries` maps each topic whose halves are read to the commit query of this topic. Brokers without any of
        these topics are not asked. `note` stores the halves of a topic in the ledger, and returns False if the ledger
        cannot store them."""
        self._client = client
        self._routes = routes
        self._offsets = Offsets(client)
        self._queries = queries
        self._shards = shards
        self._note = note

    @property
    def _topics(self) -> Collection[str]:
        return self._queries.keys()

    def queues(self, unique_key_topic: str) -> Sequence[AnnouncementQueue]:
        """Returns one position per shard on every master of the topics. The topics' routes name the masters, because
        the half topic has no route."""
        return [
            AnnouncementQueue(unique_key_topic=unique_key_topic, broker=half_queue(broker), queue_id=number)
            for broker in sorted(half_masters(self._routes, self._topics))
            for number in range(self._shards)
        ]

    def pull(self, queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        """Sends one PULL_MESSAGE, which the broker answers at once. The broker filters nothing, because halves have the
        tags of their messages.

        The ledger also gets the halves of other shards. So below the offset of any shard, the ledger has all halves
        (StoredHalves relies on that).
        """
        pulled = self._noted(self._pulled(queue, offset, max_messages))
        return replace(pulled, messages=[half for half in pulled.messages if half.tag == tag])

    def begin_pull(
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> PullUnderWay:
        """Sends one PULL_MESSAGE, which the broker may hold."""
        request = replace(_request(queue, offset, max_messages), suspend_seconds=hold_seconds)
        return RemotingPull(submit_pull(self._client, self._master(queue), request), request.queue, self._noted)

    def look(self, queue: AnnouncementQueue, *, offset: int) -> SeenRecord:
        """Sends one PULL_MESSAGE."""
        return seen_at(offset, self._pulled(queue, offset, 1))

    def earliest(self, queue: AnnouncementQueue) -> int:
        """Sends GET_MIN_OFFSET, because a pull below that offset makes some brokers write an OffsetMovedEvent."""
        return max(0, self._offsets.minimum(self._master(queue), half_message_queue(queue)))

    def end(self, queue: AnnouncementQueue) -> int:
        """Sends GET_MAX_OFFSET, whose answer is the offset of the next half."""
        return self._offsets.maximum(self._master(queue), half_message_queue(queue))

    def note_until(self, queue: AnnouncementQueue, end: int, *, offset: int) -> int:
        """Stores the halves between two offsets in the ledger. Returns the number of halves that could not be read."""
        while offset < end:
            result = self._pulled(queue, offset, PULL_MESSAGES_MAX)
            if result.next_offset <= offset:
                break
            self._noted(result)
            offset = result.next_offset
        return max(0, end - offset)

    def _pulled(self, queue: AnnouncementQueue, offset: int, maximum: int) -> PullResult:
        return pull(self._client, self._master(queue), _request(queue, offset, maximum))

    def _half(self, record: MessageRecord) -> PulledAnnouncement:
        return half_announcement(record, shards=self._shards)

    def _noted(self, result: PullResult) -> PulledBatch:
        """Stores the pulled halves in the ledger, then returns them. So no offset passes a half that the ledger lacks.
        The ledger also gets halves that a group does not take, because the group's tags may change.

        Raises DatabaseAway. Raises ConfigurationError if the ledger cannot store halves. After both errors the halves
        stay unread.
        """
        for topic, query in self._queries.items():
            halves = [noted_half(record, query) for record in result.records if real_topic(record) == topic]
            if halves and not self._note(topic, halves):
                raise ConfigurationError(
                    "the ledger cannot keep which halves share a key of the business: `reconciler db upgrade ledger`, "
                    "and the rights that `reconciler doctor` names"
                )
        return batch_of(result, self._half)

    def _master(self, queue: AnnouncementQueue) -> str:
        name = broker_of(queue.broker)
        address = half_masters(self._routes, self._topics).get(name)
        if address is None:
            raise BrokerUnavailable(f"broker {name} has no master in the route of {', '.join(sorted(self._topics))}")
        return address


class StoredHalves:
    """The adapter of HalfReading for verdicts. Reading continues at the positions of the announcement consumers, and
    moves no offset. Threads may share this object if they may share its parts."""

    def __init__(
        self, source: HalfTopicSource, routes: Routes, half_sets: HalfSets, shards: Mapping[str, Sequence[Shard]]
    ) -> None:
        """`shards` maps each topic whose halves are announcements to the shards of all its groups."""
        self._source = source
        self._routes = routes
        self._half_sets = half_sets
        self._shards = shards

    def read_to_end(self, topic: str) -> Fact | None:
        """Sends one GET_MAX_OFFSET per broker, and pulls the halves that announcement consumers have not read, up to
        WAITING_READ_MAX."""
        shards = self._shards.get(topic)
        if shards is None:
            return UNREAD
        try:
            whys = (self._left(place, shards) for place in self._routes.whereabouts(topic))
            return next((why for why in whys if why is not None), None)
        except TopicNotFound as error:
            return as_foreign(str(error))

    def _left(self, place: Whereabouts, shards: Sequence[Shard]) -> Fact | None:
        """Continues at the greatest offset of the groups, because the ledger has all halves below the offset of any
        group. The queue's end is read after these offsets. So a queue with a lower end has begun again."""
        queue = AnnouncementQueue(unique_key_topic=HALF_TOPIC, broker=half_queue(place.broker_name), queue_id=0)
        places = [(shard, replace(queue, queue_id=shard.number)) for shard in shards]
        taken = max((at for at in self._half_sets.positions(places).values() if at is not None), default=None)
        return why_unread(place, lambda _master: self._read_on(place.broker_name, queue, taken))

    def _read_on(self, broker: str, queue: AnnouncementQueue, taken: int | None) -> Fact | None:
        end = self._source.end(queue)
        if taken is None or not taken <= end <= taken + WAITING_READ_MAX:
            return halves_left(broker, max(1, end if taken is None else abs(end - taken)))
        return halves_left(broker, self._source.note_until(queue, end, offset=taken))


class SourceByTopic:
    """Reads announcements from the unique-key topic, and halves from the half topic. Threads may share this object if
    they may share both sources."""

    def __init__(self, announcements: AnnouncementSource, halves: AnnouncementSource) -> None:
        self._announcements = announcements
        self._halves = halves

    def _of(self, topic: str) -> AnnouncementSource:
        return self._halves if topic == HALF_TOPIC else self._announcements

    def queues(self, unique_key_topic: str) -> Sequence[AnnouncementQueue]:
        """Asks the topic's source."""
        return self._of(unique_key_topic).queues(unique_key_topic)

    def pull(self, queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        """Asks the topic's source."""
        return self._of(queue.unique_key_topic).pull(queue, tag=tag, offset=offset, max_messages=max_messages)

    def begin_pull(
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> PullUnderWay:
        """Asks the topic's source."""
        begin = partial(self._of(queue.unique_key_topic).begin_pull, queue, offset=offset)
        return begin(max_messages=max_messages, hold_seconds=hold_seconds)

    def look(self, queue: AnnouncementQueue, *, offset: int) -> SeenRecord:
        """Asks the topic's source."""
        return self._of(queue.unique_key_topic).look(queue, offset=offset)

    def earliest(self, queue: AnnouncementQueue) -> int:
        """Asks the topic's source."""
        return self._of(queue.unique_key_topic).earliest(queue)


def half_masters(routes: Routes, topics: Collection[str]) -> dict[str, str]:
    """Returns broker -> address of its master, for every broker that has one of the topics. A broker that has a topic
    also has the topic's halves."""
    found: dict[str, str] = {}
    for topic in topics:
        with suppress(TopicNotFound):  # no producer has sent to the topic yet, or `doctor` reports the missing topic
            found |= routes.masters(topic)
    return found


def half_announcement(record: MessageRecord, *, shards: int) -> PulledAnnouncement:
    """Returns the facts of a half that the rules need, without the body of the message. A half that was put back has
    the key of its first copy."""
    key = record.unique_key.encode(errors="replace")
    return PulledAnnouncement(
        record=record_of(record),
        tag=half_tag(real_topic(record), crc32(key) % shards),
        body=key,
        message_tag=record.tags,
    )


def noted_half(record: MessageRecord, query: CommitQuery) -> NotedHalf:
    """Returns the ledger's row of the half, by which siblings with the same business key are found.

    A half without a usable unique key also counts as a message of its business key. The ledger names such a half by its
    place.
    """
    key, value = record.unique_key, query.key_type.value_of(business_key(record, query.key))
    return NotedHalf(
        unique_key=key if is_unique_key(key) else f"{NAMED_BY_PLACE}{record.physical_offset:020d}",
        broker=record.broker_name,
        key_digest=None if value is None else digest_of_key(value),
        tag_digest=digest_of(record.tags) if record.tags else None,
        stored_at_ms=record.store_timestamp_ms,
    )


def half_message_queue(queue: AnnouncementQueue) -> MessageQueue:
    """Returns the half queue under the name that the remoting client uses."""
    return MessageQueue(topic=HALF_TOPIC, broker_name=broker_of(queue.broker), queue_id=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingHalves:
    """The half queue of one broker, with the halves that were read from a position on."""

    begin: int
    #: The offset of the next half.
    end: int
    #: Offset, store time and tag of each half (announcing/rules.py: half_tag).
    halves: tuple[tuple[int, int, str | None], ...] = ()
    #: False if the halves were not read up to the end of the queue.
    is_whole: bool = True

    def waiting_since_ms(self, tag: str, offset: int) -> int | None:
        """Returns the store time of the first half with the tag at or after an offset. If this half was not read,
        returns the store time of a half before it. Returns None if no half has the tag."""
        behind = (at_ms for place, at_ms, its in self.halves if place >= offset and its == tag)
        return next(behind, None if self.is_whole or not self.halves else self.halves[-1][1])


class HalfQueues:
    """Reads the waiting halves of half queues, and moves no offset. Thread-safe, without state."""

    def __init__(self, client: RemotingClient, routes: Routes, *, shards: int) -> None:
        self._client = client
        self._routes = routes
        self._offsets = Offsets(client)
        self._shards = shards

    def of_topic(self, topic: str, taken: Mapping[str, int]) -> tuple[dict[str, WaitingHalves], Mapping[str, str]]:
        """Returns the waiting halves of each broker that may have halves of the topic. Also returns the reason for each
        broker that did not answer.

        `taken` maps each broker to the offset from which its halves are read. Raises TopicNotFound or
        BrokerUnavailable.
        """
        self._routes.expect(topic, taken)
        found: dict[str, WaitingHalves] = {}
        silent: dict[str, str] = {}
        for place in self._routes.whereabouts(topic):
            name = place.broker_name
            if place.master is None or place.doubt:
                silent[name] = place.doubt or place.detail
                continue
            try:
                found[name] = self._of(place.master, name, taken.get(name))
            except ReconcilerError as error:
                silent[name] = explained(error, place.master)
        return found, silent

    def _of(self, address: str, broker: str, offset: int | None) -> WaitingHalves:
        queue = MessageQueue(topic=HALF_TOPIC, broker_name=broker, queue_id=0)

        # The end is read last, as in QueueEnds.
        begin, end = max(0, self._offsets.minimum(address, queue)), self._offsets.maximum(address, queue)
        at, halves = max(begin, offset or 0), list[tuple[int, int, str | None]]()
        while at < end and len(halves) < WAITING_READ_MAX:
            result = pull(self._client, address, PullRequest(queue=queue, offset=at, group=TOOLS_GROUP))
            if result.next_offset <= at:
                raise BrokerUnavailable(f"{queue}: nothing at offset {at} although the queue ends at {end}")
            read = (half_announcement(one, shards=self._shards) for one in result.records)
            halves += [(one.queue_offset, one.record.stored_at_ms, one.tag) for one in read]
            at = result.next_offset
        return WaitingHalves(begin=begin, end=end, halves=tuple(halves), is_whole=at >= end)


def _request(queue: AnnouncementQueue, offset: int, maximum: int) -> PullRequest:
    return PullRequest(queue=half_message_queue(queue), offset=offset, group=TOOLS_GROUP, maximum=maximum)
