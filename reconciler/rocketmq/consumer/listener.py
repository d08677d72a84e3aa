"""The form of a consumer's user code, and how its result is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.errors import told_error
from reconciler.rocketmq.wire.received_message import ReceivedMessage

logger = logging.getLogger(__name__)


class ConsumeStatus(StrEnum):
    """The result of a listener for its batch."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    #: Concurrent: sent back to the broker, which delivers it later. Orderly: the same batch again after a pause.
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(frozen=True, slots=True)
class FailedAt:
    """The result of a listener that handles its batch message by message: messages before `position` are done, that one
    comes again, and those after it were not looked at and lose no retry (Java's ackIndex sends them back, too)."""

    position: int


#: Gets one to `batch_size` messages of one queue and one topic (a retry queue holds several topics). Any result but
#: CONSUME_SUCCESS, also None or an exception, means RECONSUME_LATER, because a listener that forgets its result must
#: not lose a message.
MessageListener = Callable[[Sequence[ReceivedMessage]], ConsumeStatus | FailedAt | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAnswer:
    """A listener's result, with a reason if the listener gave none."""

    status: ConsumeStatus
    #: CR_SUCCESS, CR_LATER, CR_RETURN_NULL or CR_THROW_EXCEPTION (Java's CMResult, for CONSUME_MESSAGE_DIRECTLY).
    direct_result: str
    remark: str = ""
    #: The one message that failed, if the listener named it.
    failed_at: int | None = None

    def split(
        self, messages: Sequence[ReceivedMessage]
    ) -> tuple[Sequence[ReceivedMessage], Sequence[ReceivedMessage], Sequence[ReceivedMessage]]:
        """Returns the messages that are done, that failed, and that were not looked at."""
        if self.is_success:
            return messages, (), ()
        if self.failed_at is None:
            return (), messages, ()
        return messages[: self.failed_at], [messages[self.failed_at]], messages[self.failed_at + 1 :]

    @property
    def is_success(self) -> bool:
        """The messages are done."""
        return self.status is ConsumeStatus.CONSUME_SUCCESS


def call_listener(listener: MessageListener, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
    """Runs the user code; raises only KeyboardInterrupt."""
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
        "listener_answer_unknown: the listener answered %r, not a ConsumeStatus; %d messages come again",
        status,
        len(messages),
    )
    return ListenerAnswer(
        status=ConsumeStatus.RECONSUME_LATER, direct_result="CR_RETURN_NULL", remark=f"answered {status!r}"
    )
