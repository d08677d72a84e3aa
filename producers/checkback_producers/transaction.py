"""One transactional message as a block around the caller's own transaction. The block never commits the caller's
transaction:

with producer.transaction(message) as tx:          # the half is sent
    with engine.begin() as connection:             # the caller's transaction
        tx.record(connection)                      # outbox row: first statement
        ...                                        # business
                                                   # end of block: outcome read, END_TRANSACTION, announcement
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Literal, Self

from checkback_producers.announcement_batcher import AnnouncementBatcher, announce_and_mark
from checkback_producers.announcer import Announcer
from checkback_producers.check_answer import CheckAnswer, decide
from checkback_producers.counts import Counts
from checkback_producers.entry import checked_half_of, entry_of
from checkback_producers.errors import (
    HalfNotSafe,
    KeyTaken,
    NotCommitted,
    NotRecorded,
    RolledBackAlready,
)
from checkback_producers.ports import HalfSender, LocalTransaction, Outbox, OutboxEntry, Outcome, SentHalf
from reconciler.clock import Clock
from reconciler.contract.announcement import AnnouncedKey
from reconciler.contract.properties import BUSINESS_ID
from reconciler.errors import InvalidValue, InvariantViolation, ReconcilerError, UsageError, told_error, with_causes
from reconciler.policy.evidence import EndOutcome, SendAnswer
from reconciler.rocketmq.wire.message import Message

logger = logging.getLogger(__name__)

Completion = Literal["end", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionParts:
    """The parts that all blocks of one producer share."""

    producer_group: str
    halves: HalfSender
    announcer: Announcer
    #: None: the weaker mode.
    outbox: Outbox | None
    #: Announces keys outside of the blocks. None: every block announces its own key.
    batcher: AnnouncementBatcher | None
    completion: Completion
    keep_bodies: bool
    clock: Clock
    counts: Counts


def is_interruption(error: BaseException | None) -> bool:
    """Returns True if an error ended the block that may strike anywhere: CancelledError, KeyboardInterrupt,
    GeneratorExit or SystemExit. An error that was caused by such an error counts, too, for example the TimeoutError of
    asyncio.timeout."""
    return any(not isinstance(one, Exception) for one in with_causes(error))


class _Recording(Enum):
    #: `record` was not called, or it refused. It wrote nothing.
    NOTHING = auto()
    #: `record` failed in the middle. The row may or may not be in the caller's transaction.
    UNCLEAR = auto()
    DONE = auto()


class Block:
    """The steps of a block, shared by Transaction and AsyncTransaction."""

    def __init__(self, parts: TransactionParts, message: Message) -> None:
        self.message = message
        self.outcome: Outcome | None = None
        self.reason = ""
        self.end_answer: SendAnswer | None = None
        #: True if a broker confirmed the announcement and the row is marked as announced. Otherwise, the sweeper
        #: announces the key. With a batcher, another thread sets this value a moment after the block.
        self.is_announced = False
        self._parts = parts
        self._half: SentHalf | None = None
        self._recording = _Recording.NOTHING
        self._local: LocalTransaction | None = None
        self._decision: CheckAnswer | None = None

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of the half and of the committed copy."""
        return self.message.unique_key or ""

    @property
    def business_id(self) -> str:
        """Property BUSINESS_ID: the given business id, or a ULID."""
        return self.message.properties[BUSINESS_ID]

    @property
    def half(self) -> SentHalf:
        """The half. Raises UsageError before the block began."""
        if self._half is None:
            raise UsageError("no half was sent yet: use the transaction as a context manager")
        return self._half

    def send(self) -> None:
        """Sends the half. Raises HalfNotSafe (END ROLLBACK was sent), TransientError or PermanentError."""
        if self._half is not None:
            raise UsageError("a transaction is one block: make another one for another message")
        self._parts.counts.add("halves")
        try:
            self.attach(self._parts.halves.send_half(self.message))
        except HalfNotSafe as error:
            self._parts.counts.add("halves_not_safe")
            self.end_answer = error.end_answer
            self.outcome = Outcome.ROLLBACK
            raise
        except ReconcilerError:
            self._parts.counts.add("halves_failed")
            raise

    def finish(self, *, is_clean: bool, is_interrupted: bool = False) -> None:
        """Reads the outcome, sends END_TRANSACTION and announces a commit. Raises nothing if one of these steps
        fails."""
        decision = self.conclude(is_clean=is_clean, is_interrupted=is_interrupted)
        if decision.outcome is not Outcome.UNKNOWN:
            self._end(decision.outcome)
        self.announce()

    def attach(self, half: SentHalf) -> None:
        """Takes over the half that was sent. From now on, `record` may be called."""
        if half.unique_key != self.unique_key:
            raise InvariantViolation(f"sent {half.unique_key} instead of {self.unique_key}")
        self._half = half

    def conclude(self, *, is_clean: bool, is_interrupted: bool = False) -> CheckAnswer:
        """Reads what became of the local transaction, on a connection of the producer. Sends nothing.

        `is_interrupted` means that the block may have ended anywhere, even right after its commit.
        """
        decision = self._decide(is_clean=is_clean, is_interrupted=is_interrupted)
        self._decision = decision
        self.outcome = decision.outcome
        self.reason = decision.reason
        match decision.outcome:
            case Outcome.COMMIT:
                self._parts.counts.add("committed")
            case Outcome.ROLLBACK:
                self._parts.counts.add("rolled_back")
            case Outcome.UNKNOWN if self._parts.completion == "end":
                self._tell_unknown()
            case Outcome.UNKNOWN:
                self._parts.counts.add("left_to_check_back")
        return decision

    def announce(self) -> None:
        """Announces a committed key and marks its row, or leaves both to the batcher. If that fails, the sweeper does
        both."""
        decision = self._decision
        if decision is None or decision.outcome is not Outcome.COMMIT:
            return
        parts = self._parts
        at_ms = parts.clock.now_ms() if decision.fact is None else decision.fact.created_at_ms
        key = AnnouncedKey(unique_key=self.unique_key, tag=self.message.tags, committed_at_ms=at_ms)
        if parts.batcher is not None and parts.batcher.put(self.message.topic, key, self._note_announced):
            return
        try:
            announced = announce_and_mark(
                parts.announcer, parts.outbox, topic=self.message.topic, producer_group=parts.producer_group, keys=[key]
            )
            if announced.error is not None:
                raise announced.error  # noqa: TRY301  # the handler below logs all failures
            self.is_announced = True
        except Exception as error:  # noqa: BLE001  # the business is committed: nothing here may look like a failure
            parts.counts.add("announcements_failed")
            repeated = "the sweeper tries again" if parts.outbox is not None else "without an outbox it is not repeated"
            logger.warning("announcement_failed: %s: %s; %s", self.unique_key, error, repeated)

    def _note_announced(self) -> None:
        self.is_announced = True

    def require_commit(self) -> None:
        """Raises NotRecorded or NotCommitted for a block that ended without an exception."""
        if self._parts.outbox is None or self.outcome is Outcome.COMMIT:
            return
        if self._recording is not _Recording.DONE:
            self._parts.counts.add("not_recorded")
            raise NotRecorded(
                f"{self.unique_key}: the block ended without a successful record(connection); its outcome is "
                f"{self.outcome}. If the business was committed, it was committed without its message"
            )
        if self.outcome is Outcome.ROLLBACK:
            self._parts.counts.add("not_committed")
            raise NotCommitted(
                f"{self.unique_key}: the local transaction was rolled back, and so was the message. Writes of "
                "the block after a rollback of its own are committed without their message"
            )

    def _tell_unknown(self) -> None:
        self._parts.counts.add("unknown")
        logger.warning(
            "outcome_unknown: %s: %s: nothing sent, check-back and sweeper decide", self.unique_key, self.reason
        )

    @contextmanager
    def _recording_in(self) -> Iterator[tuple[Outbox, OutboxEntry]]:
        """Surrounds the writing of the row, and remembers whether the row may be in the caller's transaction. Raises
        UsageError if no row may be written now."""
        outbox = self._parts.outbox
        if outbox is None:
            raise UsageError("this producer has no outbox (the weaker mode): there is nothing to record")
        if self.outcome is not None:
            raise UsageError("the block has ended: record must be the first statement of the transaction inside it")
        if self._recording is not _Recording.NOTHING:
            raise UsageError("record was called already: one block is one message and one local transaction")
        entry = entry_of(
            self.message,
            self.half,
            producer_group=self._parts.producer_group,
            keep_body=self._parts.keep_bodies,
        )
        self._recording = _Recording.UNCLEAR
        try:
            yield outbox, entry
        except (UsageError, InvalidValue, RolledBackAlready, KeyTaken):
            self._recording = _Recording.NOTHING
            raise
        self._recording = _Recording.DONE

    def _is_open(self) -> bool:
        return self._local is not None and self._local.is_open()

    def _decide(self, *, is_clean: bool, is_interrupted: bool) -> CheckAnswer:
        parts = self._parts
        if parts.outbox is None:
            if is_interrupted:
                return CheckAnswer(outcome=Outcome.UNKNOWN, reason="the block was interrupted (no outbox: not proved)")
            if is_clean:
                return CheckAnswer(outcome=Outcome.COMMIT, reason="the block ended normally (no outbox: not proved)")
            return CheckAnswer(outcome=Outcome.ROLLBACK, reason="the block raised (no outbox: not proved)")
        if self._recording is _Recording.NOTHING:
            return CheckAnswer(outcome=Outcome.ROLLBACK, reason="nothing was recorded")
        if parts.completion == "check":
            return CheckAnswer(outcome=Outcome.UNKNOWN, reason="left to the broker's check-back")
        half = checked_half_of(
            self.message, self.half, producer_group=parts.producer_group, now_ms=parts.clock.now_ms()
        )
        try:
            if self._is_open():
                decision = decide(parts.outbox, half, is_final=False)
                if decision.outcome is Outcome.UNKNOWN:
                    return CheckAnswer(
                        outcome=Outcome.UNKNOWN, reason="the recorded connection is still in a transaction"
                    )
                return decision
            return decide(parts.outbox, half, is_final=True)
        except Exception as error:
            # The transaction may have been committed, so neither business nor broker may take it for rolled back.
            logger.exception("outcome_unreadable: %s: the outcome could not be read", self.unique_key)
            return CheckAnswer(outcome=Outcome.UNKNOWN, reason=told_error(error))

    def _end(self, outcome: Outcome) -> None:
        try:
            answer = self._parts.halves.end(self.half, outcome)
        except Exception as error:
            logger.exception("end_failed: %s: END_TRANSACTION could not be sent", self.unique_key)
            answer = SendAnswer(outcome=EndOutcome.NOT_SENT, detail=told_error(error))
        self.end_answer = answer
        if answer.outcome is not EndOutcome.DONE:
            self._parts.counts.add("ends_failed")
            logger.warning(
                "end_failed: %s: END_TRANSACTION(%s): %s %s; check-back or the reconciler finishes it",
                self.unique_key, outcome, answer.outcome, answer.detail,
            )  # fmt: skip


