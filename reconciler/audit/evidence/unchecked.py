"""Which rules cannot be applied, for want of which input: an auditor must not take silence for a check."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.audit.evidence.document import EvidenceDocument
from reconciler.audit.evidence.plan import GroupPlan
from reconciler.audit.result.classes import NUMBERS, KeyClass
from reconciler.audit.result.documents import time_text
from reconciler.audit.result.values import AuditedSubscription, HistoryGap, UncheckedRule


def not_checked(
    document: EvidenceDocument, plans: Sequence[GroupPlan], reread: Sequence[HistoryGap] = ()
) -> tuple[UncheckedRule, ...]:
    """By topic, group and the order of the list; one reason a rule."""
    found: list[UncheckedRule] = []
    for asked, plan in zip(document.subscriptions, plans, strict=True):
        lost = [one for one in reread if (one.topic, one.group) == (asked.topic, asked.group)]
        whys = _whys(asked, plan, document, lost)
        found += [
            UncheckedRule(topic=asked.topic, group=asked.group, class_name=str(name), why=whys[name])
            for name in sorted(whys, key=lambda one: NUMBERS[one])
        ]
    return tuple(found)


def _lost_account(lost: Sequence[HistoryGap]) -> str:
    """Of the reconciler's own account only what is before and after the loss is known; commits and effects are read
    from outbox and inbox as ever."""
    from_ms, to_ms = min(one.from_ms for one in lost), max(one.to_ms for one in lost)
    return (
        f"Redis lost its memory: rounds from {time_text(from_ms)} to {time_text(to_ms)} are not there. Of keys that "
        "were announced before, this is judged only where a snapshot of before shows it; the times at which rounds "
        "took keys are not counted across it"
    )


def _whys(
    asked: AuditedSubscription, plan: GroupPlan, document: EvidenceDocument, lost: Sequence[HistoryGap]
) -> dict[KeyClass, str]:
    whys: dict[KeyClass, str] = {}
    missing = sorted(set(asked.producer_groups) - document.outboxes)
    if missing:
        why = f"no outbox was given for {', '.join(missing)}"
        whys[KeyClass.EFFECT_WITHOUT_COMMIT] = why
        for name in (KeyClass.NOT_ANNOUNCED_NOT_FOUND, KeyClass.LOST):
            whys[name] = f"{why}: keys of these producers are not checked"
    if not asked.effects:
        whys[KeyClass.DOUBLE_EFFECT] = "business effects were not counted; a key in two inboxes is found"
    if not asked.inbox:
        for name in (KeyClass.REPAIR_DIFFERS, KeyClass.UNNECESSARY_REPAIR, KeyClass.EFFECT_LATE):
            whys[name] = "the inbox was not given"
    if document.history is None:
        for name in (KeyClass.NOT_ANNOUNCED_NOT_FOUND, KeyClass.UNACCOUNTED):
            whys[name] = "there is no history"
    else:
        unaccounted = [] if any(plan.snapshots.values()) else ["history holds no snapshot of pending of this time"]
        unaccounted += [_lost_account(lost)] if lost else []
        if unaccounted:
            whys[KeyClass.UNACCOUNTED] = "; ".join(unaccounted)
    if not document.ledger:
        for name in (
            KeyClass.REPAIR_DIFFERS,
            KeyClass.UNNECESSARY_REPAIR,
            KeyClass.NOT_ANNOUNCED_NOT_FOUND,
            KeyClass.UNACCOUNTED,
            KeyClass.REPAIRED,
        ):
            whys[name] = "the ledger was not given"
    return whys
