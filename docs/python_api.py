"""The pages of the Python API: public names, written from their signatures, docstrings and the comments `#:`.

A page for each kind of reader. A comment `#:` above an argument or a field is its meaning.
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
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias

import sqlalchemy as sa

_ALL = (
    "Every other module and name is private and may change with any release. Arguments after `*` are given by name. The",
    "text of a call names the errors that it raises; errors are grouped by what the caller does next.",
)


class Page(NamedTuple):
    """What one kind of reader needs."""

    title: str
    #: The first lines below the title.
    text: tuple[str, ...]
    #: Each has an `__all__`.
    modules: tuple[str, ...]


PAGES = {
    "python-sending.md": Page(
        "Python API: sending",
        (
            "The public names of the plug-in that sends. Steps: [for the team that sends](../how-to/sending.md). Behaviour:",
            "[plug-in that sends](sending.md).",
        ),
        tuple(f"checkback_producers{name}" for name in ("", ".errors", ".metrics", ".security", ".tables")),
    ),
    "python-receiving.md": Page(
        "Python API: receiving",
        (
            "The public names of the plug-in that receives. Steps: [for the team that receives](../how-to/receiving.md).",
            "Behaviour: [plug-in that receives](receiving.md).",
        ),
        tuple(f"checkback_consumers{name}" for name in ("", ".errors", ".metrics", ".security", ".tables")),
    ),
    "python-testing.md": Page(
        "Python API: tests",
        ("The public names for tests of services. Steps: [test your service](../how-to/testing.md).",),
        ("reconciler.testing",),
    ),
    "python-client.md": Page(
        "Python API: client",
        (
            "The public names of the RocketMQ client that the plug-ins use. Services that use a plug-in need only",
            "`ClientInstance`, `Message` and the security settings of it.",
        ),
        ("reconciler.rocketmq",),
    ),
    "python-audit.md": Page(
        "Python API: audit",
        (
            "The audit as a function on your own Spark session. Steps: [audit on a data",
            "platform](../how-to/audit-on-a-platform.md).",
        ),
        ("reconciler.audit.platform",),
    ),
}
MODULES = tuple(module for page in PAGES.values() for module in page.modules)
#: Name -> file and function of docs/examples, which the tests run.
EXAMPLES = {
    "open_producer": ("fastapi_threads/orders.py", "application"),
    "AsyncTransactionalProducer": ("fastapi_async/orders.py", "application"),
    "Transaction": ("order_service.py", "place_order"),
    "transactional_handler": ("billing_service.py", "bill_orders"),
    "CommitRecorder": ("fastapi_threads/worker.py", "work"),
}
#: Bases that say nothing.
_PLAIN = (object, Enum, IntEnum, StrEnum, Protocol, ABC)
_SIGNATURE_CHARACTERS = 100
_FOLDER = Path(__file__).parent / "examples"
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def lines(file: str) -> Iterator[str]:
    """Below the title: a section for each module, in it one for each name. A name of several modules is told once."""
    page = PAGES[file]
    yield from (*page.text, *_ALL, "", "| module | names |", "|---|---|")
    for module in page.modules:
        names = ", ".join(f"[`{name}`]({_link(module, name, file)})" for name in _names(module))
        yield f"| [`{module}`](#{_anchor(module)}) | {names} |"
    for module in page.modules:
        yield from ("", f"## {module}", "", *_text(import_module(module).__doc__ or ""))
        for name, member in _names(module).items():
            if (told := _told(name, member)) != module:
                yield from ("", f"`{name}`: the one of [{told}]({_link(told, name, file)}).")
            else:
                yield from ("", f"### {name}", "", *_described(member), *_example(name))


def _names(module: str) -> dict[str, Any]:
    return {name: getattr(import_module(module), name) for name in import_module(module).__all__}


def _told(name: str, member: Any) -> str:
    """The first module that has this very name."""
    return next(module for module in MODULES if _names(module).get(name) is member)


def _link(module: str, name: str, file: str) -> str:
    told = _told(name, _names(module)[name])
    page = next(other for other, page in PAGES.items() if told in page.modules)
    return f"{'' if page == file else page}#{name.lower()}"


def _example(name: str) -> Iterator[str]:
    if name in EXAMPLES:
        file, function = EXAMPLES[name]
        source = (_FOLDER / file).read_text(encoding="utf-8")
        (found,) = [one for one in ast.parse(source).body if isinstance(one, _FUNCTIONS) and one.name == function]
        yield from ("", f"An example, from [docs/examples/{file}](../examples/{file}):", "", "```python")
        yield from (*source.splitlines()[found.lineno - 1 : found.end_lineno], "```")


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
    source = textwrap.dedent(inspect.getsource(member))
    (tree,) = _Values(module).visit(ast.parse(source)).body
    if isinstance(tree, _FUNCTIONS):
        yield from (*_signature(tree), "", *_text(ast.get_docstring(tree) or ""), *_argument_table(tree, source))
        return
    assert isinstance(tree, ast.ClassDef)
    comments = _comments(source)
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
    if made is not None:
        yield from _argument_table(made, source)
    if issubclass(member, Enum):
        yield from ("", "| member | meaning |", "|---|---|")
        yield from (f"| `{one.name}` | {cell(comments.get(one.name, ''))} |" for one in member)
    elif fields:
        yield from ("", "| field | type | default | meaning |", "|---|---|---|---|")
        yield from (_field(one, comments) for one in fields)
    for one in (*tree.body, *(one for base in _unnamed(member) for one in _properties(base))):
        if isinstance(one, _FUNCTIONS) and _is_public(one.name) and not _is_for_the_product(one):
            yield from ("", *_method(one), *_argument_table(one, source))


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


def _argument_table(one: Function, source: str) -> Iterator[str]:
    """Arguments whose meaning a comment gives. `source` is what `one` was read from."""
    meanings = _comments("\n".join(source.splitlines()[one.lineno - 1 : one.body[0].lineno - 1]))
    found = one.args
    plain = [*found.posonlyargs, *found.args]
    defaults = [*[None] * (len(plain) - len(found.defaults)), *found.defaults, *found.kw_defaults]
    rows = [
        f"| `{argument.arg}` | {'required' if default is None else f'`{ast.unparse(default)}`'} | {cell(meanings[argument.arg])} |"
        for argument, default in zip((*plain, *found.kwonlyargs), defaults, strict=True)
        if argument.arg in meanings
    ]
    if found.vararg and found.vararg.arg in meanings:
        rows.insert(len(plain), f"| `*{found.vararg.arg}` | none | {cell(meanings[found.vararg.arg])} |")
    if rows:
        yield from ("", "| argument | default | meaning |", "|---|---|---|", *rows)


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
    return f"| `{name}` | `{cell(ast.unparse(one.annotation))}` | {cell(default)} | {cell(comments.get(name, ''))} |"


def _comments(source: str) -> dict[str, str]:
    """Name -> the comment `#:` above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in source.splitlines():
        if comment := re.match(r"\s*#: (.*)", line):
            above.append(comment[1])
            continue
        if above and (name := re.match(r"\s*(?:self\.)?\**(\w+)(?::| =)", line)):
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


def cell(text: str) -> str:
    """A text in a row of a table, where a bar would end the cell."""
    return text.replace("|", "\\|")


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _anchor(module: str) -> str:
    return module.replace(".", "")
