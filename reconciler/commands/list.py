"""What `reconciler list` shows: rows of the ledger, for people and programs alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from reconciler.commands.asking.business_ids import keys_named
from reconciler.commands.asking.environment import never_run
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.row_rules import is_storable
from reconciler.contract.tables import RepairState
from reconciler.errors import InvalidValue
from reconciler.policy.ports.announcing import Floor
from reconciler.policy.ports.ledger import Candidate, Outage, Repair
from reconciler.settings.schema import Settings
from reconciler.telling.account import UNKNOWN_ENVIRONMENT
from reconciler.telling.ports.actions import OperatorAction
from reconciler.telling.ports.paging import LedgerFilter, Page, Position, all_rows
from reconciler.telling.ports.reports import QuarantinedAnnouncement, StoredRound
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import topic_plans
from reconciler.words import said_and_coded

T = TypeVar("T")

OTHER_TOPIC = Code("list.other-topic", topic=Field.NAME)
OTHER_GROUP = Code("list.other-group", group=Field.NAME)

Row = tuple[object, ...]
#: A page of a listing: filter, rows at most, and where the page before ended.
Pages = Callable[[Connections, LedgerFilter, int, Position | None], Page[Row]]
#: Messages of one business id whose rows are listed.
KEYS_MAX = 200
_WANTED_FIRST = (RepairState.FAILED, RepairState.OPEN, RepairState.SENDING, RepairState.SENT)


def outage_row(o: Outage) -> Row:
    """The cells of an outage, as `status` shows it, too."""
    left_out = "; ".join(f"{name}: {why}" for name, why in sorted(o.left_out.items()))
    return o.started_at_ms, o.reason, o.scanned, o.closed_at_ms, left_out


def text_of(value: object) -> str | None:
    """The text of an enumeration's value, or None."""
    return None if value is None else str(value)


def _candidates(connections: Connections, only: LedgerFilter, limit: int, after: Position | None) -> Page[Row]:
    environment = connections.settings.environment
    found = connections.ledger.reports.candidates(environment, only=only, limit=limit, after=after)
    return _page(found, _candidate)


def _candidate(c: Candidate) -> Row:
    about = (c.subscription.topic, c.subscription.group, c.unique_key, str(c.state), str(c.verdict))
    return (*about, text_of(c.loss_verdict), c.attempts, c.first_seen_ms, c.updated_at_ms)


def _repairs(connections: Connections, only: LedgerFilter, limit: int, after: Position | None) -> Page[Row]:
    environment = connections.settings.environment
    found = connections.ledger.reports.repairs(environment, only=only, limit=limit, after=after)
    return _page(found, _repair)


def _repair(r: Repair) -> Row:
    about = (r.topic, r.scope, r.unique_key, str(r.state), str(r.rung))
    return (*about, r.attempts, r.answer, r.created_at_ms, r.done_at_ms, r.answer_fact)


def _rounds(connections: Connections, only: LedgerFilter, limit: int, after: Position | None) -> Page[Row]:
    environment = connections.settings.environment
    found = connections.ledger.reports.rounds(environment, only=only, limit=limit, after=after)
    return _page(found, _round)


def _round(r: StoredRound) -> Row:
    of, counts = r.done.shard, r.done.counts
    place = (of.subscription.topic, of.subscription.group, of.number, r.done.epoch, r.done.generation, r.done.at_ms)
    pending = (counts.pending_before, counts.pending_added, counts.pending_matched, counts.pending_after)
    return (*place, counts.announced, counts.matched, *pending, r.is_void, r.stored_at_ms)


def _quarantine(connections: Connections, only: LedgerFilter, limit: int, after: Position | None) -> Page[Row]:
    environment = connections.settings.environment
    found = connections.ledger.reports.quarantined(environment, only=only, limit=limit, after=after)
    return _page(found, _refused)


def _refused(q: QuarantinedAnnouncement) -> Row:
    place = (q.refused.queue.unique_key_topic, q.refused.queue.broker, q.refused.queue.queue_id)
    return (*place, q.refused.queue_offset, q.refused.reason, q.refused.detail, q.seen_at_ms)


def _outages(connections: Connections, only: LedgerFilter, limit: int, after: Position | None) -> Page[Row]:
    environment = connections.settings.environment
    found = connections.ledger.reports.outages(environment, only=only, limit=limit, after=after)
    return _page(found, outage_row)


def _floors(connections: Connections, only: LedgerFilter, limit: int, _after: Position | None) -> Page[Row]:
    """One page: there is one a queue."""
    subscriptions = [plan.subscription for topic in topic_plans(connections.settings) for plan in topic.subscriptions]
    wanted = [s for s in subscriptions if only.topic in (None, s.topic)]
    floors = [f for s in wanted if only.group in (None, s.group) for f in connections.ledger.reports.floors(s)]
    return _page(Page(rows=floors[:limit], end=None), _floor)


def _floor(f: Floor) -> Row:
    return f.subscription.topic, f.subscription.group, f.broker, f.queue_id, f.queue_offset, f.updated_at_ms


def _actions(connections: Connections, only: LedgerFilter, limit: int, after: Position | None) -> Page[Row]:
    environment = connections.settings.environment
    found = connections.ledger.reports.actions(environment, only=only, limit=limit, after=after)
    return _page(found, _action)


