"""Counts rows of the window that the audit was not asked to judge. Without the count, nobody would hear of these rows.

The count of an outbox uses the index of `created_at_ms`. An inbox is counted group by group, because the index of an
inbox begins with the group. Candidates and repairs are counted for the environment. Of exports, only the columns for
counting are read. Rounds are left out, because the history says whose rounds exist. A count becomes a note. The counted
rows are not collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from reconciler.audit.collect.database import pages, reading
from reconciler.audit.collect.selection import Selection, export_batches, limited
from reconciler.audit.collect.sources import Source
from reconciler.audit.result.not_judged import GROUP_COLUMNS, KEPT_MAX, TIME_COLUMNS, RowsOf, kept
from reconciler.contract.evidence_layout import INBOX_EVIDENCE, REPAIR_EVIDENCE
from reconciler.contract.tables import FORMER_NAMES_TOPIC

#: Largest number of groups that are counted by a statement each. One more statement reads the table and counts the
#: other groups.
GROUPS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedTable:
    """One table of one source, and the subscriptions whose rows were asked of the table."""

    source: Source
    #: The rows to count: layout, table name, equality (the environment) and window.
    selection: Selection
    #: Pairs (topic, group) whose rows become evidence. Repairs of these topics become evidence in all scopes.
    asked: frozenset[tuple[str, str]]
    #: Path of one file of an export. None: the source is a database.
    file: str | None = None

    @property
    def group_column(self) -> str:
        """Name of the column that holds the group."""
        return GROUP_COLUMNS[self.selection.layout.name]

    def is_asked(self, topic: str, group: str) -> bool:
        """True if rows of this topic and group become evidence."""
        if self.selection.layout.name == REPAIR_EVIDENCE.name:
            return any(topic == asked for asked, _ in self.asked)
        return (topic, group) in self.asked


def not_asked_rows(table: CountedTable) -> Counter[RowsOf]:
    """Counts rows by table, topic and group, and keeps at most KEPT_MAX names. Can raise AuditError."""
    found: Counter[RowsOf] = Counter()
    for topic, group, rows in _in_database(table) if table.source.kind == "database" else _in_export(table):
        if topic != FORMER_NAMES_TOPIC and not table.is_asked(topic, group):
            found[table.selection.layout.name, topic, group] += rows
    return kept(found, KEPT_MAX)


def _in_database(table: CountedTable) -> Iterator[tuple[str, str, int]]:
    topic: sa.ColumnClause[str] = sa.column("topic")
    group: sa.ColumnClause[str] = sa.column(table.group_column)
    counted: Any = sa.select(topic, group, sa.func.count()).select_from(sa.table(table.selection.table))
    statement = limited(table.selection, counted)
    # Most rows were asked for. Excluding these rows before the grouping takes a third of the time.
    statement = statement.where(*_not_asked(table, topic, group)).group_by(topic, group)
    with reading(table.source) as connection:
        statements = [statement]
        if table.selection.layout.name == INBOX_EVIDENCE.name:
            groups = _groups(connection, table)
            statements = [statement.where(group == one) for one in groups]
            statements += [statement.where(group > groups[-1])] if len(groups) == GROUPS_MAX else []
        for one in statements:
            for page in pages(connection, one):
                yield from ((str(row[0]), str(row[1]), int(row[2])) for row in page)


def _not_asked(
    table: CountedTable, topic: sa.ColumnClause[str], group: sa.ColumnClause[str]
) -> list[sa.ColumnElement[bool]]:
    if table.selection.layout.name == REPAIR_EVIDENCE.name:
        return [topic.not_in(sorted({asked for asked, _ in table.asked}))]
    topics: dict[str, list[str]] = {}
    for asked_topic, asked_group in sorted(table.asked):
        topics.setdefault(asked_group, []).append(asked_topic)
    return [sa.or_(group != one, topic.not_in(asked)) for one, asked in topics.items()]


def _groups(connection: sa.Connection, table: CountedTable) -> list[str]:
    """Reads at most GROUPS_MAX groups of an inbox. Each group costs one look into the index."""
    group: sa.ColumnClause[str] = sa.column(table.group_column)
    first = sa.select(sa.func.min(group)).select_from(sa.table(table.selection.table))
    found: list[str] = []
    while len(found) < GROUPS_MAX:
        following = connection.execute(first.where(group > found[-1]) if found else first).scalar()
        if following is None:
            break
        found.append(str(following))
    return found


def _in_export(table: CountedTable) -> Iterator[tuple[str, str, int]]:
    time = TIME_COLUMNS[table.selection.layout.name]
    names = ["topic", table.group_column]
    start_ms, end_ms = table.selection.since[1:] if table.selection.since else (0, None)
    for batch in export_batches(table.source, table.selection, table.file, [*names, time]):
        rows = pa.Table.from_batches([batch])
        inside = pc.and_(pc.greater_equal(rows[time], start_ms), pc.less(rows[time], end_ms))
        grouped: Mapping[str, Any] = (
            rows.filter(inside).group_by(names, use_threads=False).aggregate([([], "count_all")]).to_pydict()
        )
        yield from zip(*(grouped[name] for name in (*names, "count_all")), strict=True)
