"""Errors of the plug-in that receives. Each class stands for one reaction of the service.

The common errors come from `reconciler.errors`. Catch `TransientError` for failures that a later try may cure, and
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
    """The database failed before the handler began, so the message is not the reason. The database's error is the
    `__cause__`."""


class HandlerRefused(TransientError):
    """The handler asked to get the message again. Its writes were rolled back."""


class IncompleteEffect(TransientError):
    """The key's inbox row is incomplete, because a handler ended its transaction before it returned. The message is
    refused until a person decides about the effect."""

    def __init__(self, group: str, unique_key: str) -> None:
        super().__init__(
            f"unique key {unique_key} of group {group} has an incomplete inbox row: its handler ended the transaction "
            "before it returned, so that a part of its effect may be missing. It is refused until somebody accepts or "
            "deletes the row: reconciler incomplete"
        )
