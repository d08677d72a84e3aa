"""Whether a function or class that a page or a table names is there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def exists(path: str, dotted: str) -> bool:
    """Whether the file (from the repository's root) defines `Class.method`, `function` and their like."""
    body: list[ast.stmt] = _tree(path).body if (ROOT / path).is_file() else []
    for part in dotted.split("."):
        found = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == part]
        if not found:
            return False
        body = found[0].body
    return True


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))
