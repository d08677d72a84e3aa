"""Codes and their sentences: each code has one entry and is made in one place, so a sentence leads to its line.

The product is read as text: a code that no test makes is found, too. Texts that pages and notices ask for by their code
are compared with them in tests/unit/web/test_catalogues.py and tests/unit/channels/test_notice_texts.py.
"""

from __future__ import annotations

import ast
import re
import string
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reconciler.contract import facts
from reconciler.words import LANGUAGES, catalogue, saying

ROOT = Path(__file__).parents[3]
PRODUCT = ("reconciler", "producers", "consumers")
FACTS = facts.__name__
#: A room of the catalogue that has parts of sentences for reconciler/words/saying.py, and no codes.
PARTS = "words."
#: Files of texts that are asked for by their code; the others have the sentences of facts.
ASKED_FOR = ("audit_report.toml", "console*.toml", "notices.toml")
#: A line of the catalogue: who searches a sentence sees its code before it.
LINE = re.compile(r"""|\#.*|[a-z]+(\.[\w-]+|\."[\w ]+")+\.(en|zh)[ ]=[ ](".+"|'.+')""")

#: Module and name: a constant, or a dict of codes.
Constant = tuple[str, str]


@dataclass
class Module:
    """One file of the product."""

    name: str
    tree: ast.Module
    #: What its names mean that are imported: local name -> constant elsewhere.
    imported: dict[str, Constant] = field(default_factory=dict)
    #: Code -> its fields, in the order of the declaration.
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    #: Constant of this module -> its codes; several of a dict.
    constants: dict[str, list[str]] = field(default_factory=dict)

    def meant(self, node: ast.expr) -> Constant | None:
        """The constant that an expression is: a name, or what is taken out of a dict of codes."""
        if isinstance(node, ast.Subscript):
            return self.meant(node.value)
        if not isinstance(node, ast.Name):
            return None
        return self.imported.get(node.id, (self.name, node.id))


@cache
def modules() -> Mapping[str, Module]:
    """By name, those that declare codes, and those that take something from one that does."""
    sources = {
        _module_name(path): path.read_text("utf-8") for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")
    }
    makers = [name for name, source in sources.items() if f"from {FACTS} import" in source and "Code(" in source]
    imports = tuple(f"from {name} import" for name in makers)
    found = {
        name: Module(name, ast.parse(source))
        for name, source in sources.items()
        if name in makers or any(line in source for line in imports)
    }
    for module in found.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                module.imported |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        _read_declarations(module)
    return found


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "reconciler" else parts[1:]).removesuffix(".__init__")


def _read_declarations(module: Module) -> None:
    fields: dict[str, dict[str, str]] = {}
    declared = 0
    for node in module.tree.body:
        if isinstance(node, ast.Assign):
            (target,), value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if not isinstance(target, ast.Name):
            continue
        calls = [one for one in ast.walk(value) if _is_code(module, one)]
        for call in calls:
            name, kinds = _declared(call, fields)
            assert name not in module.codes, name
            module.codes[name] = kinds
            module.constants.setdefault(target.id, []).append(name)
        declared += len(calls)
        if isinstance(value, ast.Dict) and value.values and all(map(_is_field, value.values)):
            fields[target.id] = dict(_pairs(value))
    assert declared == sum(_is_code(module, one) for one in ast.walk(module.tree)), f"{module.name}: not at the top"


