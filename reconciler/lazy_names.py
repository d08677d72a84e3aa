"""Names of a package that are loaded when they are first asked for (PEP 562).

A command that asks for one function must not wait for drivers, brokers' clients and plug-ins that it never uses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def loading(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The package's ``__getattr__``; homes: full name of a module -> the names it gives, with spaces between."""
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home), name)
        setattr(sys.modules[package], name, found)  # the next one is not asked here
        return found

    return get
