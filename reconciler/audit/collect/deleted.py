"""Rows that were there once: sweeper or purge have deleted them for their age, and silence about them proves nothing.

Without them every message of an old day looks lost, or every effect looks like one without a commit. The history names
keys whose rows must have been written: an announced key had an outbox row, a consumed key an inbox row of the group.
Without a history a settled outbox row proves that there was an inbox row, and nothing proves a deleted outbox row. A
key without its row is a violation, unless the table has no row of that age at all: then the row is missing evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.audit.collect.selection import Selection, oldest_ms
from reconciler.audit.collect.sources import Source
from reconciler.contract.evidence_layout import INBOX_EVIDENCE, OUTBOX_EVIDENCE
from reconciler.contract.tables import INBOX, OUTBOX, OutboxState

#: `outbox` or `inbox`, topic, group ("" for an outbox: a key without its row names no producer group).
Lacking = tuple[str, str, str]

#: Sweepers and purges keep what is younger (settings.py asks for more): a table that lacks it never had it.
KEPT_AT_LEAST_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeOfRows:
    """One table whose oldest row is asked for, because `lacking` keys have no row there."""

    lacking: Lacking
    source: Source
    selection: Selection
    #: Columns of time; the first that is there and has a value says how old the row is.
    columns: tuple[str, ...]

    def oldest_ms(self) -> int | None:
        """The oldest time of rows that may be deleted for their age. None: there is no row. Raises AuditError."""
        return oldest_ms(self.source, self.selection, self.columns)


def earliest(found: Iterable[Mapping[Lacking, int]]) -> dict[Lacking, int]:
    """The earliest time of each, over all pieces."""
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
    """Tables of these keys. `outboxes`: of a topic, `inboxes`: of a topic and group."""
    found: list[AgeOfRows] = []
    for one in sorted(lacking):
        table, topic, group = one
        if table == INBOX_EVIDENCE.name:
            found += [
                AgeOfRows(lacking=one, source=source, selection=selection, columns=("applied_at_ms",))
                for source, selection in inboxes(topic, group)
            ]
            continue
        for source, selection in outboxes(topic):
            # Rows of all its topics go together; those that are not settled stay.
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
    """One line a table that lacks rows of the window. Pure.

    A key whose row is not there though rows of its age are was never written: that one is judged.
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
