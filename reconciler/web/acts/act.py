"""An act: its name, what it takes, what it does, and what may happen to it when a process dies in it."""

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

#: Characters of a wrong value that are repeated to who sent it.
_VALUE_CHARACTERS = 80


class ActFields(BaseModel):
    """What an act takes. A field that it does not know is refused: a misspelt `dry_run` must not send."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NoFields(ActFields):
    """Everything is in the path."""


class Reasoned(ActFields):
    """What is on record with a reason."""

    reason: str = Field(
        default="", max_length=REASON_CHARACTERS_MAX, description="Why; kept with the name of the person who did it."
    )


F = TypeVar("F", bound=ActFields)

#: What statuses say: the act is done, or it is a job.
DONE, PLACED = {200: "it is done"}, {202: "it is a job, whose address is in Location"}
EXIT_CODE: Schema = {"type": "integer", "description": "That of the command."}


def name_on_record(visitor: Visitor) -> str:
    """Told from the logins of the command line. Raises WebRefusal: nobody said who they are."""
    if not visitor.name:
        raise WebRefusal(HTTPStatus.FORBIDDEN, "what is done has the name of who did it: log in", kind="name-needed")
    return f"{WEB_USER_PREFIX}{visitor.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRequest:
    """Who asks, and where."""

    request: WebRequest
    #: Of the job that this request places: the same request again places the same job.
    job_id: str

    @property
    def by(self) -> str:
        """As it is written on record."""
        return name_on_record(self.request.visitor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActResult:
    """What came of it."""

    #: JSON-ready.
    document: Mapping[str, object]
    #: ACCEPTED: a job was placed, whose document is under `job`.
    status: HTTPStatus = HTTPStatus.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAct(Generic[F]):
    """One act. Its function raises WebRefusal and every ReconcilerError."""

    #: Also the scope of idempotency keys: the keys of two acts are not the same key.
    name: str
    #: Below the prefix of the console, and below that of the API.
    path: str
    role: WebRole
    #: One line for the API's description.
    summary: str
    fields: type[F]
    #: Schema of the result's document.
    answer: Schema = field(hash=False)
    #: Of the API's description, beside those of every act.
    statuses: Mapping[int, str] = field(default_factory=lambda: DONE, hash=False)
    do: Callable[[WebServices, ActRequest, F], ActResult]
    #: False: a process died in it, and nobody knows how far it was: done again, it could undo what another person did
    #: since.
    is_harmless_again: bool = True
    #: False: the result is for the visitor's eyes only, and is not kept; a repeated request does the act again.
    keeps_result: bool = True
    #: True: a page of the console tells the result; others are jobs, or are seen where they were asked for.
    is_told: bool = False

    def read(self, document: Mapping[str, Any]) -> F:
        """The fields of a document. Raises InvalidValue for the first wrong one."""
        try:
            return self.fields.model_validate(dict(document))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(map(str, first["loc"])) or "body"
            raise InvalidValue(name, str(first["input"])[:_VALUE_CHARACTERS], first["msg"]) from None
