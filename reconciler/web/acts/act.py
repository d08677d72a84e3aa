"""An act: its name, its fields, its function, and what may follow if a process dies in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reconciler.commands.acts.jobs import REASON_CHARACTERS_MAX
from reconciler.contract.tables import WEB_USER_PREFIX
from reconciler.errors import InvalidValue
from reconciler.web.description import Schema
from reconciler.web.exchange import WebRefusal, WebRequest
from reconciler.web.roles import Visitor, WebRole
from reconciler.web.services import WebServices

#: Maximum number of characters of a wrong value in a refusal.
_VALUE_CHARACTERS = 80


class ActFields(BaseModel):
    """Fields of an act. An unknown field is refused, because a misspelt `dry_run` must not send."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NoFields(ActFields):
    """Fields of an act whose path says everything."""


class Reasoned(ActFields):
    """Fields of an act whose reason is recorded."""

    reason: str = Field(
        default="", max_length=REASON_CHARACTERS_MAX, description="Why; kept with the name of the person who did it."
    )


F = TypeVar("F", bound=ActFields)

#: Meanings of statuses: the act is done, or it is a job.
DONE, PLACED = {200: "it is done"}, {202: "it is a job, whose address is in Location"}
EXIT_CODE: Schema = {"type": "integer", "description": "That of the command."}


def name_on_record(visitor: Visitor) -> str:
    """Returns the visitor's name for the record. A prefix tells it apart from logins of the command line. Raises
    WebRefusal for a visitor without a name."""
    if not visitor.name:
        raise WebRefusal(HTTPStatus.FORBIDDEN, "what is done has the name of who did it: log in", kind="name-needed")
    return f"{WEB_USER_PREFIX}{visitor.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRequest:
    """The visitor of an act, and their request."""

    request: WebRequest
    #: Id of the job that this request places. If the request is repeated, it places the same job.
    job_id: str

    @property
    def by(self) -> str:
        """The visitor's name for the record."""
        return name_on_record(self.request.visitor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActResult:
    """The result of an act."""

    #: Document of the result, ready for JSON.
    document: Mapping[str, object]
    #: ACCEPTED: a job was placed, and the document has it under `job`.
    status: HTTPStatus = HTTPStatus.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAct(Generic[F]):
    """One act. Its function raises WebRefusal and any ReconcilerError."""

    #: Name of the act. It is also the scope of idempotency keys, so two acts never share a key.
    name: str
    #: Path of the act. The console and the API each put it below their own prefix.
    path: str
    role: WebRole
    #: One line for the API's description.
    summary: str
    fields: type[F]
    #: Schema of the result's document.
    answer: Schema = field(hash=False)
    #: Further statuses for the API's description, besides those of every act.
    statuses: Mapping[int, str] = field(default_factory=lambda: DONE, hash=False)
    do: Callable[[WebServices, ActRequest, F], ActResult]
    #: False: the act must not run again after a process died in it. A second run could undo another person's later act.
    is_harmless_again: bool = True
    #: False: the result is only for the visitor and is not kept. A repeated request does the act again.
    keeps_result: bool = True
    #: True: a page of the console shows the result. Other acts are jobs, or show their result on the page that
    #: requested them.
    is_told: bool = False

    def read(self, document: Mapping[str, Any]) -> F:
        """Reads the fields of a document. Raises InvalidValue for the first wrong field."""
        try:
            return self.fields.model_validate(dict(document))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(map(str, first["loc"])) or "body"
            raise InvalidValue(name, str(first["input"])[:_VALUE_CHARACTERS], first["msg"]) from None
