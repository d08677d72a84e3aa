"""The changes that a mutant makes to one place of a source file, found in its syntax tree.

Left out is what no test should pin: docstrings, annotations, texts of errors and of logs, `__repr__`, ports. Left out,
too, is what changes nothing that a run could show:

- `__all__`: ruff finds a name in it that does not exist (F822);
- `strict=` of `zip`: the lists have one length, and the argument says so to the reader;
- the name of a thread or of a pool's threads, which people read;
- a `TypeVar`, and what stands between the brackets of a type, which mypy reads;
- an argument that every function of its name requires: each call without it fails.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from tests.mutation.mistakes import Required, called_name, is_of_types, mistakes_of, neighbours

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_SILENT_CALLS = {"debug", "info", "warning", "error", "exception", "emit", "log"}
_NAMED_THREADS = {"Thread", "threading.Thread", "ThreadPoolExecutor", "Timer", "threading.Timer"}
_NAMES_OF_THREADS = {"name", "thread_name_prefix"}
_SKIPPED_FUNCTIONS = {"__repr__", "__str__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: the characters from `start` to `end` of the file become `text`; `line` is counted from 1."""

    line: int
    start: int
    end: int
    text: str
    kind: str

    def applied(self, source: str) -> str:
        """The changed file."""
        return source[: self.start] + self.text + source[self.end :]


def changes(source: str, required: Required | None = None) -> list[Change]:
    """Every change that can be made to a source file, in its order."""
    finder = _Finder(source, required or {})
    finder.visit(ast.parse(source))
    return sorted(dict.fromkeys(finder.found), key=lambda change: (change.start, change.end, change.text))


class _Finder(ast.NodeVisitor):
    """Walks a file and notes what can be changed."""

    def __init__(self, source: str, required: Required) -> None:
        self.found: list[Change] = []
        self._source = source
        self._required = required
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def _at(self, line: int, column: int) -> int:
        """The character at a line and a column in bytes, as syntax trees count."""
        text = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(text)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _note(self, node: ast.expr | ast.stmt, text: str, kind: str) -> None:
        start, end = self._span(node)
        self.found.append(Change(line=node.lineno, start=start, end=end, text=text, kind=kind))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr | ast.stmt) and not (isinstance(node, ast.expr) and _is_silent(node)):
            for text, kind in mistakes_of(node):
                self._note(node, text, kind)
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if isinstance(statements, list) and not isinstance(node, ast.ClassDef):
                self._exchange(statements)
        super().visit(node)

    def _exchange(self, statements: Sequence[ast.stmt]) -> None:
        for first, second in neighbours(statements):
            if any(isinstance(one, ast.Expr) and _is_silent(one.value) for one in (first, second)):
                continue
            (start, middle), (again, end) = self._span(first), self._span(second)
            text = self._source[again:end] + self._source[middle:again] + self._source[start:middle]
            self.found.append(
                Change(line=second.lineno, start=start, end=end, text=text, kind="neighbours exchanged")
            )  # fmt: skip

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(ast.unparse(base) == "Protocol" for base in node.bases):
            for statement in node.body:
                self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in _SKIPPED_FUNCTIONS:
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        if ast.unparse(node.targets[0]) == "__all__":
            return
        if isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple):
            self.generic_visit(node.value)  # with a value less, it would not fit its names
        else:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not is_of_types(node.value):
            self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._note(condition, "True", "condition left out")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._note(node, "pass", "error not raised")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_silent(node.value):
            return
        if isinstance(node.value, ast.Call):
            self._note(node, "pass", "call left out")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in {"TYPE_CHECKING", "not TYPE_CHECKING", "__name__ == '__main__'"}:
            return
        self._note(node.test, f"(not ({ast.unparse(node.test)}))", "condition turned round")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._note(node.test, f"(not ({ast.unparse(node.test)}))", "condition turned round")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
            other = ast.Compare(left=node.left, ops=[_COMPARISONS[type(node.ops[0])]()], comparators=node.comparators)
            self._note(node, f"({ast.unparse(other)})", "comparison")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.BoolOp(op=ast.Or() if isinstance(node.op, ast.And) else ast.And(), values=node.values)
        self._note(node, f"({ast.unparse(other)})", "and, or")
        for value in node.values:
            rest = [other for other in node.values if other is not value]
            kept = rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest)
            self._note(node, f"({ast.unparse(kept)})", "condition left out")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right))
        if type(node.op) in _ARITHMETIC and not is_text:
            other = ast.BinOp(left=node.left, op=_ARITHMETIC[type(node.op)](), right=node.right)
            self._note(node, f"({ast.unparse(other)})", "arithmetic")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._note(node.value, "None", "nothing returned")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_silent(node) or ast.unparse(node.func) == "TypeVar":
            return
        shown = [keyword for keyword in node.keywords if not _shows_nothing(ast.unparse(node.func), keyword)]
        required = self._required.get(called_name(node), frozenset())
        for keyword in shown:
            if keyword.arg is not None and keyword.arg not in required:
                rest = [other for other in node.keywords if other is not keyword]
                other = ast.Call(func=node.func, args=node.args, keywords=rest)
                self._note(node, ast.unparse(other), f"argument {keyword.arg} left out")
        self.visit(node.func)
        for value in (*node.args, *shown):
            self.visit(value)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._note(node, str(not value), "constant")
        elif isinstance(value, int):
            self._note(node, str(value + 1), "constant")
            if value > 1:
                self._note(node, str(value * 1000), "constant times 1000")
        elif isinstance(value, float):
            self._note(node, str(value / 1000 if value else 1.0), "constant by 1000")
        elif isinstance(value, str) and value and " " not in value and "\n" not in value:
            self._note(node, repr(value + "X"), "word")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are for people."""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _shows_nothing(called: str, keyword: ast.keyword) -> bool:
    """A keyword argument without an effect that a run could show."""
    return (called == "zip" and keyword.arg == "strict") or (
        called in _NAMED_THREADS and keyword.arg in _NAMES_OF_THREADS
    )


def _is_silent(node: ast.expr) -> bool:
    """A call that only tells: a log, an event."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SILENT_CALLS
