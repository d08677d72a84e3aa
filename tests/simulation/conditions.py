"""Conditions of the product with a probe in each, which tell which of their outcomes histories see.

A *place* is one operand, choice or exit; it is seen if each of its outcomes was:

- an operand of `if`, `while`, `x if c else y`, of a comprehension's `if`, of `and` and `or`: that it was false, and
  that it was true, where it decided; the last one of a value that need not be a bool (`name or "none"`) is no operand;
- `any(...)`, `all(...)`: that it was false, and that it was true;
- `min(a, b)`, `max(a, b)`: that each argument was chosen and had no equal; `default=`: that it was needed, and not;
- `except`, `case`, and an exit at the end of a loop: that it was executed. An `if` tells of all other exits.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from tests.simulation import probes
from tests.simulation.mutants import ROOT

#: Below reconciler/policy: what only commands and the wiring run.
LEFT_OUT = ("environment.py", "open_halves.py", "ports/")
TEXT_MAX = 90
#: Outcomes that no history can see, by reason.
REASONS = Path(__file__).parent / "unreached.toml"

_PROBES = "_probes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One operand, choice or exit. Its outcomes are numbered from `first` on."""

    line: int
    text: str
    first: int
    #: What is said of each while no history has seen it.
    outcomes: tuple[str, ...]

    def unseen(self, seen: Mapping[int, int]) -> list[str]:
        """Outcomes that no history has seen."""
        return [name for number, name in enumerate(self.outcomes, self.first) if not seen.get(number)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A module with probes."""

    tree: ast.Module
    places: tuple[Place, ...]
    #: The number of the next module's first outcome.
    end: int


def watched_files() -> list[Path]:
    """What rounds, repairs, acts and sweeps run."""
    policy = ROOT / "reconciler/policy"
    found = [path for path in policy.rglob("*.py") if not path.relative_to(policy).as_posix().startswith(LEFT_OUT)]
    return [*sorted(found), ROOT / "producers/checkback_producers/sweeper.py"]


def all_probed() -> dict[Path, Probed]:
    """Those files with probes."""
    found: dict[Path, Probed] = {}
    end = 0
    for path in watched_files():
        found[path] = probed(path.read_text(), first=end)
        end = found[path].end
    return found


def probed(text: str, *, first: int = 0) -> Probed:
    """A module's text with probes; its outcomes are numbered from `first` on."""
    writer = _Writer(first)
    tree = writer.visit_Module(ast.parse(text))
    future = [n for n, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    names = [ast.alias(name="probes", asname=_PROBES)]
    tree.body.insert(future[-1] + 1 if future else 0, ast.ImportFrom(module="tests.simulation", names=names, level=0))
    return Probed(tree=ast.fix_missing_locations(tree), places=tuple(writer.places), end=writer.next)


@cache
def reasons() -> Mapping[str, str]:
    """ "file: text: outcome" of what no history can see, with the reason."""
    told = tomllib.loads(REASONS.read_text())
    return {entry: one["why"] for one in told["reason"] for entry in one["outcomes"]}


def entries(path: Path, place: Place, outcomes: Iterable[str]) -> list[str]:
    """How the outcomes of a place are named there."""
    return [f"{path.relative_to(ROOT)}: {place.text}: {outcome}" for outcome in outcomes]


def is_explained(path: Path, place: Place, outcomes: Iterable[str]) -> bool:
    """Each of them has a reason."""
    return all(entry in reasons() for entry in entries(path, place, outcomes))


def refuted(found: Mapping[Path, Probed], seen: Mapping[int, int]) -> list[str]:
    """Entries of outcomes that histories saw, wherever the file has that text."""
    unseen = {e for path, m in found.items() for place in m.places for e in entries(path, place, place.unseen(seen))}
    return sorted(set(reasons()) - unseen)


def table(found: Mapping[Path, Probed], seen: Mapping[int, int]) -> Iterator[str]:
    """A line a file: its places, those that were seen, their share, those that none can see; then a line for each of
    the others."""
    unseen = {path: [(one, one.unseen(seen)) for one in module.places] for path, module in found.items()}
    yield "places   seen  share  for a reason"
    for path, places in unseen.items():
        whole = sum(not outcomes for _, outcomes in places)
        explained = sum(bool(outcomes) and is_explained(path, place, outcomes) for place, outcomes in places)
        if places:
            yield f"{len(places):6d} {whole:6d} {whole / len(places):6.1%} {explained:6d}  {path.relative_to(ROOT)}"
    for path, places in unseen.items():
        for place, outcomes in places:
            if outcomes and not is_explained(path, place, outcomes):
                yield f"{path.relative_to(ROOT)}:{place.line}: {place.text}: {', '.join(outcomes)}"
    yield from (f"NO REASON ANY MORE: {entry}" for entry in refuted(found, seen))


class _Writer(ast.NodeTransformer):
    """Puts probes into functions. Operands become lambdas, so that one that is not reached is not evaluated."""

    def __init__(self, first: int) -> None:
        self.places: list[Place] = []
        self.next = first

    # ---- statements

    def visit_Module(self, node: ast.Module) -> ast.Module:
        self._visit_functions(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self._visit_functions(node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._with_test(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._loop(self._with_test(node))

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._loop(self.generic_visit(node))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        return self._entered(node, node.lineno, f"except {ast.unparse(node.type) if node.type else ''}")

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.guard = self._condition(node.guard) if node.guard is not None else None
        return self._entered(node, node.pattern.lineno, f"case {ast.unparse(node.pattern)}")

    # ---- expressions

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._with_test(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        tests, node.ifs = node.ifs, []
        self.generic_visit(node)
        node.ifs = [self._condition(test) for test in tests]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        *others, last = node.values
        if _is_said(last):
            return self._condition(node)
        whole = others[0] if len(others) == 1 else ast.BoolOp(op=node.op, values=others)
        node.values = [self._condition(whole), cast(ast.expr, self.visit(last))]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        is_starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        has_default = any(keyword.arg == "default" for keyword in node.keywords)
        if name in ("any", "all"):
            return self._condition(node)
        if name in ("min", "max") and len(node.args) > 1 and not is_starred:
            outcomes = [f"{ast.unparse(argument)} never chosen" for argument in node.args]
            return self._choice(node, "chosen", outcomes)
        if name in ("min", "max") and has_default:
            return self._choice(node, "chosen_of", ["default never needed", "default always needed"])
        return self.generic_visit(node)

    # ---- probes

    def _condition(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant):
            return node
        leaves: list[ast.expr] = []
        tree = self._tree(node, leaves)
        if isinstance(tree, int):
            return _call("told", tree, self._within(node))
        none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return _call("decided", tree, *(ast.Lambda(args=none, body=self._within(leaf)) for leaf in leaves))

    def _tree(self, node: ast.expr, leaves: list[ast.expr]) -> probes.Tree:
        # In a lambda a walrus would bind its name there: what has one is one operand.
        if not any(isinstance(part, ast.NamedExpr) for part in ast.walk(node)):
            if isinstance(node, ast.BoolOp):
                kind = "and" if isinstance(node.op, ast.And) else "or"
                return (kind, *[self._tree(value, leaves) for value in node.values])
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                return ("not", self._tree(node.operand, leaves))
        leaves.append(node)
        return self._note(node.lineno, ast.unparse(node), ["never false", "never true"])

    def _within(self, node: ast.expr) -> ast.expr:
        """What lies in an operand; an `any` that is one is told by it."""
        is_any = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("any", "all")
        return cast(ast.expr, self.generic_visit(node) if is_any or isinstance(node, ast.BoolOp) else self.visit(node))

    def _choice(self, node: ast.Call, probe: str, outcomes: list[str]) -> ast.Call:
        first = self._note(node.lineno, ast.unparse(node), outcomes)
        self.generic_visit(node)
        call = _call(probe, first, node.func, *node.args)
        call.keywords = node.keywords
        return call

    def _entered(self, node: Any, line: int, text: str) -> ast.AST:
        first = self._note(line, text, ["never entered"])
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(value=_call("came_by", first)))
        return cast(ast.AST, node)

    def _loop(self, node: Any) -> ast.AST:
        """An exit that no `if` leads to is the last statement of the loop's body, if there is one."""
        last = node.body[-1]
        if isinstance(last, (ast.Return, ast.Break, ast.Continue)):
            first = self._note(last.lineno, ast.unparse(last), ["never executed"])
            node.body.insert(-1, ast.Expr(value=_call("came_by", first)))
        return cast(ast.AST, node)

    def _with_test(self, node: Any) -> ast.AST:
        test, node.test = self._condition(node.test), ast.Constant(value=True)
        self.generic_visit(node)
        node.test = test
        return cast(ast.AST, node)

    def _visit_functions(self, node: ast.Module | ast.ClassDef) -> None:
        node.body = [self.visit(one) if isinstance(one, (ast.ClassDef, ast.FunctionDef)) else one for one in node.body]

    def _note(self, line: int, text: str, outcomes: list[str]) -> int:
        first, self.next = self.next, self.next + len(outcomes)
        shown = text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."
        self.places.append(Place(line=line, text=shown, first=first, outcomes=tuple(outcomes)))
        return first


def _is_said(node: ast.expr) -> bool:
    """True if the expression is a bool: by its form, or as names tell (`is_late`, `self._has_rows()`, `any`)."""
    if isinstance(node, (ast.Compare, ast.BoolOp)) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return True
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in ("any", "all", "bool") or name.lstrip("_").startswith(("is_", "has_"))


def _call(probe: str, *given: Any) -> ast.Call:
    function = ast.Attribute(value=ast.Name(id=_PROBES, ctx=ast.Load()), attr=probe, ctx=ast.Load())
    arguments = [one if isinstance(one, ast.expr) else ast.Constant(value=one) for one in given]
    return ast.Call(func=function, args=arguments, keywords=[])
