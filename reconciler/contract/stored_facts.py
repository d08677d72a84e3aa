"""The stored form of facts. The English text is stored under its name. The code and its fields are stored beside the
text, under the same name in `facts`.

A fact is stored as a list, because most rows of a ledger have several facts: the code, a digest of the text, and the
values in the order of the code's fields. A fact within a fact has no digest. If the text contains a value, only the
value's place and length in the text are stored. Columns of facts, and rows of earlier releases, store an object with
the names of the fields instead.

A process that knows no codes, such as one of 0.2.0, reads and writes the text only. A fact counts only for the text
that it was stored with, because 0.2.0 overwrites the text and leaves the fact. If a newer release wrote an unknown
code, only the text is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any
from zlib import crc32

from reconciler.contract import answers, kept_facts, outcomes, query_answers, reasons
from reconciler.contract.earlier_words import tells_double_effect
from reconciler.contract.facts import Code, Fact, Field, FieldValue
from reconciler.contract.reasons import AS_WRITTEN, DOUBLE_EFFECT

#: The name under which facts are stored beside texts.
FACTS = "facts"
REASON = "reason"
#: Maximum number of characters of a text that are kept.
TEXT_CHARACTERS_MAX = 400
_OF_TEXT = "crc32"
#: A value with at least this number of characters takes more room than its place in the text.
_CHARACTERS_MIN = 8


def codes_of(*modules: ModuleType) -> Mapping[str, Code]:
    """Returns name -> code for the codes that these files declare."""
    return {code.name: code for module in modules for code in _codes(module)}


def _codes(module: ModuleType) -> Iterator[Code]:
    for value in vars(module).values():
        several = value.values() if isinstance(value, Mapping) else (value,)
        yield from (one for one in several if isinstance(one, Code))


#: Name -> code, for the codes that the ledger keeps with verdicts, repairs and acts.
CODES = codes_of(answers, kept_facts, outcomes, query_answers, reasons)


def with_texts(
    values: Mapping[str, object], english: Callable[[Fact], str], *, characters_max: int = TEXT_CHARACTERS_MAX
) -> dict[str, object]:
    """Returns the values, ready for JSON. Each fact appears twice: as its bounded text, and as code and fields in
    `facts`."""
    found: dict[str, object] = {}
    facts: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Fact):
            found[name], facts[name] = _told(value, english, characters_max)
        else:
            found[name] = with_texts(value, english) if isinstance(value, Mapping) else value
    return found | ({FACTS: facts} if facts else {})


@lru_cache(maxsize=1_000)
def _told(fact: Fact, english: Callable[[Fact], str], characters_max: int) -> tuple[str, Sequence[object]]:
    """Returns the text and its stored fact. The result is cached, because most keys of a page have the same answers."""
    text = english(fact)[:characters_max]
    return text, _listed(fact, text)


def beside(name: str, text: str, fact: Fact) -> dict[str, object]:
    """Returns the fact to store beside the text of that name."""
    return {FACTS: {name: _listed(fact, text)}}


def column_of(fact: Fact, text: str) -> str:
    """Returns the value of the fact's column, beside the column of the text."""
    return json.dumps({**bounded(fact), _OF_TEXT: _sum(text)}, separators=(",", ":"))


def fact_of_column(value: object, text: str) -> Fact | None:
    """Returns the fact that column_of() wrote. None if the fact belongs to another text, or this release does not know
    its code."""
    try:
        stored = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None
    return fact_of(stored) if _is_of(stored, text) else None


def begins_column(code: Code) -> str:
    """Returns the first characters of a column with a fact of this code."""
    return json.dumps({"code": code.name}, separators=(",", ":")).removesuffix("}") + ","


def fact_in(values: Mapping[str, object], name: str, codes: Mapping[str, Code] = CODES) -> Fact | None:
    """Returns the fact beside a text. None if no fact is stored, or this release does not know it."""
    stored, text = _stored(values, name)
    return _of_list(stored, text, codes) if isinstance(stored, list) else fact_of(stored, codes)


