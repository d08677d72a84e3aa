"""Conditions of the ordered list of classes (classes.py). A condition tests whole columns at once.

The first matching condition wins.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from reconciler.audit.judge.facts import GroupFacts
from reconciler.audit.judge.rows import Flags
from reconciler.audit.result.classes import NUMBERS, KeyClass

Condition = Callable[[GroupFacts], Flags]

#: Conditions in the order of the list. A condition is tested after all earlier conditions, so it does not repeat that
#: they failed.
CONDITIONS: dict[KeyClass, Condition] = {
    KeyClass.EFFECT_INCOMPLETE: lambda f: f.incomplete,
    KeyClass.EFFECT_WITHOUT_COMMIT: lambda f: f.effect & ~f.committed & np.bool_(f.outboxes_complete),
    KeyClass.DOUBLE_EFFECT: lambda f: f.effects > 1,
    KeyClass.REPAIR_DIFFERS: lambda f: f.repair.sent & f.effect & f.digests_differ,
    KeyClass.UNNECESSARY_REPAIR: lambda f: f.unnecessary,
    KeyClass.NOT_ANNOUNCED_NOT_FOUND: lambda f: f.accepted & ~f.effect & f.old & ~f.watched,
    KeyClass.UNACCOUNTED: lambda f: f.unaccounted,
    KeyClass.LOST: lambda f: f.accepted & ~f.effect & f.old & ~f.quarantined,
    KeyClass.QUARANTINED: lambda f: f.quarantined,
    KeyClass.REPAIRED: lambda f: f.effect & f.repair.sent,
    KeyClass.EFFECT_LATE: lambda f: f.late,
    KeyClass.EFFECT_IN_TIME: lambda f: f.effect,
    KeyClass.FILTERED: lambda f: f.committed & ~f.accepted,
    KeyClass.REJECTED: lambda f: ~f.committed & ~f.tombstone,
    KeyClass.ROLLED_BACK: lambda f: f.tombstone,
    KeyClass.PENDING: lambda f: f.accepted & ~f.old,
}


def classify(facts: GroupFacts) -> npt.NDArray[np.uint8]:
    """Finds for each key the number of its class in the list, from 1. 0: the key does not belong to the window.

    Raises AssertionError if no rule matches a key. Then the list has a hole.
    """
    classes = np.zeros(len(facts.present), np.uint8)
    for name in reversed(CONDITIONS):
        np.copyto(classes, np.uint8(NUMBERS[name]), where=CONDITIONS[name](facts))
    if not classes[facts.present].all():
        raise AssertionError("a key matched no rule of the list of classes")
    classes[~facts.present] = 0
    return classes
