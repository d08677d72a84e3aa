"""Values of the product without their lock, for speed: a sixth of a history went into `object.__setattr__`.

A frozen dataclass writes each field of a new object through a check that the same class would fail. Here the classes
lose that check, and get the `__init__` that dataclasses writes for one that is not frozen: fields, defaults, checks of
`__post_init__`, equality and hashes stay. `dataclasses.replace` looks its fields up once a class. Histories that run
the product as it is freeze them again (economies.py).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from types import ModuleType
from typing import Any

PACKAGES = ("reconciler", "checkback_producers", "checkback_consumers")
LOCKS = ("__setattr__", "__delattr__")


class Thawed:
    """Frozen dataclasses of all product modules that have been imported when it is made."""

    def __init__(self) -> None:
        #: Modules that have imported dataclasses.replace by its name.
        self._replacing = [module for module in _modules() if vars(module).get("replace") is dataclasses.replace]
        self._classes = {cls: _written(cls) for cls in _frozen()}
        self._frozen = {
            cls: {name: cls.__dict__[name] for name in ("__init__", *LOCKS)} for cls in self._classes
        }  # fmt: skip

    def thaw(self) -> None:
        """Without locks."""
        for cls, init in self._classes.items():
            setattr(cls, "__init__", init)  # noqa: B010 - mypy would not have it
            for name in LOCKS:
                delattr(cls, name)
        for module in self._replacing:
            setattr(module, "replace", _replace)  # noqa: B010

    def freeze(self) -> None:
        """As the product has them."""
        for cls, members in self._frozen.items():
            for name, member in members.items():
                setattr(cls, name, member)
        for module in self._replacing:
            setattr(module, "replace", dataclasses.replace)  # noqa: B010


def _modules() -> list[ModuleType]:
    names = sorted(name for name in sys.modules if name.partition(".")[0] in PACKAGES)
    return [sys.modules[name] for name in names]


def _frozen() -> Iterator[type]:
    for module in _modules():
        for found in list(vars(module).values()):
            if isinstance(found, type) and found.__module__ == module.__name__ and _is_frozen(found):
                yield found


def _is_frozen(cls: type) -> bool:
    parameters = cls.__dict__.get("__dataclass_params__")
    return parameters is not None and parameters.frozen and all(name in cls.__dict__ for name in ("__init__", *LOCKS))


@cache
def _values_of(cls: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(known.name for known in dataclasses.fields(cls) if known.init)
    return names, attrgetter(*names) if len(names) > 1 else lambda one: (getattr(one, names[0]),)


def _replace(one: Any, /, **changes: Any) -> Any:
    """dataclasses.replace, which looks at each field of a class again and again."""
    names, values = _values_of(one.__class__)
    return one.__class__(**{**dict(zip(names, values(one), strict=True)), **changes})


def _written(cls: type) -> Callable[..., None]:
    """The __init__ of the same fields in a class that is not frozen."""
    fields: list[tuple[str, Any, Any]] = []
    for known in dataclasses.fields(cls):
        given = {"default": known.default, "default_factory": known.default_factory}
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not dataclasses.MISSING}
        chosen |= {"init": known.init, "kw_only": known.kw_only}
        fields.append((known.name, Any, dataclasses.field(**chosen)))
    check = getattr(cls, "__post_init__", None)
    namespace = {} if check is None else {"__post_init__": check}
    twin = dataclasses.make_dataclass(cls.__name__, fields, namespace=namespace)
    init: Callable[..., None] = twin.__dict__["__init__"]
    return init
