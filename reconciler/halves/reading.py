"""The adapter of HalfReading. It reads half queues to their ends before a row of the business causes a send.

A row of the business may belong to any message with its key, so the ledger must have each of these messages. A process
does not rely on halves that other readers have stored. Other readers may have taken the key from another place, and the
ledger may have been lost since. So a process first reads all halves that brokers still have, and afterwards only new
halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from threading import Lock
from uuid import uuid4

from reconciler.contract.facts import Fact
from reconciler.contract.queue_proof import QueueRecord, record_of
from reconciler.errors import ReconcilerError
from reconciler.evidence.lookup import query_newest
from reconciler.evidence.stored_message import real_topic
from reconciler.halves.announced import noted_half
from reconciler.halves.half_topic import MasterQueues, ReadingRate, why_unread
from reconciler.policy.commit_query import UNREAD, CommitQuery, digest_of, halves_left, halves_unproved
from reconciler.policy.evidence import StoredMessage, as_foreign
from reconciler.policy.ports.evidence import Horizon
from reconciler.policy.ports.ledger import NotedHalf, NotedHalves
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Whereabouts
from reconciler.rocketmq.wire.codes import HALF_TOPIC, ROCKSDB_HALF_TOPIC
from reconciler.rocketmq.wire.record import MessageRecord

#: Longest time for which one call reads. Rounds of the topic wait for this call. Each call reads at least some halves
#: of each queue.
READ_SECONDS_MAX = 10.0
#: Maximum number of halves that are read per second, over all brokers.
READ_PER_SECOND = 20_000.0
#: Maximum number of halves that one transaction stores.
NOTED_AT_ONCE = 500
#: Number of a queue's last records that are searched for a younger copy of a half further back. The second number is
#: tried if the index has not reached the first record of the smaller search.
LOOKED_BACK = (64, 1_024)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The position up to which a half queue was read. A broker may assign an offset again, and a ledger may be restored
    from a backup. So the position counts only if the last record is still at its offset, and the mark is still in the
    ledger."""

    following: int
    last: QueueRecord
    mark: NotedHalf | None


