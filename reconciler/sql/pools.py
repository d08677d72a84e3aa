"""Closes pooled connections: of one engine, or all that one cause has cut."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import event


def replace_pool(engine: sa.Engine) -> None:
    """Closes every connection of the pool, because the cause that cut one idle connection has cut the others, too.

    A connection that is in use is closed when it comes back. The old pool is not used again; otherwise it would keep
    sessions at the server until the garbage collector finds it.
    """
    old = engine.pool
    engine.dispose()
    # comes afterwards, because otherwise the new pool would have it
    event.listen(old, "checkin", lambda _connection, entry: entry.invalidate())


def close_engine(engine: sa.Engine) -> None:
    """Closes every connection: one in use when it is returned, also one that a running thread opens later.

    engine.dispose() leaves both to the garbage collector.
    """
    event.listen(
        engine.pool, "checkin", lambda _connection, entry: entry.invalidate()
    )  # comes before, so that the new pool has it, too
    engine.dispose()