def coded(values: Mapping[str, object]) -> dict[str, object]:
    """Returns stored values for JSON. Each fact that this release knows gets the names of its fields."""
    found = {name: coded(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    if isinstance(facts := values.get(FACTS), Mapping):
        known = {name: fact_in(values, name) for name in facts}
        found[FACTS] = {name: fact.as_dict() for name, fact in known.items() if fact is not None}
    return found


def reason_in(evidence: Mapping[str, object]) -> Fact:
    """Returns the reason of a key's verdict."""
    found = fact_in(evidence, REASON)
    return AS_WRITTEN(text=str(evidence.get(REASON))[:TEXT_CHARACTERS_MAX]) if found is None else found


def is_double_effect(evidence: Mapping[str, object]) -> bool:
    """Returns True if the verdict was given because several inboxes have an effect."""
    match _stored(evidence, REASON)[0]:
        case None:
            return tells_double_effect(str(evidence.get(REASON)))
        case [code, *_] | {"code": code}:
            return code == DOUBLE_EFFECT.name
    return False


def fact_of(plain: object, codes: Mapping[str, Code] = CODES) -> Fact | None:
    """Returns the fact that Fact.as_dict() wrote. None: this release does not know the code, or the fields differ."""
    match plain:
        case {"code": str(name), "fields": Mapping() as fields} if name in codes:
            code = codes[name]
        case _:
            return None
    try:
        return code(**{str(name): _value(code.fields.get(name), value, codes) for name, value in fields.items()})
    except (TypeError, RecursionError):
        return None


def _value(kind: Field | None, plain: Any, codes: Mapping[str, Code]) -> Any:
    """Reads the value of a field by the kind that the code declares."""
    if kind is Field.FACT:
        return fact_of(plain, codes)
    if not isinstance(plain, list):
        return plain
    return tuple(fact_of(one, codes) for one in plain) if kind is Field.FACTS else tuple(plain)


def _stored(values: Mapping[str, object], name: str) -> tuple[object, str]:
    """Returns the stored fact beside the text of that name, and the text. None if no fact is stored."""
    facts, text = values.get(FACTS), values.get(name)
    stored = facts.get(name) if isinstance(facts, Mapping) else None
    return (stored, text) if isinstance(text, str) and _is_of(stored, text) else (None, "")


def _listed(fact: Fact, text: str) -> list[object]:
    code, *values = _short(fact, text)
    return [code, _sum(text), *values]


def _short(value: FieldValue, text: str) -> Any:
    match value:
        case Fact():
            return [value.code.name, *(_short(one, text) for _, one in value.values)]
        case tuple():
            return [_short(one, text) for one in value]
        case str():
            kept = value[:TEXT_CHARACTERS_MAX]
            begins = text.find(kept) if len(kept) >= _CHARACTERS_MIN else -1
            return kept if begins < 0 else [begins, len(kept)]
    return value


def _of_list(stored: Sequence[Any], text: str, codes: Mapping[str, Code]) -> Fact | None:
    try:
        name, _, *values = stored
        fact: Fact | None = _full(Field.FACT, [name, *values], text, codes)
    except (TypeError, ValueError, RecursionError):
        return None
    return fact


def _full(kind: Field, plain: Any, text: str, codes: Mapping[str, Code]) -> Any:
    """Returns the value of a field. A nested fact that this release does not know becomes None, which no code
    accepts."""
    match kind, plain:
        case Field.FACT, [name, *values] if name in codes:
            fields = codes[name].fields
            found = ((field, _full(fields[field], one, text, codes)) for field, one in zip(fields, values, strict=True))
            return codes[name](**dict(found))
        case Field.FACT, _:
            return None
        case Field.FACTS | Field.NAMES | Field.EXACT_TIMES, [*each]:
            one_kind = {Field.FACTS: Field.FACT, Field.NAMES: Field.NAME}.get(kind, Field.EXACT_TIME)
            return tuple(_full(one_kind, one, text, codes) for one in each)
        case Field.NAME | Field.TEXT, [int(begins), int(length)]:
            return text[begins : begins + length]
    return plain


def _is_of(stored: object, text: str) -> bool:
    match stored:
        case [_, digest, *_] | {"crc32": digest}:
            return digest == _sum(text)
    return False


def _sum(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def bounded(fact: Fact) -> dict[str, object]:
    """Returns code and fields with their texts cut to the length that is kept."""
    return {name: _cut(value) for name, value in fact.as_dict().items()}


def _cut(value: object) -> object:
    match value:
        case str():
            return value[:TEXT_CHARACTERS_MAX]
        case dict():
            return {name: _cut(one) for name, one in value.items()}
        case list():
            return [_cut(one) for one in value]
        case _:
            return value
