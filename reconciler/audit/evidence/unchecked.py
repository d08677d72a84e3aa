"""Rules that cannot be applied because an input is missing.

Each such rule is reported, so that no reader takes a missing finding for a check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from reconciler.audit.evidence.document import EvidenceDocument
from reconciler.audit.evidence.plan import GroupPlan
from reconciler.audit.result.classes import NUMBERS, KeyClass
from reconciler.audit.result.sentences import Sentence, sentence
from reconciler.audit.result.times import time_text
from reconciler.audit.result.values import AuditedSubscription, HistoryGap, UncheckedRule
from reconciler.contract.evidence_layout import INBOX_EVIDENCE, REPAIR_EVIDENCE

#: Rule, table and column: the columns of LATER_COLUMNS that rules need.
_ASKED_OF_COLUMNS = (
    (KeyClass.EFFECT_INCOMPLETE, INBOX_EVIDENCE.name, "incomplete"),
    (KeyClass.UNNECESSARY_REPAIR, REPAIR_EVIDENCE.name, "first_sent_at_ms"),
)
#: Rules that need every commit, or the time and content of a commit.
_OF_COMMITS = (
    KeyClass.EFFECT_WITHOUT_COMMIT,
    KeyClass.REPAIR_DIFFERS,
    KeyClass.NOT_ANNOUNCED_NOT_FOUND,
    KeyClass.LOST,
    KeyClass.EFFECT_LATE,
)


def not_checked(
    document: EvidenceDocument, plans: Sequence[GroupPlan], reread: Sequence[HistoryGap] = ()
) -> tuple[UncheckedRule, ...]:
    """Lists the rules that cannot be applied, sorted by topic, group and the order of classes.

    Each rule has one reason.
    """
    found: list[UncheckedRule] = []
    for asked, plan in zip(document.subscriptions, plans, strict=True):
        lost = [one for one in reread if (one.topic, one.group) == (asked.topic, asked.group)]
        whys = _whys(asked, plan, document, lost)
        found += [
            UncheckedRule(topic=asked.topic, group=asked.group, class_name=str(name), why=whys[name])
            for name in sorted(whys, key=lambda one: NUMBERS[one])
        ]
    return tuple(found)


def _both(first: Sentence, second: Sentence) -> Sentence:
    return sentence("both", first=first, second=second)


def _lost_account(lost: Sequence[HistoryGap]) -> Sentence:
    """Says in which time the reconciler's account is unknown.

    Outbox and inbox still show the commits and effects of that time.
    """
    from_ms, to_ms = min(one.from_ms for one in lost), max(one.to_ms for one in lost)
    return sentence("lost-account", start=time_text(from_ms), end=time_text(to_ms))


def _lacking_columns(asked: AuditedSubscription, document: EvidenceDocument) -> Iterator[tuple[KeyClass, str]]:
    """Yields rules whose column is absent.

    Such a column is NULL in every row, which looks as if there were nothing to find.
    """
    lacking = document.lacking_columns
    for name, table, column in _ASKED_OF_COLUMNS:
        if lacking is None:
            yield name, sentence(f"unsaid.{column}")
        elif (asked.topic, asked.group, table, column) in lacking:
            yield name, sentence(f"lacking.{column}")


def _whys(
    asked: AuditedSubscription, plan: GroupPlan, document: EvidenceDocument, lost: Sequence[HistoryGap]
) -> dict[KeyClass, str]:
    whys = dict(_lacking_columns(asked, document))
    missing = sorted(set(asked.producer_groups) - document.outboxes)
    if plan.of_halves:
        whys |= dict.fromkeys(_OF_COMMITS, sentence("no-commits"))
    elif missing:
        groups = ", ".join(missing)
        whys[KeyClass.EFFECT_WITHOUT_COMMIT] = sentence("no-outbox", groups=groups)
        for name in (KeyClass.NOT_ANNOUNCED_NOT_FOUND, KeyClass.LOST):
            whys[name] = sentence("no-outbox-keys", groups=groups)
    if not asked.effects:
        whys[KeyClass.DOUBLE_EFFECT] = sentence("effects-not-counted")
    if not asked.inbox:
        without = (
            KeyClass.EFFECT_INCOMPLETE,
            KeyClass.REPAIR_DIFFERS,
            KeyClass.UNNECESSARY_REPAIR,
            KeyClass.EFFECT_LATE,
            *(() if asked.effects else (KeyClass.REPAIRED, KeyClass.EFFECT_IN_TIME)),
        )
        for name in without:
            whys[name] = sentence("no-inbox")
    if document.history is None:
        for name in (KeyClass.NOT_ANNOUNCED_NOT_FOUND, KeyClass.UNACCOUNTED):
            whys[name] = sentence("no-history")
    else:
        unaccounted = [] if any(plan.snapshots.values()) else [sentence("no-snapshot")]
        unaccounted += [_lost_account(lost)] if lost else []
        if unaccounted:
            whys[KeyClass.UNACCOUNTED] = reduce(_both, unaccounted)
    if not document.ledger:
        for name in (
            KeyClass.REPAIR_DIFFERS,
            KeyClass.UNNECESSARY_REPAIR,
            KeyClass.NOT_ANNOUNCED_NOT_FOUND,
            KeyClass.UNACCOUNTED,
            KeyClass.REPAIRED,
        ):
            whys[name] = sentence("no-ledger")
    return whys
