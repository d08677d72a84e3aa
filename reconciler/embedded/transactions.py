"""Half messages and END_TRANSACTION of each family (EndTransactionProcessor, TransactionalMessageBridge).

Like a real broker, this broker does not remember the outcome of a transaction. So a second COMMIT delivers a second
copy. Only the broker's loop uses this module.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.clock import Clock
from reconciler.embedded.families import Family
from reconciler.embedded.faults import Faults
from reconciler.embedded.layout import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    BrokerMessage,
)
from reconciler.embedded.reply import NOT_SET, Reply
from reconciler.embedded.settings import BrokerSettings
from reconciler.embedded.store import MessageStore
from reconciler.rocketmq.wire.codes import HALF_TOPIC, OP_TOPIC, ResponseCode
from reconciler.rocketmq.wire.properties import INT_MAX, whole_number

FINISHED_TAG = "d"  # TransactionalMessageUtil.REMOVE_TAG
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndHeader:
    """The fields of END_TRANSACTION that brokers compare. Brokers never compare msgId."""

    producer_group: str
    state_table_offset: int
    log_offset: int
    decision: int
    from_check: bool


def immunity_seconds(text: str, timeout_seconds: float) -> float:
    """Returns the immunity time, at least transactionTimeOut (TransactionalMessageUtil.getImmunityTime)."""
    return max(float(text) if text.isdecimal() else 0.0, timeout_seconds)


class Transactions:
    """Turns sent messages into halves, and ends halves."""

    def __init__(
        self,
        *,
        family: Family,
        settings: BrokerSettings,
        clock: Clock,
        faults: Faults,
        store: MessageStore,
    ) -> None:
        self._family = family
        self._settings = settings
        self._clock = clock
        self._faults = faults
        self._store = store
        self._finished: list[int] = []  # half queue offsets not yet written to the OP topic (5.1+)
        self._finished_since_seconds = 0.0
        self._finished_bytes = 0

    def to_half(self, message: BrokerMessage) -> None:
        """Makes a half (parseHalfMessageInner of 4.3+). Up to 4.2 a prepared message stays in its topic."""
        if not self._family.has_half_topic:
            return
        changes: dict[str, str | None] = {"REAL_TOPIC": message.topic, "REAL_QID": str(message.queue_id)}
        unique_key = message.properties.get("UNIQ_KEY")
        if self._family.batches_finished and unique_key:
            changes["__transactionId__"] = unique_key
        message.sys_flag &= ~TRANSACTION_MASK
        message.topic, message.queue_id = HALF_TOPIC, 0
        message.put_properties(trimmed=self._family.trims_properties, **changes)

    # -- END ---------------------------------------------------------------------------------------
    def end(self, request: EndHeader) -> Reply | None:
        """Executes one END_TRANSACTION. Returns None, which is no answer, for UNKNOWN and for unknown decisions."""
        if request.decision not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        prepared = self._store.message_at(request.log_offset)
        if prepared is None:
            return self._not_found(request.log_offset)
        if self._comes_too_late(request, prepared):
            return Reply(ResponseCode.ILLEGAL_OPERATION, NOT_SET)
        wrong = self._mismatch(request, prepared)
        if wrong is not None:
            return Reply(ResponseCode.SYSTEM_ERROR, self._family.phrase(wrong))
        if not self._family.has_half_topic:
            return self._append_outcome(request, prepared)
        if request.decision == TRANSACTION_ROLLBACK:
            self._mark_finished(prepared)
            return Reply(ResponseCode.SUCCESS, NOT_SET)
        return self._deliver(request, prepared)

    def _not_found(self, offset: int) -> Reply:
        store = self._store
        inside = store.first_offset <= offset < store.next_offset
        if inside and not self._family.exact_record_lookup:
            # The real broker fails in this way, because MappedFile.selectMappedBuffer reads a size from the middle of a
            # record.
            remark = f"java.lang.IllegalArgumentException: newLimit < 0: ({offset - store.next_offset} < 0), null"
            return Reply(ResponseCode.SYSTEM_ERROR, remark)
        return Reply(ResponseCode.SYSTEM_ERROR, self._family.phrase("Find prepared transaction message failed"))

    def _comes_too_late(self, request: EndHeader, prepared: BrokerMessage) -> bool:
        """Returns True for the producer's own END after the immunity time (rejectCommitOrRollback of 5.1.1+)."""
        text = prepared.properties.get(IMMUNITY)
        if not self._family.rejects_late_end or request.from_check or not text:
            return False
        limit_seconds = immunity_seconds(text, self._settings.transaction_timeout_seconds)
        return self._clock.now_ms() - prepared.born_timestamp_ms > limit_seconds * 1000

    def _mismatch(self, request: EndHeader, prepared: BrokerMessage) -> str | None:
        if prepared.properties.get("PGROUP") != request.producer_group:
            return "The producer group wrong"
        if prepared.queue_offset != request.state_table_offset:
            return "The transaction state table offset wrong"
        return None  # "the commit log offset wrong" cannot happen: the record was found by that offset

    def _append_outcome(self, request: EndHeader, prepared: BrokerMessage) -> Reply:
        """Appends a copy with the bits of the outcome in the same topic (3.x to 4.2)."""
        if self._faults.disk_is_full():
            return Reply(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now.")
        outcome = prepared.copied()
        outcome.sys_flag = outcome.sys_flag & ~TRANSACTION_MASK | request.decision
        outcome.prepared_offset = request.log_offset
        if request.decision == TRANSACTION_ROLLBACK:
            outcome.body = b""
        self._store.append(outcome)
        return Reply()

    def _deliver(self, request: EndHeader, prepared: BrokerMessage) -> Reply:
        properties = prepared.properties
        real_topic, real_queue = properties.get("REAL_TOPIC"), properties.get("REAL_QID", "")
        if not real_topic or whole_number(real_queue, maximum=INT_MAX) is None:
            return Reply(ResponseCode.SYSTEM_ERROR, "java.lang.NumberFormatException: null")
        if self._faults.disk_is_full():
            return Reply(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
        committed = prepared.copied()
        committed.topic, committed.queue_id = real_topic, int(real_queue)
        committed.sys_flag = committed.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        committed.prepared_offset = request.log_offset
        self._store.append(committed)
        self._mark_finished(prepared)
        return Reply()

    # -- OP messages -------------------------------------------------------------------------------
    def _mark_finished(self, half: BrokerMessage) -> None:
        """Writes an OP message (deletePrepareMessage). Up to 5.0, it is written at once. From 5.1 on, OP messages are
        written in batches.

        As on a real broker, the OP message names the record's queue offset, even if the record is no half.
        """
        if not self._family.batches_finished:
            self._write_finished(str(half.queue_offset), half.born_host)
            return
        if not self._finished:
            self._finished_since_seconds = self._clock.monotonic_seconds()
            self._finished_bytes = 0
        self._finished.append(half.queue_offset)
        self._finished_bytes += len(str(half.queue_offset)) + 1
        if self._finished_bytes > self._settings.finished_batch_bytes:
            self.write_finished_batch()

    def write_finished_when_due(self) -> None:
        """Writes the batch if it is at least transactionOpBatchInterval old. The broker calls this method often."""
        if not self._finished:
            return
        age_seconds = self._clock.monotonic_seconds() - self._finished_since_seconds
        if age_seconds >= self._settings.finished_batch_interval_seconds:
            self.write_finished_batch()

    def write_finished_batch(self) -> None:
        """Writes the batch as one OP message, such as "12,13,17,"."""
        if self._finished:
            body = "".join(f"{offset}," for offset in self._finished)
            self._finished.clear()
            self._write_finished(body, self._store.store_host)

    def _write_finished(self, body: str, host: bytes) -> None:
        message = BrokerMessage(
            topic=OP_TOPIC,
            queue_id=0,
            body=body.encode(),
            born_timestamp_ms=self._clock.now_ms(),
            born_host=host,
        )
        message.put_properties(trimmed=self._family.trims_properties, TAGS=FINISHED_TAG)
        self._store.append(message)
