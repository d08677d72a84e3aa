"""Reads from the outbox what became of a local transaction. The end of a block and the broker's check-back need the
answer.

A missing row alone never leads to the answer ROLLBACK. Only a committed tombstone under the same key does. A local
transaction that comes after the tombstone fails at `record`, so it cannot contradict the answer. A tombstone has this
meaning only in the database whose mark the half carries. The row of any other half may be committed in another database
of the group, or nowhere, because a Java member has no outbox. For such a half, a row in this database proves the
commit, but a missing row or a tombstone proves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from checkback_producers.ports import CheckedHalf, Outbox, Outcome
from reconciler.clock import Clock
from reconciler.errors import DatabaseAway, MalformedInput, ReconcilerError
from reconciler.policy.sweeping import OutboxFact

logger = logging.getLogger(__name__)

LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT = 60.0
#: Default of the brokers' transactionCheckMax. Brokers use 15, but release 4.3.0 uses 5.
CHECK_MAXIMUM_DEFAULT = 15
#: Seconds for which a database that did not answer is not asked again. Brokers repeat their check-back after 30 s or
#: more.
AWAY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """An outcome with its reason."""

    outcome: Outcome
    reason: str
    #: The row, if one was read.
    fact: OutboxFact | None = None


def decide(outbox: Outbox, half: CheckedHalf, *, is_final: bool) -> CheckAnswer:
    """A committed row leads to COMMIT, even for a half with the mark of another outbox. For a half with this outbox's
    mark, a tombstone leads to ROLLBACK. A missing row leads to UNKNOWN. But if `is_final`, a missing row is replaced by
    a tombstone, and the answer is ROLLBACK.

    Every other case leads to UNKNOWN. The database is away, the row is damaged, or the half's fields do not fit into a
    tombstone. Or the local transaction is still open and holds a lock on the key.
    """
    try:
        fact = outbox.find(half.unique_key)
        if (fact is None or not fact.is_committed) and not _is_own(outbox, half):
            return CheckAnswer(outcome=Outcome.UNKNOWN, reason=_foreign(half), fact=fact)
        if fact is None and is_final:
            if outbox.insert_tombstone(half):
                return CheckAnswer(outcome=Outcome.ROLLBACK, reason="no row: a tombstone now holds the key")
            # The local transaction or another answerer has inserted the row in the meantime.
            fact = outbox.find(half.unique_key)
    except (DatabaseAway, MalformedInput) as error:
        return CheckAnswer(outcome=Outcome.UNKNOWN, reason=str(error))
    if fact is None:
        return CheckAnswer(outcome=Outcome.UNKNOWN, reason="no row yet")
    if fact.is_committed:
        return CheckAnswer(outcome=Outcome.COMMIT, reason=f"the row is {fact.state}", fact=fact)
    return CheckAnswer(outcome=Outcome.ROLLBACK, reason="a tombstone holds the key", fact=fact)


def _is_own(outbox: Outbox, half: CheckedHalf) -> bool:
    return half.outbox_mark is not None and half.outbox_mark == outbox.identity()


def _foreign(half: CheckedHalf) -> str:
    marked = "no mark" if half.outbox_mark is None else "the mark of another outbox"
    return f"no committed row here, and the half has {marked}"


class CheckAnswerer:
    """Answers a broker's check-backs. The object has no state, is thread-safe, and may run outside the producer."""

    def __init__(
        self,
        outbox: Outbox | None,
        *,
        clock: Clock,
        local_transaction_timeout_seconds: float = LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT,
        check_maximum: int = CHECK_MAXIMUM_DEFAULT,
    ) -> None:
        """`local_transaction_timeout_seconds` must be longer than the longest local transaction. Without an outbox,
        every answer is UNKNOWN."""
        self._outbox = outbox
        self._clock = clock
        self._timeout_ms = int(local_transaction_timeout_seconds * 1000)
        self._check_maximum = check_maximum

    def decide(self, half: CheckedHalf) -> CheckAnswer:
        """Returns the decision with its reason. Inserts a tombstone if the half is old, or if the broker asks for the
        last time.

        The broker asks for the last time when TRANSACTION_CHECK_TIMES has reached transactionCheckMax. Then the broker
        gives up (TransactionalMessageServiceImpl.needDiscard, 4.3.0).
        """
        if self._outbox is None:
            return CheckAnswer(outcome=Outcome.UNKNOWN, reason="there is no outbox to ask (the weaker mode)")
        is_old = self._clock.now_ms() - half.born_timestamp_ms >= self._timeout_ms
        return decide(self._outbox, half, is_final=is_old or half.check_times >= self._check_maximum)

    def answer(self, half: CheckedHalf) -> Outcome:
        """Returns only the answer, for transports, and logs the decision."""
        return _logged(half, self.decide(half))


class StandIn:
    """Answers check-backs for a dead producer group, from all of its databases that are known here. Thread-safe.

    The group may have further databases, so a missing row proves nothing, and no tombstone is written. If a database
    did not answer, it is not asked for AWAY_SECONDS, because threads that wait for it could not answer for other
    halves.
    """

    def __init__(self, outboxes: Sequence[Outbox], *, clock: Clock) -> None:
        self._outboxes = tuple(outboxes)
        self._clock = clock
        #: Number of an outbox -> the monotonic second until which the outbox is not asked, and the reason.
        self._away: dict[int, tuple[float, str]] = {}

    def decide(self, half: CheckedHalf) -> CheckAnswer:
        """Returns COMMIT for a committed row in any database. Returns ROLLBACK if every database has answered and the
        database of the half's mark has a tombstone. Otherwise, returns UNKNOWN."""
        rolled_back: CheckAnswer | None = None
        silent: list[str] = []
        for number, outbox in enumerate(self._outboxes):
            until, reason = self._away.get(number, (0.0, ""))
            if reason and self._clock.monotonic_seconds() < until:
                silent.append(reason)
                continue
            try:
                fact = outbox.find(half.unique_key)
                if fact is not None and fact.is_committed:
                    return CheckAnswer(outcome=Outcome.COMMIT, reason=f"the row is {fact.state}", fact=fact)
                if fact is not None and _is_own(outbox, half):
                    rolled_back = CheckAnswer(outcome=Outcome.ROLLBACK, reason="a tombstone holds the key", fact=fact)
            except MalformedInput as error:
                silent.append(str(error))  # the database answered, so it stays in use for other halves
            except ReconcilerError as error:
                self._away[number] = (self._clock.monotonic_seconds() + AWAY_SECONDS, str(error))
                silent.append(str(error))
        if silent:
            return CheckAnswer(outcome=Outcome.UNKNOWN, reason="; ".join(silent))
        return rolled_back or CheckAnswer(outcome=Outcome.UNKNOWN, reason="no database has a row that decides")

    def answer(self, half: CheckedHalf) -> Outcome:
        """Returns only the answer, for transports, and logs the decision."""
        return _logged(half, self.decide(half))


def _logged(half: CheckedHalf, decision: CheckAnswer) -> Outcome:
    logger.info(
        "check_back_answered: check-back of %s (round %d): %s, %s",
        half.unique_key,
        half.check_times,
        decision.outcome,
        decision.reason,
    )
    return decision.outcome
