"""Planted bugs: each patch of tests/simulation/mutants is applied to a copy of the product, which must then fail.

A patch is a unified diff whose first line says what the bug is. Lines before the diff may follow:

    needs: a, b      faults without which nobody would notice the bug (ablation.py shows that)
    troubles: c, d   faults that are on in each of its histories, so that it is met sooner
    without: e, f    faults that are off in each of its histories: they have the same effect, or heal it
    tried: nightly   most histories do not meet it, so that finding it takes CI too long
    met: 37          seed whose history has met it (ablation.py tells), not one of the first; CI tries it first

It is applied by its text, not by its line numbers, so it survives changes elsewhere in the file; a patch that does not
fit any more is an error.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent / "mutants"


class PatchDoesNotFit(AssertionError):
    """The product has changed where a patch wants to plant its bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug."""

    name: str
    what: str
    needs: tuple[str, ...]
    troubles: tuple[str, ...]
    without: tuple[str, ...]
    is_rarely_met: bool
    met: int | None
    patch: str

    @property
    def always(self) -> frozenset[str]:
        """Faults that are on in each of its histories."""
        return frozenset(self.needs + self.troubles)


def mutants(names: Sequence[str] = ()) -> list[Mutant]:
    """All, or those named."""
    found = []
    for path in sorted(PATCHES.glob("*.patch")):
        text = path.read_text()
        if not names or path.stem in names:
            found.append(_read(path.stem, text))
    return found


def _read(name: str, text: str) -> Mutant:
    what, *rest = text.partition("\n--- ")[0].splitlines()
    headers = dict(line.split(": ", 1) for line in rest)
    unknown = set(headers) - {"needs", "troubles", "without", "tried", "met"}
    if unknown or headers.get("tried", "nightly") != "nightly":
        raise PatchDoesNotFit(f"{name}: unknown header: {sorted(unknown) or 'tried'}")
    needs, troubles, without = (
        tuple(headers[field].split(", ")) if field in headers else () for field in ("needs", "troubles", "without")
    )
    return Mutant(
        name=name,
        what=what,
        needs=needs,
        troubles=troubles,
        without=without,
        is_rarely_met="tried" in headers,
        met=int(headers["met"]) if "met" in headers else None,
        patch=text,
    )


def patched(patch: str, root: Path) -> dict[Path, str]:
    """Texts of the patched files, by path below a folder. Raises PatchDoesNotFit."""
    path: Path | None = None
    hunks: list[tuple[Path, list[str], list[str]]] = []
    for line in patch.splitlines():
        if line.startswith("+++ "):
            path = root / line[4:].strip().removeprefix("b/")
        elif line.startswith("@@") and path is not None:
            hunks.append((path, [], []))
        elif hunks and not line.startswith(("--- ", "+++ ")):
            _, before, after = hunks[-1]
            if line[:1] in (" ", "-", ""):
                before.append(line[1:])
            if line[:1] in (" ", "+", ""):
                after.append(line[1:])
    texts: dict[Path, str] = {}
    for place, before, after in hunks:
        text = texts[place] if place in texts else place.read_text()
        old, new = "\n".join(before) + "\n", "\n".join(after) + "\n"
        if text.count(old) != 1:
            raise PatchDoesNotFit(f"{place.relative_to(root)}: these lines are there {text.count(old)} times:\n{old}")
        texts[place] = text.replace(old, new)
    return texts


def copy_product(target: Path) -> None:
    """The product and the simulator, as they are now."""
    for name in ("reconciler", "producers", "consumers"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    ignored = shutil.ignore_patterns("__pycache__", "*.patch")
    shutil.copytree(ROOT / "tests/simulation", target / "tests/simulation", ignore=ignored)


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """A folder with product and simulator that has the bug."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        copy_product(root)
        for path, text in patched(mutant.patch, root).items():
            path.write_text(text)
        yield root