def _action(a: OperatorAction) -> Row:
    about = (a.intent.by, a.intent.command, a.intent.topic, a.intent.group, a.intent.unique_key, a.intent.detail)
    return (a.started_at_ms, *about, a.result, a.ended_at_ms)


def _page(found: Page[T], row: Callable[[T], Row]) -> Page[Row]:
    return Page(rows=[row(one) for one in found.rows], end=found.end)


_ROUND = (
    "topic group shard epoch generation at_ms announced matched pending_before pending_added pending_matched "
    "pending_after void stored_at_ms"
)
LISTINGS: Mapping[str, tuple[str, Pages]] = {
    "candidates": (
        "topic group unique_key state verdict loss_verdict attempts first_seen_ms updated_at_ms",
        _candidates,
    ),
    "repairs": ("topic scope unique_key state rung attempts answer created_at_ms done_at_ms fact", _repairs),
    "rounds": (_ROUND, _rounds),
    "quarantine": ("unique_key_topic broker queue offset reason detail seen_at_ms", _quarantine),
    "outages": ("started_at_ms reason scanned closed_at_ms left_out", _outages),
    "floors": ("topic group broker queue offset updated_at_ms", _floors),
    "actions": ("started_at_ms by command topic group unique_key detail result ended_at_ms", _actions),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerListing:
    """Rows of a listing of the ledger, the newest first; floors by queue."""

    columns: Sequence[str]
    rows: Sequence[Row]
    #: Where the next page goes on; None: there are no more rows. A page may be shorter than asked for.
    end: Position | None = None
    #: Lines beside the table: the unique keys that --key was taken for, and names that are not configured.
    notes: Sequence[Fact] = ()

    @property
    def exit_code(self) -> int:
        """3: nothing ever ran with the environment of the settings, so that no row means nothing; 0."""
        return 3 if any(note.code is UNKNOWN_ENVIRONMENT for note in self.notes) else 0

    def named(self) -> list[dict[str, object]]:
        """The rows with the names of their columns; facts as plain data."""
        plain = ([one.as_dict() if isinstance(one, Fact) else one for one in row] for row in self.rows)
        return [dict(zip(self.columns, row, strict=True)) for row in plain]

    @property
    def texts(self) -> tuple[Sequence[str], Sequence[Row]]:
        """Columns and rows for people, who read a fact's text beside it."""
        kept = [place for place, name in enumerate(self.columns) if name != "fact"]
        return [self.columns[place] for place in kept], [tuple(row[place] for place in kept) for row in self.rows]

    def told(self) -> dict[str, object]:
        """The notes for JSON, as sentences, and below `facts` as codes and fields."""
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
    """One page; `name`: of a unique key, or of the newest messages of a business id, only.

    Raises InvalidValue for a listing, a name or a position that there is not, DependencyAway.
    """
    columns, pages, only, notes = _asked(connections, what, only, name)
    found = pages(connections, only, limit, after)
    return LedgerListing(columns=columns, rows=found.rows, end=found.end, notes=notes)


def list_rows(
    connections: Connections, what: str, *, only: LedgerFilter, limit: int, name: str | None = None
) -> LedgerListing:
    """As list_page(), but as many pages as it takes for `limit` rows.

    Repairs that failed and unfinished ones come first: else a hundred newer ones would hide them.
    """
    columns, pages, only, notes = _asked(connections, what, only, name)
    is_open = what == "repairs" and only.repair_state is None
    filters = [replace(only, repair_state=state) for state in _WANTED_FIRST] if is_open else []
    rows: list[Row] = []
    for one in (*filters, only):
        if len(rows) < limit:
            newest_first = all_rows(lambda *, limit, after, one=one: pages(connections, one, limit, after), limit=limit)
            shown = set(rows)
            rows += [row for row in newest_first if row not in shown]
    rows = rows[:limit]
    wrong = None if rows else never_run(connections)
    return LedgerListing(columns=columns, rows=rows, notes=notes if wrong is None else [*notes, wrong])


def _asked(
    connections: Connections, what: str, only: LedgerFilter, name: str | None
) -> tuple[Sequence[str], Pages, LedgerFilter, Sequence[Fact]]:
    if what not in LISTINGS:
        raise InvalidValue("what", what, f"one of {', '.join(LISTINGS)}")
    columns, pages = LISTINGS[what]
    notes: Sequence[Fact] = ()
    for field, text in (("topic", only.topic), ("group", only.group)):
        if text is not None and not is_storable(text, len(text)):
            raise InvalidValue(field, text, "no row has it: it holds a character that no database keeps")
    if name is not None:
        named = keys_named(connections, name, limit=KEYS_MAX)
        only, notes = replace(only, unique_keys=named.unique_keys), named.notes
    return columns.split(), pages, only, [*notes, *_not_configured(connections.settings, only)]


def _not_configured(settings: Settings, only: LedgerFilter) -> Iterator[Fact]:
    """A retired topic or group may have rows yet; a misspelt one has none, which must not look like calm."""
    if only.topic is not None and only.topic not in {one.topic for one in settings.subscriptions}:
        yield OTHER_TOPIC(topic=only.topic)
    if only.group is not None and only.group not in {one.group for one in settings.subscriptions}:
        yield OTHER_GROUP(group=only.group)
