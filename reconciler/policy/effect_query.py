"""What an *effect query* says about messages. Such a query is SQL on the consuming business's own tables, of the same
form as a commit query. It takes the place of a group's inbox. Pure.

A row proves that some message with its key took effect. So an effect counts only for a message that was delivered, or
whose commit a row proves for this message alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.contract.answers import EFFECT_ROW, NO_EFFECT_ROW, NOT_APPLIED
from reconciler.policy.commit_query import BusinessAnswer, BusinessQuery, BusinessState, State
from reconciler.policy.evidence import InboxRow, Lookup, Presence, WitnessAnswer

#: The name of the witness.
WITNESS = "effect query"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectQuery(BusinessQuery):
    """The query that proves the effects of one subscription."""

    group: str
    applied: Collection[State]
    #: States of rows whose message took no effect yet. Such a row counts as none.
    not_applied: Collection[State]

    @property
    def meanings(self) -> tuple[tuple[Collection[State], BusinessState], ...]:
        """The states of messages that took effect, and of messages that took none yet."""
        return (self.applied, BusinessState.APPLIED), (self.not_applied, BusinessState.NOT_APPLIED)


def is_applied(answer: BusinessAnswer | None) -> bool:
    """Returns True if the row says that the message took effect."""
    return answer is not None and answer.state is BusinessState.APPLIED


def effect_of(answer: BusinessAnswer | None) -> Lookup[InboxRow]:
    """Returns the answer as that of an inbox. FOUND has no record, because a row of the business has no digest and no
    time. None: the primary has no row."""
    if answer is not None and answer.why is not None:
        return Lookup.unknown(WITNESS, answer.why)
    if is_applied(answer):
        presence, detail = Presence.FOUND, EFFECT_ROW()
    else:
        presence, detail = Presence.ABSENT, NO_EFFECT_ROW() if answer is None else NOT_APPLIED()
    return Lookup(presence=presence, answers=(WitnessAnswer(witness=WITNESS, presence=presence, detail=detail),))
