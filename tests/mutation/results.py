"""What became of each mutant, one JSON line each, so that a draw can be tried in several sittings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

NOTICED = ("died", "hung", "died in a history")
Drawn = TypeVar("Drawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of several parts of a draw: each has every so many-th mutant, so that each is a smaller draw."""

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> Part:
        """`2/4`. Raises ValueError."""
        number, slash, of = text.partition("/")
        part = cls(number=int(number), of=int(of) if slash else 0)
        if not 1 <= part.number <= part.of:
            raise ValueError(f"not a part: {text}")
        return part

    def of_draw(self, drawing: Mapping[int, Drawn]) -> dict[int, Drawn]:
        """The mutants of this part."""
        return {number: one for number, one in drawing.items() if number % self.of == self.number - 1}


class Results:
    """The lines of one file; a line that a killed run left half written counts as none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ends: dict[str, str] = {}
        if path.is_file():
            for line in path.read_text().splitlines():
                try:
                    read = json.loads(line)
                    self._ends[read["mutant"]] = read["end"]
                except (ValueError, KeyError, TypeError):
                    continue

    def end_of(self, mutant: str) -> str | None:
        """How a mutant ended in this sitting or an earlier one; None: not yet."""
        return self._ends.get(mutant)

    def add(self, mutant: str, end: str, told: Mapping[str, Any]) -> None:
        """Notes an outcome; it is on the disk when this returns."""
        self._ends[mutant] = end
        self._path.parent.mkdir(parents=True, exist_ok=True)
        begins_anew = self._path.is_file() and not self._path.read_bytes().endswith(b"\n")
        with self._path.open("a") as file:
            file.write("\n" * begins_anew + json.dumps({"mutant": mutant, "end": end, **told}) + "\n")

    def counted(self, mutants: Iterable[str]) -> Counter[str]:
        """How many of these ended how; those that were not tried yet are not counted."""
        return Counter(self._ends[mutant] for mutant in mutants if mutant in self._ends)
