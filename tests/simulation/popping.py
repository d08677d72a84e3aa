"""A broker of 5.0 and newer that hands out messages one by one (PopMessageProcessor, PopReviveService).

What was handed out is invisible until it is acknowledged, or its time is over: then a copy goes into the retry topic of
topic and group. The group's offset passes it when it is handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX, pop_retry_topics
from reconciler.rocketmq.wire.record import MessageRecord

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

#: How long a message is invisible, seconds: longer than the grace period of most histories.
INVISIBLE_SECONDS = 25.0
#: How long a pop leaves a subscription behind (subscriptionExpiredTimeout).
SUBSCRIBES_SECONDS = 600.0
#: A group and a record by its commit-log offset. A queue that lost its tail gives offsets a second time; what is said
#: of the lost record does not end the hand-out of the next one (PopMessageProcessor.genCkUniqueId has the pop time).
HandOut = tuple[str, int]


class PoppedMessages:
    """What one broker has handed out and waits for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: What is invisible -> a mark that each hand-out renews.
        self._invisible: dict[HandOut, object] = {}
        #: Group and retry topic -> when the group popped last.
        self._popped_at: dict[tuple[str, str], float] = {}

    def pop(self, group: str, topic: str, queue_id: int, *, maximum: int) -> list[MessageRecord]:
        """POP_MESSAGE: the next messages of the queue; the offset is behind them when the answer is sent."""
        broker, place = self._broker, (group, topic, queue_id)
        self._popped_at[group, pop_retry_topics(topic, group)[0]] = broker.kernel.now
        first, last = broker.bounds(topic, queue_id)
        offset = min(max(broker.offsets.get(place, first), first), last)
        records = broker.read(topic, queue_id, offset, maximum)
        broker.offsets[place] = records[-1].queue_offset + 1 if records else offset
        for record in records:
            self._hide(group, record, INVISIBLE_SECONDS)
        return records

    def subscribes(self, group: str, topic: str) -> bool:
        """QUERY_SUBSCRIPTION_BY_CONSUMER, of a retry topic of POP."""
        at = self._popped_at.get((group, topic))
        return at is not None and self._broker.kernel.now - at < SUBSCRIBES_SECONDS

    def forget_subscriptions(self) -> None:
        """The broker starts again: they are in memory only."""
        self._popped_at.clear()

    def acknowledge(self, group: str, record: MessageRecord) -> None:
        """ACK_MESSAGE."""
        self._invisible.pop(_hand_out(group, record), None)

    def change(self, group: str, record: MessageRecord, *, seconds: float) -> None:
        """CHANGE_MESSAGE_INVISIBLETIME: how a consumer says that it wants the message again."""
        if _hand_out(group, record) in self._invisible:
            self._hide(group, record, seconds)

    def _hide(self, group: str, record: MessageRecord, seconds: float) -> None:
        mark = self._invisible[_hand_out(group, record)] = object()
        self._broker.kernel.after(seconds, lambda: self._revive(group, record, mark))

    def _revive(self, group: str, record: MessageRecord, mark: object) -> None:
        broker = self._broker
        if self._invisible.get(_hand_out(group, record)) is not mark:
            return
        del self._invisible[_hand_out(group, record)]
        if broker.at_offset(record.physical_offset) is not record:
            return  # deleted by age, or lost with the tail
        broker.kernel.saw("message handed out in vain", f"{group} {record.unique_key[-4:]}")
        topic = record.topic
        if not topic.startswith(RETRY_TOPIC_PREFIX):
            topic, _ = pop_retry_topics(topic, group)
        broker.append(topic, 0, record.properties, record.body, reconsume_times=record.reconsume_times + 1)


def _hand_out(group: str, record: MessageRecord) -> HandOut:
    return group, record.physical_offset