class Transaction(Block):
    """One block. Only the thread that runs the block may use it.

    `outcome` is None until the block has ended. Then `outcome` is the value that was read: COMMIT, ROLLBACK or UNKNOWN.
    With `completion="check"`, the value is always UNKNOWN, because the broker asks later. `end_answer` is the answer to
    END_TRANSACTION, or None if END_TRANSACTION was not sent.
    """

    def record(self, connection: object) -> None:
        """Writes the outbox row as the first statement of the caller's transaction, without a commit.

        Takes a SQLAlchemy Session or Connection, or a connection of sqlite3, psycopg or PyMySQL. Raises UsageError if
        it is called twice or outside the block, or if there is no outbox. Raises InvalidValue for a text that the
        database would change. Can also raise UnsafeConnection, RolledBackAlready, KeyTaken and DatabaseAway. After an
        error, the caller's transaction must be rolled back, which happens if the exception leaves the block.
        """
        with self._recording_in() as (outbox, entry):
            self._local = outbox.record(connection, entry)

    def __enter__(self) -> Self:
        """Sends the half. Raises HalfNotSafe (END ROLLBACK was sent), TransientError or PermanentError."""
        self.send()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Reads the outcome, sends END_TRANSACTION and announces a commit. An exception in flight passes through.

        If no exception is in flight, the block raises NotRecorded without a row, and NotCommitted without a commit. A
        failed END_TRANSACTION or announcement raises nothing.
        """
        self.finish(is_clean=error is None, is_interrupted=is_interruption(error))
        if error is None:
            self.require_commit()
