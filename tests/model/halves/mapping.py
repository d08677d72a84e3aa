"""The product code that each action of the reconciler stands for; all other actions are of services and brokers."""

from __future__ import annotations

from tests.model.mapping import Place

_JUDGE: Place = ("reconciler/policy/judging/judgement.py", "judge")
_DECIDE: Place = ("reconciler/policy/repairing/ladder.py", "decide")
_BY_ROW: Place = ("reconciler/policy/repairing/by_row.py", "proved_by_row")
_LAST_LOOKS: Place = ("reconciler/policy/repairing/repair.py", "Repairer._unless_answered")
_AFTER: Place = ("reconciler/policy/repairing/ladder.py", "after_answer")
_END: Place = ("reconciler/evidence/repairs.py", "RemotingBrokerRepairs.end_transaction")
_REPUBLISH: Place = ("reconciler/evidence/repairs.py", "RemotingBrokerRepairs.republish")

ACTIONS: dict[str, tuple[Place, ...]] = {
    "verdict": (_JUDGE, ("reconciler/policy/judging/absence_review.py", "review_absences")),
    "repair": (_DECIDE, _BY_ROW),
    "SENDING is written": (_DECIDE, _BY_ROW, ("reconciler/policy/repairing/repair.py", "Repairer._begin")),
    "a last look holds the send back": (_LAST_LOOKS, _AFTER),
    "reconciler dies before its send": (_LAST_LOOKS,),
    "END by us": (_LAST_LOOKS, _END, _AFTER),
    "REPUBLISH by us": (_LAST_LOOKS, _REPUBLISH, _AFTER),
}
#: Actions of services, brokers and time.
OF_OTHERS = frozenset(
    {
        "commits locally", "commits locally, believes in a rollback", "rolls back", "gives the try up",
        "the service tries the order again", "END", "END lost", "all producers go", "a producer comes back",
        "check round", "the broker gives the half up", "the group passes the copy", "the handler writes its row",
        "time passes", "an interval passes without a producer",
    }
)  # fmt: skip


def places_of(action: str) -> tuple[Place, ...]:
    """Product code behind an action's name, which also tells the verdict, the state or the fault."""
    return ACTIONS[action.partition(":")[0].partition(",")[0]]
