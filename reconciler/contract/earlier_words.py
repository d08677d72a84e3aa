"""The words by which 0.2.0 decides, because it has no codes. Only this file reads sentences. BEGINS_DISMISSED is also
used by one expression of the ledger's retention.

A process of 0.2.0 that runs beside this release overwrites the text of a row but not the fact beside the text. So a
stored fact counts only for the text that it was written with (stored_facts.py). A row without a fact gets its code from
the first words of the text of 0.2.0. The texts of this release (reconciler/words) must begin with the same words, and a
test compares both. Otherwise 0.2.0 would send a message that a person dismissed.

Release 0.4.0 can delete this file. No 0.2.0 runs beside 0.4.0, and the migration of 0.4.0 gives a fact to each row
without one.
"""

from __future__ import annotations

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import REPAIR_DISMISSED

#: The answer of a repair that a person dismissed.
BEGINS_DISMISSED = "dismissed by "
#: The reason of a verdict on a key with several effects.
BEGINS_DOUBLE_EFFECT = "several inboxes of the group have this key: a double effect"


def answer_in(text: str) -> Fact | None:
    """Returns the fact in the answer of a repair. None: the text decides nothing."""
    if not text.startswith(BEGINS_DISMISSED):
        return None
    by, _, reason = text.removeprefix(BEGINS_DISMISSED).partition(": ")
    return Fact(REPAIR_DISMISSED, (("by", by), ("reason", reason)))


def tells_double_effect(text: str) -> bool:
    """Returns True if the reason of a verdict is a double effect."""
    return text.startswith(BEGINS_DOUBLE_EFFECT)
