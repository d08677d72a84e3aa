"""What 0.2.0 says in words alone, and decides by. Beside one expression of the ledger's retention, which begins with
BEGINS_DISMISSED, this file is the only place of the product that reads a sentence.

0.2.0 beside this release writes a text and leaves what lies beside it. So a stored fact counts for its own text only
(stored_facts.py), and a row without one gets its code from the words that 0.2.0 begins its text with. The same words
begin what this release writes (reconciler/words, and a test): 0.2.0 would send what was dismissed.

Until 0.4.0: no process of 0.2.0 runs beside that, and its migration gives a fact to the rows that have none by then.
"""

from __future__ import annotations

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import REPAIR_DISMISSED

#: The answer of a repair that a person dismissed.
BEGINS_DISMISSED = "dismissed by "
#: The reason of a verdict on a key with several effects.
BEGINS_DOUBLE_EFFECT = "several inboxes of the group have this key: a double effect"


def answer_in(text: str) -> Fact | None:
    """The fact of a repair's answer. None: nothing is decided by it."""
    if not text.startswith(BEGINS_DISMISSED):
        return None
    by, _, reason = text.removeprefix(BEGINS_DISMISSED).partition(": ")
    return Fact(REPAIR_DISMISSED, (("by", by), ("reason", reason)))


def tells_double_effect(text: str) -> bool:
    """Of the reason of a verdict."""
    return text.startswith(BEGINS_DOUBLE_EFFECT)