class RemotingHalfReading:
    """Reads half queues of masters without leaving a trace. Thread-safe. Several processes may read and store the same
    halves."""

    def __init__(
        self,
        instance: ClientInstance,
        *,
        client: RemotingClient,
        environment: str,
        queries: Mapping[str, CommitQuery],
        noted: NotedHalves,
        why_not: Callable[[str], Fact | None],
        horizon: Callable[[str], Horizon],
        read_seconds: float = READ_SECONDS_MAX,
        noted_at_once: int = NOTED_AT_ONCE,
        looked_back: Sequence[int] = LOOKED_BACK,
    ) -> None:
        """`queries` has the commit query of each topic. `client` sends the pulls. A separate client is needed, so that
        a slow pull ends no connection of other clients. `why_not` returns the reason why nobody has accepted the
        topic's query. Without an accepted query, no half is stored, because the query of another process may be the
        right one. `horizon` returns the store time up to which brokers have built their queues and indexes. A broker
        builds the queue after the log, and the index after the queue."""
        self._instance = instance
        self._clock = instance.clock
        self._client = client
        self._offsets = Offsets(client)
        self._environment = environment
        self._queries = queries
        self._noted = noted
        self._why_not = why_not
        self._horizon = horizon
        self._read_seconds = read_seconds
        self._noted_at_once = noted_at_once
        self._looked_back = looked_back
        #: Monotonic time at which the present call must end.
        self._until_seconds = 0.0
        self._lock = Lock()
        #: Name of this reader's marks. No other reader stores a half of this name, even in a ledger that was restored.
        self._name = f"read-{uuid4().hex}"
        #: (topic, broker, half topic) -> position up to which this process has read.
        self._places: dict[tuple[str, str, str], _Place] = {}

    def read_to_end(self, topic: str) -> Fact | None:
        """Reads for at most READ_SECONDS_MAX. The next call continues where this call stopped."""
        if (refused := self._why_not(topic)) is not None:
            return refused
        with self._lock:
            pace = ReadingRate(self._clock, READ_PER_SECOND)
            self._until_seconds = self._clock.monotonic_seconds() + self._read_seconds
            try:
                self._instance.routes.refresh(topic)  # a broker that joined the route meanwhile has halves, too
                places = self._instance.routes.whereabouts(topic)
            except ReconcilerError as error:
                return as_foreign(str(error))
            horizon = self._horizon(topic)
            whys = (self._why_unread(topic, place, horizon, pace) for place in places)
            return next((why for why in whys if why is not None), None)

    def is_newest(self, half: StoredMessage) -> bool | None:
        """Reads the queue from the half to the end. If the end is far, reads only the last records, and asks the index
        for the records before them. A broker puts an open half back at the end of its queue."""
        try:
            places = self._instance.routes.whereabouts(half.real_topic)
            place = next((one for one in places if one.broker_name == half.broker), None)
            if place is None or place.master is None or place.doubt:
                return None
            return self._has_no_younger(half, place.master)
        except ReconcilerError:
            return None

    def _has_no_younger(self, half: StoredMessage, master: str) -> bool | None:
        behind = half.queue_offset + 1
        end = self._offsets.maximum(master, MessageQueue(topic=half.topic, broker_name=half.broker, queue_id=0))
        if end < behind:
            return None  # the queue has the half itself: a broker that reports a lower end has not built its queue yet
        queues = MasterQueues(self._client, half.broker, master, pace=ReadingRate(self._clock, READ_PER_SECOND))
        begins = [max(behind, end - count) for count in self._looked_back]
        begin = next((at for at in begins if at == behind or self._is_indexed(queues, master, half.topic, at)), None)
        if begin is None:
            return None
        if begin > behind:
            indexed = [
                one.queue_offset for one in self._by_key(master, half.topic, half.unique_key) if _is_of(half, one)
            ]
            if not indexed or max(indexed) < half.queue_offset:
                return None  # the index has the half itself: an answer without this half was cut off
            if max(indexed) > half.queue_offset:
                return False
        return not any(_is_of(half, one) for one in queues.records(half.topic, begin, end))

    def _is_indexed(self, queues: MasterQueues, master: str, half_topic: str, offset: int) -> bool:
        """Returns True if the index has the record at the offset. The index follows the log in order, so it then has
        all earlier records."""
        record = next(queues.records(half_topic, offset, offset + 1), None)
        if record is None or not record.unique_key:
            return False
        found = self._by_key(master, half_topic, record.unique_key)
        return any(one.physical_offset == record.physical_offset for one in found)

    def _by_key(self, master: str, half_topic: str, unique_key: str) -> list[MessageRecord]:
        found = query_newest(self._client, master, half_topic, unique_key)
        return [one for one in found if one.topic == half_topic and one.unique_key == unique_key]

    def _why_unread(self, topic: str, place: Whereabouts, horizon: Horizon, pace: ReadingRate) -> Fact | None:
        broker = place.broker_name
        why = why_unread(place, partial(self._read_broker, topic, broker, pace))
        return halves_unproved(broker) if why is None and broker not in horizon.at_ms else why

    def _read_broker(self, topic: str, broker: str, pace: ReadingRate, master: str) -> Fact | None:
        facts = self._instance.families.facts(master)
        if not facts.has_half_topic:
            return UNREAD
        of = [HALF_TOPIC, *([ROCKSDB_HALF_TOPIC] if facts.may_keep_halves_in_rocksdb else [])]
        whys = (self._read_queue((topic, broker, half_topic), master, pace) for half_topic in of)
        return next((why for why in whys if why is not None), None)

    def _read_queue(self, of: tuple[str, str, str], master: str, pace: ReadingRate) -> Fact | None:
        topic, broker, half_topic = of
        queue = MessageQueue(topic=half_topic, broker_name=broker, queue_id=0)
        begin, end = self._offsets.minimum(master, queue), self._offsets.maximum(master, queue)
        queues = MasterQueues(self._client, broker, master, pace=pace)
        at = max(0, begin) if end > begin else end
        if at < end and (known := self._still(queues, of, begin, end)) is not None:
            at = known.following
        records = queues.records(half_topic, at, end)
        has_time = True
        while at < end and has_time:
            read = list(islice(records, self._noted_at_once))
            halves = [noted_half(one, self._queries[topic]) for one in read if real_topic(one) == topic]
            known = self._places.get(of)
            mark = known.mark if known is not None else None
            if halves:
                mark = self._mark(of, halves[-1].stored_at_ms, read[-1].queue_offset)
                if not self._noted.note(self._environment, topic, [*halves, mark], replaces=True):
                    return UNREAD
            at = read[-1].queue_offset + 1 if len(read) == self._noted_at_once else end
            if read:
                self._places[of] = _Place(following=at, last=record_of(read[-1]), mark=mark)
            has_time = self._clock.monotonic_seconds() < self._until_seconds
        return halves_left(broker, end - at)

    def _still(self, queues: MasterQueues, of: tuple[str, str, str], begin: int, end: int) -> _Place | None:
        """Returns the position up to which the queue was read. Returns None if the queue or the ledger was replaced
        since, so that everything is read again."""
        known = self._places.get(of)
        if known is None:
            return None
        last = known.last.queue_offset
        here = next(queues.records(of[2], last, last + 1), None) if begin <= last < known.following <= end else None
        if here is not None and record_of(here) == known.last and self._is_noted(of[0], known.mark):
            return known
        del self._places[of]
        return None

    def _mark(self, of: tuple[str, str, str], stored_at_ms: int, queue_offset: int) -> NotedHalf:
        """Makes the mark that is stored together with the halves up to an offset. Each mark has a new digest. The
        ledger keeps a mark for as long as the halves."""
        _, broker, half_topic = of
        name = f"{self._name}-{'rocksdb' if half_topic == ROCKSDB_HALF_TOPIC else 'log'}"
        return NotedHalf(
            unique_key=name,
            broker=broker,
            key_digest=digest_of(f"{name} {queue_offset}"),
            tag_digest=None,
            stored_at_ms=stored_at_ms,
        )

    def _is_noted(self, topic: str, mark: NotedHalf | None) -> bool:
        if mark is None or mark.key_digest is None:
            return True
        found = self._noted.of_keys(self._environment, topic, [mark.key_digest]) or {}
        return any(
            (one.unique_key, one.broker) == (mark.unique_key, mark.broker) for one in found.get(mark.key_digest, ())
        )


def _is_of(half: StoredMessage, copy: MessageRecord) -> bool:
    """Returns True if the record is a copy of the half. The topics must agree, because the queue also has halves of
    other topics, which may have the same key."""
    return copy.unique_key == half.unique_key and real_topic(copy) == half.real_topic
