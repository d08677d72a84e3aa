"""What became of a local transaction, read from the outbox: the end of a block and the broker's check-back ask here.

A ROLLBACK is never answered because a row is missing, only after a tombstone under the same key was committed: a
local transaction that comes later fails at `record` instead of diverging from what the broker was told.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from producers.ports import CheckedHalf, Outbox, OutboxFact, Outcome
from reconciler.clock import Clock
from reconciler.errors import DatabaseAway

logger = logging.getLogger(__name__)

LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT = 60.0
#: transactionCheckMax of brokers (15; 4.3.0: 5).
CHECK_MAXIMUM_DEFAULT = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An outcome with its reason."""

    outcome: Outcome
    reason: str
    #: The row, if one was read.
    fact: OutboxFact | None = None


def decide(outbox: Outbox, half: CheckedHalf, *, is_final: bool) -> Decision:
    """COMMIT or ROLLBACK by the row; without one UNKNOWN, or if `is_final` a tombstone first and then ROLLBACK.

    A database that is away and a lock on the key (the local transaction is still open) are UNKNOWN.
    """
    try:
        fact = outbox.find(half.unique_key)
        if fact is None and is_final:
            if outbox.insert_tombstone(half):
                return Decision(outcome=Outcome.ROLLBACK, reason="no row: a tombstone now holds the key")
            # Somebody was quicker: the transaction itself, or another answerer.
            fact = outbox.find(half.unique_key)
    except DatabaseAway as error:
        return Decision(outcome=Outcome.UNKNOWN, reason=str(error))
    if fact is None:
        return Decision(outcome=Outcome.UNKNOWN, reason="no row yet")
    if fact.is_committed:
        return Decision(outcome=Outcome.COMMIT, reason=f"the row is {fact.state}", fact=fact)
    return Decision(outcome=Outcome.ROLLBACK, reason="a tombstone holds the key", fact=fact)


class CheckAnswerer:
    """Answers a broker's check-backs; stateless, may run outside the producer. Thread-safe."""

    def __init__(
        self,
        outbox: Outbox | None,
        *,
        clock: Clock,
        local_transaction_timeout_seconds: float = LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT,
        check_maximum: int = CHECK_MAXIMUM_DEFAULT,
        is_stand_in: bool = False,
    ) -> None:
        """The time-out must exceed the longest local transaction. Without an outbox every answer is UNKNOWN.

        A stand-in for a dead producer group answers only for keys that the outbox knows: a missing row proves nothing
        to it, the group may have another database, and so it makes no tombstones.
        """
        self._outbox = outbox
        self._is_stand_in = is_stand_in
        self._clock = clock
        self._timeout_ms = int(local_transaction_timeout_seconds * 1000)
        self._check_maximum = check_maximum

    def decide(self, half: CheckedHalf) -> Decision:
        """The decision with its reason; inserts a tombstone once the half is old or this is the last round.

        Last round: TRANSACTION_CHECK_TIMES has reached transactionCheckMax, after which the broker gives up
        (TransactionalMessageServiceImpl.needDiscard, 4.3.0).
        """
        if self._outbox is None:
            return Decision(outcome=Outcome.UNKNOWN, reason="there is no outbox to ask (the weaker mode)")
        if self._is_stand_in:
            return decide(self._outbox, half, is_final=False)
        is_old = self._clock.now_ms() - half.born_timestamp_ms >= self._timeout_ms
        return decide(self._outbox, half, is_final=is_old or half.check_times >= self._check_maximum)

    def answer(self, half: CheckedHalf) -> Outcome:
        """The answer alone, logged; for transports."""
        decision = self.decide(half)
        logger.info("check-back of %s (round %d): %s, %s", half.unique_key, half.check_times, *_shown(decision))
        return decision.outcome


def _shown(decision: Decision) -> tuple[str, str]:
    return decision.outcome.value, decision.reason
