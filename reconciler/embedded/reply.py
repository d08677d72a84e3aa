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
    """Response code, remark, ext fields and body."""

    code: int = 0
    remark: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def unsupported(request: Command, family: Family) -> Reply | None:
    """Answers a request code that the family does not know: with code 3, or not at all up to 4.9.0."""
    if not family.answers_unknown_codes:
        return None
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")


class BadField(MalformedInput):
    """A request lacks a field or has an unreadable one. Answered with code 1."""


def text(request: Command, name: str, default: str | None = None) -> str:
    """Returns an ext field. Raises BadField if it is missing and there is no default."""
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
    """Reads an ext field like Boolean.parseBoolean: False if it is missing."""
    return request.fields.get(name, "").lower() == "true"
