"""Pages of the ledger's listings: the conditions on rows, and the rows of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from reconciler.contract.tables import CandidateState, JobState, RepairState, Rung
from reconciler.contract.verdicts import Verdict

T = TypeVar("T")

#: The end of a page, for the ledger that returned the page. A fraction or bytes in it come from a damaged row of
#: SQLite.
Position: TypeAlias = tuple[int | float | str | bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFilter:
    """Conditions on the rows to show. None allows any value. Fields that a table lacks are ignored."""

    topic: str | None = None
    group: str | None = None
    unique_keys: tuple[str, ...] | None = None
    candidate_state: CandidateState | None = None
    verdict: Verdict | None = None
    #: True: only rows with a loss_verdict. False: only rows without a loss_verdict.
    is_loss: bool | None = None
    repair_state: RepairState | None = None
    rung: Rung | None = None
    #: EVERY_GROUP, or the group of a hand-over.
    scope: str | None = None
    job_state: JobState | None = None
    #: The person who did the act or requested the job. A bare name finds a console user and a login with that name.
    by: str | None = None
    #: The command of an act by hand, as the ledger has it.
    command: str | None = None
    #: Only rows whose time is at or after `since_ms`, and before `before_ms`. This time orders the listing.
    since_ms: int | None = None
    before_ms: int | None = None


EVERY_ROW = LedgerFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some rows of a listing. The newest row comes first."""

    rows: Sequence[T]
    #: The position at which the next page begins. None: there are no more rows. One call reads a limited number of
    #: rows, so a page can be short or empty although there are more.
    end: Position | None


def all_rows(listing: Callable[..., Page[T]], *, limit: int) -> Iterator[T]:
    """Yields the first rows of a listing, up to `limit`, from as many pages as necessary.

    `listing`: a function with the arguments `limit` and `after`.
    """
    after: Position | None = None
    while limit > 0:
        page = listing(limit=limit, after=after)
        yield from page.rows
        limit -= len(page.rows)
        after = page.end
        if after is None:
            return
