"""Counts candidates and repairs of each kind by an index, up to a limit per kind.

A kind is one combination of values in the index `count_index` (contract/tables.py). A table of millions of rows has few
kinds. One seek finds the next kind, and one range of the index has its rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.row_values import RowReader
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CANDIDATE, REPAIR, CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.paging import compared
from reconciler.sql.tables import candidate, has_any_value, repair
from reconciler.telling.ports.reports import RepairCount, VerdictCount

_UNDECIDED = {"state": CandidateState.OPEN, "verdict": Verdict.UNKNOWN}
_VERDICTS = RowReader(CANDIDATE, ("topic", "consumer_group", "state", "verdict", "loss_verdict"), otherwise=_UNDECIDED)
#: No process works on a repair with a damaged state. The repair is shown as FAILED.
_REPAIRS = RowReader(
    REPAIR, ("topic", "scope", "state", "rung"), otherwise={"state": RepairState.FAILED, "rung": Rung.END}
)

#: Columns of the index: environment, the columns that make a kind, for candidates loss_verdict, and a number.
_OF_CANDIDATES = tuple(candidate.c[name] for name in CANDIDATE.count_index)
_OF_REPAIRS = tuple(repair.c[name] for name in REPAIR.count_index)


def verdict_counts(connection: sa.Connection, environment: str, *, most: int) -> Sequence[VerdictCount]:
    """Counts candidates by subscription, state and verdicts. `most`: the limit per kind, for its losses and for its
    other rows separately."""
    counts = [
        VerdictCount(
            subscription=Subscription(environment=environment, topic=seen["topic"], group=seen["consumer_group"]),
            state=CandidateState(seen["state"]),
            verdict=Verdict(seen["verdict"]),
            loss_verdict=None if seen["loss_verdict"] is None else Verdict(seen["loss_verdict"]),
            count=min(count, most),
            oldest_ms=oldest_ms if type(oldest_ms) is int else 0,
            damage=read.damage,
        )
        for *kind, count, oldest_ms in _counted(connection, _OF_CANDIDATES, environment, _of_losses, most)
        for read in (_VERDICTS.parse(kind),)
        for seen in (read.values,)
    ]
    # Sorted in Python, because databases sort NULL differently.
    return sorted(counts, key=lambda one: (one.subscription, one.state, one.verdict, one.loss_verdict or ""))


def repair_counts(connection: sa.Connection, environment: str, *, most: int) -> Sequence[RepairCount]:
    """Counts repairs by topic, scope, state and rung. `most`: the limit per kind. Repairs with attempts are counted
    first."""
    return [
        RepairCount(
            topic=seen["topic"],
            scope=seen["scope"],
            state=RepairState(seen["state"]),
            rung=Rung(seen["rung"]),
            attempted=min(int(attempted), most),
            count=min(count, most),
            damage=read.damage,
        )
        for *kind, count, attempted in _counted(connection, _OF_REPAIRS, environment, _of_attempts, most)
        for read in (_REPAIRS.parse(kind),)
        for seen in (read.values,)
    ]


#: (condition for the rows, columns to group by, limit, dialect) -> the statement that counts. On SQLite, the limit is
#: not used.
_Count = Callable[[sa.ColumnElement[bool], Sequence[sa.Column[Any]], int, str], sa.Select[Any]]


def _counted(
    connection: sa.Connection, index: Sequence[sa.Column[Any]], environment: str, count: _Count, most: int
) -> Iterator[Sequence[Any]]:
    """Yields the values of each kind, then its counts.

    SQLite counts all rows at once, because a damaged row may have a value that no comparison finds again.
    """
    dialect, by = connection.dialect.name, index[1:5]
    rows = index[0] == environment
    if dialect == "sqlite":
        yield from connection.execute(count(rows, by, most, dialect)).all()
        return
    if dialect == "postgresql":
        rows &= has_any_value(index[-1])
    first = sa.select(*by).where(rows).order_by(*by).limit(1)
    found = connection.execute(first).first()
    while found is not None:
        kind = tuple(found)
        of_kind = sa.and_(rows, *(column == value for column, value in zip(by, kind, strict=True)))
        for counts in connection.execute(count(of_kind, (), most, dialect)).all():
            yield *kind, *counts
        found = connection.execute(first.where(compared(by, operator.gt, kind, dialect))).first()


def _of_losses(rows: sa.ColumnElement[bool], by: Sequence[sa.Column[Any]], most: int, dialect: str) -> sa.Select[Any]:
    """Counts losses separately from other rows, so that many other rows do not use up the limit."""
    c = candidate.c
    query = sa.select(*by, c.loss_verdict, c.first_seen_ms).where(rows)
    every = query.subquery()
    if dialect != "sqlite":
        # The order makes the planner use the index. For rows without a loss, PostgreSQL needs both columns of the
        # order. MySQL and MariaDB would sort the rows for loss_verdict.
        order = (c.loss_verdict, c.first_seen_ms)
        losses = query.where(c.loss_verdict.is_not(None)).order_by(*order).limit(most)
        others = query.where(c.loss_verdict.is_(None)).order_by(*order[dialect != "postgresql" :]).limit(most)
        every = sa.union_all(*(sa.select(part.subquery()) for part in (losses, others))).subquery()
    kind = [every.c[column.name] for column in (*by, c.loss_verdict)]
    return sa.select(*kind, sa.func.count(), sa.func.min(every.c.first_seen_ms)).group_by(*kind)


def _of_attempts(rows: sa.ColumnElement[bool], by: Sequence[sa.Column[Any]], most: int, dialect: str) -> sa.Select[Any]:
    query = sa.select(*by, repair.c.attempts).where(rows)
    every = (query if dialect == "sqlite" else query.order_by(repair.c.attempts.desc()).limit(most)).subquery()
    kind = [every.c[column.name] for column in by]
    attempted = sa.func.sum(sa.case((every.c.attempts > 0, 1), else_=0))
    found = sa.select(*kind, sa.func.count(), attempted).having(sa.func.count() > 0)
    return found.group_by(*kind).order_by(*kind) if kind else found
