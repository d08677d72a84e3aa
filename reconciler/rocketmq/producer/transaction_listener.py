"""The service's side of a transactional message (org.apache.rocketmq.client.producer.TransactionListener)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum

from reconciler.errors import told_error, told_value
from reconciler.rocketmq.producer.ending import EndDecision
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage

logger = logging.getLogger(__name__)


class LocalTransactionState(StrEnum):
    """The outcome of the local transaction. Java spells UNKNOWN "UNKNOW"."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    #: The outcome is not known yet. The broker asks again later.
    UNKNOWN = "UNKNOWN"

    @property
    def decision(self) -> EndDecision:
        """The value in END_TRANSACTION."""
        return EndDecision[self.value]


class TransactionListener(ABC):
    """The interface that the sending service implements. None or an exception counts as UNKNOWN, because only a clear
    answer decides."""

    @abstractmethod
    def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState | None:
        """Runs the local transaction after the half is stored. The message has its unique key."""

    @abstractmethod
    def check_local_transaction(self, message: ReceivedMessage) -> LocalTransactionState | None:
        """Returns the outcome of the local transaction. The broker may ask any process of the producer group, at any
        later time."""


def asked(question: Callable[[], LocalTransactionState | None], what: str) -> tuple[LocalTransactionState, str | None]:
    """Asks the service's code for the state. If the code gives no state, returns UNKNOWN and the reason for END's
    remark."""
    try:
        state = question()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also CancelledError, SystemExit and gevent's Timeout, because they decide nothing
        logger.exception("listener_failed: %s raised: UNKNOWN", what)
        return LocalTransactionState.UNKNOWN, f"{what} raised {told_error(error)}"
    if isinstance(state, LocalTransactionState):
        return state, None
    told = f"{what} answered {told_value(state)}"
    logger.error("listener_answer_unknown: %s, not a LocalTransactionState: UNKNOWN", told)
    return LocalTransactionState.UNKNOWN, told
