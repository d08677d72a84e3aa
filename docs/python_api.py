"""The public names of the plug-ins, of the client and of what tests use, written from their signatures and docstrings.

Every other module and name is private and may change with any release. Arguments after `*` are given by name. What a
call raises stands in its text; the errors of the plug-ins are grouped by what the caller does next.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from abc import ABC
from collections.abc import Iterator
from enum import Enum, IntEnum, StrEnum
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, TypeAlias

import sqlalchemy as sa

#: Each has an `__all__`.
MODULES = (
    "checkback_producers",
    "checkback_producers.errors",
    "checkback_producers.metrics",
    "checkback_producers.security",
    "checkback_producers.tables",
    "checkback_consumers",
    "checkback_consumers.errors",
    "checkback_consumers.metrics",
    "checkback_consumers.security",
    "checkback_consumers.tables",
    "reconciler.rocketmq",
    "reconciler.testing",
    "reconciler.audit.platform",
)
#: Bases that say nothing.
_PLAIN = (object, Enum, IntEnum, StrEnum, Protocol, ABC)
_SIGNATURE_CHARACTERS = 100
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def lines() -> Iterator[str]:
    """Below the title: a section for each module, in it one for each name; a name of several modules is told once."""
    told: dict[Any, str] = {}
    sections = []
    for module in MODULES:
        names = import_module(module).__all__
        sections.append((module, [(name, getattr(import_module(module), name)) for name in names]))
    yield from ("| module | names |", "|---|---|")
    for module, members in sections:
        yield f"| [`{module}`](#{_anchor(module)}) | {', '.join(f'`{name}`' for name, _ in members)} |"
    for module, members in sections:
        yield from ("", f"## {module}", "", *_text(import_module(module).__doc__ or ""))
        for name, member in members:
            if member in told:
                yield from ("", f"`{name}`: the one of [{told[member]}](#{_anchor(told[member])}).")
                continue
            told[member] = module
            yield from ("", f"### {name}", "", *_described(member))


class _Values(ast.NodeTransformer):
    """Defaults as readers need them: the value of a constant, what a field is made of."""

    def __init__(self, module: ModuleType) -> None:
        self._known = {name: value for name, value in vars(module).items() if name.strip("_").isupper()}

    def visit_Name(self, node: ast.Name) -> ast.expr:  # ast's name
        value = self._known.get(node.id)
        return ast.Constant(value) if isinstance(value, bool | int | float | str) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:  # ast's name
        given = {one.arg: one.value for one in node.keywords}
        if ast.unparse(node.func) != "field":
            return node
        if "default_factory" in given:
            return ast.Call(func=given["default_factory"], args=[], keywords=[])
        return self.visit(given["default"]) if "default" in given else node


def _described(member: Any) -> Iterator[str]:
    if isinstance(member, sa.Table):
        yield f"The SQLAlchemy table `{member.name}`. {member.comment}"
        return
    module = import_module(member.__module__)
    (tree,) = _Values(module).visit(ast.parse(textwrap.dedent(inspect.getsource(member)))).body
    if isinstance(tree, _FUNCTIONS):
        yield from (*_signature(tree), "", *_text(ast.get_docstring(tree) or ""))
        return
    assert isinstance(tree, ast.ClassDef)
    comments = _comments(member)
    bases = [f"`{base.__name__}`" for base in member.__bases__ if base not in (*_PLAIN, *_unnamed(member))]
    if bases:
        yield from (f"A kind of {', '.join(bases)}.", "")
    made = next((one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    fields = [
        one
        for one in tree.body
        if isinstance(one, ast.AnnAssign)
        and _is_public(ast.unparse(one.target))
        and not ast.unparse(one.annotation).startswith("ClassVar")
    ]
    if made is not None and not issubclass(member, Exception):
        yield from (*_signature(made, tree.name), "")
    yield from _text(ast.get_docstring(tree) or "")
    if made is not None and (text := ast.get_docstring(made)):
        yield from ("", *_text(text))
    if issubclass(member, Enum):
        yield from ("", "| member | meaning |", "|---|---|")
        yield from (f"| `{one.name}` | {_cell(comments.get(one.name, ''))} |" for one in member)
    elif fields:
        yield from ("", "| field | type | default | meaning |", "|---|---|---|---|")
        yield from (_field(one, comments) for one in fields)
    for one in (*tree.body, *(one for base in _unnamed(member) for one in _properties(base))):
        if isinstance(one, _FUNCTIONS) and _is_public(one.name) and not _is_for_the_product(one):
            yield from ("", *_method(one))


def _unnamed(member: type) -> list[type]:
    """Bases of our own that readers have no name for."""
    ours = [base for base in member.__bases__ if base.__module__.startswith(("checkback_", "reconciler."))]
    named = {name for module in MODULES for name in import_module(module).__all__}
    return [base for base in ours if base.__name__ not in named and not issubclass(base, Exception)]


def _properties(base: type) -> list[ast.stmt]:
    """What a reader sees of such a base; its methods are steps of the product."""
    body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
    assert isinstance(body, ast.ClassDef)
    return [one for one in body.body if isinstance(one, ast.FunctionDef) and _is_property(one)]


def _is_property(one: Function) -> bool:
    return "property" in {ast.unparse(mark) for mark in one.decorator_list}


def _is_for_the_product(one: Function) -> bool:
    """What a knob is asked by the broker that it belongs to is no name for readers."""
    return (ast.get_docstring(one) or "").startswith(("Asked by the ", "The broker says "))


def _method(one: Function) -> Iterator[str]:
    if _is_property(one):
        returned = f": {ast.unparse(one.returns)}" if one.returns else ""
        yield from (f"**`{one.name}`**, a property{': ' if returned else ''}`{returned.removeprefix(': ')}`.", "")
    else:
        yield from (*_signature(one), "")
    yield from _text(ast.get_docstring(one) or "")


def _signature(one: Function, name: str = "") -> Iterator[str]:
    arguments = one.args
    for first in (arguments.posonlyargs, arguments.args):
        if first and first[0].arg in ("self", "cls"):
            del first[0]
    parts = _arguments(arguments)
    returned = f" -> {ast.unparse(one.returns)}" if one.returns and not name else ""
    called = f"async {one.name}" if isinstance(one, ast.AsyncFunctionDef) else name or one.name
    flat = f"{called}({', '.join(parts)}){returned}"
    yield "```python"
    if len(flat) <= _SIGNATURE_CHARACTERS:
        yield flat
    else:
        yield f"{called}("
        yield from (f"    {part}," for part in parts)
        yield f"){returned}"
    yield "```"


def _arguments(found: ast.arguments) -> list[str]:
    plain = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(plain) - len(found.defaults)) + list(found.defaults)
    parts = [_argument(one, default) for one, default in zip(plain, defaults, strict=True)]
    if found.vararg:
        parts.append(f"*{_argument(found.vararg, None)}")
    elif found.kwonlyargs:
        parts.append("*")
    parts += [_argument(one, value) for one, value in zip(found.kwonlyargs, found.kw_defaults, strict=True)]
    return parts + ([f"**{_argument(found.kwarg, None)}"] if found.kwarg else [])


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    text = f"{one.arg}: {ast.unparse(one.annotation)}" if one.annotation else one.arg
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _field(one: ast.AnnAssign, comments: dict[str, str]) -> str:
    name = ast.unparse(one.target)
    default = "required" if one.value is None else f"`{ast.unparse(one.value)}`"
    return f"| `{name}` | `{_cell(ast.unparse(one.annotation))}` | {_cell(default)} | {_cell(comments.get(name, ''))} |"


def _comments(member: type) -> dict[str, str]:
    """Name -> the comment `#:` above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(member).splitlines():
        if comment := re.match(r"\s*#: (.*)", line):
            above.append(comment[1])
            continue
        if above and (name := re.match(r"\s*(?:self\.)?(\w+)(?::| =)", line)):
            found[name[1]] = " ".join(above)
        above = []
    return found


def _text(doc: str) -> Iterator[str]:
    """A docstring as Markdown: what is indented, and what a prompt shows, is code."""
    for number, paragraph in enumerate(inspect.cleandoc(doc).split("\n\n")):
        if number:
            yield ""
        if paragraph.startswith((">>>", "    ")):
            yield from ("```python", *textwrap.dedent(paragraph).split("\n"), "```")
        else:
            yield from paragraph.split("\n")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _anchor(module: str) -> str:
    return module.replace(".", "")
