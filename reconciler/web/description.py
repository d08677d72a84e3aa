"""What a route of /api/v1 takes and answers, as data beside its handler.

`values_of` reads requests by it. /api/v1/openapi.json and docs/reference/http-api.md are made of it (openapi.py). A
test compares every answer with it. To add a route:

1. Beside the handler write a `Description`: a summary, the parameters, the schema of the answer, and for a POST that of
   the body. Schemas are JSON Schema; the functions below make the usual ones.
2. Give it to the route in web/routes.py as `about`. A route of the API without one fails a test.
3. `docs/generate.py` rewrites the reference page.
4. In tests/unit/web/test_openapi.py add a request that succeeds. The test compares its answer with the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from reconciler.contract.row_rules import NAME_CHARACTERS, is_storable
from reconciler.contract.schema import Column
from reconciler.errors import InvalidValue
from reconciler.web.exchange import JSON, WebRequest
from reconciler.web.services import Handler

#: JSON Schema, 2020-12.
Schema: TypeAlias = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
NAME: Schema = {"type": "string", "maxLength": NAME_CHARACTERS, "pattern": r"^[^\u0000]*$"}
TIME_MS: Schema = {"type": "integer", "format": "int64", "description": "Milliseconds UTC since 1970."}
LINES: Schema = {"type": "array", "items": TEXT}
#: A sentence for programs. A field is a text, a number, a list, or such an object.
FACT: Schema = {
    "type": "object",
    "properties": {"code": TEXT, "fields": {"type": "object"}},
    "required": ["code", "fields"],
    "additionalProperties": False,
    "description": "The code of a sentence, which stays the same when its words change, and its fields.",
}
FACTS: Schema = {"type": "array", "items": FACT}
#: Plain data of another program.
ANYTHING: Schema = {}
#: A status of every GET.
BAD_PARAMETER = {422: "a parameter has a value that cannot work, or is not known"}
_BIGINT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One value besides the body."""

    name: str
    doc: str
    #: Schema of one value: a string (`enum`, `maxLength`), an integer (`minimum`, `maximum`) or a boolean.
    schema: Schema = field(default_factory=lambda: TEXT)
    where: Literal["query", "path", "header"] = "query"
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One method of one path."""

    summary: str
    #: Schema of the answer; of its text if `content_type` is not JSON.
    answer: Schema
    parameters: Sequence[Parameter] = ()
    #: Schema of the JSON object in the body; None: there is no body.
    body: Schema | None = None
    #: Status -> its meaning. Statuses of `answers_with` have the answer, others a problem document.
    statuses: Mapping[int, str]
    answers_with: Sequence[int] = (200,)
    #: Sentences after the summary.
    more: str = ""
    content_type: str = JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpoint:
    """A handler with its description."""

    handler: Handler
    about: Description


def record(fields: Mapping[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    """Makes the schema of an object with exactly these members."""
    return {
        "type": "object",
        "properties": dict(fields),
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def coded(*lines: str) -> Schema:
    """Makes the schema of `facts` beside these lines of an answer: the same as codes and fields."""
    return {**record(dict.fromkeys(lines, FACTS)), "description": "The lines above as codes and fields."}


def listed(items: Schema) -> Schema:
    """Makes the schema of a list."""
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    """Allows null, too."""
    if "enum" in schema:
        return {**schema, "type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


END_OF_HOLD: Schema = {**nullable(TIME_MS), "description": "`run` lifts the hold after this; null: a person does."}
FACT_OF_HOLD: Schema = nullable(
    {**FACT, "description": "Why the circuit breaker opened; null: a person's words, or an older release's."}
)


def one_of(words: type[StrEnum] | Sequence[str]) -> Schema:
    """Makes the schema of one of these texts."""
    return {"type": "string", "enum": [str(word) for word in words]}


def between(least: int, most: int, **more: object) -> Schema:
    """Makes the schema of a whole number."""
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def of_column(column: Column) -> Schema:
    """Makes the schema of a column of the contract's tables."""
    kinds = {"integer": NUMBER, "bigint": {"type": "integer", "format": "int64"}, "json": {"type": "object"}}
    schema = one_of(column.words) if column.words else kinds.get(column.kind, TEXT)
    described = {**schema, "description": column.doc}
    return nullable(described) if column.nullable else described


def since_and_before(of: str) -> Sequence[Parameter]:
    """Makes the parameters for the two ends of a time of the rows."""
    times = between(0, _BIGINT_MAX, format="int64")
    return (
        Parameter(name="since_ms", doc=f"Only rows whose {of} is this or later.", schema=times),
        Parameter(name="before_ms", doc=f"Only rows whose {of} is earlier.", schema=times),
    )


def values_of(parameters: Sequence[Parameter], request: WebRequest) -> dict[str, Any]:
    """Reads the given parameters of path and query. An empty one does not count.

    Raises InvalidValue for an unfit value, a name given twice, and an unknown name, because an ignored filter looks
    like an answer.
    """
    known = {one.name: one for one in parameters if one.where == "query"}
    found = {one.name: _value(one, request.parts[one.name]) for one in parameters if one.where == "path"}
    for name, texts in request.query.items():
        if name not in known:
            raise InvalidValue(name[:40], texts[-1][:80], f"not known here; known are {', '.join(known) or 'none'}")
        if len(texts) > 1:
            raise InvalidValue(name, f"{len(texts)} values", "give it once")
        if texts[0]:
            found[name] = _value(known[name], texts[0])
    return found


def _value(parameter: Parameter, text: str) -> object:
    schema, name = parameter.schema, parameter.name
    match schema["type"]:
        case "integer":
            least, most = schema["minimum"], schema["maximum"]
            digits = text.removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and least <= int(text) <= most):
                raise InvalidValue(name, text[:80], f"a whole number from {least} to {most}")
            return int(text)
        case "boolean":
            if text not in ("true", "false"):
                raise InvalidValue(name, text[:80], "true or false")
            return text == "true"
    if "enum" in schema and text not in schema["enum"]:
        raise InvalidValue(name, text[:80], f"one of {', '.join(schema['enum'])}")
    most = schema.get("maxLength", len(text))
    if len(text) > most:
        raise InvalidValue(name, f"{text[:40]}...", f"at most {most} characters")
    if not is_storable(text, len(text)):
        raise InvalidValue(name, text[:80], "it holds a character that no database keeps")
    return text
