"""Quarantined keys that a person has seen to are closed: reconciler dismiss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from reconciler.commands.operator_actions import recorded
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.dismissal import CHANGED, CLOSED, Dismissals, KeyAsSeen
from reconciler.policy.ports import Candidate, LedgerLife
from reconciler.wiring.availability import ask_ledger, require
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import topic_plans


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissalLine:
    """What came of one key for one group."""

    topic: str
    group: str
    unique_key: str
    #: dismissed, changed, SETTLED, or why it was left.
    outcome: str
    #: Of a key that has changed since it was looked at: what the ledger holds now.
    now: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissalReport:
    """What `reconciler dismiss` did."""

    keys: tuple[DismissalLine, ...]

    columns = ("topic", "group", "unique key", "outcome")

    @property
    def changed(self) -> tuple[DismissalLine, ...]:
        """Lines of keys that are not what the person saw."""
        return tuple(line for line in self.keys if line.outcome == CHANGED)

    @property
    def exit_code(self) -> int:
        """5: a key has changed since it was looked at, and stays; 4: the reconciler still works on one; 0: none of them
        needs a person any more."""
        if self.changed:
            return ChangedMeanwhile.exit_code
        return 0 if all(line.outcome in CLOSED for line in self.keys) else 4

    def rows(self) -> list[tuple[str, ...]]:
        """Rows for people."""
        return [(line.topic, line.group, line.unique_key, line.outcome) for line in self.keys]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {"keys": [asdict(line) for line in self.keys]}


def dismiss_keys(
    connections: Connections,
    unique_keys: Sequence[str],
    *,
    topic: str | None,
    group: str | None,
    reason: str,
    by: str,
    seen: Mapping[str, str] | None = None,
) -> DismissalReport:
    """Takes keys off the list of what needs a person, each if it is still what that person saw.

    `seen`: what was shown of a key (ports.seen_of); of others, and without it, what is read first counts. Raises
    InvalidValue for a key without a verdict, DatabaseAway.
    """
    require(ask_ledger(connections))
    ledger = connections.ledger
    configured = {plan.subscription for t in topic_plans(connections.settings) for plan in t.subscriptions}
    dismissals = Dismissals(closings=ledger.closings, configured=configured)
    # From the ledger, not from the settings: what is not configured any more needs a person, too.
    keys = {key: ledger_rows(connections, key) for key in dict.fromkeys(unique_keys)}
    topics = {key: _by_topic(life, topic=topic) for key, life in keys.items()}
    unheard = [key for key, of in topics.items() if not any(_has(rows, group) for rows in of.values())]
    if unheard:
        raise InvalidValue("KEYS", ", ".join(sorted(unheard)), "no verdict has it: see reconciler explain")
    done: list[DismissalLine] = []
    for key, life in keys.items():
        is_as_seen = (seen or {}).get(key, life.seen) == life.seen
        for name, rows in topics[key].items():
            with recorded(
                connections, "dismiss", by=by, topic=name, group=group, unique_key=key, detail=reason
            ) as outcome:
                if is_as_seen:
                    groups = dismissals.dismiss(rows, group=group, by=by, reason=reason)
                else:
                    groups = {row.subscription.group: CHANGED for row in rows.candidates if _has_group(row, group)}
                outcome.result = ", ".join(f"{of}: {what}" for of, what in groups.items())
            done += _lines(connections, key, name, groups)
    return DismissalReport(keys=tuple(done))


def ledger_rows(connections: Connections, unique_key: str) -> LedgerLife:
    """What the ledger holds of a key. Raises DatabaseAway."""
    return connections.ledger.reports.life(connections.settings.environment, unique_key)


def _lines(connections: Connections, unique_key: str, topic: str, groups: Mapping[str, str]) -> Iterator[DismissalLine]:
    now: dict[str, object] | None = None
    if CHANGED in groups.values():
        life = ledger_rows(connections, unique_key)
        rows = _by_topic(life, topic=topic).get(topic)
        now = {"seen": life.seen} | (rows.as_dict() if rows is not None else KeyAsSeen().as_dict())
    for group, what in groups.items():
        told = now if what == CHANGED else None
        yield DismissalLine(topic=topic, group=group, unique_key=unique_key, outcome=what, now=told)


def _by_topic(life: LedgerLife, *, topic: str | None) -> dict[str, KeyAsSeen]:
    names = dict.fromkeys(row.subscription.topic for row in life.candidates if topic in (None, row.subscription.topic))
    return {
        name: KeyAsSeen(
            candidates=[row for row in life.candidates if row.subscription.topic == name],
            repairs=[row for row in life.repairs if row.topic == name],
        )
        for name in names
    }


def _has(rows: KeyAsSeen, group: str | None) -> bool:
    return any(_has_group(row, group) for row in rows.candidates)


def _has_group(row: Candidate, group: str | None) -> bool:
    return group in (None, row.subscription.group)
