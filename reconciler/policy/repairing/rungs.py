"""The rungs of the repair ladder, one row each: its act, its reason, its proof, and the groups that it reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import ENDS, HANDS_OVER, REPUBLISHES
from reconciler.contract.tables import Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.inquiry.case_file import Question


class Act(StrEnum):
    """The act that the procedure does for a decision."""

    #: Write the state only.
    WRITE = "write"
    #: Write SENDING, then END COMMIT on the half `message`.
    END = "end"
    #: Write SENDING, then republish `message`.
    REPUBLISH = "republish"
    #: Write SENDING, then hand `message` over to `groups`.
    HAND_OVER = "hand-over"
    #: Send END ROLLBACK for each of `halves`, then write.
    CLOSE = "close"
    #: End the hand-over `rows`, then write.
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True, kw_only=True)
class RungTraits:
    """Act, proof and reach of one rung."""

    #: The act, which sends: a step with it is held back where it could have a second effect.
    act: Act
    #: The reason that is written before the act.
    reason: Fact
    #: The question whose answer shows a later owner that the send happened.
    proof: Question
    #: True: the send reaches only groups that lack the effect; False: every group of the topic.
    is_per_group: bool = False
    #: True: the act needs an open half; without one the next rung follows.
    needs_half: bool = False
    #: True: if our own guard refused the send, it would refuse again, so the next rung follows.
    climbs_when_not_sent: bool = False


RUNGS: Mapping[Rung, RungTraits] = {
    Rung.END: RungTraits(act=Act.END, reason=ENDS(), proof=Question.COMMITTED_COPIES, needs_half=True),
    Rung.REPUBLISH: RungTraits(
        act=Act.REPUBLISH, reason=REPUBLISHES(), proof=Question.COMMITTED_COPIES, climbs_when_not_sent=True
    ),
    Rung.HAND_OVER: RungTraits(act=Act.HAND_OVER, reason=HANDS_OVER(), proof=Question.HAND_OVERS, is_per_group=True),
}


def next_rung(order: Sequence[Rung], rung: Rung) -> Rung | None:
    """Returns the rung after this one; None at the end of the ladder. If the settings no longer contain this rung,
    returns the first rung of the ladder."""
    later = order[order.index(rung) + 1 :] if rung in order else order
    return later[0] if later else None


def first_rung(order: Sequence[Rung], verdict: Verdict) -> Rung:
    """Returns the rung with which the repair of a loss begins. Only LOST_CONFIRM has an open half."""
    usable = [rung for rung in order if verdict is Verdict.LOST_CONFIRM or not RUNGS[rung].needs_half]
    return usable[0] if usable else order[0]
