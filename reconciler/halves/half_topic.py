"""Reads the half topic, the OP topic and the topic of given-up halves of one master without leaving a trace.

A pull makes a broker create a group that it does not know. Every broker knows TOOLS_CONSUMER from its start
(SubscriptionGroupManager.init). The code in this file stores no offset and sends no message. Slaves are not asked,
because a slave that lags answers as if it had no records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import MappingProxyType

from reconciler.clock import Clock
from reconciler.contract.facts import Fact
from reconciler.errors import AccessRefused, BrokerRefused, BrokerUnavailable, DatabaseAway, ReconcilerError
from reconciler.evidence.brokers import unasked_seconds
from reconciler.evidence.lookup import query_fitting, query_newest
from reconciler.evidence.stored_message import real_topic
from reconciler.halves.business_key import business_key
from reconciler.halves.classify import Identity
from reconciler.halves.ended import ended_offsets
from reconciler.halves.values import HalfCopy
from reconciler.policy.commit_query import halves_silent
from reconciler.rocketmq.client.demands import explained
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Whereabouts
from reconciler.rocketmq.consumer.pulling import PullRequest, PullResult, PullStatus, pull
from reconciler.rocketmq.wire.answers import number_field, refusal, require_success
from reconciler.rocketmq.wire.codes import HALF_TOPIC, OP_TOPIC, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.properties import whole_number
from reconciler.rocketmq.wire.record import MessageRecord, RecordHead, TransactionType, decode_heads, decode_records
from reconciler.rocketmq.wire.tolerant_json import parse_object

#: Every broker has this group from its start, so a pull creates no group (MixAll.TOOLS_CONSUMER_GROUP).
TOOLS_GROUP = "TOOLS_CONSUMER"
#: The `keys` of a reader that needs no business keys.
NO_KEYS: Mapping[str, str] = MappingProxyType({})
#: Most look-ups and single records that are under way at once.
IN_FLIGHT = 16
#: Maximum number of entries of a queue in one answer (AdminBrokerProcessor.queryConsumeQueue).
_ENTRIES_MAX = 1_000


class ReadingRate:
    """Limits the records per second of a reader, counted from its start. Only one thread may use an object."""

    def __init__(self, clock: Clock, records_per_second: float) -> None:
        self._clock = clock
        self._rate = records_per_second
        self._since = clock.monotonic_seconds()
        self.records = 0

    def read(self, count: int) -> None:
        """Counts records that were read. Sleeps until the rate since the start is low enough."""
        self.records += count
        self._clock.sleep(self.records / self._rate - (self._clock.monotonic_seconds() - self._since))


class MasterQueues:
    """Queues of one master. Only one thread may use an object. Look-ups start a few threads of their own."""

    def __init__(self, client: RemotingClient, broker: str, address: str, *, pace: ReadingRate) -> None:
        self._client = client
        self._broker = broker
        self._address = address
        self._offsets = Offsets(client)
        self._pace = pace

    def queue(self, topic: str, queue_id: int = 0) -> MessageQueue:
        """Returns a queue. Queue 0 of a system topic has all halves, OP records of halves, or given-up halves."""
        return MessageQueue(topic=topic, broker_name=self._broker, queue_id=queue_id)

    def bounds(self, topic: str, queue_id: int = 0) -> tuple[int, int] | None:
        """Returns the smallest and the next offset. Returns None if the broker refuses the pull because it does not
        have the topic yet."""
        try:
            result = self._pull(topic, 0, 1, queue_id=queue_id)
        except BrokerRefused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return result.min_offset, result.max_offset

    def maximum(self, topic: str) -> int:
        """Returns the next offset. The topic need not be registered."""
        return self._offsets.maximum(self._address, self.queue(topic))

    def saved_offset(self, topic: str, group: str) -> int | None:
        """Returns the saved offset of a group."""
        return self._offsets.of_group(self._address, self.queue(topic), group)

    def at_time(self, topic: str, time_ms: int, *, otherwise: int, queue_id: int = 0) -> int:
        """Returns the offset of the record that was stored at or next to the time. Returns `otherwise` if the account
        may not ask."""
        try:
            return self._offsets.at_time(self._address, self.queue(topic, queue_id), max(0, time_ms))
        except AccessRefused:
            return otherwise

    def records(self, topic: str, begin: int, end: int) -> Iterator[MessageRecord]:
        """Yields the records from `begin` up to `end`, which is not included. Records that retention deletes meanwhile
        are left out.

        Raises BrokerUnavailable if the queue ends before `end`.
        """
        offset = begin
        while offset < end:
            result = self._pull(topic, offset, 32)
            if result.status is PullStatus.NO_NEW or result.next_offset <= offset:
                raise BrokerUnavailable(f"{topic} on {self._broker}: nothing at offset {offset}, its end was {end}")
            self._pace.read(len(result.records))
            yield from (record for record in result.records if record.queue_offset < end)
            offset = result.next_offset

    def records_at(self, topic: str, offsets: Iterable[int]) -> Iterator[MessageRecord]:
        """Yields the records at some offsets, in order. Records that retention has deleted are left out."""
        left = deque(sorted(offsets))
        while left:
            result = self._pull(topic, left[0], 32)
            self._pace.read(len(result.records))
            named, reached = set(left), max(result.next_offset, left[0] + 1)
            yield from (record for record in result.records if record.queue_offset in named)
            while left and left[0] < reached:
                left.popleft()

    def heads(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[list[RecordHead]]:
        """Yields the needed parts of very many records in order, one list for each answer. Several pulls are under way
        at once."""
        queue = self.queue(topic, queue_id)
        ahead: deque[tuple[int, Future[Command]]] = deque()
        at = begin
        while ahead or at < end:
            while at < end and len(ahead) < IN_FLIGHT:
                ahead.append((at, self._client.submit(self._address, _pull_of(queue, at, min(at + 32, end)))))
                at += 32
            offset, answer = ahead.popleft()
            yield from self._heads_of(queue, offset, min(offset + 32, end), answer)

    def _heads_of(
        self, queue: MessageQueue, offset: int, end: int, future: Future[Command]
    ) -> Iterator[list[RecordHead]]:
        """Yields the records of an answer, then pulls the missing records. An answer has fewer records if they are
        large or on the disk."""
        what = f"pull of {queue}"
        answer = self._client.wait(future, self._client.request_timeout_seconds, what)
        while True:
            if answer.code == ResponseCode.SUCCESS:
                heads = decode_heads(answer.body)
                self._pace.read(len(heads))
                if heads:
                    yield heads
            elif answer.code not in (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED):
                raise refusal(answer, what)
            after = number_field(answer, "nextBeginOffset")
            if after >= end or after <= offset:
                return
            offset = after
            answer = self._client.request(self._address, _pull_of(queue, offset, end))

    def ended(self, begin: int, end: int, *, is_pulled: bool) -> Iterator[int]:
        """Yields the offsets of halves that the OP records from `begin` to `end` name."""
        records = self.records(OP_TOPIC, begin, end) if is_pulled else self._unregistered(OP_TOPIC, begin, end)
        for record in records:
            yield from ended_offsets(record.body, record.tags)

    def shows_unregistered(self, topic: str, end: int) -> bool:
        """Returns True if QUERY_CONSUME_QUEUE returns entries. Brokers up to 4.6 write the answer's body before they
        fill in the entries."""
        try:
            return not end or self._entries(topic, end - 1)[0] >= end
        except BrokerRefused:
            return False

    def _entries(self, topic: str, begin: int) -> tuple[int, list[int]]:
        """Returns the end of the queue, and the places of its next records in the log."""
        fields = {"topic": topic, "queueId": "0", "index": str(begin), "count": str(_ENTRIES_MAX), "consumerGroup": ""}
        command = Command(code=RequestCode.QUERY_CONSUME_QUEUE, fields=fields)
        answer = require_success(self._client.request(self._address, command), f"entries of {topic}")
        found = parse_object(answer.body)
        data, end = found.get("queueData"), found.get("maxQueueIndex")
        places = [one.get("physicOffset") for one in data if isinstance(one, dict)] if isinstance(data, list) else []
        return end if isinstance(end, int) else 0, [place for place in places if isinstance(place, int)]

    def _unregistered(self, topic: str, begin: int, end: int) -> Iterator[MessageRecord]:
        """Yields records of a topic that cannot be pulled. Each record costs one request."""
        at = begin
        while at < end:
            _, places = self._entries(topic, at)
            if not places:
                raise BrokerUnavailable(f"{topic} on {self._broker}: nothing at offset {at}, its end was {end}")
            yield from self._at_places(places[: end - at])
            at += len(places)

    def _at_places(self, places: Iterable[int]) -> Iterator[MessageRecord]:
        waiting: deque[Future[Command]] = deque()
        for place in places:
            command = Command(code=RequestCode.VIEW_MESSAGE_BY_ID, fields={"offset": str(place)})
            waiting.append(self._client.submit(self._address, command))
            if len(waiting) == IN_FLIGHT:
                yield from self._answered(waiting.popleft())
        while waiting:
            yield from self._answered(waiting.popleft())

    def _answered(self, answer: Future[Command]) -> list[MessageRecord]:
        what = f"record at an offset of {self._broker}"
        found = self._client.wait(answer, self._client.request_timeout_seconds, what)
        records = decode_records(require_success(found, what).body, self._broker)
        self._pace.read(len(records))
        return records

    def half_offsets(self, unique_key: str) -> set[int]:
        """Returns the offsets of all copies of a half in the index. If the copies are large, returns only the offsets
        of the newest copies."""
        hits = query_newest(self._client, self._address, HALF_TOPIC, unique_key)
        return {hit.queue_offset for hit in hits if hit.unique_key == unique_key and hit.topic == HALF_TOPIC}

    def _pull(self, topic: str, offset: int, maximum: int, *, queue_id: int = 0) -> PullResult:
        request = PullRequest(queue=self.queue(topic, queue_id), offset=offset, group=TOOLS_GROUP, maximum=maximum)
        return pull(self._client, self._address, request)


def why_unread(place: Whereabouts, read: Callable[[str], Fact | None]) -> Fact | None:
    """Calls `read` with the address of the broker's master, and returns its answer. For a broker that does not answer,
    returns the reason why its halves were not read. Raises DatabaseAway."""
    silent = place.doubt or place.detail
    if place.master is not None and not place.doubt:
        try:
            return read(place.master)
        except DatabaseAway:
            raise
        except ReconcilerError as error:
            silent = explained(error, place.master)
    return halves_silent(place.broker_name, silent)


def _pull_of(queue: MessageQueue, offset: int, end: int) -> Command:
    return PullRequest(queue=queue, offset=offset, group=TOOLS_GROUP, maximum=end - offset).as_command()


def half_copy(record: MessageRecord, *, timeout_seconds: float, keys: Mapping[str, str] = NO_KEYS) -> HalfCopy:
    """Returns the copy of a half in a record. `keys` maps a topic to the place of the business key."""
    properties = record.properties
    topic = real_topic(record)
    asked = whole_number(properties.get("TRANSACTION_CHECK_TIMES", "")) or 0
    return HalfCopy(
        broker=record.broker_name,
        topic=topic,
        producer_group=properties.get("PGROUP", ""),
        unique_key=record.unique_key,
        queue_offset=record.queue_offset,
        commit_log_offset=record.physical_offset,
        born_ms=record.born_timestamp_ms,
        store_ms=record.store_timestamp_ms,
        asked=asked,
        is_put_back=asked > 0 or "TRAN_PREPARED_QUEUE_OFFSET" in properties,
        left_alone_seconds=unasked_seconds(properties, timeout_seconds),
        offset_message_id=record.offset_message_id,
        tags=record.tags or "",
        keys=properties.get("KEYS", ""),
        business_key=business_key(record, keys[topic]) if topic in keys else "",
    )


class DeliveredCopies:
    """Looks for messages in their topics on every master. The half may be on one broker and the message on another
    broker: after a repeated send, or if an acting master passed its halves on."""

    def __init__(self, client: RemotingClient, masters: Mapping[str, str], *, pace: ReadingRate) -> None:
        self._client = client
        self._masters = masters
        self._pace = pace
        #: Broker -> the reason why this broker could not be asked.
        self.failures: dict[str, str] = {}

    def of(self, copies: Sequence[HalfCopy]) -> dict[Identity, bool | None]:
        """Returns for each half whether its message is in its topic. The value is None if the message was not found and
        a broker could not be asked."""
        with ThreadPoolExecutor(max_workers=IN_FLIGHT, thread_name_prefix="scan-look-up") as pool:
            try:
                found = list(pool.map(self._one, copies))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self._pace.read(0)
        return {copy.identity: is_there for copy, is_there in zip(copies, found, strict=True)}

    def others_of(self, copies: Sequence[HalfCopy]) -> dict[Identity, bool | None]:
        """Returns for each half whether its topic contains another message with the same tag and key (KEYS)."""
        return {copy.identity: self._any(copy, copy.business_key, by_unique_key=False) for copy in copies}

    def _one(self, copy: HalfCopy) -> bool | None:
        return self._any(copy, copy.unique_key, by_unique_key=True) if copy.unique_key else None

    def _any(self, copy: HalfCopy, key: str, *, by_unique_key: bool) -> bool | None:
        answers = [self._at(broker, copy, key, by_unique_key=by_unique_key) for broker in self._masters]
        return True if True in answers else None if None in answers else False

    def _at(self, broker: str, copy: HalfCopy, key: str, *, by_unique_key: bool) -> bool | None:
        try:
            ask = partial(query_fitting, self._client, self._masters[broker], copy.topic, key)
            hits, are_all = ask(by_unique_key=by_unique_key, broker_name=broker)
        except ReconcilerError as error:
            self.failures[broker] = str(error)
            return None
        kinds = (TransactionType.NONE, TransactionType.COMMIT)
        is_there = any(
            (hit.unique_key == key if by_unique_key else key in hit.keys and (hit.tags or "") == copy.tags)
            for hit in hits
            if hit.topic == copy.topic and hit.transaction_type in kinds
        )
        return is_there or (False if are_all else None)
