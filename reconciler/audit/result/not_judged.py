"""Coverage: rows of the window whose topic or group lies outside of the audit.

They are counted twice over: in the evidence that is judged (judge/unjudged.py), and where that was collected, in the
databases and exports themselves (collect/coverage.py), of which only what was asked for became evidence. A note, never
a violation. Rounds of the history outside of the audit are reported by history/rounds.py.
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

#: (table, topic, group). For an outbox the group is the producer group, for a repair it is the scope.
RowsOf = tuple[str, str, str]

#: Table -> the column that names the group.
GROUP_COLUMNS: Mapping[str, str] = {
    OUTBOX_EVIDENCE.name: "producer_group",
    INBOX_EVIDENCE.name: "consumer_group",
    EFFECTS_EVIDENCE.name: "consumer_group",
    CANDIDATE_EVIDENCE.name: "consumer_group",
    REPAIR_EVIDENCE.name: "scope",
}
#: Table -> the time that says whether a row is of the window; all counted effects are.
TIME_COLUMNS: Mapping[str, str] = {
    OUTBOX_EVIDENCE.name: "created_at_ms",
    INBOX_EVIDENCE.name: "applied_at_ms",
    CANDIDATE_EVIDENCE.name: "first_seen_ms",
    REPAIR_EVIDENCE.name: "created_at_ms",
}
#: Names (table, topic and group) that a result lists.
LISTED_MAX = 100
#: Names that a prefix or a collection keeps apart: bounds what they hand on.
KEPT_MAX = 1_000
#: Table, topic and group of rows beyond the names that were kept.
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
    """What a judgement leaves out."""

    #: The most rows first, then by table, topic and group; at most LISTED_MAX.
    listed: tuple[UnjudgedRows, ...] = ()
    #: Rows of names beyond those.
    omitted_rows: int = 0
    #: Whether databases and exports were counted, too; else only what lies in the evidence.
    sources_counted: bool = False

    @property
    def rows(self) -> int:
        """All rows that were not judged, listed or not."""
        return self.omitted_rows + sum(one.rows for one in self.listed)


def kept(counts: Mapping[RowsOf, int], names_max: int) -> Counter[RowsOf]:
    """The names with the most rows, at ties the first ones in order; the rows of the others under OMITTED."""
    order = sorted(
        (name for name, rows in counts.items() if rows and name != OMITTED), key=lambda name: (-counts[name], name)
    )
    found = Counter({name: counts[name] for name in order[:names_max]})
    omitted = counts.get(OMITTED, 0) + sum(counts[name] for name in order[names_max:])
    if omitted:
        found[OMITTED] = omitted
    return found


def listed(counts: Mapping[RowsOf, int], *, sources_counted: bool) -> UnjudgedTotals:
    """As results and statements have it."""
    first = kept(counts, LISTED_MAX)
    omitted = first.pop(OMITTED, 0)
    return UnjudgedTotals(
        listed=tuple(UnjudgedRows(table=t, topic=topic, group=group, rows=n) for (t, topic, group), n in first.items()),
        omitted_rows=omitted,
        sources_counted=sources_counted,
    )
