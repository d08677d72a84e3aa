"""What `reconciler doctor` says of a group with several inboxes: whether a message has its effect in one only."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.commands.diagnosis import Diagnosis
from reconciler.policy.evidence import InboxRow
from reconciler.policy.inquiry.delivery import double_effect
from reconciler.settings.schema import SubscriptionSettings
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import inbox_evidence
from reconciler.wiring.subscriptions import subscription_of

#: Keys of each inbox that are looked up in all of them.
NEWEST_KEYS = 500

_ONE_DATABASE = "the same rows: two URLs lead to one database, or one database is a copy of another"
_REMEDY = (
    "each key must belong to one database: write each database once, and give every instance of the group the same "
    "@transactional_handler(database=...), a function of the message that never changes its answer"
)


def check_inbox_lists(connections: Connections) -> Sequence[Diagnosis]:
    """One finding a subscription with several inboxes. Raises DatabaseAway."""
    several = [s for s in connections.settings.subscriptions if len(s.inbox_urls) > 1]
    return [_check(connections, configured) for configured in several]


def _check(connections: Connections, configured: SubscriptionSettings) -> Diagnosis:
    subscription = subscription_of(connections.settings, configured)
    check = f"inboxes of {subscription}"
    inboxes = inbox_evidence(connections)
    found = inboxes.read(subscription, inboxes.newest_keys(subscription, limit=NEWEST_KEYS))
    doubled = {key: lookup.records for key, lookup in found.items() if double_effect(lookup) is not None}
    looked = f"the newest {NEWEST_KEYS} keys of each of {len(configured.inbox_urls)} inboxes"
    if not doubled:
        text = f"{looked}: none is in two. That the handler's database is a function of the message cannot be proved"
        return Diagnosis(check=check, level="note", found=text, remedy=_REMEDY)
    why = _ONE_DATABASE if all(_are_one_row(rows) for rows in doubled.values()) else "double effects"
    text = f"{looked}: {len(doubled)} are in two, for example {next(iter(doubled))}: {why}"
    return Diagnosis(check=check, level="fail", found=text, remedy=_REMEDY)


def _are_one_row(rows: Sequence[InboxRow]) -> bool:
    return all(row == rows[0] for row in rows)
