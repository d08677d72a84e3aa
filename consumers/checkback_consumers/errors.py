"""Errors of the plug-in that receives, by what the service does next.

The common errors come from `reconciler.errors`: catch `TransientError` for failures that a later try may cure,
`UsageError` for a call or a handler that must be corrected.
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
    "IncompleteEffect",
    "InvalidValue",
    "MalformedInput",
    "MissingDependency",
    "RedisAway",
    "TransientError",
    "UnsafeConnection",
    "UsageError",
]


class InboxNotReached(TransientError):
    """The database failed before the handler began, so the error is not about the message. Its error is the cause."""


class HandlerRefused(TransientError):
    """The handler asked to get the message again; its writes were rolled back."""


class IncompleteEffect(TransientError):
    """The key's inbox row is incomplete: a handler ended its transaction halfway. The message is refused until a person
    decides about the effect."""

    def __init__(self, group: str, unique_key: str) -> None:
        super().__init__(
            f"unique key {unique_key} of group {group} has an incomplete inbox row: its handler ended the transaction "
            "before it returned, so that a part of its effect may be missing. It is refused until somebody accepts or "
            "deletes the row: reconciler incomplete"
        )
