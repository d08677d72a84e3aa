"""Quarantined keys that a person has seen to are closed: reconciler dismiss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from reconciler.commands.dismissed_halves import DismissedHalves, HalfLine, not_looked_for
from reconciler.commands.operator_actions import recorded
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.dismissal import CHANGED, CLOSED, DISMISSED, Dismissals, KeyAsSeen
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
    """What `reconciler dismiss` did, or would do."""

    keys: tuple[DismissalLine, ...]
    #: Nothing was changed: "dismissed" is what the outcome would be.
    dry_run: bool = False
    #: Of a dry run, and where halves were to be closed: one line a key and topic.
    halves: tuple[HalfLine, ...] = ()
    #: Of a dry run: key -> what it saw, which a dismissal can be compared with.
    seen: Mapping[str, str] = field(default_factory=dict)

    columns = ("topic", "group", "unique key", "outcome")

    @property
    def changed(self) -> tuple[DismissalLine, ...]:
        """Lines of keys that are not what the person saw."""
        return tuple(line for line in self.keys if line.outcome == CHANGED)

    @property
    def exit_code(self) -> int:
        """5: a key has changed since it was looked at, and stays; 4: the reconciler still works on one, or a half that
        was to be closed may be open still; 0: none of them needs a person any more."""
        if self.changed:
            return ChangedMeanwhile.exit_code
        is_left = not self.dry_run and any(half.is_left for half in self.halves)
        return 4 if is_left or any(line.outcome not in CLOSED for line in self.keys) else 0

    def rows(self) -> list[tuple[str, ...]]:
        """Rows for people."""
        return [(line.topic, line.group, line.unique_key, line.outcome) for line in self.keys]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "dry_run": self.dry_run,
            "keys": [asdict(line) for line in self.keys],
            "halves": [asdict(half) for half in self.halves],
            "seen": dict(self.seen),
        }


def dismiss_keys(
    connections: Connections,
    unique_keys: Sequence[str],
    *,
    topic: str | None,
    group: str | None,
    reason: str,
    by: str,
    seen: Mapping[str, str] | None = None,
    dry_run: bool = False,
    roll_back_half: bool = False,
) -> DismissalReport:
    """Takes keys off the list of what needs a person, each if it is still what that person saw.

    `seen`: what was shown of a key (ports.seen_of); of others, and without it, what is read first counts. `dry_run`
    tells what would come of it and whether a half is open; `roll_back_half` closes it after the dismissal, where no
    group needs it any more. Raises InvalidValue for a key without a verdict, DatabaseAway.
    """
    require(ask_ledger(connections))
    ledger = connections.ledger
    plans = {plan.topic: plan for plan in topic_plans(connections.settings)}
    configured = {plan.subscription for topic_plan in plans.values() for plan in topic_plan.subscriptions}
    dismissals = Dismissals(closings=ledger.closings, configured=configured)
    # From the ledger, not from the settings: what is not configured any more needs a person, too.
    keys = {key: ledger_rows(connections, key) for key in dict.fromkeys(unique_keys)}
    topics = {key: _by_topic(life, topic=topic) for key, life in keys.items()}
    unheard = [key for key, of in topics.items() if not any(_has(rows, group) for rows in of.values())]
    if unheard:
        raise InvalidValue("KEYS", ", ".join(sorted(unheard)), "no verdict has it: see reconciler explain")
    done: list[DismissalLine] = []
    ended: list[HalfLine] = []
    if dry_run:
        return _previewed(connections, keys, topics, dismissals, group=group)
    looking = DismissedHalves(connections) if roll_back_half else None
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
            if looking is not None and name in plans:
                read = partial(_read, connections, key, name)
                ended.append(looking.close(plans[name], key, read_ledger=read, by=by, reason=reason))
            elif looking is not None:
                ended.append(not_looked_for(name, key))
    return DismissalReport(keys=tuple(done), halves=tuple(ended))


def _previewed(
    connections: Connections,
    keys: Mapping[str, LedgerLife],
    topics: Mapping[str, Mapping[str, KeyAsSeen]],
    dismissals: Dismissals,
    *,
    group: str | None,
) -> DismissalReport:
    looking = DismissedHalves(connections)
    plans = {plan.topic: plan for plan in topic_plans(connections.settings)}
    lines: list[DismissalLine] = []
    halves: list[HalfLine] = []
    for key in keys:
        for name, rows in topics[key].items():
            groups = dismissals.outcomes(rows, group=group)
            lines += _lines(connections, key, name, groups)
            dismissing = {of for of, what in groups.items() if what == DISMISSED}
            halves.append(
                looking.look(plans[name], key, ledger=rows, dismissing=dismissing)
                if name in plans
                else not_looked_for(name, key)
            )
    seen = {key: life.seen for key, life in keys.items()}
    return DismissalReport(keys=tuple(lines), dry_run=True, halves=tuple(halves), seen=seen)


def _read(connections: Connections, unique_key: str, topic: str) -> KeyAsSeen:
    return _by_topic(ledger_rows(connections, unique_key), topic=topic).get(topic, KeyAsSeen())


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
