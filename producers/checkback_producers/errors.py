"""Errors of the plug-in that sends. Each class stands for one reaction of the service.

The common errors come from `reconciler.errors`. Catch `TransientError` for failures that another block may cure, and
`UsageError` for a block that must be written differently.
"""

from __future__ import annotations

from reconciler.errors import (
    Collision,
    ConfigurationError,
    DatabaseAway,
    InvalidValue,
    MissingDependency,
    PermanentError,
    TransientError,
    UsageError,
)
from reconciler.policy.evidence import SendAnswer
from reconciler.rocketmq.producer.transaction_producer import TransactionsRejected
from reconciler.sql.callers_connection import UnsafeConnection

__all__ = [
    "ConfigurationError",
    "DatabaseAway",
    "HalfNotSafe",
    "InvalidValue",
    "KeyTaken",
    "MissingDependency",
    "NoPlace",
    "NotCommitted",
    "NotRecorded",
    "PermanentError",
    "RolledBackAlready",
    "TransactionsRejected",
    "TransientError",
    "UnsafeConnection",
    "UsageError",
]


class NotRecorded(UsageError):
    """The block ended normally without a successful `tx.record(connection)`. The message was rolled back.

    If the business transaction was committed nevertheless, it has no message. Make `record` its first statement.
    """


class NotCommitted(UsageError):
    """The block ended normally, but its recorded transaction was rolled back. The message was rolled back, too."""


class RolledBackAlready(TransientError):
    """The broker checked back before the local transaction had recorded its row. The answer was ROLLBACK.

    The local transaction must not commit. Roll it back and run the block again. If this error happens often,
    transactions last longer than `local_transaction_timeout_seconds`.
    """


class KeyTaken(Collision):
    """The outbox holds another transaction's row under this unique key. The local transaction must not commit."""


class NoPlace(TransientError):
    """`blocks_max` blocks were open for the whole waiting time. Nothing was sent. A later try can succeed."""


class HalfNotSafe(TransientError):
    """The half was stored less safely than the broker is configured (flush or replica missing), and was rolled back."""

    def __init__(self, unique_key: str, *, status: str, end_answer: SendAnswer | None) -> None:
        self.unique_key = unique_key
        #: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE.
        self.status = status
        #: The answer to END ROLLBACK.
        self.end_answer = end_answer
        super().__init__(
            f"{unique_key}: the broker answered {status}: the half is not as safe as configured; it was rolled "
            "back and nothing was done, try again"
        )
