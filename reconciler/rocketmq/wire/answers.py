"""Turns the code of an answer into an error, and fields of an answer into numbers."""

from __future__ import annotations

from reconciler.errors import BrokerBusy, BrokerRefused, ProtocolViolation
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command

_BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})


def require_success(answer: Command, what: str) -> Command:
    """Returns the answer itself if its code is 0. Raises BrokerBusy for the codes 2 and 215, and BrokerRefused for any
    other code.

    Only the code decides, because a success may carry the remark "not set any response code".
    """
    if answer.code == ResponseCode.SUCCESS:
        return answer
    raise refusal(answer, what)


def refusal(answer: Command, what: str) -> BrokerBusy | BrokerRefused:
    """Makes the error for an answer whose code is not 0."""
    if answer.code in _BUSY:
        return BrokerBusy(f"{what}: code {answer.code}: {answer.remark or 'busy'}")
    return BrokerRefused(answer.code, answer.remark, request=what)


def number_field(answer: Command, name: str, default: int | None = None) -> int:
    """Reads a field as a number. Raises ProtocolViolation if the field is no number, or if the field is missing and has
    no default."""
    text = answer.fields.get(name)
    if text is None:
        if default is None:
            raise ProtocolViolation(f"answer without field {name}")
        return default
    try:
        return int(text)
    except ValueError as error:
        raise ProtocolViolation(f"field {name} of an answer is no number: {text[:40]!r}") from error
