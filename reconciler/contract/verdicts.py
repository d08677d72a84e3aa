"""A *verdict* is what the evidence says about one announced key in one subscription. The list is closed."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What became of a key. `MEANINGS` explains each for people; docs are generated from it."""

    CONSUMED = "CONSUMED"
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
    """What keeps a key UNKNOWN that time alone will not decide; stored with the evidence of the verdict."""

    #: A witness that should answer does not, or what it answers is not proved.
    WITNESS = "witness"
    #: What is configured cannot decide it: no outbox, no inbox, a filter by SQL92.
    SET_UP = "set-up"
    #: A half names the outbox that has its row, and the row is not shown.
    CONTRADICTION = "contradiction"


#: One sentence a verdict: what was seen, and what happens next.
MEANINGS: dict[Verdict, str] = {
    Verdict.CONSUMED: "The group's inbox holds the key: the message took effect; the key is settled.",
    Verdict.DELIVERED_NOT_APPLIED: "The committed copy lies before the group's offset, yet the inbox has no row: "
    "the handler acknowledged without an effect, or the offset was moved by hand; shown, never repaired; the inbox is "
    "read again until the brokers' retention has passed.",
    Verdict.LAGGING: "The committed copy is on the broker and the group has not reached it: wait.",
    Verdict.RETRYING: "The group failed the message and the broker will deliver it again: wait.",
    Verdict.DEAD_LETTERED: "The group failed the message for good; it lies in the dead-letter topic: shown, never "
    "repaired.",
    Verdict.FILTERED: "The message's tag is not one that the group subscribes to: settled.",
    Verdict.BEFORE_SINCE: "The group was given the message before this subscription's first round, or before its "
    "setting `since`, and shows no effect: it is not the group's; settled, counted, nothing is sent for it alone.",
    Verdict.COLLISION: "The key has two contents or topics: the inbox, another outbox, or all that brokers have differ "
    "from the outbox row; or it took effect twice: two inboxes of the group hold it, or it took effect after a person "
    "had dismissed it: quarantined, nothing is sent.",
    Verdict.INCOMPLETE: "The group's inbox has the key with an incomplete row: its handler ended the transaction "
    "before it returned, so that a part of the effect may be missing; every delivery is refused until somebody accepts "
    "or deletes the row (`reconciler incomplete`).",
    Verdict.LOST_CONFIRM: "Committed by the producer, half message found, no committed copy: END_TRANSACTION was lost; "
    "to be repaired.",
    Verdict.PARKED: "Committed by the producer, but the broker gave up asking and parked the half: to be repaired.",
    Verdict.ROLLED_BACK_WRONGLY: "Committed by the producer, but the broker got a rollback: to be republished.",
    Verdict.EXPIRED: "Committed by the producer, but the half has passed the broker's retention: to be sent again from "
    "the outbox body, or quarantined where none was kept.",
    Verdict.REJECTED: "Announced, but no committed outbox row exists: settled without repair. A tombstone is final; a "
    "row that is missing is asked for again until the brokers' retention has passed.",
    Verdict.QUARANTINED: "Given up after the maximum of attempts, or not repairable: a person must look.",
    Verdict.UNKNOWN: "A witness did not answer, or contradicts another one: the key stays pending.",
}

#: A candidate with one of these needs a repair.
LOSSES = frozenset({Verdict.LOST_CONFIRM, Verdict.PARKED, Verdict.ROLLED_BACK_WRONGLY, Verdict.EXPIRED})

#: A candidate with one of these leaves pending without a repair.
SETTLING = frozenset({Verdict.CONSUMED, Verdict.FILTERED, Verdict.BEFORE_SINCE, Verdict.REJECTED})

#: A candidate with one of these leaves pending for the quarantine; a person must look.
QUARANTINING = frozenset(
    {
        Verdict.COLLISION,
        Verdict.INCOMPLETE,
        Verdict.QUARANTINED,
        Verdict.DEAD_LETTERED,
        Verdict.DELIVERED_NOT_APPLIED,
    }
)

#: Of these no repair begins, also by hand, as long as the key is judged so. QUARANTINED is judged anew.
NEVER_REPAIRED = QUARANTINING - {Verdict.QUARANTINED}

#: These are on the inbox row itself: a person has looked at it, and that it is there is no news.
VERDICTS_ON_THE_ROW = frozenset({Verdict.COLLISION, Verdict.INCOMPLETE})

#: A SETTLED candidate with one of these was given up, by a person or by what the subscription answers for.
GIVEN_UP = QUARANTINING | {Verdict.BEFORE_SINCE}

#: A candidate with one of these stays pending.
WAITING = frozenset({Verdict.LAGGING, Verdict.RETRYING, Verdict.UNKNOWN})
