"""A planted bug lives in a child of this process, which has imported everything already.

The child forgets the modules of product and simulator and imports them once more, those of the patch from patched
texts and all others from the byte code that is there: a fraction of a second, where an interpreter of its own with a
copy of the product took several.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from ast import Module
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.resources import files
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.simulation.bodies import are_planted
from tests.simulation.mutants import ROOT, patched
from tests.simulation.thawing import PACKAGES

SIMULATOR = "tests.simulation."

#: Without a fault that a bug needs: so many histories for each one that it took with the fault, and at least so many.
OFF_TIMES, OFF_MIN = 4, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Histories to be run one after the other until one fails."""

    seed: int
    histories: int
    #: Faults that are on, or off, in each history.
    always: frozenset[str]
    never: frozenset[str]
    #: Seeds that are tried before all others.
    before: tuple[int, ...] = ()

    def after(self, caught_at: int | None) -> Search:
        """This search, no longer than it needs to be once the bug was caught: what is met at once is missed at once."""
        if caught_at is None:
            return self
        return replace(self, histories=min(self.histories, max(OFF_MIN, OFF_TIMES * caught_at)))


#: Number of the first history that failed, None if none did; and how it failed.
Found = tuple[int | None, str]


def find_all(bugs: Sequence[tuple[str, Sequence[Search]]], *, jobs: int) -> Iterator[list[Found]]:
    """Patches with their searches, the one with all faults first: what each finds. Each patch has its own child."""
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap(_find, bugs)


def _find(bug: tuple[str, Sequence[Search]]) -> list[Found]:
    patch, (met, *missed) = bug
    texts = patched(patch, ROOT)
    if not are_planted(texts):
        plant(texts)
    first_failure = importlib.import_module(f"{SIMULATOR}until_failure").first_failure

    def run(search: Search) -> Found:
        found: Found = first_failure(search.seed, search.histories, search.always, search.never, search.before)
        return found

    caught = run(met)
    return [caught, *(run(search.after(caught[0])) for search in missed)]


def plant(texts: Mapping[Path, str | Module]) -> None:
    """In a child only: product and simulator are imported once more, these files of them from texts, or trees."""
    sys.meta_path.insert(0, _Finder({str(path.resolve()): text for path, text in texts.items()}))
    for name in list(sys.modules):
        if name.partition(".")[0] in PACKAGES or name.startswith(SIMULATOR):
            del sys.modules[name]
    _plant_scripts(texts)


def _plant_scripts(texts: Mapping[Path, str | Module]) -> None:
    """Lua is read by one function of the product, for all modules that are imported from now on."""
    scripts: Any = importlib.import_module("reconciler.shards.script")
    read = scripts.script_text

    def planted(package: str, file: str) -> str:
        path = Path(str(files(package).joinpath(file))).resolve()
        return str(texts[path] if path in texts else read(package, file))

    scripts.script_text = planted


class _Finder(MetaPathFinder):
    """Finds patched modules."""

    def __init__(self, texts: Mapping[str, str | Module]) -> None:
        self._texts = texts

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if path is not None else None
        origin = str(Path(spec.origin).resolve()) if spec is not None and spec.origin is not None else ""
        if spec is None or origin not in self._texts:
            return None
        spec.loader = _Loader(fullname, origin, self._texts[origin])
        return spec


class _Loader(SourceFileLoader):
    """A module from a text, or a tree, that is not the one on the disk."""

    def __init__(self, fullname: str, path: str, text: str | Module) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)
