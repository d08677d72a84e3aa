"""Counts and finds UNKNOWN candidates by their cause. An index bounds the cost, however many there are."""

from __future__ import annotations

import sqlalchemy as sa

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.sql.key_probes import has_key
from reconciler.sql.tables import candidate


def is_undecided() -> sa.ColumnElement[bool]:
    """Returns a condition for undecided rows. Does not read the columns of the cause, where an older release may have
    left values."""
    c = candidate.c
    is_unknown = (c.state == CandidateState.OPEN.value) & (c.verdict == Verdict.UNKNOWN.value)
    return is_unknown & c.loss_verdict.is_(None)


def undecided_rows(
    connection: sa.Connection,
    of: sa.ColumnElement[bool],
    by: Undecided | None,
    *,
    since_before_ms: int | None,
    since_after_ms: int | None,
    most: int,
) -> tuple[int, str | None]:
    """Returns the number of rows, at most `most`, and the key of the oldest row. `of`: a condition for the
    subscription."""
    c = candidate.c
    rows = sa.select(c.unique_key, c.first_seen_ms, c.undecided_by).where(
        of, is_undecided(), has_key(c.unique_key, connection.dialect.name)
    )
    if by is not None:
        # In PostgreSQL and SQLite, the index has only rows with undecided_since_ms. The planner uses the index only for
        # a statement with this condition.
        rows = rows.where(c.undecided_by == by.value, c.undecided_since_ms.is_not(None))
    if since_before_ms is not None:
        rows = rows.where(c.undecided_since_ms < since_before_ms)
    if since_after_ms is not None:
        rows = rows.where(c.undecided_since_ms > since_after_ms)
    # Ordered like the index. If the order also had the key, MySQL and MariaDB would sort all rows.
    page = rows.order_by(c.first_seen_ms).limit(most).subquery()
    wanted = sa.true() if by is not None else page.c.undecided_by.is_(None)
    return number_and_oldest(connection, page, wanted)


def number_and_oldest(
    connection: sa.Connection, page: sa.Subquery, wanted: sa.ColumnElement[bool]
) -> tuple[int, str | None]:
    """Returns the number of wanted rows of a page of candidates, and the key of the oldest one."""
    count = connection.execute(sa.select(sa.func.count()).select_from(page).where(wanted)).scalar_one()
    oldest = sa.select(page.c.unique_key).where(wanted).order_by(page.c.first_seen_ms, page.c.unique_key).limit(1)
    return int(count), connection.execute(oldest).scalar() if count else None
