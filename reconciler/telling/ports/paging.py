"""Listings of the ledger by pages: what is asked for, and what is returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from reconciler.contract.tables import CandidateState, JobState, RepairState, Rung
from reconciler.contract.verdicts import Verdict

T = TypeVar("T")

#: Where a page ended, for the ledger that returned it; a fraction or bytes come from a damaged row of SQLite.
Position: TypeAlias = tuple[int | float | str | bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFilter:
    """Conditions on the rows to show; None: any value. Fields that a table lacks are ignored."""

    topic: str | None = None
    group: str | None = None
    unique_keys: tuple[str, ...] | None = None
    candidate_state: CandidateState | None = None
    verdict: Verdict | None = None
    #: True: only rows with a loss_verdict, False: only rows without.
    is_loss: bool | None = None
    repair_state: RepairState | None = None
    rung: Rung | None = None
    #: EVERY_GROUP, or the group of a hand-over.
    scope: str | None = None
    job_state: JobState | None = None
    #: The person who did or asked for it; a bare name finds both a console user and a login of that name.
    by: str | None = None
    #: An act by hand, as it is recorded.
    command: str | None = None
    #: Rows whose time (the order of the listing) is at or after the one, and before the other.
    since_ms: int | None = None
    before_ms: int | None = None


EVERY_ROW = LedgerFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some rows of a listing, the newest first."""

    rows: Sequence[T]
    #: Where the next page continues; None: there are no more rows. A page may be shorter than asked for, and even
    #: empty, although there are more rows, because one call looks at a limited number of rows.
    end: Position | None


def all_rows(listing: Callable[..., Page[T]], *, limit: int) -> Iterator[T]:
    """Yields the first rows of a listing, up to `limit`, over as many pages as needed; the listing takes `limit` and
    `after`."""
    after: Position | None = None
    while limit > 0:
        page = listing(limit=limit, after=after)
        yield from page.rows
        limit -= len(page.rows)
        after = page.end
        if after is None:
            return
