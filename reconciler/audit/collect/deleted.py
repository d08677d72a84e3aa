"""Rows that sweeper or purge have deleted for their age. Their absence proves nothing.

Without this check every message of an old day would look lost, or every effect would look uncommitted. The history
names keys whose rows must have existed: an announced key had an outbox row, and a consumed key had an inbox row of the
group. Without a history a settled outbox row proves an inbox row, and nothing proves a deleted outbox row. A key
without a row is a violation if the table has other rows of that age. Otherwise the row is missing evidence.

The history names repairs, too. `run` writes a repair into the ledger first, and deletes it after `ledger.keep_days`.
So a repair that the ledger lacks is missing evidence at any age: its message would look as if nobody had sent it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.audit.collect.selection import Selection, oldest_ms
from reconciler.audit.collect.sources import Source
from reconciler.contract.evidence_layout import INBOX_EVIDENCE, OUTBOX_EVIDENCE, REPAIR_EVIDENCE
from reconciler.contract.tables import INBOX, OUTBOX, REPAIR, OutboxState

#: (`outbox` or `inbox`, topic, group). The group of an outbox is "", because the key names no producer group.
Lacking = tuple[str, str, str]

#: Sweepers and purges keep rows that are younger than this (settings.py asks for more). A table that lacks such a row
#: never had the row.
KEPT_AT_LEAST_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeOfRows:
    """One table that lacks rows of keys. The audit asks for the table's oldest row."""

    lacking: Lacking
    source: Source
    selection: Selection
    #: Columns of time. The first column that exists and has a value dates the row.
    columns: tuple[str, ...]

    def oldest_ms(self) -> int | None:
        """Reads the oldest time of rows that may be deleted for their age. None: the table has no such row.

        Raises AuditError.
        """
        return oldest_ms(self.source, self.selection, self.columns)


def earliest(found: Iterable[Mapping[Lacking, int]]) -> dict[Lacking, int]:
    """Finds the earliest time of each table over all pieces."""
    times: dict[Lacking, int] = {}
    for one in found:
        for lacking, at_ms in one.items():
            times[lacking] = min(at_ms, times.get(lacking, at_ms))
    return times


def ages_to_ask(
    lacking: Iterable[Lacking],
    *,
    outboxes: Callable[[str], Sequence[tuple[Source, Selection]]],
    inboxes: Callable[[str, str], Sequence[tuple[Source, Selection]]],
) -> list[AgeOfRows]:
    """Lists the tables in which these keys lack rows.

    `outboxes` lists the outboxes of a topic. `inboxes` lists the inboxes of a topic and group.
    """
    found: list[AgeOfRows] = []
    for one in sorted(lacking):
        table, topic, group = one
        if table == REPAIR_EVIDENCE.name:  # its absence is proof enough
            continue
        if table == INBOX_EVIDENCE.name:
            found += [
                AgeOfRows(lacking=one, source=source, selection=selection, columns=("applied_at_ms",))
                for source, selection in inboxes(topic, group)
            ]
            continue
        for source, selection in outboxes(topic):
            # The sweeper deletes rows of all topics together, and only settled rows.
            settled = replace(selection, equal=(*selection.equal, ("state", OutboxState.SETTLED.value)), among=())
            columns = ("settled_at_ms", "created_at_ms")
            found.append(AgeOfRows(lacking=one, source=source, selection=settled, columns=columns))
    return found


def missing_evidence(
    lacking: Mapping[Lacking, int],
    oldest: Sequence[tuple[AgeOfRows, int | None]],
    *,
    skew_bound_ms: int,
    collected_at_ms: int,
) -> list[str]:
    """Writes one line per table that lacks rows of the window. Pure.

    If the table has rows of that age, the key's row was never written. Then the key is judged.
    """
    lines: list[str] = []
    for table, oldest_row_ms in oldest:
        name, topic, group = table.lacking
        at_ms = lacking[table.lacking]
        kept_at_least_ms = collected_at_ms - KEPT_AT_LEAST_MS
        kept_from_ms = kept_at_least_ms if oldest_row_ms is None else min(oldest_row_ms, kept_at_least_ms)
        if at_ms + skew_bound_ms >= kept_from_ms:
            continue
        whose = f"{INBOX.name} of {topic}/{group}" if group else f"{OUTBOX.name} of {topic}"
        known = "history has announced" if name == OUTBOX_EVIDENCE.name else "history or outbox have consumed"
        begins = "it has none" if oldest_row_ms is None else f"its oldest is of {oldest_row_ms} ms"
        rows = "settled rows" if name == OUTBOX_EVIDENCE.name else "rows"
        lines.append(
            f"missing evidence: {table.source}: {known} keys from {at_ms} ms on whose rows are gone from "
            f"{whose}, and so are all {rows} of that age ({begins}): deleted for their age? Give a copy that has them, "
            "or audit a later window"
        )
    return lines


def missing_repairs(lacking: Mapping[Lacking, int], ledger: Source | None) -> list[str]:
    """Writes one line per topic whose repairs the history has and the ledger has no more. Pure."""
    return [
        f"missing evidence: {ledger}: history has repairs of messages of {topic} from {at_ms} ms on, whose rows are "
        f"gone from {REPAIR.name}: deleted after ledger.keep_days, or is this another ledger? Give a copy that has "
        "them, or no ledger: then the rules about repairs are listed as not checked"
        for (table, topic, _), at_ms in sorted(lacking.items())
        if table == REPAIR_EVIDENCE.name
    ]
