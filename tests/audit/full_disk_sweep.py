"""Runs inside run_on_small_disk: writes one OUT again and again, with one page (or inode) more each time.

Prints a JSON object: `failed` (how often it did), `wrong` (what was not as it should be), `used`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError
from reconciler.audit.output.writing import write_output
from reconciler.audit.result.values import JudgedWindow
from tests.audit.full_disk import PAGE

#: Of a disk that is not full.
PAGES, INODES = 4_000, 4_000


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


class Sweep:
    def __init__(self, place: Path, evidence: Path, key: Path) -> None:
        self.place, self.evidence, self.key = place, evidence, key
        self.wrong: list[str] = []
        self.failed = 0

    def resize(self, pages: int = PAGES, inodes: int = INODES) -> None:
        options = f"remount,size={pages * PAGE},nr_inodes={inodes}"
        subprocess.run(["mount", "-o", options, str(self.place)], check=True)

    def write(self, judged: JudgedWindow) -> AuditError | None:
        try:
            write_output(judged, self.place / "out", signing_key=self.key, evidence=self.evidence)
        except AuditError as error:
            return error
        return None

    def run(self, judged: JudgedWindow, expected: dict[str, bytes], **limit: int) -> bool:
        """Whether everything fitted in; before and after, the place holds `expected`."""
        self.resize(**limit)
        error = self.write(judged)
        self.resize()
        if error is None:
            return True
        self.failed += 1
        if error.reason != "engine" or "No space left" not in str(error):
            self.wrong.append(f"{limit}: {error.reason} {error}")
        if contents(self.place) != expected:
            self.wrong.append(f"{limit}: left {sorted(contents(self.place))}")
        return False


def main(place: Path, evidence: Path, other: Path, key: Path) -> None:
    sweep = Sweep(place, evidence, key)
    judged = judge_here(evidence)
    sweep.write(judged)
    whole = contents(place)
    shutil.rmtree(place / "out")
    pages = next(pages for pages in range(1, PAGES) if sweep.run(judged, {}, pages=pages))
    shutil.rmtree(place / "out")
    next(inodes for inodes in range(2, INODES) if sweep.run(judged, {}, inodes=inodes))
    # Over an older output, which stays as it was.
    sweep.evidence, theirs = other, judge_here(other)
    next(more for more in range(pages, PAGES) if sweep.run(theirs, whole, pages=more))
    if contents(place) == whole:
        sweep.wrong.append("the newer output did not take the older one's place")
    sys.stdout.write(json.dumps({"failed": sweep.failed, "wrong": sweep.wrong, "pages": pages}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
