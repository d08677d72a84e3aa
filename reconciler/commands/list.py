"""What `reconciler list` shows to people and to programs: rows of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.commands.asking.business_ids import keys_named
from reconciler.commands.asking.environment import never_run
from reconciler.commands.listings import LISTINGS, Listing, Row
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.row_rules import is_storable
from reconciler.contract.tables import RepairState
from reconciler.errors import InvalidValue
from reconciler.policy.ports.announcing import Floor
from reconciler.settings.schema import Settings
from reconciler.telling.account import UNKNOWN_ENVIRONMENT
from reconciler.telling.ports.paging import LedgerFilter, Page, Position, all_rows
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import topic_plans
from reconciler.words import said_and_coded

OTHER_TOPIC = Code("list.other-topic", topic=Field.NAME)
OTHER_GROUP = Code("list.other-group", group=Field.NAME)

#: Maximum number of messages of one business id whose rows are listed.
KEYS_MAX = 200
_WANTED_FIRST = (RepairState.FAILED, RepairState.OPEN, RepairState.SENDING, RepairState.SENT)


def _page_of(
    connections: Connections, listing: Listing, only: LedgerFilter, limit: int, after: Position | None
) -> Page[Row]:
    reports, environment = connections.ledger.reports, connections.settings.environment
    found: Page[Any]
    match listing.name:
        case "floors":
            found = Page(rows=_floors(connections, only)[:limit], end=None)
        case "quarantine":
            found = reports.quarantined(environment, only=only, limit=limit, after=after)
        case name:
            found = getattr(reports, name)(environment, only=only, limit=limit, after=after)
    return Page(rows=list(map(listing.row, found.rows)), end=found.end)


def _floors(connections: Connections, only: LedgerFilter) -> list[Floor]:
    """Returns one floor for each queue."""
    subscriptions = [plan.subscription for topic in topic_plans(connections.settings) for plan in topic.subscriptions]
    wanted = [s for s in subscriptions if only.topic in (None, s.topic)]
    return [f for s in wanted if only.group in (None, s.group) for f in connections.ledger.reports.floors(s)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerListing:
    """Rows of a listing of the ledger. The newest row comes first. Floors are ordered by queue."""

    columns: Sequence[str]
    rows: Sequence[Row]
    #: The position at which the next page begins. None: there are no more rows. A page may have fewer rows than asked
    #: for.
    end: Position | None = None
    #: Lines beside the table, which name the unique keys that --key stands for, and names that are not configured.
    notes: Sequence[Fact] = ()

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 3: no process ever ran with the environment of the settings, so an empty list means nothing.
        Exit code 0: every other case.
        """
        return 3 if any(note.code is UNKNOWN_ENVIRONMENT for note in self.notes) else 0

    def named(self) -> list[dict[str, object]]:
        """Returns each row as column -> value. Facts are plain data."""
        plain = ([one.as_dict() if isinstance(one, Fact) else one for one in row] for row in self.rows)
        return [dict(zip(self.columns, row, strict=True)) for row in plain]

    @property
    def texts(self) -> tuple[Sequence[str], Sequence[Row]]:
        """Returns columns and rows for people. A fact is shown by its text."""
        kept = [place for place, name in enumerate(self.columns) if name != "fact"]
        return [self.columns[place] for place in kept], [tuple(row[place] for place in kept) for row in self.rows]

    def told(self) -> dict[str, object]:
        """Returns the notes for JSON twice: as sentences, and below `facts` as codes with fields."""
        sentences, facts = said_and_coded({"notes": self.notes})
        return {**sentences, "facts": facts}


def list_page(
    connections: Connections,
    what: str,
    *,
    only: LedgerFilter,
    limit: int,
    name: str | None = None,
    after: Position | None = None,
) -> LedgerListing:
    """Returns one page of a listing.

    `name`: a unique key or a business id. With a business id, the page has rows of its newest messages. Raises
    InvalidValue for an unknown listing, name or position, and DependencyAway.
    """
    listing, only, notes = _asked(connections, what, only, name)
    found = _page_of(connections, listing, only, limit, after)
    return LedgerListing(columns=listing.names, rows=found.rows, end=found.end, notes=notes)


def list_rows(
    connections: Connections, what: str, *, only: LedgerFilter, limit: int, name: str | None = None
) -> LedgerListing:
    """Returns up to `limit` rows of a listing, from as many pages as necessary.

    Failed and unfinished repairs come first, because a hundred newer repairs would otherwise hide them. Raises what
    list_page() raises.
    """
    listing, only, notes = _asked(connections, what, only, name)
    is_open = what == "repairs" and only.repair_state is None
    filters = [replace(only, repair_state=state) for state in _WANTED_FIRST] if is_open else []
    rows: list[Row] = []
    for one in (*filters, only):
        if len(rows) < limit:
            newest_first = all_rows(
                lambda *, limit, after, one=one: _page_of(connections, listing, one, limit, after), limit=limit
            )
            shown = set(rows)
            rows += [row for row in newest_first if row not in shown]
    rows = rows[:limit]
    wrong = None if rows else never_run(connections)
    return LedgerListing(columns=listing.names, rows=rows, notes=notes if wrong is None else [*notes, wrong])


def _asked(
    connections: Connections, what: str, only: LedgerFilter, name: str | None
) -> tuple[Listing, LedgerFilter, Sequence[Fact]]:
    if what not in LISTINGS:
        raise InvalidValue("what", what, f"one of {', '.join(LISTINGS)}")
    notes: Sequence[Fact] = ()
    for field, text in (("topic", only.topic), ("group", only.group)):
        if text is not None and not is_storable(text, len(text)):
            raise InvalidValue(field, text, "no row has it: it holds a character that no database keeps")
    if name is not None:
        named = keys_named(connections, name, limit=KEYS_MAX)
        only, notes = replace(only, unique_keys=named.unique_keys), named.notes
    return LISTINGS[what], only, [*notes, *_not_configured(connections.settings, only)]


def _not_configured(settings: Settings, only: LedgerFilter) -> Iterator[Fact]:
    """Yields a fact for each name that is not configured.

    A retired topic or group may still have rows. A misspelt name has none, and an empty list must not look like calm.
    """
    if only.topic is not None and only.topic not in {one.topic for one in settings.subscriptions}:
        yield OTHER_TOPIC(topic=only.topic)
    if only.group is not None and only.group not in {one.group for one in settings.subscriptions}:
        yield OTHER_GROUP(group=only.group)
