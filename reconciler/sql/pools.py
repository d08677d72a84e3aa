"""The end of pooled connections: of one engine, or of all that one cause has cut."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import event


def replace_pool(engine: sa.Engine) -> None:
    """Closes every connection of the pool: the cause that cut one idle connection has cut the others, too.

    A connection that is in use is closed when it comes back. Nobody asks the old pool again, which would keep the
    session at the server until the garbage collector finds it.
    """
    old = engine.pool
    engine.dispose()
    event.listen(old, "checkin", lambda _connection, entry: entry.invalidate())  # afterwards: else the new pool has it


def close_engine(engine: sa.Engine) -> None:
    """Closes every connection: one in use when it comes back, and so one that a thread opens which has not ended yet.

    engine.dispose() leaves both to the garbage collector.
    """
    event.listen(
        engine.pool, "checkin", lambda _connection, entry: entry.invalidate()
    )  # before: the new pool has it, too
    engine.dispose()
