"""Counts rounds, losses and repairs of the last hours in buckets.

Four statements read a range of buckets. Each statement reads at most the newest ROWS_MAX rows of one range of an index.
Buckets that ended more than an hour ago are remembered, so a chart of three days costs as little as one of some hours.
Each call reads some remembered buckets again, because a loss is proved later than its key was first seen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from reconciler.ledger.database import LedgerDatabase
from reconciler.sql.tables import candidate, repair, round_row
from reconciler.telling.ports.activity import Activity, ActivityBucket

#: Maximum number of rows that one statement reads. If rounds reach this limit, the buckets before the oldest round that
#: was read are unknown.
ROWS_MAX = 1_000_000
#: Buckets that ended this long ago are remembered.
REMEMBERED_AFTER_MS = 3_600_000
#: Each call reads this number of remembered buckets again: the buckets that were read longest ago.
READ_AGAIN = 2

_Counts = Mapping[int, sa.Row[Any]]
#: Number of a bucket, counted from 1970 -> the bucket. The bucket that was read longest ago comes first.
_Buckets = dict[int, ActivityBucket]


class SqlActivities:
    """Counts of activity, read by SQL. Thread-safe. Every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, *, rows_max: int = ROWS_MAX) -> None:
        self._database = database
        self._rows_max = rows_max
        self._lock = threading.Lock()
        #: Remembered buckets by environment, hours and width: a cache, whose missing buckets are read from the ledger.
        self._remembered: dict[tuple[str, int, int], _Buckets] = {}

    def of_hours(self, environment: str, *, hours: int, width_ms: int) -> Activity:
        """Returns the activity of the last hours. Rows with a damaged time are in no bucket."""
        asked = (environment, hours, width_ms)
        with self._lock:
            known = dict(self._remembered.get(asked, {}))
        with self._database.reading() as connection:
            now_ms = self._database.read_now_ms(connection)
            until = now_ms // width_ms + 1
            wanted = range(until - hours * 3_600_000 // width_ms, until)
            known = {number: bucket for number, bucket in known.items() if number in wanted}
            missing = [number for number in wanted if number not in known]
            for begin, end in _stretches([*missing, *list(known)[:READ_AGAIN]]):
                of = _Range(
                    environment=environment, from_ms=begin * width_ms, until_ms=end * width_ms, width_ms=width_ms
                )
                for bucket in self._read(connection, of):
                    known.pop(bucket.from_ms // width_ms, None)  # the newest reading comes last
                    known[bucket.from_ms // width_ms] = bucket
        last = (now_ms - REMEMBERED_AFTER_MS) // width_ms
        with self._lock:
            self._remembered[asked] = {n: one for n, one in known.items() if n < last and one.announced is not None}
        return Activity(width_ms=width_ms, buckets=[known[number] for number in wanted])

    def _read(self, connection: sa.Connection, of: _Range) -> Iterator[ActivityBucket]:
        """Yields the buckets of one range."""
        rounds = _by_bucket(connection, of.rounds(self._rows_max))
        losses = _by_bucket(connection, of.losses(self._rows_max))
        repairs = _by_bucket(connection, of.repairs(self._rows_max))
        proofs = _by_bucket(connection, of.proofs(self._rows_max))
        # If the statement read its maximum of rounds, the oldest bucket is incomplete.
        is_full = sum(row.n for row in rounds.values()) >= self._rows_max
        first_known = min(rounds) + 1 if is_full else 0
        for number, from_ms in enumerate(range(of.from_ms, of.until_ms, of.width_ms)):
            yield ActivityBucket(
                from_ms=from_ms,
                announced=None if number < first_known else _number(rounds, number, "announced"),
                matched=None if number < first_known else _number(rounds, number, "matched"),
                losses=_number(losses, number, "n"),
                repairs=_number(repairs, number, "n"),
                detection_mean_ms=_time(proofs, number, "mean_ms"),
                detection_max_ms=_time(proofs, number, "max_ms"),
            )


def _stretches(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields the ranges of neighbouring numbers, each as (first number, last number + 1)."""
    begin = end = None
    for number in sorted(numbers):
        if begin is None or number != end:
            if begin is not None and end is not None:
                yield begin, end
            begin = number
        end = number + 1
    if begin is not None and end is not None:
        yield begin, end


class _Range:
    """The statements for one range of time."""

    def __init__(self, *, environment: str, from_ms: int, until_ms: int, width_ms: int) -> None:
        self._environment = environment
        self.from_ms = from_ms
        self.until_ms = until_ms
        self.width_ms = width_ms

    def rounds(self, limit: int) -> sa.Select[Any]:
        """Counts the rounds that are not void."""
        c = round_row.c
        matched = (c.matched + c.pending_matched).label("matched")
        newest = (
            sa.select(c.stored_at_ms.label("at_ms"), c.announced, matched)
            .where(c.environment == self._environment, self._is_in(c.stored_at_ms), c.void == 0)
            .order_by(c.stored_at_ms.desc())
            .limit(limit)
            .subquery()
        )
        return self._counted(newest, *(sa.func.sum(newest.c[name]).label(name) for name in ("announced", "matched")))

    def losses(self, limit: int) -> sa.Select[Any]:
        """Counts losses by the time at which their key was first seen."""
        c = candidate.c
        newest = (
            sa.select(c.first_seen_ms.label("at_ms"))
            .where(c.environment == self._environment, self._is_in(c.first_seen_ms), c.loss_verdict.is_not(None))
            .order_by(c.first_seen_ms.desc())
            .limit(limit)
            .subquery()
        )
        return self._counted(newest)

    def repairs(self, limit: int) -> sa.Select[Any]:
        """Counts repairs by the time at which they became DONE."""
        c = repair.c
        newest = (
            sa.select(c.done_at_ms.label("at_ms"))
            .where(c.environment == self._environment, self._is_in(c.done_at_ms))
            .order_by(c.done_at_ms.desc())
            .limit(limit)
            .subquery()
        )
        return self._counted(newest)

    def proofs(self, limit: int) -> sa.Select[Any]:
        """Measures the time from the first sight of a key to the opening of its repair. A repair is opened when the
        loss is proved."""
        r, c = repair.c, candidate.c
        newest = (
            sa.select(r.created_at_ms.label("at_ms"), r.topic, r.unique_key)
            .where(r.environment == self._environment, self._is_in(r.created_at_ms))
            .order_by(r.created_at_ms.desc())
            .limit(limit)
            .subquery()
        )
        took = sa.case((newest.c.at_ms > c.first_seen_ms, newest.c.at_ms - c.first_seen_ms), else_=0)
        of_key = (c.unique_key == newest.c.unique_key) & (c.topic == newest.c.topic)
        lost = (c.environment == self._environment) & c.loss_verdict.is_not(None) & self._is_time(c.first_seen_ms)
        bucket = self._bucket(newest.c.at_ms)
        return (
            sa.select(bucket, sa.func.avg(took).label("mean_ms"), sa.func.max(took).label("max_ms"))
            .select_from(newest.join(candidate, of_key))
            .where(lost)
            .group_by(bucket)
        )

    def _counted(self, newest: sa.Subquery, *sums: sa.Label[Any]) -> sa.Select[Any]:
        bucket = self._bucket(newest.c.at_ms)
        return sa.select(bucket, sa.func.count().label("n"), *sums).group_by(bucket)

    def _bucket(self, at_ms: sa.ColumnElement[int]) -> sa.Label[int]:
        # The two numbers must not be parameters: a database compares the text of a selected expression with the text in
        # GROUP BY.
        since_ms = at_ms - sa.literal_column(str(self.from_ms), sa.BigInteger())
        return (since_ms // sa.literal_column(str(self.width_ms), sa.BigInteger())).label("bucket")

    def _is_in(self, at_ms: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        return (at_ms >= self.from_ms) & (at_ms < self.until_ms)

    def _is_time(self, at_ms: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Excludes texts and bytes. SQLite alone stores texts and bytes in a column of numbers, after all numbers in
        the order."""
        return at_ms < self.until_ms


def _by_bucket(connection: sa.Connection, statement: sa.Select[Any]) -> _Counts:
    return {int(row.bucket): row for row in connection.execute(statement)}


def _number(counts: _Counts, bucket: int, name: str) -> int:
    row = counts.get(bucket)
    return 0 if row is None else int(getattr(row, name) or 0)


def _time(counts: _Counts, bucket: int, name: str) -> int | None:
    row = counts.get(bucket)
    return None if row is None else int(getattr(row, name))
