"""The broker's check-back rounds (TransactionalMessageServiceImpl.check of 4.3 to 5.3).

Each round copies an open half to the end of the half queue, and asks one producer of its group. Only the broker's loop
uses this module. A round lets other work run every few messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from reconciler.clock import Clock
from reconciler.embedded.families import Family
from reconciler.embedded.layout import BrokerMessage
from reconciler.embedded.queues import ConsumeQueue
from reconciler.embedded.settings import BrokerSettings
from reconciler.embedded.state import BrokerState
from reconciler.embedded.store import MessageStore
from reconciler.embedded.transactions import FINISHED_TAG, IMMUNITY, immunity_seconds
from reconciler.rocketmq.wire.codes import CHECK_GROUP, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from reconciler.rocketmq.wire.properties import whole_number

LONGEST_ROUND_SECONDS = 60.0  # MAX_PROCESS_TIME_LIMIT
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
FIRST_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
_MESSAGES_IN_A_ROW = 64  # then other work may run


@dataclass(slots=True)
class _OpMessages:
    """OP messages that a round has read: queue offset of a half -> queue offset of the OP message that names the
    half."""

    next_offset: int
    first_half: int
    named_by: dict[int, int] = field(default_factory=dict)
    open_numbers: dict[int, set[int]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def take(self, half_offset: int) -> bool:
        """Returns True if the half is finished. An OP message is done after all its numbers were taken."""
        op_offset = self.named_by.pop(half_offset, None)
        if op_offset is None:
            return False
        numbers = self.open_numbers.get(op_offset, set())
        numbers.discard(half_offset)
        if not numbers:
            self.open_numbers.pop(op_offset, None)
            self.done.add(op_offset)
        return True

    def add(self, op_offset: int, message: BrokerMessage) -> None:
        """Adds one OP message, as fillOpRemoveMap does. The body of an OP message is "17" up to 5.0, and "12,13,17,"
        from 5.1 on."""
        numbers: set[int] = set()
        if message.properties.get("TAGS") == FINISHED_TAG:
            texts = message.body.decode(errors="replace").split(",")
            read = (whole_number(text) for text in texts)
            numbers = {number for number in read if number is not None and number >= self.first_half}
        for number in numbers:
            self.named_by[number] = op_offset
        if numbers:
            self.open_numbers[op_offset] = numbers
        else:
            self.done.add(op_offset)

    def progress(self, start: int) -> int:
        """Returns the offset of the first OP message that is still needed (calculateOpOffset)."""
        while start in self.done:
            start += 1
        return start


class CheckService:
    """Runs check rounds over the half queue."""

    def __init__(
        self,
        *,
        family: Family,
        settings: BrokerSettings,
        clock: Clock,
        store: MessageStore,
        state: BrokerState,
        ask: Callable[[BrokerMessage], None],
        commit: Callable[[], None],
        fails: Callable[[], bool],
    ) -> None:
        """`fails` returns True if a round must end here with an exception, which saves no offset (RocketMQ #9500)."""
        self._family = family
        self._settings = settings
        self._clock = clock
        self._store = store
        self._state = state
        self._ask = ask
        self._commit = commit
        self._fails = fails
        self.rounds = 0

    async def run_round(self) -> None:
        """Runs one round over the halves from the saved progress on. The round ends at the first half that is too
        young."""
        self._state.ensure_topic(HALF_TOPIC)  # up to 4.9 the first round registers it
        halves = self._store.queues.queue(HALF_TOPIC, 0)
        finished_queue = self._store.queues.queue(OP_TOPIC, 0)
        started_ms = self._clock.now_ms()
        deadline = self._clock.monotonic_seconds() + LONGEST_ROUND_SECONDS
        start, op_start = self._progress(HALF_TOPIC, halves), self._progress(OP_TOPIC, finished_queue)
        finished = _OpMessages(next_offset=op_start, first_half=start)
        self._read_finished(finished, finished_queue)
        position, in_a_row = start, 0
        while self._clock.monotonic_seconds() <= deadline:
            if not finished.take(position):
                half = self._store.message_in(halves, position)
                if half is None:
                    if position >= halves.min_offset:
                        break
                    position = halves.min_offset  # "Illegal offset": jumps over deleted halves
                    continue
                self._read_finished(finished, finished_queue)
                if not finished.take(position):
                    if not self._treat(half, started_ms, finished):
                        break
                    if self._fails():
                        self._commit()
                        return
            position += 1
            in_a_row += 1
            if in_a_row % _MESSAGES_IN_A_ROW == 0:
                self._commit()
                await asyncio.sleep(0)
        self._save(HALF_TOPIC, start, position)
        self._save(OP_TOPIC, op_start, finished.progress(op_start))
        self.rounds += 1
        self._commit()

    def _progress(self, topic: str, queue: ConsumeQueue) -> int:
        saved = self._state.offset_of(CHECK_GROUP, topic, 0)
        return queue.min_offset if saved is None else saved

    def _save(self, topic: str, before: int, after: int) -> None:
        if after != before or self._state.offset_of(CHECK_GROUP, topic, 0) is None:
            self._state.commit_offset(CHECK_GROUP, topic, 0, after)

    def _read_finished(self, finished: _OpMessages, queue: ConsumeQueue) -> None:
        finished.next_offset = max(finished.next_offset, queue.min_offset)
        while (message := self._store.message_in(queue, finished.next_offset)) is not None:
            finished.add(finished.next_offset, message)
            finished.next_offset += 1

    def _treat(self, half: BrokerMessage, started_ms: int, finished: _OpMessages) -> bool:
        """Treats one open half. Returns False to end the round, because this half and all later ones are too young."""
        count = whole_number(half.properties.get(CHECK_TIMES, "0")) or 0
        used_up = count >= max(1, self._settings.check_max or 0)
        if not used_up:
            half.put_properties(trimmed=self._family.trims_properties, **{CHECK_TIMES: str(count + 1)})
        age_ms = self._clock.now_ms() - half.born_timestamp_ms
        if used_up or age_ms > self._settings.reserved_seconds * 1000:
            self._discard(half)
            return True
        if half.store_timestamp_ms >= started_ms:
            return False
        timeout_seconds = self._settings.transaction_timeout_seconds
        immunity = half.properties.get(IMMUNITY)
        if immunity is not None:
            if age_ms <= immunity_seconds(immunity, timeout_seconds) * 1000:
                self._put_back_immune(half, finished)
                return True
        elif 0 <= age_ms <= timeout_seconds * 1000:
            return False
        self._put_back(half)
        return True

    def _put_back(self, half: BrokerMessage) -> None:
        """Appends a copy of the half, then asks a producer with the copy's offsets (putBackHalfMsgQueue)."""
        copy = self._store.append(half.copied())
        half.queue_offset, half.physical_offset = copy.queue_offset, copy.physical_offset
        half.store_host = copy.store_host
        self._ask(half)

    def _put_back_immune(self, half: BrokerMessage, finished: _OpMessages) -> None:
        """Appends a copy without asking a producer. The copy names the queue offset of the first copy
        (checkPrepareQueueOffset)."""
        first = half.properties.get(FIRST_OFFSET)
        number = whole_number(first) if first is not None else None
        if number is not None and finished.take(number):
            return
        offset = first if first is not None else str(half.queue_offset)
        half.put_properties(trimmed=self._family.trims_properties, **{FIRST_OFFSET: offset})
        self._store.append(half.copied())

    def _discard(self, half: BrokerMessage) -> None:
        """Gives the half up (resolveDiscardMsg). Up to 4.5.1, this writes only a log line. Later versions put a copy
        into TRANS_CHECK_MAX_TIME_TOPIC."""
        if not self._family.keeps_discarded:
            return
        self._state.ensure_topic(DISCARD_TOPIC)
        copy = half.copied()
        copy.topic, copy.queue_id = DISCARD_TOPIC, 0
        self._store.append(copy)
