"""Closes the pooled connections of an engine."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import event


def replace_pool(engine: sa.Engine) -> None:
    """Closes every connection of the pool, because the cause that cut one idle connection has cut the others, too.

    The engine gets a new pool. A connection in use is closed when it is returned to the old pool: otherwise the old
    pool would keep it open until the garbage collector finds the pool.
    """
    old = engine.pool
    engine.dispose()
    # After dispose(), because the new pool would inherit the listener.
    event.listen(old, "checkin", lambda _connection, entry: entry.invalidate())


def close_engine(engine: sa.Engine) -> None:
    """Closes every connection. A connection in use, or opened later by a running thread, is closed when it is returned.

    engine.dispose() alone leaves such connections to the garbage collector.
    """
    event.listen(
        engine.pool, "checkin", lambda _connection, entry: entry.invalidate()
    )  # before dispose(), so that the new pool inherits the listener
    engine.dispose()
