"""Quarantined keys that a person has seen to are closed: reconciler dismiss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.commands.operator_actions import recorded
from reconciler.errors import InvalidValue
from reconciler.policy.dismissal import CLOSED, Dismissals
from reconciler.policy.ports import Candidate
from reconciler.wiring.availability import ask_ledger, require
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import topic_plans


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissalReport:
    """What `reconciler dismiss` did: (topic, group, unique key, "dismissed", or why it was left)."""

    keys: tuple[tuple[str, str, str, str], ...]

    columns = ("topic", "group", "unique key", "outcome")

    @property
    def exit_code(self) -> int:
        """4: the reconciler still works on a key; 0: none of them needs a person any more."""
        return 0 if all(key[3] in CLOSED for key in self.keys) else 4

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        names = ("topic", "group", "unique_key", "outcome")
        return {"keys": [dict(zip(names, row, strict=True)) for row in self.keys]}


def dismiss_keys(
    connections: Connections, unique_keys: Sequence[str], *, topic: str | None, group: str | None, reason: str, by: str
) -> DismissalReport:
    """Takes keys off the list of what needs a person. Raises InvalidValue for a key without a verdict, DatabaseAway."""
    require(ask_ledger(connections))
    ledger = connections.ledger
    configured = {plan.subscription for t in topic_plans(connections.settings) for plan in t.subscriptions}
    dismissals = Dismissals(candidates=ledger.candidates, repairs=ledger.repairs, configured=configured)
    # From the ledger, not from the settings: what is not configured any more needs a person, too.
    keys = {key: _candidates_by_topic(connections, key, topic=topic) for key in dict.fromkeys(unique_keys)}
    unheard = [key for key, topics in keys.items() if not any(_has(rows, group) for rows in topics.values())]
    if unheard:
        raise InvalidValue("KEYS", ", ".join(sorted(unheard)), "no verdict has it: see reconciler explain")
    done: list[tuple[str, str, str, str]] = []
    for key, topics in keys.items():
        for name, rows in topics.items():
            with recorded(
                connections, "dismiss", by=by, topic=name, group=group, unique_key=key, detail=reason
            ) as outcome:
                groups = dismissals.dismiss(rows, group=group, by=by, reason=reason)
                outcome.result = ", ".join(f"{of}: {what}" for of, what in groups.items())
            done += ((name, of, key, what) for of, what in groups.items())
    return DismissalReport(keys=tuple(done))


def _candidates_by_topic(connections: Connections, unique_key: str, *, topic: str | None) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for row in connections.ledger.reports.life(connections.settings.environment, unique_key).candidates:
        if topic in (None, row.subscription.topic):
            found.setdefault(row.subscription.topic, []).append(row)
    return found


def _has(rows: Sequence[Candidate], group: str | None) -> bool:
    return any(group in (None, row.subscription.group) for row in rows)
