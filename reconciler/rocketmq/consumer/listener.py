"""The form of a consumer's user code, and the meaning of the results that this code returns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.errors import told_error, told_value
from reconciler.rocketmq.wire.received_message import ReceivedMessage

logger = logging.getLogger(__name__)


class ConsumeStatus(StrEnum):
    """The result that a listener returns for a batch."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    #: A concurrent consumer sends the batch back to the broker, which delivers it later. An orderly consumer runs the
    #: same batch again after a pause.
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(frozen=True, slots=True)
class FailedAt:
    """The result of a listener that handles a batch message by message. Messages before `position` are done. The
    message at `position` comes again. Messages after `position` were not looked at and lose no retry. Java's ackIndex
    sends these messages back, too."""

    position: int


#: The listener gets 1 to `batch_size` messages of one queue and one topic, although a retry queue holds several topics.
#: None, an exception or an unknown result means RECONSUME_LATER, because a listener that forgets its result must not
#: lose a message.
MessageListener = Callable[[Sequence[ReceivedMessage]], ConsumeStatus | FailedAt | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAnswer:
    """The result of a listener, with a reason if the listener gave no result."""

    status: ConsumeStatus
    #: The answer to CONSUME_MESSAGE_DIRECTLY (CMResult in Java): CR_SUCCESS, CR_LATER, CR_RETURN_NULL or
    #: CR_THROW_EXCEPTION.
    direct_result: str
    remark: str = ""
    #: Position of the message that failed, if the listener named the message.
    failed_at: int | None = None

    def split(
        self, messages: Sequence[ReceivedMessage]
    ) -> tuple[Sequence[ReceivedMessage], Sequence[ReceivedMessage], Sequence[ReceivedMessage]]:
        """Returns three lists of messages: done, failed, and not looked at."""
        if self.is_success:
            return messages, (), ()
        if self.failed_at is None:
            return (), messages, ()
        return messages[: self.failed_at], [messages[self.failed_at]], messages[self.failed_at + 1 :]

    @property
    def is_success(self) -> bool:
        """True if all messages of the batch are done."""
        return self.status is ConsumeStatus.CONSUME_SUCCESS


def call_listener(listener: MessageListener, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
    """Runs the user code. Raises only KeyboardInterrupt."""
    try:
        status = listener(messages)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # CancelledError, SystemExit and gevent's Timeout, too: the messages come again
        logger.exception("listener_failed: the listener raised; %d messages come again", len(messages))
        return ListenerAnswer(
            status=ConsumeStatus.RECONSUME_LATER,
            direct_result="CR_THROW_EXCEPTION",
            remark=told_error(error),
        )
    if status is ConsumeStatus.CONSUME_SUCCESS:
        return ListenerAnswer(status=status, direct_result="CR_SUCCESS")
    if status is ConsumeStatus.RECONSUME_LATER:
        return ListenerAnswer(status=status, direct_result="CR_LATER")
    if isinstance(status, FailedAt) and 0 <= status.position < len(messages):
        return ListenerAnswer(status=ConsumeStatus.RECONSUME_LATER, direct_result="CR_LATER", failed_at=status.position)
    logger.error(
        "listener_answer_unknown: the listener answered %s, not a ConsumeStatus; %d messages come again",
        told_value(status),
        len(messages),
    )
    return ListenerAnswer(
        status=ConsumeStatus.RECONSUME_LATER, direct_result="CR_RETURN_NULL", remark=f"answered {told_value(status)}"
    )