def _is_code(module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and module.meant(node.func) == (FACTS, facts.Code.__name__)


def _is_field(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Field"


def _kind(node: ast.expr) -> str:
    assert isinstance(node, ast.Attribute), ast.unparse(node)
    return facts.Field[node.attr]


def _pairs(table: ast.Dict) -> Iterator[tuple[str, str]]:
    for key, value in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant)
        yield str(key.value), _kind(value)


def _declared(call: ast.AST, tables: Mapping[str, Mapping[str, str]]) -> tuple[str, dict[str, str]]:
    """The name of a code, and its fields; those of a table above it included."""
    assert isinstance(call, ast.Call)
    (name,) = call.args
    assert isinstance(name, ast.Constant), ast.unparse(call)
    kinds: dict[str, str] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            assert isinstance(keyword.value, ast.Name), ast.unparse(call)
            kinds |= tables[keyword.value.id]
        else:
            kinds[keyword.arg] = _kind(keyword.value)
    return str(name.value), kinds


def declared_codes() -> dict[str, dict[str, str]]:
    return {name: kinds for module in modules().values() for name, kinds in module.codes.items()}


def entries(*patterns: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Code and its sentences by language, as they stand in the files of these names; in all without a name."""
    for path in sorted((ROOT / "reconciler/words").glob("*.toml")):
        if not patterns or any(map(path.match, patterns)):
            yield from _entries_of("", tomllib.loads(path.read_text("utf-8")))


def _entries_of(code: str, table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    if entry := {language: text for language, text in table.items() if isinstance(text, str)}:
        yield code, entry
    for name, below in table.items():
        if isinstance(below, dict):
            yield from _entries_of(f"{code}.{name}".removeprefix("."), below)


def places(sentence: str) -> list[str]:
    parsed = list(string.Formatter().parse(sentence))
    assert not any(spec or conversion for _, _, spec, conversion in parsed), sentence
    return [place for _, place, _, _ in parsed if place is not None]


# ----------------------------------------------------------------- entries


def test_each_code_is_declared_once_and_has_one_entry_and_each_entry_has_a_code() -> None:
    declared = Counter(name for module in modules().values() for name in module.codes)
    assert len(declared) > 100, "the declarations are found"
    assert [name for name, count in declared.items() if count > 1] == []
    written = Counter(name for name, _ in entries())
    assert [name for name, count in written.items() if count > 1] == []
    asked_for = {name for name, _ in entries(*ASKED_FOR)}
    assert {name for name in written.keys() - asked_for if not name.startswith(PARTS)} == set(declared)


def test_each_part_of_sentences_is_asked_for_and_there_is_one_for_each_kind_that_asks() -> None:
    asked = re.findall(r'"words\.([^"]+)"', Path(saying.__file__).read_text("utf-8"))
    kinds = (facts.Field.NAMES, facts.Field.FACTS, facts.Field.EXACT_TIMES)
    wanted = {PARTS + form.format(kind=kind) for form in asked for kind in kinds}
    assert wanted == {name for name, _ in entries() if name.startswith(PARTS)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_places_of_a_sentence_are_the_fields_of_its_code(language: str) -> None:
    codes = declared_codes()
    wrong = {
        name: (places(entry[language]), list(codes[name]))
        for name, entry in entries()
        if name in codes and set(places(entry[language])) != set(codes[name])
    }
    assert wrong == {}


def test_each_entry_has_each_language_with_the_same_places() -> None:
    assert [name for name, entry in entries() if entry.keys() != LANGUAGES.keys()] == []
    assert [
        name for name, entry in entries() if len({tuple(sorted(places(text))) for text in entry.values()}) > 1
    ] == []


def test_each_sentence_stands_whole_on_one_line() -> None:
    for path in (ROOT / "reconciler/words").glob("*.toml"):
        for line in path.read_text("utf-8").splitlines():
            assert LINE.fullmatch(line), (path.name, line)
            assert not re.search("\"\"\"|'''", line), (path.name, line)
    odd = {
        name: text
        for name, entry in entries()
        for text in entry.values()
        # What stands between others may begin and end with a blank: a part, or a lone place.
        if not name.startswith(PARTS)
        and not re.fullmatch(r" ?\{\w+\} ?", text)
        and ("\n" in text or text != text.strip())
    }
    assert odd == {}


# ----------------------------------------------------------------- where facts are made


def test_a_constant_bears_the_words_of_its_code() -> None:
    """With or without its room: one search for the words finds declaration, maker and sentences."""
    odd = {
        f"{module.name}.{constant}": code
        for module in modules().values()
        for constant, codes in module.constants.items()
        for code in codes
        if len(codes) == 1
        and (words := re.sub(r"[-. ]", "_", code).upper()) != constant
        and words.partition("_")[2] != constant
    }
    assert odd == {}


@cache
def calls() -> Mapping[Constant, list[str]]:
    """Constant -> the places that make its facts."""
    known = {(module.name, name) for module in modules().values() for name in module.constants}
    found: dict[Constant, list[str]] = {constant: [] for constant in known}
    handed: dict[str, set[Constant]] = {}
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.keyword) and node.arg and module.meant(node.value) in known:
                handed.setdefault(node.arg, set()).add(module.meant(node.value) or ("", ""))
    for module in modules().values():
        for scope in _scopes(module.tree):
            chosen = dict(_chosen(scope))
            for node in _within(scope):
                if not isinstance(node, ast.Call):
                    continue
                made = [*_alternatives(node.func)]
                if isinstance(node.func, ast.Name) and node.func.id in chosen and module.meant(node.func) not in known:
                    made = [*_alternatives(chosen[node.func.id])]
                constants = {meant for one in made if (meant := module.meant(one))}
                if isinstance(node.func, ast.Attribute):  # a code that was handed on as the field of a value
                    constants = {*handed.get(node.func.attr, ())}
                for constant in constants & known:
                    found[constant].append(f"{module.name}:{node.lineno}")
    return found


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in it, and in no function within it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _within(child)


def _chosen(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names for one of several codes: `code = A if ... else B`."""
    for node in _within(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _alternatives(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _alternatives(node.body)
        yield from _alternatives(node.orelse)
    else:
        yield node


def test_the_facts_of_each_code_are_made_in_one_place() -> None:
    """By a call of its constant, of a choice between constants, or of a field that it was handed on in."""
    single = {
        (module.name, name)
        for module in modules().values()
        for name, codes in module.constants.items()
        if len(codes) == 1
    }
    assert {constant: made for constant, made in calls().items() if constant in single and len(made) != 1} == {}


def test_the_facts_of_a_dict_of_codes_are_made_in_one_file() -> None:
    tables = {
        (module.name, name)
        for module in modules().values()
        for name, codes in module.constants.items()
        if len(codes) > 1
    }
    assert {
        constant for constant in tables if len({made.partition(":")[0] for made in calls()[constant]}) != 1
    } == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sentence_that_is_read_alone_is_that_of_the_whole_catalogue(language: str) -> None:
    whole = catalogue.sentences(language)
    assert whole == {code: catalogue.sentence.__wrapped__(code, language) for code in whole}
    with pytest.raises(KeyError):
        catalogue.sentence("no.such-code", language)
