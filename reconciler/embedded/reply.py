"""Answers of handlers, and readers of a request's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.embedded.families import Family
from reconciler.errors import MalformedInput
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command

NOT_SET = "not set any response code"  # RemotingCommand.createResponseCommand(Class): some handlers never replace it


@dataclass(frozen=True, slots=True)
class Reply:
    """The response code, remark, ext fields and body of an answer."""

    code: int = 0
    remark: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def unsupported(request: Command, family: Family) -> Reply | None:
    """Returns the answer to a request code that the family does not know. The answer has code 3. Up to 4.9.0, the
    broker does not answer."""
    if not family.answers_unknown_codes:
        return None
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")


class BadField(MalformedInput):
    """A field of a request is missing or unreadable. The broker answers such a request with code 1."""


def text(request: Command, name: str, default: str | None = None) -> str:
    """Returns an ext field. Raises BadField if the field is missing and has no default."""
    value = request.fields.get(name)
    if value is None:
        if default is None:
            raise BadField(f"the custom field <{name}> is null")
        return default
    return value


def integer(request: Command, name: str, default: int | None = None) -> int:
    """Reads an ext field like Java's Long.parseLong."""
    value = request.fields.get(name)
    if value is None:
        if default is None:
            raise BadField(f"the custom field <{name}> is null")
        return default
    try:
        return int(value)
    except ValueError as error:
        raise BadField(f'java.lang.NumberFormatException: For input string: "{value}"') from error


def boolean(request: Command, name: str) -> bool:
    """Reads an ext field like Boolean.parseBoolean. A missing field is False."""
    return request.fields.get(name, "").lower() == "true"
