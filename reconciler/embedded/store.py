"""The message store, with one commit log, its consume queues and its key index (DefaultMessageStore, CommitLog).

Messages are kept in memory. With a LogFolder, each message is also written to disk before the broker answers anything
about it. Only the broker's loop uses this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from reconciler.clock import Clock
from reconciler.embedded.families import Family
from reconciler.embedded.faults import Faults
from reconciler.embedded.index import HashIndex, IndexHits, index_keys
from reconciler.embedded.layout import (
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    BrokerMessage,
    decode,
    encode,
    offset_message_id,
    store_timestamp_of,
    tags_code,
)
from reconciler.embedded.log_file import LogFolder
from reconciler.embedded.queues import ConsumeQueue, QueueTable
from reconciler.embedded.settings import BrokerSettings
from reconciler.rocketmq.wire.properties import whole_number

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_RETIRED_AT_ONCE = 8  # limit of one append above a cap


class MessageStore:
    """Appends, reads and retires messages."""

    def __init__(
        self,
        *,
        family: Family,
        settings: BrokerSettings,
        clock: Clock,
        faults: Faults,
        log: LogFolder | None,
    ) -> None:
        self._family = family
        self._settings = settings
        self._clock = clock
        self._log = log
        self.store_host = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
        self.queues = QueueTable()
        self.index = HashIndex(clock, lambda: faults.index_lag_seconds)
        self._records: dict[int, bytes] = {}
        self._order: deque[int] = deque()
        self._bytes = 0
        self.next_offset = 0
        self.arrived: list[tuple[str, int, int]] = []  # (topic, queue, tags code) since the last commit
        self.stored_total = 0
        self.is_unwritable = False  # True: writing the log failed, so sends are refused
        self.on_delayed: Callable[[], None] = lambda: None

    # -- writing -----------------------------------------------------------------------------------
    def append(self, message: BrokerMessage) -> BrokerMessage:
        """Stores the message, makes it visible, and returns it with its offsets."""
        transaction = message.sys_flag & TRANSACTION_MASK
        if transaction in (0, TRANSACTION_COMMIT):
            self._delay(message)
        queued = transaction not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
        queue = self.queues.queue(message.topic, message.queue_id) if queued else None
        message.queue_offset = queue.max_offset if queue is not None else 0
        message.physical_offset = self.next_offset
        message.store_timestamp_ms = self._clock.now_ms()
        message.store_host = self.store_host
        if len(self.store_host) > 8:
            message.sys_flag |= STORE_HOST_V6
        record = encode(message)
        if self._log is not None:
            self._log.append_message(record, message.physical_offset)
        self._file_away(message, record)
        if self._is_over_a_cap():
            self.retire(most=_RETIRED_AT_ONCE)
        return message

    def _delay(self, message: BrokerMessage) -> None:
        """Puts a message with a delay level into the schedule topic (CommitLog.putMessage)."""
        level = message.delay_level
        if level is None:
            level = whole_number(message.properties.get("DELAY", "0")) or 0
        if level <= 0:
            return
        level = min(level, len(self._settings.delay_level_seconds))
        message.put_properties(
            trimmed=self._family.trims_properties,
            REAL_TOPIC=message.topic,
            REAL_QID=str(message.queue_id),
            DELAY=str(level),
        )
        message.topic = SCHEDULE_TOPIC
        message.queue_id = level - 1

    def _file_away(self, message: BrokerMessage, record: bytes) -> None:
        self._records[message.physical_offset] = record
        self._order.append(message.physical_offset)
        self._bytes += len(record)
        self.next_offset = message.physical_offset + len(record)
        self.stored_total += 1
        transaction = message.sys_flag & TRANSACTION_MASK
        if transaction in (0, TRANSACTION_COMMIT):
            code = self._code_of(message)
            queue = self.queues.queue(message.topic, message.queue_id)
            queue.append(message.physical_offset, len(record), code)
            self.arrived.append((message.topic, message.queue_id, code))
        if self._is_indexed(transaction):
            hashes = index_keys(message, unique_key=self._family.indexes_unique_key)
            if hashes:
                self.index.add(hashes, message.physical_offset, message.store_timestamp_ms)

    def _code_of(self, message: BrokerMessage) -> int:
        if message.topic != SCHEDULE_TOPIC:
            return tags_code(message.properties.get("TAGS"))
        self.on_delayed()
        levels = self._settings.delay_level_seconds
        seconds = levels[min(message.queue_id, len(levels) - 1)]
        return message.store_timestamp_ms + round(seconds * 1000)  # computeDeliverTimestamp

    def _is_indexed(self, transaction: int) -> bool:
        if transaction == TRANSACTION_COMMIT:
            return self._family.indexes_committed
        return transaction != TRANSACTION_ROLLBACK

    def restore(self, record: bytes) -> None:
        """Takes over a record of the log. Recovery calls this method."""
        message = decode(record)
        if message.sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT):
            self.queues.queue(message.topic, message.queue_id).skip_to(message.queue_offset)
        self._file_away(message, record)
        if self._log is not None:
            self._log.note_recovered(message.physical_offset)

    def lose_tail(self, count: int) -> None:
        """Loses the newest `count` messages of the log, whatever their topics. New messages get the offsets of the lost
        messages in log and queues."""
        if count > 0 and self._order:
            physical_offset = self._order[max(0, len(self._order) - count)]
            if self._log is not None:
                self._log.append_state({"t": "tail", "v": physical_offset})
            self.cut(physical_offset)

    def cut(self, physical_offset: int) -> None:
        """Ends the log at this offset. Recovery uses this method, too."""
        while self._order and self._order[-1] >= physical_offset:
            self._bytes -= len(self._records.pop(self._order.pop()))
        self.next_offset = physical_offset
        for _, _, queue in self.queues:
            queue.cut(physical_offset)
        self.index.cut(physical_offset)

    # -- reading -----------------------------------------------------------------------------------
    @property
    def first_offset(self) -> int:
        """The log offset of the oldest kept message."""
        return self._order[0] if self._order else self.next_offset

    def record_at(self, physical_offset: int) -> bytes | None:
        """Returns the record that begins exactly at the log offset."""
        return self._records.get(physical_offset)

    def message_at(self, physical_offset: int) -> BrokerMessage | None:
        """Decodes the record that begins exactly at the log offset."""
        record = self._records.get(physical_offset)
        return decode(record) if record is not None else None

    def message_in(self, queue: ConsumeQueue, queue_offset: int) -> BrokerMessage | None:
        """Returns the message at a queue offset. Returns None if the message was never stored or is deleted."""
        entry = queue.entry(queue_offset)
        return self.message_at(entry[0]) if entry is not None else None

    def store_time(self, physical_offset: int) -> int:
        """Returns STORETIMESTAMP of a record in milliseconds. Returns 0 if the record is deleted."""
        record = self._records.get(physical_offset)
        return store_timestamp_of(record) if record is not None else 0

    def find(self, topic: str, key: str, *, maximum: int, begin_ms: int, end_ms: int) -> tuple[IndexHits, list[bytes]]:
        """Finds messages for QUERY_MESSAGE. Returns the hits of the index, and their records. The oldest record comes
        first."""
        found = self.index.find(topic, key, maximum=maximum, begin_ms=begin_ms, end_ms=end_ms)
        records = [self._records[offset] for offset in found.offsets if offset in self._records]
        return found, records

    def message_id(self, message: BrokerMessage) -> str:
        """Returns the offset message id of a stored message."""
        return offset_message_id(message.store_host, message.physical_offset)

    # -- retention ---------------------------------------------------------------------------------
    def _is_over_a_cap(self) -> bool:
        settings = self._settings
        return self._bytes > settings.max_stored_bytes or len(self._order) > settings.max_stored_messages

    def retire(self, *, most: int | None = None) -> int:
        """Deletes messages that are older than the retention or above the caps. Begins with the oldest message. Returns
        the number of deleted messages.

        One call deletes at most ``most`` messages, because the broker answers nothing meanwhile.
        """
        oldest_ms = self._clock.now_ms() - round(self._settings.retention_seconds * 1000)
        retired = 0
        while self._order and (most is None or retired < most):
            record = self._records[self._order[0]]
            if not self._is_over_a_cap() and store_timestamp_of(record) >= oldest_ms:
                break
            self._drop_oldest(record)
            retired += 1
        if retired and self._log is not None:
            self._log.forget_below(self.first_offset)
        return retired

    def _drop_oldest(self, record: bytes) -> None:
        physical_offset = self._order.popleft()
        del self._records[physical_offset]
        self._bytes -= len(record)
        message = decode(record)
        self.index.forget(index_keys(message, unique_key=self._family.indexes_unique_key), physical_offset)
        self.queues.queue(message.topic, message.queue_id).forget_below(physical_offset + 1)
