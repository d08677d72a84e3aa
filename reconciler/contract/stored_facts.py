"""Facts that are stored: the English text under its name, and code and fields under the same name in `facts` beside it.

Whoever knows no code, as 0.2.0 does, reads the text and writes it. A fact counts only for the text that it was written
with: 0.2.0 writes another one over it, and leaves what lies beside it. A code of a newer release is shown by its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeGuard
from zlib import crc32

from reconciler.contract import answers, kept_facts, outcomes, reasons
from reconciler.contract.earlier_words import tells_double_effect
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.reasons import AS_WRITTEN, DOUBLE_EFFECT

#: Name of the facts beside texts.
FACTS = "facts"
REASON = "reason"
#: Characters of a text that are kept.
TEXT_CHARACTERS_MAX = 400
_OF_TEXT = "crc32"


def codes_of(*modules: ModuleType) -> Mapping[str, Code]:
    """Name -> code, of those that these files declare."""
    return {code.name: code for module in modules for code in _codes(module)}


def _codes(module: ModuleType) -> Iterator[Code]:
    for value in vars(module).values():
        several = value.values() if isinstance(value, Mapping) else (value,)
        yield from (one for one in several if isinstance(one, Code))


#: Name -> code, of those that the ledger keeps with verdicts, repairs and acts.
CODES = codes_of(answers, kept_facts, outcomes, reasons)


def with_texts(
    values: Mapping[str, object], english: Callable[[Fact], str], *, characters_max: int = TEXT_CHARACTERS_MAX
) -> dict[str, object]:
    """The values, JSON-ready: each fact as its text, which is bounded, and as code and fields beside it."""
    found: dict[str, object] = {}
    facts: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Fact):
            found[name], facts[name] = _told(value, english, characters_max)
        else:
            found[name] = with_texts(value, english) if isinstance(value, Mapping) else value
    return found | ({FACTS: facts} if facts else {})


@lru_cache(maxsize=1_000)
def _told(fact: Fact, english: Callable[[Fact], str], characters_max: int) -> tuple[str, Mapping[str, object]]:
    """Text and what lies beside it. Most keys of a page have the same answers."""
    text = english(fact)[:characters_max]
    return text, _stored_with(text, fact)


def beside(name: str, text: str, fact: Fact) -> dict[str, object]:
    """What lies beside the text of that name."""
    return {FACTS: {name: _stored_with(text, fact)}}


def column_of(fact: Fact, text: str) -> str:
    """The value of a column beside that of the text."""
    return json.dumps(_stored_with(text, fact), separators=(",", ":"))


def fact_of_column(value: object, text: str) -> Fact | None:
    """The fact of such a column; None: it is no fact of this text, or this release does not know it."""
    try:
        stored = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None
    return fact_of(stored) if _is_of(stored, text) else None


def begins_column(code: Code) -> str:
    """How a column with a fact of the code begins."""
    return json.dumps({"code": code.name}, separators=(",", ":")).removesuffix("}") + ","


def fact_in(values: Mapping[str, object], name: str, codes: Mapping[str, Code] = CODES) -> Fact | None:
    """The fact beside a text; None: there is none, or this release does not know it."""
    stored = _stored(values, name)
    return None if stored is None else fact_of(stored, codes)


def reason_in(evidence: Mapping[str, object]) -> Fact:
    """Why a key has its verdict."""
    found = fact_in(evidence, REASON)
    return AS_WRITTEN(text=str(evidence.get(REASON))[:TEXT_CHARACTERS_MAX]) if found is None else found


def is_double_effect(evidence: Mapping[str, object]) -> bool:
    """Whether a verdict was given for effects in several inboxes."""
    stored = _stored(evidence, REASON)
    if stored is None:
        return tells_double_effect(str(evidence.get(REASON)))
    return stored.get("code") == DOUBLE_EFFECT.name


def fact_of(plain: object, codes: Mapping[str, Code] = CODES) -> Fact | None:
    """The fact of Fact.as_dict(); None: its code is not known here, or has other fields."""
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
    """Looked at by the code that it belongs to."""
    if kind is Field.FACT:
        return fact_of(plain, codes)
    if not isinstance(plain, list):
        return plain
    return tuple(fact_of(one, codes) for one in plain) if kind is Field.FACTS else tuple(plain)


def _stored(values: Mapping[str, object], name: str) -> Mapping[str, object] | None:
    facts, text = values.get(FACTS), values.get(name)
    stored = facts.get(name) if isinstance(facts, Mapping) else None
    return stored if isinstance(text, str) and _is_of(stored, text) else None


def _stored_with(text: str, fact: Fact) -> dict[str, object]:
    return {**bounded(fact), _OF_TEXT: _sum(text)}


def _is_of(stored: object, text: str) -> TypeGuard[Mapping[str, object]]:
    return isinstance(stored, Mapping) and stored.get(_OF_TEXT) == _sum(text)


def _sum(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def bounded(fact: Fact) -> dict[str, object]:
    """Code and fields, as they are kept."""
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
