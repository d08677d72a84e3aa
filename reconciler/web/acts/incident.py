"""The act of taking care of losses. Everybody sees who takes care. The act changes nothing else."""

from __future__ import annotations

from http import HTTPStatus

from pydantic import Field

from reconciler.commands.acts.acknowledgement import acknowledge
from reconciler.web.acts.act import ActFields, ActRequest, ActResult, WebAct
from reconciler.web.description import TEXT, record
from reconciler.web.exchange import WebRefusal
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices


class AcknowledgementFields(ActFields):
    """The status that the visitor saw."""

    seen_ms: int | None = Field(
        default=None,
        ge=0,
        le=2**63 - 1,
        description="When status was asked (ms, UTC): if a loss was proved after it, nothing is written. None: now.",
    )


def _acknowledge(services: WebServices, asked: ActRequest, fields: AcknowledgementFields) -> ActResult:
    if not services.newest_status().lost:
        raise WebRefusal(HTTPStatus.CONFLICT, "no loss is open: there is nothing to take care of", kind="not-now")
    acknowledge(services.connections, by=asked.by, seen_ms=fields.seen_ms)
    return ActResult(document={"by": asked.by})


ACKNOWLEDGE = WebAct(
    name="acknowledge",
    path="/acknowledgements",
    role=WebRole.OPERATOR,
    summary="Writes down who takes care of what is lost; shown until the next loss, for two hours at most. It silences "
    "nothing.",
    fields=AcknowledgementFields,
    do=_acknowledge,
    answer=record({"by": TEXT}),
)
