"""A *verdict* is what the evidence says about one announced key in one subscription. The list is closed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from reconciler.contract.facts import Code, Fact, Field


class Verdict(StrEnum):
    """The judgement of one key. `MEANINGS` explains each verdict to people, and docs are generated from `MEANINGS`."""

    CONSUMED = "CONSUMED"
    DELIVERED = "DELIVERED"
    DELIVERED_NOT_APPLIED = "DELIVERED_NOT_APPLIED"
    LAGGING = "LAGGING"
    RETRYING = "RETRYING"
    DEAD_LETTERED = "DEAD_LETTERED"
    FILTERED = "FILTERED"
    BEFORE_SINCE = "BEFORE_SINCE"
    COLLISION = "COLLISION"
    INCOMPLETE = "INCOMPLETE"
    LOST_CONFIRM = "LOST_CONFIRM"
    PARKED = "PARKED"
    ROLLED_BACK_WRONGLY = "ROLLED_BACK_WRONGLY"
    EXPIRED = "EXPIRED"
    REJECTED = "REJECTED"
    QUARANTINED = "QUARANTINED"
    UNKNOWN = "UNKNOWN"


class Undecided(StrEnum):
    """Why a key stays UNKNOWN although time alone cannot decide. The cause is stored with the evidence of the
    verdict."""

    #: A witness that should answer is silent, or its answer is not proved.
    WITNESS = "witness"
    #: The configuration cannot decide the verdict: there is no outbox, no inbox, or the group filters by SQL92.
    SET_UP = "set-up"
    #: Witnesses contradict each other. There are three cases. A half names the outbox with its row, but the outbox does
    #: not show the row. Messages that would prove a delivery may have been deleted by age. A business row says that one
    #: of several messages was committed, but none was delivered.
    CONTRADICTION = "contradiction"
    #: The group pops, or may pop. It was handed the message, and shows no effect yet. No broker tells whether the
    #: message was acknowledged.
    HANDED_OUT = "handed-out"


#: Verdict -> what was seen, and what happens next.
MEANINGS: dict[Verdict, Code] = {
    Verdict.CONSUMED: Code("verdict.consumed"),
    Verdict.DELIVERED: Code("verdict.delivered"),
    Verdict.DELIVERED_NOT_APPLIED: Code("verdict.delivered-not-applied"),
    Verdict.LAGGING: Code("verdict.lagging"),
    Verdict.RETRYING: Code("verdict.retrying"),
    Verdict.DEAD_LETTERED: Code("verdict.dead-lettered"),
    Verdict.FILTERED: Code("verdict.filtered"),
    Verdict.BEFORE_SINCE: Code("verdict.before-since"),
    Verdict.COLLISION: Code("verdict.collision"),
    Verdict.INCOMPLETE: Code("verdict.incomplete"),
    Verdict.LOST_CONFIRM: Code("verdict.lost-confirm"),
    Verdict.PARKED: Code("verdict.parked"),
    Verdict.ROLLED_BACK_WRONGLY: Code("verdict.rolled-back-wrongly"),
    Verdict.EXPIRED: Code("verdict.expired"),
    Verdict.REJECTED: Code("verdict.rejected"),
    Verdict.QUARANTINED: Code("verdict.quarantined"),
    Verdict.UNKNOWN: Code("verdict.unknown"),
}

_KEY: Mapping[str, Field] = {"unique_key": Field.NAME}
#: Verdict -> how it ends: by the act of a person, or by no act.
ENDINGS: dict[Verdict, Code] = {
    Verdict.CONSUMED: Code("ending.consumed"),
    Verdict.DELIVERED: Code("ending.delivered"),
    Verdict.DELIVERED_NOT_APPLIED: Code("ending.delivered-not-applied", **_KEY),
    Verdict.LAGGING: Code("ending.lagging"),
    Verdict.RETRYING: Code("ending.retrying"),
    Verdict.DEAD_LETTERED: Code("ending.dead-lettered", **_KEY),
    Verdict.FILTERED: Code("ending.filtered"),
    Verdict.BEFORE_SINCE: Code("ending.before-since"),
    Verdict.COLLISION: Code("ending.collision", **_KEY),
    Verdict.INCOMPLETE: Code("ending.incomplete", **_KEY),
    Verdict.LOST_CONFIRM: Code("ending.lost-confirm", **_KEY),
    Verdict.PARKED: Code("ending.parked", **_KEY),
    Verdict.ROLLED_BACK_WRONGLY: Code("ending.rolled-back-wrongly", **_KEY),
    Verdict.EXPIRED: Code("ending.expired", **_KEY),
    Verdict.REJECTED: Code("ending.rejected"),
    Verdict.QUARANTINED: Code("ending.quarantined", **_KEY),
    Verdict.UNKNOWN: Code("ending.unknown", **_KEY),
}

#: A candidate with such a verdict needs a repair.
LOSSES = frozenset({Verdict.LOST_CONFIRM, Verdict.PARKED, Verdict.ROLLED_BACK_WRONGLY, Verdict.EXPIRED})

#: A candidate with such a verdict leaves pending without a repair.
SETTLING = frozenset({Verdict.CONSUMED, Verdict.DELIVERED, Verdict.FILTERED, Verdict.BEFORE_SINCE, Verdict.REJECTED})

#: A candidate with such a verdict leaves pending for the quarantine, and a person must look.
QUARANTINING = frozenset(
    {
        Verdict.COLLISION,
        Verdict.INCOMPLETE,
        Verdict.QUARANTINED,
        Verdict.DEAD_LETTERED,
        Verdict.DELIVERED_NOT_APPLIED,
    }
)

#: As long as a key has one of these verdicts, no repair of the key begins, not even by hand. A key that is QUARANTINED
#: is judged again.
NEVER_REPAIRED = QUARANTINING - {Verdict.QUARANTINED}

#: Verdicts on the inbox row itself. Rows that a person saw when dismissing the key are not reported again.
VERDICTS_ON_THE_ROW = frozenset({Verdict.COLLISION, Verdict.INCOMPLETE})

#: A SETTLED candidate with such a verdict was given up: by a person, or because the subscription does not answer for
#: the key.
GIVEN_UP = QUARANTINING | {Verdict.BEFORE_SINCE}

#: With such a verdict, the broker delivers the message by itself. An audit calls the message LOST as long as it has no
#: effect.
STILL_DELIVERED = frozenset({Verdict.LAGGING, Verdict.RETRYING})

#: A candidate with such a verdict stays pending.
WAITING = STILL_DELIVERED | {Verdict.UNKNOWN}


def what_ends(verdict: Verdict, unique_key: str) -> Fact:
    """Returns the fact about the end of a key's verdict: the act that ends the verdict, or that no act does."""
    code = ENDINGS[verdict]
    return ENDINGS[verdict](**dict.fromkeys(code.fields, unique_key))
