"""Ranges of time that a table is read in, with about as many rows each, so that executors share them evenly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import sqlalchemy as sa

from reconciler.audit.collect.database import reading
from reconciler.audit.collect.selection import Selection, limited
from reconciler.audit.collect.sources import Source
from reconciler.contract.evidence_layout import INBOX_EVIDENCE, OUTBOX_EVIDENCE

#: A range's file is opened for each of 64 prefixes, which costs as much as judging 100 000 rows.
RANGE_ROWS = 1_048_576
#: Some ten billion rows; what is more lies in the last range.
RANGES_MAX = 10_000

#: Tables that have many rows of a window, and how many columns of equality their index of time begins with. Candidates
#: and repairs are as few as what went wrong.
_INDEXED = {OUTBOX_EVIDENCE.name: 0, INBOX_EVIDENCE.name: 1}


def is_cut(source: Source, selection: Selection) -> bool:
    """Whether it is read in ranges, if it has many rows."""
    return source.kind == "database" and selection.layout.name in _INDEXED


def cuts_ms(source: Source, selection: Selection) -> tuple[int, ...]:
    """Times between its ranges, in order; rows of one millisecond are not parted. Raises AuditError.

    The index is counted, which has no topic: of an outbox all rows count, of an inbox all of the group.
    """
    column, first_ms, _ = selection.since or ("", 0, None)
    counted = replace(selection, equal=selection.equal[: _INDEXED[selection.layout.name]], among=())
    time: sa.ColumnClause[int] = sa.column(column)
    statement = limited(counted, sa.select(time).select_from(sa.table(selection.table))).order_by(time).limit(1)
    found: list[int] = []
    low_ms = first_ms - 1
    with reading(source) as connection:
        while len(found) < RANGES_MAX - 1:
            at_ms = connection.execute(statement.where(time > low_ms).offset(RANGE_ROWS)).scalar()
            if at_ms is None:
                break
            low_ms = int(at_ms)
            found.append(low_ms)
    return tuple(found)


def ranges(selection: Selection, cuts: Sequence[int]) -> Iterator[Selection]:
    """The selection between these times."""
    column, first_ms, end_ms = selection.since or ("", 0, None)
    for low_ms, high_ms in zip((first_ms, *cuts), (*cuts, end_ms), strict=True):
        yield replace(selection, since=(column, low_ms, high_ms)) if cuts else selection
