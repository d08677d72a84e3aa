"""Walks a commit log from record to record. On brokers up to 4.2, no queue has halves, but each outcome in the log
names its half.

VIEW_MESSAGE_BY_ID at a place of the log returns the record there, whatever its topic. The record's size gives the next
place. A walk must begin at a proven place, because otherwise a size would be read from the middle of a record. Proven
places are the beginning of the log, of each log file, and of each record that a pull returns. A walk takes long,
because every record of every topic costs one request.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import pairwise
from queue import Empty, SimpleQueue

from reconciler.errors import BrokerUnavailable, ReconcilerError, RequestTimeout
from reconciler.halves.half_topic import NO_KEYS, MasterQueues, ReadingRate, half_copy
from reconciler.halves.outcomes import HalfOutcomes
from reconciler.halves.values import HalfCopy
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.record import MessageRecord, TransactionType, decode_records

#: Maximum number of ranges that are walked at once. More ranges make a broker slower.
WALKERS = 16
#: A record with this magic marks the rest of its file as empty (CommitLog.BLANK_MAGIC_CODE).
_BLANK = 0xCBD43194
_HEAD = struct.Struct(">iI")
_FILE_BYTES = 1 << 30
#: Maximum number of places that are taken from queues, and at which walkers may begin.
_PLACES_MAX = 128
_PLACES_A_QUEUE = 8
#: A wait is this much longer than the client's own time-out, so that the client's time-out comes first.
_MARGIN_SECONDS = 5.0

Pair = tuple[str, str]


class LogHalves:
    """The halves in a range of the log, with their outcomes. Records may come in any order.

    An object keeps one value for each half whose outcome was not seen yet, and one number for each outcome whose half
    was not seen.
    """

    def __init__(self, since_ms: int = 0, *, keys: Mapping[str, str] = NO_KEYS) -> None:
        """Halves that were stored before `since_ms` are left out. `keys`: as in half_copy()."""
        self._since_ms = since_ms
        self._keys = keys
        self._open: dict[int, HalfCopy] = {}
        self._ended: dict[int, TransactionType] = {}
        self.outcomes: dict[Pair, HalfOutcomes] = {}

    def add(self, record: MessageRecord) -> None:
        """Adds the next record, whatever its topic."""
        kind, place = record.transaction_type, record.prepared_transaction_offset
        if kind is TransactionType.NONE:
            return
        if kind is not TransactionType.PREPARED:
            half = self._open.pop(place, None)
            if half is None:
                self._ended[place] = kind
            else:
                self._count((half.topic, half.producer_group), kind)
        elif record.store_timestamp_ms >= self._since_ms:
            half = half_copy(record, timeout_seconds=0.0, keys=self._keys)
            pair = half.topic, half.producer_group
            self.outcomes.setdefault(pair, HalfOutcomes()).halves += 1
            ended = self._ended.pop(half.commit_log_offset, None)
            if ended is None:
                self._open[half.commit_log_offset] = half
            else:
                self._count(pair, ended)

    def _count(self, pair: Pair, kind: TransactionType) -> None:
        if kind is TransactionType.COMMIT:
            self.outcomes[pair].committed += 1
        else:
            self.outcomes[pair].rolled_back += 1

    def open(self) -> list[HalfCopy]:
        """Returns the halves that nothing has ended. The list begins with the oldest half."""
        return sorted(self._open.values(), key=lambda copy: (copy.born_ms, copy.commit_log_offset))


class LogWalk:
    """The log of one master. Only one thread may use an object."""

    def __init__(
        self,
        client: RemotingClient,
        broker: str,
        address: str,
        *,
        config: Mapping[str, str],
        pace: ReadingRate,
    ) -> None:
        self._client = client
        self._broker = broker
        self._address = address
        self._pace = pace
        # Brokers up to 4.5.1 misspell this name. The correctly spelled name may be in a broker's configuration, but
        # such a broker does not use its value.
        size = config.get("mapedFileSizeCommitLog", "")
        self._file_bytes = int(size) if size.isdigit() and int(size) > 0 else _FILE_BYTES

    def starts(self, begin: int, end: int, places: Collection[int]) -> list[int]:
        """Returns the sorted places at which walkers may begin."""
        first_file = begin // self._file_bytes + 1
        files = range(first_file * self._file_bytes, end, self._file_bytes)
        return sorted({begin, *files, *(place for place in places if begin < place < end)})

    def records(self, starts: Sequence[int], end: int) -> Iterator[tuple[MessageRecord, int]]:
        """Yields every record from the first place up to `end`, with its size in the log.

        Raises BrokerUnavailable if the log has no record at a place, for example because retention deleted it
        meanwhile.
        """
        stretches = iter(pairwise([*starts, end]))
        answers: SimpleQueue[tuple[int, int, Future[Command]]] = SimpleQueue()
        under_way = 0
        for _ in range(WALKERS):
            under_way += self._begin(next(stretches, None), answers)
        while under_way:
            place, stop, answer = self._next(answers)
            body = require_success(answer.result(), f"record at {place} of the log of {self._broker}").body
            if len(body) < _HEAD.size:
                raise BrokerUnavailable(f"{self._broker}: its log has no record at {place}")
            size, magic = _HEAD.unpack_from(body)
            if magic == _BLANK:
                after = (place // self._file_bytes + 1) * self._file_bytes
            else:
                (record,) = decode_records(body, self._broker)
                self._pace.read(1)
                yield record, size
                after = place + size
            under_way -= 1
            goes_on = (after, stop) if after < stop else next(stretches, None)
            under_way += self._begin(goes_on, answers)

    def _begin(self, stretch: tuple[int, int] | None, answers: SimpleQueue[tuple[int, int, Future[Command]]]) -> int:
        if stretch is None:
            return 0
        place, stop = stretch
        command = Command(code=RequestCode.VIEW_MESSAGE_BY_ID, fields={"offset": str(place)})
        future = self._client.submit(self._address, command)
        future.add_done_callback(lambda answered: answers.put((place, stop, answered)))
        return 1

    def _next(self, answers: SimpleQueue[tuple[int, int, Future[Command]]]) -> tuple[int, int, Future[Command]]:
        try:
            return answers.get(timeout=self._client.request_timeout_seconds + _MARGIN_SECONDS)
        except Empty:
            raise RequestTimeout(f"{self._address}: no answer in time while its log was walked") from None


def places_of_queues(queues: MasterQueues, topics: Mapping[str, int], since_ms: int | None) -> tuple[set[int], int]:
    """Returns the places of records in queues, at which walks may begin. Also returns the greatest place at which a
    queue has a record from before `since_ms`."""
    places: set[int] = set()
    before: list[int] = []
    for topic, count in topics.items():
        for queue_id in range(count):
            with suppress(ReconcilerError):  # no right to read this queue: other queues have places, too
                places.update(_places_of(queues, topic, queue_id))
                if since_ms is not None:
                    before += _before(queues, topic, queue_id, since_ms)
            if len(places) >= _PLACES_MAX and since_ms is None:
                return places, 0
    return places, max(before, default=0)


def _places_of(queues: MasterQueues, topic: str, queue_id: int) -> Iterator[int]:
    first, end = queues.bounds(topic, queue_id) or (0, 0)
    for offset in range(first, end, max(1, (end - first) // _PLACES_A_QUEUE)):
        for heads in queues.heads(topic, queue_id, offset, offset + 1):
            yield from (head.physical_offset for head in heads)


def _before(queues: MasterQueues, topic: str, queue_id: int, since_ms: int) -> Iterator[int]:
    first, end = queues.bounds(topic, queue_id) or (0, 0)
    offset = min(queues.at_time(topic, since_ms, otherwise=first, queue_id=queue_id), end) - 1
    if offset >= first:
        for heads in queues.heads(topic, queue_id, offset, offset + 1):
            yield from (head.physical_offset for head in heads if head.store_timestamp_ms < since_ms)
