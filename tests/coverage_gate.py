"""The end of `make coverage`: fails where too little of the product has run.

Run as a script it reads the data that pytest-cov has combined and prints one line a failure. The tests need their
services: without them most adapters do not run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import coverage
from coverage.exceptions import CoverageException

ROOT = Path(__file__).parents[1]

#: The tests of the audit start engines and processes, and other engines check its answers.
UNMEASURED = str(ROOT / "reconciler/audit/*")
#: Least share of lines and branches together, the number that `coverage report` shows, and of branches alone.
TOTAL_PERCENT_MIN = 87.0
#: What decides: every branch of these files is taken.
POLICY = tuple(
    str(path.relative_to(ROOT))
    for folder in (ROOT / "reconciler/policy", ROOT / "reconciler/telling", ROOT / "reconciler/demo/classic/round.py")
    for path in sorted(folder.rglob("*.py") if folder.is_dir() else [folder])
    if "ports" not in path.parts and path.name != "__init__.py"
)


def failures(report: Mapping[str, Any]) -> Iterator[str]:
    """One line for each rule that a report of coverage (its JSON form, branches measured) breaks."""
    totals = report["totals"]
    for what, percent in (("lines and branches", totals["percent_covered"]), ("branches", branch_percent(totals))):
        if percent < TOTAL_PERCENT_MIN:
            yield f"{what}: {percent:.1f} % of the product have run, at least {TOTAL_PERCENT_MIN:.0f} % must"
    files = report["files"]
    for name in POLICY:
        if name not in files:
            yield f"{name}: not measured; a policy file that moved is renamed in tests/coverage_gate.py"
            continue
        missing_lines, missing_branches = files[name]["missing_lines"], files[name]["missing_branches"]
        if missing_lines or missing_branches:
            lines = ", ".join(map(str, missing_lines)) or "none"
            branches = ", ".join(f"{start}->{end if end > 0 else 'exit'}" for start, end in missing_branches) or "none"
            yield f"{name}: policy must be covered to the last branch; lines not run: {lines}; branches: {branches}"


def branch_percent(totals: Mapping[str, Any]) -> float:
    """Share of the branches taken; 100 where there are none."""
    count = int(totals["num_branches"])
    return 100.0 * int(totals["covered_branches"]) / count if count else 100.0


def read_report() -> dict[str, Any]:
    """The combined data of the last run. Raises CoverageException where there is none."""
    measured = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"), data_suffix=False)
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(written), omit=[UNMEASURED])
        report: dict[str, Any] = json.loads(written.read_text())
    return report


def main() -> int:
    """0 if every rule holds, 1 if one is broken, 2 without data."""
    try:
        report = read_report()
    except CoverageException as error:
        sys.stderr.write(f"coverage: {error}\n")
        return 2
    broken = list(failures(report))
    for line in broken:
        sys.stderr.write(f"coverage: {line}\n")
    if broken:
        return 1
    share, branches = report["totals"]["percent_covered"], branch_percent(report["totals"])
    sys.stdout.write(f"coverage: {share:.1f} % of lines and branches, {branches:.1f} % of branches; policy complete\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
