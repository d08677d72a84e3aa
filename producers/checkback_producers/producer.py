"""The producer of transactional messages. The producer does steps 1 to 3 of the way of one message (ARCHITECTURE.md),
through ports."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from checkback_producers.announcement_batcher import AnnouncementBatcher
from checkback_producers.announcer import Announcer
from checkback_producers.check_answer import (
    CHECK_MAXIMUM_DEFAULT,
    LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT,
    CheckAnswerer,
)
from checkback_producers.counts import Counts
from checkback_producers.entry import prepare_message
from checkback_producers.ports import HalfSender, Outbox
from checkback_producers.transaction import Completion, Transaction, TransactionParts
from reconciler.clock import Clock, SystemClock
from reconciler.errors import ConfigurationError, InvalidValue, UsageError
from reconciler.rocketmq.wire.message import Message

logger = logging.getLogger(__name__)


class TransactionalProducer:
    """Sends transactional messages with outbox and announcement. Thread-safe. A process that forks must create and
    start it after the fork.

    With `completion="end"`, the end of a block reads the outcome and sends END_TRANSACTION. With `completion="check"`,
    the broker's check-back ends the transaction, and the sweeper announces the key, so a sweeper must run. Without an
    outbox (`without_outbox=True`), commits are not proved. This is the weaker mode. `checkback_producers.open_producer`
    makes a producer over the remoting client.
    """

    def __init__(
        self,
        *,
        group: str,
        halves: HalfSender,
        announcer: Announcer,
        outbox: Outbox | None,
        without_outbox: bool = False,
        completion: Completion = "end",
        keep_bodies: bool = False,
        local_transaction_timeout_seconds: float = LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT,
        check_maximum: int = CHECK_MAXIMUM_DEFAULT,
        announce_every_seconds: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Raises ConfigurationError for settings that contradict each other.

        `local_transaction_timeout_seconds` must be longer than the longest local transaction. `check_maximum` is the
        brokers' transactionCheckMax. With `announce_every_seconds` and an outbox, a thread announces and marks all keys
        together that became due within this time. Otherwise, each block announces its own key.
        """
        _require_consistent(outbox, without_outbox=without_outbox, completion=completion, keep_bodies=keep_bodies)
        if not isinstance(group, str) or not group:
            raise InvalidValue("group", group, "the name of the producer group")
        if local_transaction_timeout_seconds <= 0:
            raise InvalidValue(
                "local_transaction_timeout_seconds", local_transaction_timeout_seconds, "more than the longest one"
            )
        clock = clock or SystemClock()
        self.group = group
        self.counts = Counts()
        self._outbox = outbox
        self._halves = halves
        self._batcher = None
        if outbox is not None and announce_every_seconds is not None:
            self._batcher = AnnouncementBatcher(
                announcer,
                outbox,
                producer_group=group,
                counts=self.counts,
                clock=clock,
                interval_seconds=announce_every_seconds,
            )
        self._parts = TransactionParts(
            producer_group=group,
            halves=halves,
            announcer=announcer,
            outbox=outbox,
            batcher=self._batcher,
            completion=completion,
            keep_bodies=keep_bodies,
            clock=clock,
            counts=self.counts,
        )
        self.check_answerer = CheckAnswerer(
            outbox,
            clock=clock,
            local_transaction_timeout_seconds=local_transaction_timeout_seconds,
            check_maximum=check_maximum,
        )
        self._is_running = False

    @property
    def is_weaker(self) -> bool:
        """True if there is no outbox. The announcement is then the only evidence of a commit."""
        return self._outbox is None

    def start(self) -> Self:
        """Reads the outbox's identity, connects, joins the producer group and answers check-backs from now on.

        Can raise DatabaseAway and TransientError. Raises ConfigurationError if tables are missing, or for
        `completion="check"` on brokers that never check back (up to 4.2).
        """
        if self._is_running:
            raise UsageError(
                f"the producer of group {self.group} is started already: start it once. AsyncTransactionalProducer "
                "starts the producer that it gets: do not start it yourself"
            )
        if self._outbox is None:
            logger.warning(
                "no_outbox: producer group %s has no outbox (the weaker mode): commits are not proved, a crash "
                "between commit and announcement is not found, and an outer transaction that rolls back is not noticed",
                self.group,
            )
        try:
            if self._outbox is not None:
                self._outbox.identity()
            self._halves.start(self.check_answerer.answer)
            if self._parts.completion == "check":
                self._require_check_back()
        except BaseException:
            self.shutdown()
            raise
        self._is_running = True
        return self

    def shutdown(self) -> None:
        """Announces waiting keys, leaves the producer group, and closes the outbox's connections. All blocks must have
        ended before."""
        self._is_running = False
        if self._batcher is not None:
            self._batcher.close()
        self._halves.shutdown()
        if self._outbox is not None:
            self._outbox.close()

    def transaction(self, message: Message, *, business_id: str | None = None) -> Transaction:
        """Makes a block for one message. Nothing is sent before the block is entered.

        `business_id` is sent as property BUSINESS_ID. With None, a ULID is sent. Raises InvalidValue for a delay level,
        and for values that the outbox cannot store. Raises UsageError before the producer was started.
        """
        return Transaction(*self.prepared(message, business_id))

    def prepared(self, message: Message, business_id: str | None) -> tuple[TransactionParts, Message]:
        """Returns the parts of a block, for the asynchronous producer. Raises what `transaction` raises."""
        if not self._is_running:
            raise UsageError("the producer is not started: call start(), or use it as a context manager")
        return self._parts, self._prepare(message, business_id, self._halves.next_unique_key())

    def _prepare(self, message: Message, business_id: str | None, unique_key: str) -> Message:
        mark = None if self._outbox is None else self._outbox.identity()
        return prepare_message(message, business_id=business_id, unique_key=unique_key, outbox_mark=mark)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _require_check_back(self) -> None:
        has_check_back = self._halves.has_check_back()
        if has_check_back is False:
            raise ConfigurationError(
                'completion = "check": the brokers are older than 4.3 and never ask back; use completion = "end"'
            )
        if has_check_back is None:
            logger.warning(
                'broker_version_unknown: completion = "check", and no broker answered with its version: '
                "up to 4.2 nothing would be committed"
            )


def _require_consistent(outbox: Outbox | None, *, without_outbox: bool, completion: str, keep_bodies: bool) -> None:
    if completion not in ("end", "check"):
        raise InvalidValue("completion", completion, '"end" or "check"')
    if outbox is not None and not hasattr(outbox, "record"):
        raise InvalidValue("outbox", type(outbox).__qualname__, "give SqlOutbox(url); it opens the database by itself")
    if outbox is None and not without_outbox:
        raise ConfigurationError(
            "the producer has no outbox: give it the URL of its database, or say without_outbox=True, which is weaker"
        )
    if outbox is not None and without_outbox:
        raise ConfigurationError("without_outbox=True contradicts an outbox: remove one of them")
    if outbox is None and completion == "check":
        raise ConfigurationError('completion = "check" needs an outbox: without one check-back always answers UNKNOWN')
    if outbox is None and keep_bodies:
        raise ConfigurationError("keep_bodies needs an outbox to keep them in")
