"""What judging costs where the rows of a prefix are too many for memory: the same history in 1 to 16 slices a prefix.

    python -m benchmarks.audit_slices [--rows 10000000] [--data FOLDER] [--out FILE]

Each run is a process of its own. Prints one JSON document: processor microseconds a key by the number of slices, and
from these what slices cost at all (their rows are written and read once more) and what one more slice costs. The docs'
estimates for windows of a billion keys and more rest on both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.audit_databases import peak_mib
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from benchmarks.load.figures import report
from reconciler.audit.engines.job import judge_here
from reconciler.audit.evidence.folder import load_evidence
from reconciler.audit.evidence.plan import ROWS_AT_ONCE_MAX
from reconciler.audit.evidence.tables import READ_TABLES
from reconciler.contract.history_row import PREFIXES

SLICES = (1, 2, 4, 8, 16)


def judge(folder: Path, rows_at_once_max: int) -> dict[str, Any]:
    """Judges in this process."""
    seconds, cpu = time.perf_counter(), time.process_time()
    judged = judge_here(folder, rows_at_once_max=rows_at_once_max)
    if judged.no_answer is not None:
        raise SystemExit(f"no answer: {judged.no_answer}")
    return {
        "keys": sum(sum(one.classes.values()) for one in judged.subscriptions),
        "seconds": round(time.perf_counter() - seconds, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_mib": peak_mib(),
    }


def measure(folder: Path) -> dict[str, Any]:
    """One run for each number of slices."""
    of_prefixes = load_evidence(folder, findings_a_prefix=1).files.values()
    largest = max(sum(file.rows for file in files if file.table in READ_TABLES) for files in of_prefixes)
    runs = {}
    for slices in SLICES:
        command = [sys.executable, "-m", "benchmarks.audit_slices", "--judge", str(folder)]
        ran = subprocess.run([*command, str(-(-largest // slices))], stdout=subprocess.PIPE, text=True, check=True)
        runs[slices] = json.loads(ran.stdout)
        print(f"{slices:>2} slices {runs[slices]}", file=sys.stderr, flush=True)
    if len({one["keys"] for one in runs.values()}) != 1:
        raise SystemExit(f"keys differ: {runs}")
    one, two, most = (runs[slices]["cpu_seconds"] for slices in (1, 2, SLICES[-1]))
    keys = runs[1]["keys"]
    return {
        "rows_of_the_largest_prefix": largest,
        "rows_at_once_by_default": ROWS_AT_ONCE_MAX,
        "cpu_us_a_key_in_one": round(1e6 * one / keys, 2),
        "cpu_us_a_key_for_slices": round(1e6 * (two - one) / keys, 2),
        "cpu_ms_a_slice": round(1e3 * (most - two) / (SLICES[-1] - 2) / PREFIXES, 1),
        "runs": runs,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--data", type=Path, help="a generated history; none: one is made and removed")
    parser.add_argument("--out", type=Path, help="a file for the result")
    parser.add_argument("--judge", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        print(json.dumps(judge(Path(options.judge[0]), int(options.judge[1]))))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.data or Path(temporary) / "generated"
        if options.data is None:
            generate(Plan(rows=options.rows, seed=options.rows % 9_973), folder, workers=2)
        return report("slices of an audit", measure(folder), [], options.out)


if __name__ == "__main__":
    sys.exit(main())
