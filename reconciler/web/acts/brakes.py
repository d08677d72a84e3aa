"""Acts on the brakes. One holds the repairs of a topic, and the other lifts the hold."""

from __future__ import annotations

from pydantic import Field

from reconciler.commands.acts.hold import HELD_DAYS_MAX, end_of_hold, lift_hold, place_hold
from reconciler.commands.acts.jobs import REASON_CHARACTERS_MAX
from reconciler.contract.tables import HoldKind
from reconciler.web.access.visitors import require_role
from reconciler.web.acts.act import ActFields, ActRequest, ActResult, WebAct
from reconciler.web.description import END_OF_HOLD, FLAG, TEXT, listed, one_of, record
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices


class HoldFields(ActFields):
    """The topic whose repairs are stopped."""

    topic: str = Field(description="Business topic.")
    reason: str = Field(
        default="by hand", min_length=1, max_length=REASON_CHARACTERS_MAX, description="Why; shown in status."
    )
    for_seconds: int | None = Field(
        default=None,
        ge=60,
        le=HELD_DAYS_MAX * 86_400,
        description="`run` lifts it after that; null: a person does. Of two holds of a topic the later end counts.",
    )


class LiftFields(ActFields):
    """The brake that is lifted. The topic is in the path."""

    breaker: bool = Field(default=False, description="Close the circuit breaker, not a hold; needs the role admin.")
    seen: list[str] = Field(
        default=[],
        max_length=len(HoldKind),
        description="`seen` of the topic's holds, as they were listed: a hold that has come in the place of one of "
        "them stays. Empty: those that the request reads first count.",
    )


def _hold(services: WebServices, asked: ActRequest, fields: HoldFields) -> ActResult:
    connections, topic = services.connections, fields.topic
    placed = place_hold(connections, topic, reason=fields.reason, by=asked.by, for_seconds=fields.for_seconds)
    until_ms = end_of_hold(connections, topic)
    return ActResult(document={"topic": topic, "held": True, "changed": placed, "until_ms": until_ms})


def _lift(services: WebServices, asked: ActRequest, fields: LiftFields) -> ActResult:
    if fields.breaker:
        require_role(asked.request, WebRole.ADMIN)
    topic = asked.request.parts["topic"]
    done = lift_hold(services.connections, topic, breaker=fields.breaker, by=asked.by, seen=fields.seen)
    lifted, left = [str(kind) for kind in done.lifted], [str(held.kind) for held in done.left]
    return ActResult(document={"topic": topic, "held": bool(left), "lifted": lifted, "left": left})


HOLD = WebAct(
    name="hold",
    path="/holds",
    role=WebRole.OPERATOR,
    summary="Stops the repairs of a topic; verification goes on.",
    fields=HoldFields,
    do=_hold,
    answer=record({"topic": TEXT, "held": FLAG, "changed": FLAG, "until_ms": END_OF_HOLD}),
    is_told=True,
)
_KINDS = listed(one_of(HoldKind))
LIFT = WebAct(
    name="lift",
    path="/holds/{topic}/lift",
    role=WebRole.OPERATOR,
    summary="Lets the repairs of a topic go on.",
    fields=LiftFields,
    do=_lift,
    answer=record({"topic": TEXT, "held": FLAG, "lifted": _KINDS, "left": _KINDS}),
    is_told=True,
    is_harmless_again=False,
)
