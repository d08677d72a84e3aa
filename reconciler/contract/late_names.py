"""Public names of a package whose modules are imported at their first use."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def imported_when_used(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the package's `__getattr__`. `places`: name -> the module that has it."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with without_collector():
            return getattr(import_module(places[name]), name)

    return find


@contextmanager
def without_collector() -> Iterator[None]:
    """Imports modules with the garbage collector switched off. Modules live until the process ends, but the collector's
    walks through them take a fifth of an import's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
