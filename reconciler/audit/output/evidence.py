"""OUT/evidence: an audit's evidence is part of the output, so that others can judge the evidence again."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = "evidence"


def keep(evidence: Path, draft: Path, out: Path, *, is_ours: bool) -> None:
    """Puts evidence into a draft of OUT. Evidence that this audit collected is moved.

    Evidence of the older OUT is hard-linked. Any other evidence stays in its place. Raises OSError.
    """
    place = draft / FOLDER
    if is_ours:
        evidence.rename(place)
    elif evidence.resolve() == (out / FOLDER).resolve():
        # The draft replaces the older OUT. The evidence must not be removed with the older OUT.
        _link(evidence, place)


def _link(source: Path, target: Path) -> None:
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            os.link(Path(folder) / name, there / name)
