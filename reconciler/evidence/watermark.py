"""The *watermark* of a consumer group: the group has consumed everything that was stored before it.

The watermark is computed from the offsets that brokers store for the group. One queue without an answer makes the
watermark UNKNOWN.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import BrokerUnavailable, ReconcilerError
from reconciler.evidence.queue_scan import first_stored_ms, record_at
from reconciler.evidence.reused_offsets import ReusedOffsets
from reconciler.policy.evidence import QueuePosition, Watermark, WatermarkState
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.offsets import Offsets, Placed
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes, TopicNotFound
from reconciler.rocketmq.wire.codes import retry_topic

CONSUMED = Code("evidence.consumed")
_QUEUE: Mapping[str, Field] = {"topic": Field.NAME, "queue": Field.NUMBER, "broker": Field.NAME}
HELD_BACK = Code("evidence.held-back", **_QUEUE, offset=Field.NUMBER, end=Field.NUMBER)
NO_OFFSET = Code("evidence.no-offset", **_QUEUE, group=Field.NAME)
BEYOND_END = Code("evidence.beyond-end", **_QUEUE, group=Field.NAME, offset=Field.NUMBER, end=Field.NUMBER)
WATERMARK_UNREAD = Code("evidence.watermark-unread", error=Field.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueueOnMaster:
    address: str
    queue: MessageQueue
    position: QueuePosition


class _NotKnown(ReconcilerError):
    """A queue's offset proves nothing. `lacks_offset`: messages wait, but no offset shows which of them the group has
    had."""

    def __init__(self, why: Fact, *, lacks_offset: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.lacks_offset = lacks_offset


class Watermarks:
    """Thread-safe. Remembers which queues assigned offsets a second time (reused_offsets.py)."""

    def __init__(
        self, client: RemotingClient, routes: Routes, families: Families, *, reused: ReusedOffsets | None = None
    ) -> None:
        self._client = client
        self._routes = routes
        self._families = families
        self._offsets = Offsets(client)
        self._reused = reused or ReusedOffsets(client.clock)

    def watermark(
        self, topic: str, group: str, *, skew_margin_seconds: float, pop_retry_topics: Sequence[str] = ()
    ) -> Watermark:
        """Returns the group's low watermark over all readable queues of the topic and of its retry topics.

        The watermark is never later than the time before the first request, minus the margin.
        """
        caught_up_ms = self._client.clock.now_ms() - round(skew_margin_seconds * 1000)
        lowest = Watermark(state=WatermarkState.KNOWN, at_ms=caught_up_ms, detail=CONSUMED())
        waiting, since_ms = 0, None
        try:
            for placed in self._placed(topic, group, pop_retry_topics):
                at_ms = self._queue_watermark(placed, group)
                if at_ms is None:
                    continue
                waiting += placed.position.waiting
                since_ms = at_ms if since_ms is None else min(since_ms, at_ms)
                if at_ms < lowest.at_ms:
                    lowest = Watermark(state=WatermarkState.KNOWN, at_ms=at_ms, detail=_held_back(placed.position))
        except _NotKnown as found:
            return Watermark(state=WatermarkState.UNKNOWN, at_ms=0, detail=found.why, lacks_offset=found.lacks_offset)
        except ReconcilerError as error:
            return Watermark(state=WatermarkState.UNKNOWN, at_ms=0, detail=WATERMARK_UNREAD(error=str(error)))
        return replace(lowest, waiting=waiting, waiting_since_ms=since_ms)

    def positions(self, topic: str, group: str, *, pop_retry_topics: Sequence[str] = ()) -> list[QueuePosition] | None:
        """Returns the group's offsets in every queue. None if a broker did not answer."""
        try:
            return [placed.position for placed in self._placed(topic, group, pop_retry_topics)]
        except ReconcilerError:
            return None

    def _placed(self, topic: str, group: str, pop_retry_topics: Sequence[str]) -> list[_QueueOnMaster]:
        for place in self._routes.whereabouts(topic):
            if place.master is None:
                raise BrokerUnavailable(f"{place.broker_name}: {place.detail}")
            if place.doubt:  # the offsets would be those of another broker
                raise BrokerUnavailable(place.doubt)
        placed = self._of_topic(topic, group)
        for retry in (retry_topic(group), *pop_retry_topics):
            with contextlib.suppress(TopicNotFound):  # the group never had a retry
                placed += self._of_topic(retry, group)
        self._reused.keep(one.queue.topic for one in placed)
        return placed

    def _of_topic(self, topic: str, group: str) -> list[_QueueOnMaster]:
        route = self._routes.route(topic)
        masters = route.masters
        asked: list[Placed] = []
        for queue in route.readable_queues:
            address = masters.get(queue.broker_name)
            if address is None:
                raise BrokerUnavailable(f"{queue.broker_name} has no master in the route of {topic}")
            asked.append((address, queue))
        return [
            _QueueOnMaster(address=address, queue=queue, position=position)
            for (address, queue), position in zip(asked, self._positions(asked, group), strict=True)
        ]

    def _positions(self, asked: Sequence[Placed], group: str) -> list[QueuePosition]:
        # The group's offsets are read first: messages that are stored meanwhile count as not consumed.
        stored = self._offsets.all_of_group(asked, group)
        minima, ends = self._offsets.minima(asked), self._offsets.maxima(asked)
        return [
            self._position(address, queue, group, consumer_offset=offset, min_offset=max(0, minimum), end=end)
            for (address, queue), offset, minimum, end in zip(asked, stored, minima, ends, strict=True)
        ]

    def _position(
        self, address: str, queue: MessageQueue, group: str, *, consumer_offset: int | None, min_offset: int, end: int
    ) -> QueuePosition:
        proved = self._reused.proved_from(
            (queue.topic, queue.broker_name, queue.queue_id),
            group=group,
            consumer_offset=consumer_offset,
            end=end,
            look=partial(record_at, self._client, address, queue),
        )
        return QueuePosition(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            consumer_offset=consumer_offset,
            min_offset=min_offset,
            max_offset=end,
            doubtful_below=proved.queue_offset,
            doubtful_log_offset=proved.behind_log_offset,
            seen=self._reused.last_seen((queue.topic, queue.broker_name, queue.queue_id)),
        )

    def _queue_watermark(self, placed: _QueueOnMaster, group: str) -> int | None:
        """Returns the store time of the first record that is not consumed. None if all records are consumed."""
        position = placed.position
        if position.max_offset <= position.min_offset:
            return None
        offset = position.consumer_offset
        if offset is None or (offset == 0 and not self._stores_zero(placed.address)):
            raise _NotKnown(NO_OFFSET(**_place(position), group=group), lacks_offset=True)
        if offset > position.max_offset:
            raise _NotKnown(BEYOND_END(**_place(position), group=group, offset=offset, end=position.max_offset))
        if offset == position.max_offset:
            return None
        return self._store_time_ms(placed, offset)

    def _stores_zero(self, address: str) -> bool:
        """Returns True if the broker's answer 0 means a stored offset. A broker up to 4.9 also answers 0 for an unknown
        group.

        A broker from 5.0 on stores 0. In a POP retry topic, it stores 0 with the first copy, before a member pops the
        copy again (PopReviveService.initPopRetryOffset; seen on 5.1.4, 5.3.3 and 5.4.0).
        """
        return self._families.facts(address).checks_offset_topics

    def _store_time_ms(self, placed: _QueueOnMaster, offset: int) -> int | None:
        end_offset = placed.position.max_offset
        return first_stored_ms(self._client, placed.address, placed.queue, offset=offset, end_offset=end_offset)


def _place(position: QueuePosition) -> dict[str, str | int]:
    return {"topic": position.topic, "queue": position.queue_id, "broker": position.broker}


def _held_back(position: QueuePosition) -> Fact:
    return HELD_BACK(**_place(position), offset=position.consumer_offset or 0, end=position.max_offset)
