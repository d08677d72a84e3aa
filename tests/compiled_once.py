"""Statements that are compiled once per process.

SQLAlchemy keeps compiled statements per engine. A process of the product has a few. A process of the tests makes
thousands, and would spend two thirds of its time in SQL on statements that earlier tests have compiled.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.util import LRUCache

STATEMENTS_MAX = 10_000
#: Parts of a dialect that its class and its other attributes determine.
_DERIVED = {"_psycopg_adapters_map", "_type_memos", "identifier_preparer", "type_compiler", "type_compiler_instance"}
_COMPARABLE = (bool, int, str, bytes, float, tuple, frozenset, type, type(None), FunctionType, BuiltinFunctionType)

_compiled: LRUCache[Any, Any] = LRUCache(STATEMENTS_MAX)


class SharedCache:
    """An engine's cache of compiled statements. Engines whose dialects are alike share the statements."""

    def __init__(self) -> None:
        self._known: tuple[Dialect, Any] | None = None

    def get(self, key: tuple[Any, ...]) -> Any:
        """Returns the compiled statement. None: it has not been compiled for such a dialect."""
        return _compiled.get((self._alike(key[0]), *key[1:]))

    def __setitem__(self, key: tuple[Any, ...], statement: Any) -> None:
        _compiled[(self._alike(key[0]), *key[1:])] = statement

    def clear(self) -> None:
        """Does nothing: others need the statements."""

    def _alike(self, dialect: Dialect) -> Any:
        # The first connection asks the server for what the dialect has to know. Statements are compiled afterwards.
        if self._known is None or self._known[0] is not dialect:
            self._known = dialect, alike(dialect)
        return self._known[1]


def alike(dialect: Dialect) -> Any:
    """Makes a value that is equal for dialects that compile alike.

    An attribute of an unknown kind is equal to itself only.
    """
    return type(dialect), frozenset(
        (name, type(value), _comparable(value)) for name, value in vars(dialect).items() if name not in _DERIVED
    )


def _comparable(value: Any) -> Any:
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, dict):
        return frozenset((name, _comparable(inner)) for name, inner in value.items())
    return value if isinstance(value, _COMPARABLE) else id(value)


class _CacheOfEngine:
    """The attribute in which an engine keeps its cache. None: the engine compiles each statement anew."""

    def __get__(self, engine: Engine, owner: type[Engine]) -> SharedCache | None:
        return engine.__dict__["shared_cache"]  # type: ignore[no-any-return]

    def __set__(self, engine: Engine, cache: object) -> None:
        engine.__dict__["shared_cache"] = None if cache is None else SharedCache()


def compile_once() -> None:
    """Gives the shared cache to every engine that is made from now on."""
    Engine._compiled_cache = _CacheOfEngine()  # type: ignore[assignment]  # no event tells of a new engine
