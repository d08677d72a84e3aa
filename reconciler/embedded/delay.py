"""Delivers delayed messages at their time (ScheduleMessageService). Only the broker's loop uses this module."""

from __future__ import annotations

from reconciler.clock import Clock
from reconciler.embedded.layout import BrokerMessage
from reconciler.embedded.settings import BrokerSettings
from reconciler.embedded.state import BrokerState
from reconciler.embedded.store import SCHEDULE_TOPIC, MessageStore
from reconciler.rocketmq.wire.codes import HALF_TOPIC
from reconciler.rocketmq.wire.properties import INT_MAX, whole_number

_LONGEST_PAUSE_SECONDS = 1.0
_MESSAGES_A_TURN = 1000


class DelayService:
    """Delivers the messages of each delay level in the order of their arrival. The broker's state has the progress of
    each level."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock, store: MessageStore, state: BrokerState) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._state = state

    def deliver_due(self) -> float:
        """Delivers the messages that are due. Returns the seconds after which to call again."""
        pause = _LONGEST_PAUSE_SECONDS
        for queue_id in range(len(self._settings.delay_level_seconds)):
            pause = min(pause, self._deliver_level(queue_id))
        return pause

    def _deliver_level(self, queue_id: int) -> float:
        queue = self._store.queues.find(SCHEDULE_TOPIC, queue_id)
        if queue is None:
            return _LONGEST_PAUSE_SECONDS
        start = max(self._state.delay_offsets.get(queue_id, 0), queue.min_offset)
        position, pause = start, _LONGEST_PAUSE_SECONDS
        while (entry := queue.entry(position)) is not None:
            wait_seconds = (entry[2] - self._clock.now_ms()) / 1000
            if wait_seconds > 0:
                pause = wait_seconds
                break
            if position - start >= _MESSAGES_A_TURN:
                pause = 0.0
                break
            delayed = self._store.message_at(entry[0])
            if delayed is not None:
                self._deliver(delayed)
            position += 1
        if position != start:
            self._state.put_delay_offset(queue_id, position)
        return pause

    def _deliver(self, delayed: BrokerMessage) -> None:
        """Delivers one message (messageTimeup). The stored properties of the message keep DELAY, REAL_TOPIC and
        REAL_QID."""
        topic, queue = delayed.properties.get("REAL_TOPIC"), delayed.properties.get("REAL_QID", "")
        if not topic or whole_number(queue, maximum=INT_MAX) is None or topic == HALF_TOPIC:
            return  # "[BUG] the real topic of schedule msg is {}, discard the msg" (4.6+)
        message = delayed.copied()
        message.topic, message.queue_id = topic, int(queue)
        message.delay_level = 0
        self._store.append(message)
