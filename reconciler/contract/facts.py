"""A *fact* is a code with its fields. A fact says what was seen, why something waits, or what to do next.

Decisions read the code and the fields. The sentences for people, in each language, are in reconciler/words/.

A room declares its codes at the top of the file that makes their facts. Each code has one line there, and is called in
one place:

    SWEPT_LAST = Code("account.swept-last", group=Field.NAME, at_ms=Field.TIME)
    cause = SWEPT_LAST(group="shop", at_ms=1_764_000_000_000)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

#: Rows of one kind are counted up to this number. A larger number means "more than COUNTED_MAX".
COUNTED_MAX = 100_000

#: The value of a field.
FieldValue: TypeAlias = "str | int | float | Fact | tuple[str, ...] | tuple[int, ...] | tuple[Fact, ...]"


class Field(StrEnum):
    """The kind of a field's value, which decides how the value is shown."""

    #: A name, a key, or a word of a closed list.
    NAME = "name"
    #: A foreign text, such as a driver's error or a broker's remark. A foreign text is shown unchanged.
    TEXT = "text"
    NUMBER = "number"
    #: A number of rows, counted up to COUNTED_MAX; COUNTED_MAX + 1 means "more than that".
    COUNT = "count"
    #: Milliseconds since 1970-01-01 UTC, shown in seconds.
    TIME = "time"
    #: Milliseconds since 1970-01-01 UTC, shown with the milliseconds.
    EXACT_TIME = "exact-time"
    EXACT_TIMES = "exact-times"
    NAMES = "names"
    FACT = "fact"
    FACTS = "facts"


@dataclass(frozen=True, slots=True)
class Fact:
    """One code with the values of its fields. Hashable."""

    code: Code
    values: tuple[tuple[str, FieldValue], ...]

    @property
    def fields(self) -> dict[str, FieldValue]:
        """The fields as a dictionary."""
        return dict(self.values)

    def tells(self, code: Code) -> bool:
        """Returns True if the fact, or a fact in it, has the code."""
        values = (value for _, value in self.values)
        parts = (one for value in values for one in (value if isinstance(value, tuple) else (value,)))
        return self.code is code or any(isinstance(one, Fact) and one.tells(code) for one in parts)

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON: `code` and `fields`. A nested fact becomes an object of the same form."""
        return {"code": self.code.name, "fields": {name: _plain(value) for name, value in self.values}}


class Code:
    """A name for a statement, with the fields that belong to the statement. A call with the fields makes the fact.

    The name is the name of the room, a dot, and words: `account.swept-last`. Catalogue, logs and JSON use the same
    name.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, /, **fields: Field) -> None:
        self.name = name
        self.fields: Mapping[str, Field] = MappingProxyType(fields)

    def __call__(self, **values: FieldValue) -> Fact:
        """Returns the fact. Raises TypeError for a field that is missing, unknown or of another kind, because the
        caller has a bug."""
        if values.keys() != self.fields.keys() or not all(_fits(self.fields[one], values[one]) for one in values):
            raise TypeError(f"{self!r} was called with {values!r}")
        return Fact(self, tuple((name, values[name]) for name in self.fields))

    def __repr__(self) -> str:
        return f"Code({self.name!r}, {', '.join(f'{name}: {kind}' for name, kind in self.fields.items())})"


def in_pairs(join: Callable[[Fact, Fact], Fact], facts: Iterable[Fact]) -> Fact:
    """Returns all facts joined in order, neighbours in pairs, then the pairs in pairs. There must be at least one fact.

    A fact that lies hundreds of levels deep cannot be said.
    """
    found = [*facts]
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        found = [*(join(one, other) for one, other in pairs), *found[len(found) & ~1 :]]
    return found[0]


def _fits(kind: Field, value: FieldValue) -> bool:
    match kind:
        case Field.NAME | Field.TEXT:
            return isinstance(value, str)
        case Field.NUMBER:
            return type(value) in (int, float)
        case Field.COUNT | Field.TIME | Field.EXACT_TIME:
            return type(value) is int
        case Field.EXACT_TIMES:
            return isinstance(value, tuple) and all(type(one) is int for one in value)
        case Field.FACT:
            return isinstance(value, Fact)
        case Field.NAMES:
            return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
        case Field.FACTS:
            return isinstance(value, tuple) and all(isinstance(one, Fact) for one in value)


def _plain(value: FieldValue) -> object:
    if isinstance(value, Fact):
        return value.as_dict()
    if isinstance(value, tuple):
        return [one.as_dict() if isinstance(one, Fact) else one for one in value]
    return value
