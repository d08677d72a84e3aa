"""Errors of the plug-in that receives, by what the service does next.

The common ones come from `reconciler.errors`: catch `TransientError` for what a later try may cure, `UsageError` for a
call or a handler that has to be corrected.
"""

from reconciler.errors import (
    Collision,
    ConfigurationError,
    DatabaseAway,
    InvalidValue,
    MalformedInput,
    MissingDependency,
    RedisAway,
    TransientError,
    UsageError,
)
from reconciler.sql.callers_connection import UnsafeConnection

__all__ = [
    "Collision",
    "ConfigurationError",
    "DatabaseAway",
    "HandlerRefused",
    "InboxNotReached",
    "InvalidValue",
    "MalformedInput",
    "MissingDependency",
    "RedisAway",
    "TransientError",
    "UnsafeConnection",
    "UsageError",
]


class InboxNotReached(TransientError):
    """The database failed before the handler began: it says nothing about the message. Its error is the cause."""


class HandlerRefused(TransientError):
    """The handler answered that the message should come again; its writes were rolled back."""
