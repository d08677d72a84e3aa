"""Rows of the window whose topic or group is outside of the audit.

Such rows are counted in the judged evidence (judge/unjudged.py). They are also counted in databases and exports
(collect/coverage.py), because only rows that were asked for become evidence. The counts are a note, never a violation.
history/rounds.py reports rounds outside of the audit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.contract.evidence_layout import (
    CANDIDATE_EVIDENCE,
    EFFECTS_EVIDENCE,
    INBOX_EVIDENCE,
    OUTBOX_EVIDENCE,
    REPAIR_EVIDENCE,
)

#: (table, topic, group). For an outbox, the group is the producer group. For a repair, the group is the scope.
RowsOf = tuple[str, str, str]

#: Table -> column that names the group.
GROUP_COLUMNS: Mapping[str, str] = {
    OUTBOX_EVIDENCE.name: "producer_group",
    INBOX_EVIDENCE.name: "consumer_group",
    EFFECTS_EVIDENCE.name: "consumer_group",
    CANDIDATE_EVIDENCE.name: "consumer_group",
    REPAIR_EVIDENCE.name: "scope",
}
#: Table -> column of the time by which a row belongs to the window. Effects have no time: all counted effects belong to
#: the window.
TIME_COLUMNS: Mapping[str, str] = {
    OUTBOX_EVIDENCE.name: "created_at_ms",
    INBOX_EVIDENCE.name: "applied_at_ms",
    CANDIDATE_EVIDENCE.name: "first_seen_ms",
    REPAIR_EVIDENCE.name: "created_at_ms",
}
#: Largest number of names (table, topic and group) that a result lists.
LISTED_MAX = 100
#: Largest number of names that a prefix or a collection keeps.
KEPT_MAX = 1_000
#: Name under which rows of all other names are counted.
OMITTED: RowsOf = ("", "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjudgedRows:
    """Rows of one table, topic and group."""

    table: str
    topic: str
    group: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjudgedTotals:
    """Rows that a judgement leaves out."""

    #: At most LISTED_MAX names. The name with the most rows comes first. Equal names are sorted by table, topic and
    #: group.
    listed: tuple[UnjudgedRows, ...] = ()
    #: Number of rows of all other names.
    omitted_rows: int = 0
    #: True: databases and exports were counted, too. False: only rows of the evidence were counted.
    sources_counted: bool = False

    @property
    def rows(self) -> int:
        """Number of all rows that were not judged, with the rows that are not listed."""
        return self.omitted_rows + sum(one.rows for one in self.listed)


def kept(counts: Mapping[RowsOf, int], names_max: int) -> Counter[RowsOf]:
    """Keeps the names with the most rows. Of names with equally many rows, the first names in sorted order are kept.

    Rows of all other names count as OMITTED.
    """
    order = sorted(
        (name for name, rows in counts.items() if rows and name != OMITTED), key=lambda name: (-counts[name], name)
    )
    found = Counter({name: counts[name] for name in order[:names_max]})
    omitted = counts.get(OMITTED, 0) + sum(counts[name] for name in order[names_max:])
    if omitted:
        found[OMITTED] = omitted
    return found


def listed(counts: Mapping[RowsOf, int], *, sources_counted: bool) -> UnjudgedTotals:
    """Makes the totals that results and statements have."""
    first = kept(counts, LISTED_MAX)
    omitted = first.pop(OMITTED, 0)
    return UnjudgedTotals(
        listed=tuple(UnjudgedRows(table=t, topic=topic, group=group, rows=n) for (t, topic, group), n in first.items()),
        omitted_rows=omitted,
        sources_counted=sources_counted,
    )
