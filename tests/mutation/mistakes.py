"""Changes that are mistakes as people make them: a field forgotten, `min` for `max`, two statements in the wrong order.

Each function takes a node of the syntax tree and yields what the node could have become: text, and the kind of mistake.
Left out is what a type checker or ruff sees, and what fails wherever it runs.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

#: Text in the node's place, and the kind.
Mistake = tuple[str, str]
#: By the name of a function or class: the keyword arguments without which each call of it fails.
Required = Mapping[str, frozenset[str]]

#: A list of more elements is a table, of which one is as good as another.
ELEMENTS_MAX = 8
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_READING = re.compile(
    r"(^|_)(now|time|clock|monotonic|epoch|read|get|load|fetch|ask|look|look_up|peek|seen|state|status|offset|offsets|"
    r"position|positions|floor|generation|snapshot|current|latest|newest|oldest|count|size|depth|owner|claim|claims|"
    r"select|query|execute|pending|known|answers?)(_|$)"
)


def mistakes_of(node: ast.AST) -> Iterator[Mistake]:
    """What a node could have become by mistake, without its neighbours."""
    match node:
        case ast.Tuple(ctx=ast.Load()) | ast.List(ctx=ast.Load()) | ast.Set():
            yield from _element_left_out(node)
        case ast.Compare():
            yield from _compared_by_less(node)
        case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
            func = ast.Name(id=_SWAPPED[name])
            yield (
                ast.unparse(ast.Call(func=func, args=node.args, keywords=node.keywords)),
                ", ".join(sorted((name, _SWAPPED[name]))),
            )
        case ast.Subscript(ctx=ast.Load(), slice=place) if (other := _other_end(place)) is not None:
            yield f"{ast.unparse(node.value)}[{other}]", "first, last"
        case ast.Break():
            yield "continue", "break, continue"
        case ast.Continue():
            yield "break", "break, continue"


def neighbours(statements: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Statements one after the other that could stand the other way round, where one reads a clock or a state."""
    for first, second in pairwise(statements):
        if not all(isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) for one in (first, second)):
            continue
        if not all(any(_calls(one)) for one in (first, second)):
            continue
        if not any(_reads(one) for one in (first, second)):
            continue
        if _stored(first) & _named(second) or _stored(second) & _named(first):
            continue  # the name would not be there yet
        yield first, second


def required_arguments(sources: Iterable[str]) -> Required:
    """What every function or class of one name requires by keyword, over all of the product."""
    found: dict[str, list[frozenset[str]]] = defaultdict(list)
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name != "__init__":
                found[node.name].append(_required_by(node))
            elif isinstance(node, ast.ClassDef):
                made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
                found[node.name].append(_required_by(made[0]) if made else _fields_without_default(node))
    return {name: frozenset.intersection(*each) for name, each in found.items()}


def called_name(call: ast.Call) -> str:
    """The last word of what is called."""
    return ast.unparse(call.func).rpartition(".")[2]


def is_of_types(node: ast.expr) -> bool:
    """Whether what is between the brackets after it is types, which mypy reads."""
    name = ast.unparse(node).rpartition(".")[2]
    return name[:1].isupper() or name in {"tuple", "dict", "list", "set", "frozenset", "type", "deque", "defaultdict"}


def _element_left_out(node: ast.Tuple | ast.List | ast.Set) -> Iterator[Mistake]:
    if not 2 <= len(node.elts) <= ELEMENTS_MAX:
        return
    for left_out in node.elts:
        rest = [element for element in node.elts if element is not left_out]
        other = ast.Set(elts=rest) if isinstance(node, ast.Set) else type(node)(elts=rest, ctx=ast.Load())
        yield ast.unparse(other), "element left out"


def _compared_by_less(node: ast.Compare) -> Iterator[Mistake]:
    """Two tuples compared without one of their places; a chain of comparisons without one of its ends."""
    sides = [node.left, *node.comparators]
    if len(node.ops) == 1:
        left, right = sides
        if isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple) and len(left.elts) == len(right.elts) > 1:
            for place in range(len(left.elts)):
                fewer = [
                    ast.Tuple(elts=side.elts[:place] + side.elts[place + 1 :], ctx=ast.Load()) for side in (left, right)
                ]
                other = ast.Compare(left=fewer[0], ops=node.ops, comparators=[fewer[1]])
                yield f"({ast.unparse(other)})", "compared by fewer"
        return
    for start, end in ((1, len(sides)), (0, len(sides) - 1)):
        other = ast.Compare(left=sides[start], ops=node.ops[start : end - 1], comparators=sides[start + 1 : end])
        yield f"({ast.unparse(other)})", "bound left out"


def _other_end(place: ast.expr) -> str | None:
    """The index of the last for that of the first, and the first for the last."""
    text = ast.unparse(place)
    return {"0": "-1", "-1": "0"}.get(text)


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    return (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _reads(statement: ast.stmt) -> bool:
    return any(_READING.search(called_name(call)) for call in _calls(statement))


def _stored(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _named(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _required_by(function: ast.FunctionDef) -> frozenset[str]:
    arguments = function.args
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    without = positional[: len(positional) - len(arguments.defaults)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return frozenset({*without, *(one.arg for one, default in named if default is None)})


def _fields_without_default(node: ast.ClassDef) -> frozenset[str]:
    return frozenset(
        one.target.id
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is None
    )
