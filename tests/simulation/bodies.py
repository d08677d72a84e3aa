"""A patch that changes bodies of functions alone is planted into the functions that are imported already.

This takes no time, where importing product and simulator once more takes half a second of a processor. Whatever else a
patch changes (a default, a decorator, a table of a module, a script), needs the import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

#: What compilers note of a function, and of a comprehension or a lambda, and not of a module or a class.
NEW_LOCALS = 0x02


def are_planted(texts: Mapping[Path, str]) -> bool:
    """Gives the living functions their patched bodies. False, and nothing is changed, where that is not enough."""
    found: list[tuple[FunctionType, CodeType]] = []
    for path, text in texts.items():
        module = _imported(path)
        if module is None:
            return False
        before, after = (compile(one, str(path), "exec", dont_inherit=True) for one in (path.read_text(), text))
        changes = list(_changed(before, after))
        functions = [_function(module, change.co_qualname) if change is not None else None for change in changes]
        for function, change in zip(functions, changes, strict=True):
            if function is None or change is None or function.__code__.co_freevars != change.co_freevars:
                return False
            found.append((function, change))
    for function, body in found:
        function.__code__ = body
    return bool(found)


def _imported(path: Path) -> ModuleType | None:
    """The module of a file; None: it is not a module, or nobody has imported it."""
    return next((m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == str(path)), None)


def _changed(before: CodeType, after: CodeType) -> Iterator[CodeType | None]:
    """New bodies of functions in a module or a class; None: something else has changed, too."""
    if _outside(before) != _outside(after):
        yield None
        return
    for old, new in zip(_inside(before), _inside(after), strict=True):
        if not new.co_flags & NEW_LOCALS:
            yield from _changed(old, new)
        elif not _alike(old, new):
            yield new


def _alike(one: CodeType, other: CodeType) -> bool:
    """Whether both do the same, on whichever lines they are."""
    return _outside(one) == _outside(other) and all(map(_alike, _inside(one), _inside(other)))


def _inside(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _outside(code: CodeType) -> tuple[Any, ...]:
    """All but lines and what lies in it; 1, 1.0 and True are not the same."""
    constants = [one.co_name if isinstance(one, CodeType) else (type(one), repr(one)) for one in code.co_consts]
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    taken = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return code.co_code, code.co_exceptiontable, constants, names, taken


def _function(module: ModuleType, name: str) -> FunctionType | None:
    """A function of the module by its qualified name; None: a decorator has made something else of it."""
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    return found if isinstance(found, FunctionType) and found.__qualname__ == name else None
