"""Pages of the rows that `reconciler list` shows. Each page has a search, a table, and a link to the next page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.commands.list import list_page
from reconciler.commands.listings import HAS_LOSS, LISTINGS, ListingFilter
from reconciler.contract.tables import CandidateState
from reconciler.errors import InvalidValue
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.web.console.names import keys_to_name
from reconciler.web.console.rendering import page
from reconciler.web.console.selection import choosable, finds_every_open_loss, finds_everything_that_waits, verdicts_of
from reconciler.web.cursors import cursor_of, position_of
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.services import Handler, WebServices

ROWS_A_PAGE = 50
_HOUR_MS = 3_600_000
#: Choice -> age in hours. Shown rows are younger or older than this age.
_YOUNGER = {"younger-1": 1, "younger-24": 24, "younger-72": 72}
_OLDER = {"older-1": 1, "older-24": 24, "older-72": 72}
AGES = (*_YOUNGER, *_OLDER)
#: Fields of all searches, in the order in which a page shows them.
_FIELDS = ("name", "topic", "group", "verdict", "state", "by", "loss", "age")
#: Choice -> whether shown rows have a loss_verdict. None: all rows are shown. The first choice is the default.
LOSSES = {"yes": True, "no": False, "all": None}

_WORDS, _TEXTS = ("state", "verdict", "loss_verdict"), ("detail", "answer", "result", "left_out")
_KINDS = {"unique_key": "key", "void": "void"} | dict.fromkeys(_WORDS, "word") | dict.fromkeys(_TEXTS, "long")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingPage:
    """One page that shows a listing of reconciler/commands/listings.py, or jobs."""

    #: Name of the listing, or jobs.
    what: str
    path: str
    filters: Sequence[ListingFilter]
    #: Shown columns, in their order on the page. Other columns of the listing are left out.
    columns: Sequence[str]
    runbook: str = ""
    #: Template that is included above the search. Empty: there is none.
    above: str = ""
    #: True: a visitor can choose rows and repair them together.
    is_choosable: bool = False

    @property
    def fields(self) -> Sequence[str]:
        """Fields of the search, in their order on the page."""
        own = {one.field for one in self.filters} | {"age"}
        return [field for field in _FIELDS if field in own]

    def choices(self, field: str) -> Sequence[str]:
        """Returns the values of a field that has a closed list. Returns an empty list for a text field."""
        closed = {one.field: one.words for one in self.filters} | {"loss": tuple(LOSSES), "age": AGES}
        return closed.get(field, ())

    def heading(self, chosen: Mapping[str, str]) -> str:
        """Returns the last word of the catalogue keys of title and lead. It depends on the search, because not every
        judged row was lost."""
        if not self.is_choosable or chosen["loss"] == "yes":
            return self.what
        return "waiting" if chosen["state"] == CandidateState.QUARANTINED else "judged"

    def chosen(self, request: WebRequest) -> dict[str, str]:
        """Returns the searched values of a request, by field. Empty: the search finds everything."""
        chosen = {name: request.asked(name).strip() for name in self.fields}
        if "loss" in chosen:
            chosen["loss"] = chosen["loss"] or next(iter(LOSSES))
        return chosen


def _page_of(what: str, path: str, **more: Any) -> ListingPage:
    of = LISTINGS[what]
    return ListingPage(what=what, path=path, filters=of.filters, columns=of.on_page, **more)


LOSS_PAGE = _page_of("candidates", "/losses", runbook="LostMessages", is_choosable=True)
REPAIR_PAGE = _page_of("repairs", "/repairs", runbook="RepairFailing", above="retry.html")
LISTING_PAGES = (
    LOSS_PAGE,
    REPAIR_PAGE,
    _page_of("rounds", "/rounds", runbook="RoundStale", above="gates.html"),
    _page_of("outages", "/outages", runbook="RedisMemoryLost", above="rebuilding.html"),
    _page_of("quarantine", "/quarantine"),
    _page_of("actions", "/actions"),
)


def kind_of(column: str, value: object) -> str:
    """Returns how a cell looks: none, time, key, word, void, number, long or name."""
    if value is None or value == "":
        return "none"
    if column.endswith("_ms"):
        return "time"
    known = _KINDS.get(column)
    if known is None:
        return "number" if isinstance(value, int | float) else "name"
    return known


def listing(of: ListingPage) -> Handler:
    """Makes the handler of one page."""

    def show(services: WebServices, request: WebRequest) -> WebResponse:
        chosen = of.chosen(request)
        cursor = request.asked("cursor")
        found = list_page(
            services.connections,
            of.what,
            only=filter_of(of, chosen, now_ms=services.clock.now_ms()),
            limit=ROWS_A_PAGE,
            name=chosen.get("name") or None,
            after=position_of(of.what, cursor) if cursor else None,
        )
        rows = found.named()
        takes = choosable(rows, services.settings.subscriptions) if of.is_choosable else ()
        # The report shows the gates, or tells whether an empty list means calm. None: there is no reading yet.
        is_told = of.above == "gates.html" or not found.rows
        report = services.status.get() if is_told else None
        return page(
            services,
            request,
            "listing.html",
            of=of,
            heading=of.heading(chosen),
            kind_of=kind_of,
            chosen=chosen,
            is_searched=any(value for name, value in chosen.items() if name != "loss"),
            rows=rows,
            named=keys_to_name(rows) if "unique_key" in of.columns else (),
            notes=found.notes,
            next_cursor=cursor_of(of.what, found.end),
            is_first=not cursor,
            report=None if found.rows else report,
            status=report,
            choosable=takes,
            retried=groups_of(services, chosen.get("topic")) if of.above == "retry.html" else (),
            verdicts=verdicts_of(rows, takes),
            is_everything=of.is_choosable and finds_every_open_loss(chosen),
            is_all_that_waits=of.is_choosable and finds_everything_that_waits(chosen),
        )

    return show


def groups_of(services: WebServices, topic: str | None) -> Sequence[str]:
    """Returns the groups of a topic, or all groups, from the settings."""
    return sorted({one.group for one in services.settings.subscriptions if topic in (None, "", one.topic)})


def filter_of(of: ListingPage, chosen: dict[str, str], *, now_ms: int) -> LedgerFilter:
    """Makes the filter from the fields of a search. Raises InvalidValue for an unusable field."""
    age, loss = chosen.get("age", ""), chosen.get("loss", "all")
    if age and age not in AGES:
        raise InvalidValue("age", age[:20], f"one of {', '.join(AGES)}")
    if loss not in LOSSES:
        raise InvalidValue("loss", loss[:20], f"one of {', '.join(LOSSES)}")
    given: dict[str, Any] = {}
    for one in of.filters:
        value = chosen.get(one.field, "")
        if value and one is not HAS_LOSS:
            given |= _meaning(one, value)
    return LedgerFilter(
        **given,
        is_loss=LOSSES[loss],
        since_ms=now_ms - _YOUNGER[age] * _HOUR_MS if age in _YOUNGER else None,
        before_ms=now_ms - _OLDER[age] * _HOUR_MS if age in _OLDER else None,
    )


def _meaning(of: ListingFilter, value: str) -> Mapping[str, Any]:
    try:
        return of.meaning(value)
    except ValueError as error:
        raise InvalidValue(of.field, value[:40], "one of those in the list") from error
