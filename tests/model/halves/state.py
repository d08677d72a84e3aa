"""The state of the world in which halves announce: what a broker, the business's table, producers and the ledger hold.

One order has up to two tries, and each try has a half of its own. Both halves have the order's key and tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Transaction(IntEnum):
    """The local transaction of a try, as the table and the service's listener know it."""

    NONE = 0
    RUNNING = 1
    COMMITTED = 2
    #: Committed, and the service believes that it was rolled back: the database's answer was lost.
    MISBELIEVED = 3
    ROLLED_BACK = 4
    #: Rolled back with its producer, or given up. No listener decides this try.
    GIVEN_UP = 5


class Half(IntEnum):
    """The half of a try at its broker."""

    NONE = 0
    OPEN = 1
    ENDED = 2
    #: The broker has given the half up, and keeps it.
    PARKED = 3


class Answer(IntEnum):
    """An END of a producer on its way."""

    NONE = 0
    COMMIT = 1
    ROLLBACK = 2


class Copies(IntEnum):
    """Committed copies of a try."""

    NONE = 0
    #: One or more, all by producers.
    THEIRS = 1
    OURS = 2
    #: A copy of ours beside another copy.
    TWICE = 3


class Known(IntEnum):
    """The ledger's verdict on a try."""

    NONE = 0
    LOST = 1
    #: UNKNOWN: the row may belong to another try.
    TRIES = 2
    #: UNKNOWN: another try was delivered.
    OTHER_DELIVERED = 3
    #: UNKNOWN: a person hears that no try was delivered.
    NO_TRY_DELIVERED = 4
    LAGGING = 5
    REJECTED = 6
    DELIVERED = 7
    QUARANTINED = 8
    UNKNOWN = 9
    #: An effect query found the row of the order.
    CONSUMED = 10
    #: The group has passed the copy, and an effect query found no row.
    DELIVERED_NOT_APPLIED = 11


class Repairing(IntEnum):
    """The ledger's repair of a try."""

    NONE = 0
    OPEN = 1
    SENDING = 2
    SENT = 3
    DONE = 4
    FAILED = 5


class Hand(IntEnum):
    """What an owner that wrote SENDING is about to send."""

    NOTHING = 0
    END = 1
    REPUBLISH = 2


class Wrong(IntEnum):
    """A promise that a step has broken."""

    NOTHING = 0
    #: END ROLLBACK by us.
    CLOSED = 1
    #: We sent while a producer could answer its broker about the half.
    RACE = 2
    #: We sent although another half of the order existed when its row was read.
    SIBLING = 3
    #: Called DELIVERED before the group passed a copy.
    NOT_PASSED = 4
    #: Called CONSUMED before a handler wrote the order's row, or settled by the offset alone.
    NO_ROW = 5
    #: Called DELIVERED_NOT_APPLIED although the order's row was there.
    ROW_UNSEEN = 6


class Try(NamedTuple):
    """One half with its transaction, its copies, and what the ledger has of it."""

    transaction: Transaction = Transaction.NONE
    half: Half = Half.NONE
    put_back: int = 0
    #: 1: put back since the first look of ours that found no producer.
    fresh: int = 0
    answer: Answer = Answer.NONE
    #: 1: the half was put back since the END on its way was aimed.
    aims_low: int = 0
    copies: Copies = Copies.NONE
    #: 1: the group's offset has passed the copies.
    passed: int = 0
    #: 1: the group's handler has written the order's row.
    applied: int = 0
    #: 1: the grace period, the time of the broker's own questions and the longest transaction are over.
    aged: int = 0
    known: Known = Known.NONE
    #: 1: the loss was proved once.
    was_lost: int = 0
    repair: Repairing = Repairing.NONE
    #: 1: an attempt was counted.
    tried: int = 0
    hand: Hand = Hand.NOTHING
    #: 1: END names a copy of the half that is not the newest.
    hand_low: int = 0
    #: 1: another half of the order existed when the row was read for this send.
    hand_beside: int = 0

    @property
    def is_committed(self) -> bool:
        """The row says so."""
        return self.transaction in (Transaction.COMMITTED, Transaction.MISBELIEVED)


class State(NamedTuple):
    """Everything."""

    tries: tuple[Try, ...]
    #: 1: a producer of the group is connected to the broker.
    connected: int = 1
    #: Looks of ours for producers: 0: the last one found one; 1: one found none; 2: none for an interval.
    away: int = 0
    leaves: int = 0
    comes: int = 0
    lost: int = 0
    crashes: int = 0
    wrong: Wrong = Wrong.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much may happen."""

    tries: int = 2
    #: How often the producers go, and come back.
    leaves: int = 1
    comes: int = 1
    #: Lost requests: ENDs of producers and of ours, answers, and the database's answer to a COMMIT.
    lost: int = 1
    #: Deaths of a reconciler between SENDING and END.
    crashes: int = 1
    #: How often the broker asks about a half before it gives the half up.
    questions: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the reconciler asks. The product is Rules(); each weakened configuration leaves one question out."""

    asks_row: bool = True
    asks_for_tries: bool = True
    asks_for_tries_again: bool = True
    asks_offset: bool = True
    asks_again_for_rows: bool = True
    #: True: an effect query proves the group's effects. False: the group's offset ends a message.
    has_effect_query: bool = False
    asks_effect: bool = True
    #: Right before the byte.
    looks_for_producers: bool = True
    looks_for_copies: bool = True
    looks_for_newest: bool = True


def first_state(bounds: Bounds) -> State:
    """The half of the first try was sent; its transaction is running."""
    first = Try(transaction=Transaction.RUNNING, half=Half.OPEN)
    return State(
        tries=(first, *(Try(),) * (bounds.tries - 1)),
        leaves=bounds.leaves,
        comes=bounds.comes,
        lost=bounds.lost,
        crashes=bounds.crashes,
    )
