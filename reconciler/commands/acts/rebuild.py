"""`reconciler rebuild`: a person puts inbox rows back into Redis after an outage."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.clock import utc_text
from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.asking.availability import ask_databases, ask_ledger, ask_redis, require
from reconciler.errors import InvalidValue
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import RoundAssembly


def require_past(connections: Connections, since_ms: int | None, *, field: str) -> None:
    """Raises InvalidValue for a time in the future. A scan from such a time finds 0 rows, as if no row were missing."""
    if since_ms is not None and since_ms > connections.clock.now_ms():
        raise InvalidValue(field, utc_text(since_ms), "it is of the future: give a time before the outage, UTC")


def put_back(
    connections: Connections,
    *,
    since_ms: int | None,
    by: str,
    progress: Callable[[int], None],
    reason: str = "",
    assembly: RoundAssembly | None = None,
) -> int:
    """Scans inboxes into the commit sets, and returns the number of rows.

    `assembly`: the assembly of a process that rebuilds more than once. None: a new assembly. Raises UsageError,
    InvalidValue, RedisAway, DatabaseAway.
    """
    require_past(connections, since_ms, field="--since")
    require(ask_redis(connections) | ask_ledger(connections) | ask_databases(connections))
    recovery = (assembly or RoundAssembly(connections)).recovery(has_deadlines=False)
    detail = ", ".join(text for text in ("" if since_ms is None else f"since {utc_text(since_ms)}", reason) if text)
    with recorded(connections, "rebuild", by=by, detail=detail) as outcome:
        scanned = recovery.rebuild(connections.settings.environment, since_ms=since_ms, progress=progress)
        outcome.result = f"{scanned} inbox rows put back"
    return scanned
