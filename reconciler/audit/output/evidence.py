"""OUT/evidence: an audit's evidence is part of its output, so that others can judge it again."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = "evidence"


def keep(evidence: Path, draft: Path, out: Path, *, is_ours: bool) -> None:
    """Puts evidence into a draft of OUT. Our own evidence is moved; evidence of the older OUT is hard-linked.

    Other evidence stays in its place. Raises OSError.
    """
    place = draft / FOLDER
    if is_ours:
        evidence.rename(place)
    elif evidence.resolve() == (out / FOLDER).resolve():
        # The draft replaces the older OUT, and the evidence must not be removed with it.
        _link(evidence, place)


def _link(source: Path, target: Path) -> None:
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            os.link(Path(folder) / name, there / name)
