"""What `reconciler doctor` learns from inboxes: whether a message has its effect in one of several only, and whether a
group that is not configured was renamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from reconciler.commands.diagnosis import Diagnosis
from reconciler.contract.subscription import Subscription
from reconciler.errors import ReconcilerError
from reconciler.policy.evidence import InboxRow
from reconciler.policy.inquiry.delivery import double_effect, effect_times_ms
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import effect_evidence
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
    of_each = Counter(source.subscription for source in effect_evidence(connections.settings).sources)
    return [_check(connections, subscription, count) for subscription, count in of_each.items() if count > 1]


def _check(connections: Connections, subscription: Subscription, count: int) -> Diagnosis:
    check = f"inboxes of {subscription}"
    inboxes = inbox_evidence(connections)
    found = inboxes.look_up(subscription, inboxes.newest_keys(subscription, limit=NEWEST_KEYS))
    doubled = {key: lookup.records for key, lookup in found.items() if double_effect(lookup) is not None}
    looked = f"the newest {NEWEST_KEYS} keys of each of {count} inboxes"
    if not doubled:
        text = f"{looked}: none is in two. That the handler's database is a function of the message cannot be proved"
        return Diagnosis(check=check, level="note", found=text, remedy=_REMEDY)
    why = _ONE_DATABASE if all(_are_one_row(rows) for rows in doubled.values()) else "double effects"
    text = f"{looked}: {len(doubled)} are in two, for example {next(iter(doubled))}: {why}"
    return Diagnosis(check=check, level="fail", found=text, remedy=_REMEDY)


def check_stranger(connections: Connections, topic: str, group: str) -> Diagnosis:
    """Of a group that reads a topic and is not configured. A ledger that was restored from a backup may not know that
    it was renamed: the rows of its inbox do."""
    new = None
    with suppress(ReconcilerError):  # it has a line of its own, or no inbox is configured
        new = _has_rows_of(connections, topic, group)
    found, remedy = "reads the topic and is not configured", "messages that it misses are never looked for"
    if new is None:
        remedy = f"add a [[subscriptions]] section for it, or {remedy}"
    else:
        found = f"reads the topic, is not configured, and its newest inbox rows are those of {new}"
        remedy = (
            "if it was renamed, the ledger does not know it: add no section for it, never start it again, and see "
            "docs/how-to/back-up-the-ledger.md for a ledger that was restored"
        )
    return Diagnosis(check=f"group {topic}/{group}", level="note", found=found, remedy=remedy)


def _has_rows_of(connections: Connections, topic: str, group: str) -> str | None:
    """The group whose name the newest rows of this one were copied to: of the keys that both have, each was written at
    the same times. Reads NEWEST_KEYS of each inbox. Raises DatabaseAway."""
    theirs = inbox_evidence(connections, group=group)
    stranger = Subscription(environment=connections.settings.environment, topic=topic, group=group)
    found = theirs.look_up(stranger, theirs.newest_keys(stranger, limit=NEWEST_KEYS))
    inboxes = inbox_evidence(connections)
    for configured in (s for s in connections.settings.subscriptions if s.topic == topic):
        of = subscription_of(connections.settings, configured)
        ours = inboxes.look_up(of, list(found)) if inboxes.is_configured(of) else {}
        both = [(effect_times_ms(found[key]), effect_times_ms(one)) for key, one in ours.items() if one.is_found]
        if both and all(old == new for old, new in both):
            return configured.group
    return None


def _are_one_row(rows: Sequence[InboxRow]) -> bool:
    return all(row == rows[0] for row in rows)
