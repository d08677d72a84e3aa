"""What `reconciler list` shows: rows of the ledger, for people and programs alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.commands.business_ids import keys_named
from reconciler.errors import InvalidValue
from reconciler.policy.ports import LedgerFilter, Outage
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import topic_plans

Row = tuple[object, ...]
#: Rows of one listing; the number is the most of them.
Rows = Callable[[Connections, LedgerFilter, int], Iterator[Row]]
#: Messages of one business id whose rows are listed.
KEYS_MAX = 200


def outage_row(o: Outage) -> Row:
    """The cells of an outage, as `status` shows it, too."""
    left_out = "; ".join(f"{name}: {why}" for name, why in sorted(o.left_out.items()))
    return o.started_at_ms, o.reason, o.scanned, o.closed_at_ms, left_out


def text_of(value: object) -> str | None:
    """The text of an enumeration's value, or None."""
    return None if value is None else str(value)


def _candidates(connections: Connections, only: LedgerFilter, limit: int) -> Iterator[Row]:
    for c in connections.ledger.reports.candidates(connections.settings.environment, only=only, limit=limit):
        yield (
            *(c.subscription.topic, c.subscription.group, c.unique_key, str(c.state), str(c.verdict)),
            *(text_of(c.loss_verdict), c.attempts, c.updated_at_ms),
        )


def _repairs(connections: Connections, only: LedgerFilter, limit: int) -> Iterator[Row]:
    """Unfinished and failed ones first: else the first hundred would be repairs of long ago."""
    environment, reports = connections.settings.environment, connections.ledger.reports
    found = list(reports.repairs(environment, only=replace(only, is_done=False), limit=limit))
    found += reports.repairs(environment, only=replace(only, is_done=True), limit=limit)
    for r in found[:limit]:
        about = (r.topic, r.scope, r.unique_key, str(r.state), str(r.rung))
        yield (*about, r.attempts, r.answer, r.created_at_ms, r.done_at_ms)


def _quarantine(connections: Connections, _only: LedgerFilter, limit: int) -> Iterator[Row]:
    for q in connections.ledger.reports.quarantined(connections.settings.environment, limit=limit):
        place = (q.refused.queue.unique_key_topic, q.refused.queue.broker, q.refused.queue.queue_id)
        yield (*place, q.refused.queue_offset, q.refused.reason, q.refused.detail, q.seen_at_ms)


def _outages(connections: Connections, _only: LedgerFilter, limit: int) -> Iterator[Row]:
    yield from map(outage_row, connections.ledger.reports.outages(connections.settings.environment, limit=limit))


def _floors(connections: Connections, only: LedgerFilter, limit: int) -> Iterator[Row]:
    subscriptions = [plan.subscription for topic in topic_plans(connections.settings) for plan in topic.subscriptions]
    wanted = [s for s in subscriptions if only.topic in (None, s.topic)]
    floors = [f for s in wanted if only.group in (None, s.group) for f in connections.ledger.reports.floors(s)]
    for f in floors[:limit]:
        yield f.subscription.topic, f.subscription.group, f.broker, f.queue_id, f.queue_offset, f.updated_at_ms


def _actions(connections: Connections, only: LedgerFilter, limit: int) -> Iterator[Row]:
    for a in connections.ledger.reports.actions(connections.settings.environment, only=only, limit=limit):
        about = (a.intent.by, a.intent.command, a.intent.topic, a.intent.group, a.intent.unique_key, a.intent.detail)
        yield (a.started_at_ms, *about, a.result, a.ended_at_ms)


LISTINGS: Mapping[str, tuple[str, Rows]] = {
    "candidates": ("topic group unique_key state verdict loss_verdict attempts updated_at_ms", _candidates),
    "repairs": ("topic scope unique_key state rung attempts answer created_at_ms done_at_ms", _repairs),
    "quarantine": ("unique_key_topic broker queue offset reason detail seen_at_ms", _quarantine),
    "outages": ("started_at_ms reason scanned closed_at_ms left_out", _outages),
    "floors": ("topic group broker queue offset updated_at_ms", _floors),
    "actions": ("started_at_ms by command topic group unique_key detail result ended_at_ms", _actions),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerListing:
    """One listing of the ledger."""

    columns: Sequence[str]
    rows: Sequence[Row]
    #: Lines beside the table: the unique keys that --key was taken for, and names that are not configured.
    notes: Sequence[str] = ()


def list_rows(
    connections: Connections, what: str, *, only: LedgerFilter, limit: int, name: str | None = None
) -> LedgerListing:
    """Rows of the ledger; `name`: of a unique key, or of the newest messages of a business id, only.

    Raises InvalidValue for a listing or a name that there is not, DependencyAway.
    """
    if what not in LISTINGS:
        raise InvalidValue("what", what, f"one of {', '.join(LISTINGS)}")
    columns, rows = LISTINGS[what]
    notes: Sequence[str] = ()
    if name is not None:
        named = keys_named(connections, name, limit=KEYS_MAX)
        only, notes = replace(only, unique_keys=named.unique_keys), named.notes
    notes = [*notes, *_not_configured(connections.settings, only)]
    return LedgerListing(columns=columns.split(), rows=list(rows(connections, only, limit)), notes=notes)


def _not_configured(settings: Settings, only: LedgerFilter) -> Iterator[str]:
    """A retired topic or group may have rows yet; a misspelt one has none, which must not look like calm."""
    asked = {"topic": only.topic, "group": only.group}
    for name, value in asked.items():
        if value is not None and value not in {getattr(s, name) for s in settings.subscriptions}:
            yield f"no [[subscriptions]] section has the {name} {value!r}"
