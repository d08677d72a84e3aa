"""Inbox rows whose effect may be half, found and ended by hand: accepted as complete, or deleted to run again.

Every act is one conditional statement with the mark that was seen: what has changed meanwhile is left, and told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import FORMER_NAMES_TOPIC, Ending
from reconciler.sql.engines import database_now_ms, reading, shown, writing
from reconciler.sql.key_probes import probe
from reconciler.sql.tables import inbox

#: A handler that has committed halfway may still be at work: RocketMQ gives it 15 minutes (consumeTimeout).
YOUNG_SECONDS = 900.0
#: The two rows of one effect are written together: their times bound the search, since no index has `duplicate_of`.
FORMER_NAME_WITHIN_MS = 60_000
#: Rows of one statement that reads or acts.
ROWS_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteRow:
    """A row as a person sees it."""

    unique_key: str
    mark: str
    written_at_ms: int
    #: Its handler may still be at work.
    is_young: bool


class IncompleteRows:
    """The incomplete rows of one group's topic in one database. The caller disposes of the engine.

    Raises DatabaseAway, also for a right that is missing (SELECT, UPDATE of `incomplete`, DELETE), and
    ConfigurationError where the column is missing.
    """

    def __init__(self, engine: sa.Engine, subscription: Subscription) -> None:
        self._engine = engine
        self.database = shown(engine)
        self._group = subscription.group
        self._of = (inbox.c.consumer_group == subscription.group) & (inbox.c.topic == subscription.topic)

    def of_keys(self, unique_keys: Sequence[str]) -> list[IncompleteRow]:
        """The incomplete ones among them, by key."""
        query = self._query()
        with reading(self._engine) as connection:
            now_ms = database_now_ms(connection)
            found = [
                _row(row, now_ms)
                for first in range(0, len(unique_keys), ROWS_AT_ONCE)
                for row in probe(connection, query, inbox.c.unique_key, unique_keys[first : first + ROWS_AT_ONCE])
            ]
        return sorted(found, key=lambda row: row.unique_key)

    def all(self, *, limit: int) -> list[IncompleteRow]:
        """The oldest of the group. No index has them: all rows of the group are read."""
        query = self._query().order_by(inbox.c.applied_at_ms, inbox.c.unique_key).limit(limit)
        with reading(self._engine) as connection:
            now_ms = database_now_ms(connection)
            return [_row(row, now_ms) for row in connection.execute(query)]

    def end(self, rows: Sequence[IncompleteRow], ending: Ending) -> set[str]:
        """Ends each as it was seen. Returns the keys of those that were ended; the others had changed."""
        ended: set[str] = set()
        for first in range(0, len(rows), ROWS_AT_ONCE):
            with writing(self._engine) as connection:
                for row in rows[first : first + ROWS_AT_ONCE]:
                    as_seen = self._of & (inbox.c.unique_key == row.unique_key) & (inbox.c.incomplete == row.mark)
                    act = (
                        sa.update(inbox).where(as_seen).values(incomplete=None)
                        if ending is Ending.ACCEPT
                        else sa.delete(inbox).where(as_seen)
                    )
                    if connection.execute(act).rowcount == 1:
                        ended.add(row.unique_key)
                        if ending is Ending.DELETE:
                            connection.execute(self._without_former_name(row))
        return ended

    def _without_former_name(self, row: IncompleteRow) -> sa.Delete:
        """The effect's row for releases up to 0.2.0, of the same transaction: it would make the key a duplicate."""
        at_ms = inbox.c.applied_at_ms
        return sa.delete(inbox).where(
            inbox.c.consumer_group == self._group,
            inbox.c.topic == FORMER_NAMES_TOPIC,
            inbox.c.duplicate_of == row.unique_key,
            at_ms.between(row.written_at_ms - FORMER_NAME_WITHIN_MS, row.written_at_ms + FORMER_NAME_WITHIN_MS),
        )

    def _query(self) -> sa.Select[tuple[str, int, str]]:
        columns = (inbox.c.unique_key, inbox.c.applied_at_ms, inbox.c.incomplete)
        return sa.select(*columns).where(self._of, inbox.c.incomplete.is_not(None))


def _row(row: sa.Row[tuple[str, int, str]], now_ms: int) -> IncompleteRow:
    return IncompleteRow(
        unique_key=row.unique_key,
        mark=row.incomplete,
        written_at_ms=row.applied_at_ms,
        is_young=now_ms - row.applied_at_ms < YOUNG_SECONDS * 1000,
    )
