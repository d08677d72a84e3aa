"""What `reconciler doctor` finds in inboxes.

The checks: whether each message has its effect in only one of several inboxes, and whether an unconfigured group was
renamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from reconciler.commands.diagnosis import Diagnosis
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Subscription
from reconciler.errors import ReconcilerError
from reconciler.policy.evidence import InboxRow
from reconciler.policy.inquiry.delivery import double_effect, effect_times_ms
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import effect_evidence
from reconciler.wiring.evidence import inbox_evidence
from reconciler.wiring.subscriptions import subscription_of

INBOXES_OF = Code("doctor.inboxes-of", subscription=Field.NAME)
NONE_IN_TWO = Code("doctor.none-in-two", looked=Field.FACT)
ONE_DATABASE_TWICE = Code("doctor.one-database-twice", looked=Field.FACT, number=Field.NUMBER, unique_key=Field.NAME)
DOUBLE_EFFECTS = Code("doctor.double-effects", looked=Field.FACT, number=Field.NUMBER, unique_key=Field.NAME)
KEYS_LOOKED_UP = Code("doctor.keys-looked-up", keys=Field.NUMBER, inboxes=Field.NUMBER)
ONE_DATABASE_A_KEY = Code("doctor.one-database-a-key")
DOCTOR_GROUP = Code("doctor.group", group=Field.NAME)
READER_NOT_CONFIGURED = Code("doctor.reader-not-configured")
ADD_SECTION = Code("doctor.add-section")
READER_WITH_ROWS_OF = Code("doctor.reader-with-rows-of", group=Field.NAME)
IF_RENAMED = Code("doctor.if-renamed")

#: Maximum number of keys of each inbox that are looked up in all inboxes.
NEWEST_KEYS = 500


def group_check(name: str) -> Fact:
    """Returns the name of a consumer group's check, by topic and group."""
    return DOCTOR_GROUP(group=name)


def check_inbox_lists(connections: Connections) -> Sequence[Diagnosis]:
    """Returns one finding for each subscription with several inboxes. Raises DatabaseAway."""
    of_each = Counter(source.subscription for source in effect_evidence(connections.settings).sources)
    return [_check(connections, subscription, count) for subscription, count in of_each.items() if count > 1]


def _check(connections: Connections, subscription: Subscription, count: int) -> Diagnosis:
    inboxes = inbox_evidence(connections)
    found = inboxes.look_up(subscription, inboxes.newest_keys(subscription, limit=NEWEST_KEYS))
    doubled = {key: lookup.records for key, lookup in found.items() if double_effect(lookup) is not None}
    check, looked = INBOXES_OF(subscription=str(subscription)), KEYS_LOOKED_UP(keys=NEWEST_KEYS, inboxes=count)
    remedy = ONE_DATABASE_A_KEY()
    if not doubled:
        return Diagnosis(check=check, level="note", found=NONE_IN_TWO(looked=looked), remedy=remedy)
    why = ONE_DATABASE_TWICE if all(_are_one_row(rows) for rows in doubled.values()) else DOUBLE_EFFECTS
    told = why(looked=looked, number=len(doubled), unique_key=next(iter(doubled)))
    return Diagnosis(check=check, level="fail", found=told, remedy=remedy)


def check_stranger(connections: Connections, topic: str, group: str) -> Diagnosis:
    """Checks a group that reads a topic and is not configured.

    A ledger that was restored from a backup may not know that the group was renamed. The rows of the inbox still show
    the rename.
    """
    new = None
    with suppress(ReconcilerError):  # an inbox that is away has its own line, or no inbox is configured
        new = _has_rows_of(connections, topic, group)
    check = group_check(f"{topic}/{group}")
    if new is None:
        return Diagnosis(check=check, level="note", found=READER_NOT_CONFIGURED(), remedy=ADD_SECTION())
    return Diagnosis(check=check, level="note", found=READER_WITH_ROWS_OF(group=new), remedy=IF_RENAMED())


def _has_rows_of(connections: Connections, topic: str, group: str) -> str | None:
    """Returns the group to whose name the newest rows of `group` were copied. None: there is none.

    Copied rows have the keys and times of the original rows. Reads NEWEST_KEYS of each inbox.
    Raises DatabaseAway.
    """
    theirs = inbox_evidence(connections, group=group)
    stranger = Subscription(environment=connections.settings.environment, topic=topic, group=group)
    found = theirs.look_up(stranger, theirs.newest_keys(stranger, limit=NEWEST_KEYS))
    inboxes = inbox_evidence(connections)
    for configured in connections.settings.subscriptions_of_topics()[topic]:
        of = subscription_of(connections.settings, configured)
        ours = inboxes.look_up(of, list(found)) if inboxes.is_configured(of) else {}
        both = [(effect_times_ms(found[key]), effect_times_ms(one)) for key, one in ours.items() if one.is_found]
        if both and all(old == new for old, new in both):
            return configured.group
    return None


def _are_one_row(rows: Sequence[InboxRow]) -> bool:
    return all(row == rows[0] for row in rows)
