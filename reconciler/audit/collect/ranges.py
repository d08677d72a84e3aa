"""Cuts a table into ranges of time.

The ranges have about equally many rows, so that executors share the work evenly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import sqlalchemy as sa

from reconciler.audit.collect.database import reading
from reconciler.audit.collect.selection import Selection, limited
from reconciler.audit.collect.sources import Source
from reconciler.contract.evidence_layout import INBOX_EVIDENCE, OUTBOX_EVIDENCE

#: Number of rows of a range. The range's file is opened for each of 64 prefixes, which costs as much as judging 100 000
#: rows.
RANGE_ROWS = 1_048_576
#: Largest number of ranges, enough for some ten billion rows. Further rows are in the last range.
RANGES_MAX = 10_000

#: Table with many rows of a window -> number of equality columns before the time in the table's index. Candidates and
#: repairs are few, because only accidents make them.
_INDEXED = {OUTBOX_EVIDENCE.name: 0, INBOX_EVIDENCE.name: 1}


def is_cut(source: Source, selection: Selection) -> bool:
    """True if the table is read in ranges when it has many rows."""
    return source.kind == "database" and selection.layout.name in _INDEXED


def cuts_ms(source: Source, selection: Selection) -> tuple[int, ...]:
    """Finds the sorted times between the ranges. Rows of one millisecond stay in one range. Raises AuditError.

    The index has no topic. So all rows of an outbox count, and all rows of a group in an inbox count.
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
    """Yields the selection of each range between these times."""
    column, first_ms, end_ms = selection.since or ("", 0, None)
    for low_ms, high_ms in zip((first_ms, *cuts), (*cuts, end_ms), strict=True):
        yield replace(selection, since=(column, low_ms, high_ms)) if cuts else selection
